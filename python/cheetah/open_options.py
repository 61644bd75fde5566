"""Options for opening sources, common to `open` and `share`."""

import json
import os
from collections.abc import Iterable
from typing import Any, TypeAlias

from cheetah import path_text
from cheetah._native import OpenOptions

# Default memory for read-ahead over a link, as on the command line.
PREFETCH_BYTES = 64 << 20

# URIs of servers on this machine, which read ahead themselves or have no need to.
ON_THIS_MACHINE = "nbd+unix://"

# The prefix of a source that is to be read as raw bytes.
RAW = "raw:"

Sources: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""A source, or several."""

KeyFiles: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""A key file, or several."""

Unlocked: TypeAlias = dict[str, list[dict[str, Any]]]
"""What keys did to encrypted volumes: see `cheetah.Device`."""


Logical: TypeAlias = dict[str, list[Any]]
"""The arrays, the logical volumes and the shadow copies of a source: see `cheetah.Device`."""

Names: TypeAlias = str | Iterable[str]
"""A name, or several."""


def open_options(
    source: str,
    *,
    cache: int | str | None,
    prefetch: int | None,
    timeout_s: float,
    allow_lost: bool,
    unlock: Iterable[str] = (),
    beside: Iterable[str] = (),
    shadow_copies: Iterable[str] | None = None,
    foresight: bool = False,
) -> OpenOptions:
    """Returns the options for Rust, with defaults filled in."""
    if prefetch is None:
        prefetch = 0 if source.startswith(ON_THIS_MACHINE) else PREFETCH_BYTES
    for name, size in ("cache", cache), ("prefetch", prefetch):
        if isinstance(size, int) and size < 0:
            raise ValueError(f"{name} must be a number of bytes, not {size}")
    if isinstance(cache, int):
        cache = f"memory:{cache}" if cache else None
    if cache is not None:
        cache = path_text.typed_to_text(cache)
    return OpenOptions(
        cache=cache,
        prefetch=prefetch,
        foresight=foresight,
        allow_lost=allow_lost,
        timeout_s=timeout_s,
        unlock=list(unlock),
        beside=list(beside),
        shadow_copies=None if shadow_copies is None else list(shadow_copies),
    )


def key_files(unlock: KeyFiles) -> tuple[str, ...]:
    """Returns the absolute paths of key files."""
    paths = (unlock,) if isinstance(unlock, str | os.PathLike) else unlock
    return tuple(os.path.abspath(os.fspath(path)) for path in paths)


def several(names: Names | None) -> tuple[str, ...] | None:
    """Returns names, also if it is one."""
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)


def absolute_sources(sources: Sources) -> tuple[str, ...]:
    """Returns the names of sources as `absolute_source` does."""
    all_of_them = (sources,) if isinstance(sources, str | os.PathLike) else sources
    return tuple(map(absolute_source, all_of_them))


def absolute_source(source: str | os.PathLike[str]) -> str:
    """Returns a name that means the same in any process and in Rust: URIs unchanged, paths absolute, as text."""
    text = os.fspath(source)
    if not isinstance(text, str):
        raise TypeError(f"a source is a path or URI as text, not {type(text).__name__}")
    if "://" in text:
        return text
    raw = text.startswith(RAW)
    path = text.removeprefix(RAW)
    if isinstance(source, str):
        # Reports and logs name a path that is not UTF-8 by its text, and a user may type that.
        path = path_text.to_path(path)
    return (RAW if raw else "") + path_text.to_text(os.path.abspath(path))


def parsed_logical(logical: str) -> Logical:
    """Returns the arrays and logical volumes, the partitions in them, and the shadow copies, as Rust states them."""
    found: Logical = json.loads(logical)
    return found


def parsed(unlocked: str | None) -> Unlocked | None:
    """Returns what the keys did, as Rust states it."""
    if unlocked is None:
        return None
    found: Unlocked = json.loads(unlocked)
    return found
