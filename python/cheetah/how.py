"""How sources are opened: what `open` and `share` have in common."""

import os

from cheetah._native import How

#: Memory for reading ahead, unless told otherwise; that of the command line.
PREFETCH_BYTES = 64 << 20

#: What of a source's name is not a path.
RAW = "raw:"


def how(cache: int | None, prefetch: int | None, timeout_s: float, allow_lost: bool, foresight: bool = False) -> How:
    """The same for Rust, with defaults filled in."""
    for name, size in ("cache", cache), ("prefetch", prefetch):
        if size is not None and size < 0:
            raise ValueError(f"{name} must be a number of bytes, not {size}")
    return How(
        cache=cache or 0,
        prefetch=PREFETCH_BYTES if prefetch is None else prefetch,
        foresight=foresight,
        allow_lost=allow_lost,
        timeout_s=timeout_s,
    )


def settled(source: str | os.PathLike[str]) -> str:
    """The source in words that mean the same wherever a process was started: URIs as they are, paths absolute."""
    text = os.fspath(source)
    if not isinstance(text, str):
        raise TypeError(f"a source is a path or a URI as text, not {type(text).__name__}")
    if "://" in text:
        return text
    raw = text.startswith(RAW)
    path = os.path.abspath(text.removeprefix(RAW))
    return RAW + path if raw else path
