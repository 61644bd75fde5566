"""What the harness says when it cannot go on."""


class BenchError(Exception):
    """A measurement could not be made; says what, where, and where possible what to do."""
