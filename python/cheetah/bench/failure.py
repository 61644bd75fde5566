"""The errors of the benchmarks."""


class BenchError(Exception):
    """A measurement could not be made: the failure, the place, and if possible the next step."""


class Misuse(BenchError):
    """The command makes no sense as given: exit code 2."""


class Refused(BenchError):
    """Refused because of evidence there: exit code 3."""
