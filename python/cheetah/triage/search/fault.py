"""Why a list cannot be used, as a fact: the kind, the file and the line."""

import enum


class Kind(enum.StrEnum):
    """What is wrong with a list."""

    NO_HASH = "no_hash"
    """A line, a row or a record has no hash in its place."""
    OTHER_LENGTH = "other_length"
    """A hash has another length than the others of the list, or than the column's name says."""
    LONG_LINE = "long_line"
    """A line is longer than any list has."""
    EMPTY = "empty"
    """The list has no hash at all."""
    ENCODING = "encoding"
    """The text is not in the encoding that its byte order mark says."""
    UNCLEAR = "unclear"
    """Records may be of several lengths."""
    UNSORTED = "unsorted"
    """It is neither text nor sorted records."""
    OTHER_HEADER = "other_header"
    """The header is nearly that of a known format."""
    CUT = "cut"
    """The last record is not whole."""
    DAMAGED = "damaged"
    """A database cannot be read as one."""
    UNFINISHED = "unfinished"
    """Changes to a database lie in a file beside it."""
    NO_TABLE = "no_table"
    """A database has no table of hashes that is known."""
    TOO_LARGE = "too_large"
    """A database yields more rows, or takes more work, than its size explains."""


class ListFault(ValueError):
    """A list cannot be used."""

    def __init__(self, kind: Kind, path: str, sentence: str, line: int | None = None, unit: str = "line"):
        """`line` counts from 1; `unit` says what it counts."""
        super().__init__(f"{path}: {sentence}" if line is None else f"{path}, {unit} {line}: {sentence}")
        self.kind = kind
        self.path = path
        self.line = line
        self._sentence = sentence
        self._unit = unit

    def __reduce__(self) -> tuple[type["ListFault"], tuple[Kind, str, str, int | None, str]]:
        """Workers send it to the hub."""
        return ListFault, (self.kind, self.path, self._sentence, self.line, self._unit)
