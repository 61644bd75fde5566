"""What the harness says when it cannot go on."""


class BenchError(Exception):
    """A measurement could not be made; says what, where, and where possible what to do."""


class Misuse(BenchError):
    """The command makes no sense as given: exit code 2."""


class Refused(BenchError):
    """It was not done because of evidence there: exit code 3."""
