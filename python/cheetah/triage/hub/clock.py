"""The time of day, as results have it."""

import datetime


def now() -> str:
    """Returns the current time: UTC, RFC 3339."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
