"""How sources are opened: what `open` and `share` have in common."""

import os

from cheetah._native import How

#: Memory for reading ahead over a link, unless told otherwise; that of the command line.
PREFETCH_BYTES = 64 << 20

#: How a source is called that is on this machine, where whoever serves it reads ahead, or has no need to.
ON_THIS_MACHINE = "nbd+unix://"

#: What of a source's name is not a path.
RAW = "raw:"


def how(
    source: str,
    *,
    cache: int | str | None,
    prefetch: int | None,
    timeout_s: float,
    allow_lost: bool,
    foresight: bool = False,
) -> How:
    """The same for Rust, with defaults filled in."""
    if prefetch is None:
        prefetch = 0 if source.startswith(ON_THIS_MACHINE) else PREFETCH_BYTES
    for name, size in ("cache", cache), ("prefetch", prefetch):
        if isinstance(size, int) and size < 0:
            raise ValueError(f"{name} must be a number of bytes, not {size}")
    if isinstance(cache, int):
        cache = f"memory:{cache}" if cache else None
    return How(cache=cache, prefetch=prefetch, foresight=foresight, allow_lost=allow_lost, timeout_s=timeout_s)


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
