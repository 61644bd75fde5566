"""Parsing of sizes."""

import re

_TEXT = re.compile(r"([0-9]{1,18})\s*([a-zA-Z]*)")
_SHIFTS = {"": 0, "b": 0, "k": 10, "kib": 10, "m": 20, "mib": 20, "g": 30, "gib": 30, "t": 40, "tib": 40}


def parse(text: str) -> int:
    """Returns the bytes of "64KiB" or "4 GiB"; K, M, G and T mean KiB, MiB, GiB and TiB. Raises ValueError for
    anything else."""
    match = _TEXT.fullmatch(text)
    if match is None or match[2].lower() not in _SHIFTS:
        raise ValueError(f"{text!r} is not a size")
    return int(match[1]) << _SHIFTS[match[2].lower()]
