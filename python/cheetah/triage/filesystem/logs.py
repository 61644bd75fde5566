"""Logs of file systems that lie on a device of their own: they hold no file, and belong to a file system elsewhere."""

from collections.abc import Iterable

_LOGS = ("external log of an XFS file system", "journal of an ext file system")
"""Their names, as formats are named."""


def log_in(formats: Iterable[str]) -> str | None:
    """Returns the name of the log among the formats of a volume; `None` if it is none. A description of a volume is no
    list of formats: the name of a partition is in it, which may be any text."""
    return next((name for name in formats if name in _LOGS), None)
