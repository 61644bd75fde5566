"""The errors of the benchmarks."""


class BenchError(Exception):
    """A measurement could not be made: what, where, and if possible what to do."""


class Misuse(BenchError):
    """The command makes no sense as given: exit code 2."""


class Refused(BenchError):
    """Refused because of evidence there: exit code 3."""
