"""Logs of file systems that lie on a device of their own: they hold no file, and belong to a file system elsewhere."""

_LOGS = ("external log of an XFS file system", "journal of an ext file system")
"""Their names, as formats are named."""


def log_in(description: str) -> str | None:
    """Returns the name of the log that a volume with this description is; `None` if it is none."""
    return next((name for name in _LOGS if name in description), None)
