"""Why something cannot be opened."""


class Error(OSError):
    """A source cannot be opened, shared or closed. Its text is one sentence: what, where, and what to do.

    `exit_code` is the one the command line has for it: 1 failed, 2 misused, 3 a problem with the evidence.
    """

    def __init__(self, sentence: str, exit_code: int = 1):
        super().__init__(sentence)
        self.exit_code = exit_code
