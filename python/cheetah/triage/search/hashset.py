"""Hash lists: known files to set aside, and wanted files.

A list is searched as sorted records of 16, 20 or 32 bytes (MD5, SHA-1, SHA-256), mapped into memory: opening tens of
millions takes one pass, and a look-up a few page faults. Other lists are converted once, into a cache: `hashtext`
parses text, `databases` those of the NSRL, and `encase` sets of EnCase.
`docs/reference/hash-lists.md` describes the formats.
"""

import collections.abc
import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
import typing

import numpy as np
import numpy.typing as npt

from cheetah.triage.search import databases, encase, hashtext, list_text
from cheetah.triage.search.fault import Kind, ListFault

ALGORITHMS = {16: "md5", 20: "sha1", 32: "sha256"}
# The bytes that decide between text and records.
_LOOK_BYTES = 4096
# Bytes checked, converted or sorted at once.
_PIECE_BYTES = 32 << 20
# Fewer records may be sorted by chance at several widths.
_SURE_BYTES = 1024
_DIGEST_PIECE_BYTES = 1 << 20
# The share of a conversion that reading the text takes; the rest is sorting.
_READING_PART = 0.8
_VERSION = 2

Progress = hashtext.Progress
Read = collections.abc.Callable[[str, Progress], collections.abc.Iterator[hashtext.Hashes]]


@dataclasses.dataclass(frozen=True)
class HashList:
    """A list that can be searched. `records` is a file of sorted records; the object pickles, and maps the file when
    first used."""

    name: str
    algorithm: str
    records: str
    count: int

    def contains(self, digests: collections.abc.Sequence[bytes | None]) -> list[bool]:
        """Returns for each digest (of this list's algorithm, or None) whether it is in the list."""
        width = _width(self.algorithm)
        searched = [place for place, digest in enumerate(digests) if digest is not None]
        answer = [False] * len(digests)
        if not searched or not self.count:
            return answer
        records = _mapped(self.records, width)
        needles = np.frombuffer(b"".join(digests[place] or b"" for place in searched), dtype=f"S{width}")
        places = np.minimum(np.searchsorted(records, needles), len(records) - 1)
        for place, found in zip(searched, (records[places] == needles).tolist(), strict=True):
            answer[place] = found
        return answer


def open_lists(
    paths: collections.abc.Iterable[str], progress: Progress | None = None, cache: str | None = None
) -> list[HashList]:
    """Opens lists, converting those that need it and are not in the cache. Raises ListFault that names the file and
    line at fault. `progress` receives bytes done and total bytes, one list after the other."""
    return [_open(path, progress or (lambda done, total: None), cache or cache_dir()) for path in paths]


def algorithms(lists: collections.abc.Iterable[HashList]) -> set[str]:
    """Returns the hashes needed to search these lists."""
    return {one.algorithm for one in lists}


def cache_dir() -> str:
    """Returns where converted lists are cached: `$XDG_CACHE_HOME/cheetah/hashes`."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "cheetah", "hashes")


def _open(path: str, progress: Progress, cache: str) -> HashList:
    """Opens a cached list if its file is unchanged (same path, size and modification time) and its records are intact:
    a truncated list would silently know fewer files."""
    status = os.stat(path)
    read = _form(path)
    key = f"{_VERSION}\0{os.path.realpath(path)}\0{status.st_size}\0{status.st_mtime_ns}"
    stem = os.path.join(cache, hashlib.sha256(os.fsencode(key)).hexdigest()[:32])
    try:
        with open(stem + ".json", encoding="utf-8") as file:
            found = json.load(file)
        records = stem + ".records" if found["converted"] else path
        if _digest(records, progress) == found["digest"]:
            return HashList(os.path.basename(path), found["algorithm"], records, found["count"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    _make_private(cache)
    if read:
        records = stem + ".records"
        algorithm, count = _convert(path, records, read, progress)
        _maps.pop(records, None)
    else:
        records = path
        algorithm, count = _checked(path, status.st_size, progress)
    entry = {
        "path": os.path.realpath(path),
        "algorithm": algorithm,
        "count": count,
        "converted": read is not None,
        "digest": _digest(records, lambda done, total: None),
    }
    # Written last, so that it never names missing records.
    _write(stem + ".json", json.dumps(entry).encode())
    return HashList(os.path.basename(path), algorithm, records, count)


def _form(path: str) -> Read | None:
    """Returns what reads the hashes of a list; None if it is used as it is, as records. Raises ListFault if hashes of a
    database could be missing."""
    with open(path, "rb") as file:
        start = file.read(_LOOK_BYTES)
    if start.startswith(databases.START):
        # Also if its records are in the cache: its own size and time say nothing of what lies beside it.
        databases.check_alone(path)
        return databases.read
    if encase.is_set(path, start):
        return encase.read
    return hashtext.read if _is_text(start) else None


def _make_private(cache: str) -> None:
    """Creates the cache directory for this user alone: its lists reveal what a case is about."""
    os.makedirs(cache, mode=0o700, exist_ok=True)
    with contextlib.suppress(PermissionError):
        os.chmod(cache, 0o700)


def _digest(path: str, progress: Progress) -> str:
    found = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        done, total = 0, os.fstat(file.fileno()).st_size
        while piece := file.read(_DIGEST_PIECE_BYTES):
            found.update(piece)
            done += len(piece)
            progress(done, max(done, total))
    return found.hexdigest()


def _is_text(start: bytes) -> bool:
    """Returns whether a list is text. Records contain bytes that no text list has."""
    found, encoding = list_text.mark(start)
    if encoding:
        text = start[len(found) :].decode(encoding, "replace")
        # The last character may be cut off.
        return all(one.isprintable() or one.isspace() for one in text[:-1])
    return not any(byte < 9 or 13 < byte < 32 for byte in start)


def _write(path: str, content: bytes) -> None:
    # Private from the moment it is created.
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), delete=False) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _replace(file.name, path)


def _replace(written: str, path: str) -> None:
    """Renames a file to its final name, durably."""
    os.replace(written, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _width(algorithm: str) -> int:
    return next(width for width, name in ALGORITHMS.items() if name == algorithm)


_maps: dict[str, npt.NDArray[np.bytes_]] = {}


def _mapped(path: str, width: int) -> npt.NDArray[np.bytes_]:
    if path not in _maps:
        _maps[path] = np.memmap(path, dtype=f"S{width}", mode="r")
    return _maps[path]


def _checked(path: str, size: int, progress: Progress) -> tuple[str, int]:
    """Checks a file of records, whose width is the one in which they are sorted."""
    fitting = [width for width in ALGORITHMS if size % width == 0 and _sorted(path, size, width, 1 << 16, progress)]
    if 16 in fitting and 32 in fitting and size >= _SURE_BYTES:
        # Every second record of a sorted list is sorted as well; halves of records are not.
        fitting.remove(32)
    if len(fitting) > 1:
        raise ListFault(
            Kind.UNCLEAR,
            path,
            f"it is not clear whether these are {' or '.join(ALGORITHMS[one] for one in fitting)} "
            "records. Give such a short list as text, one hash a line.",
        )
    if not fitting or not _sorted(path, size, fitting[0], size, progress):
        raise ListFault(
            Kind.UNSORTED,
            path,
            "this is no text, and no sorted file of records of 16, 20 or 32 bytes either. Sort it, or "
            "give the hashes as text, one a line.",
        )
    return ALGORITHMS[fitting[0]], size // fitting[0]


def _sorted(path: str, size: int, width: int, upto: int, progress: Progress) -> bool:
    """Returns whether the first `upto` bytes are ascending records of this width."""
    last = b""
    with open(path, "rb") as file:
        done = 0
        while done < min(size, upto):
            piece = file.read(_PIECE_BYTES // width * width)
            if not piece:
                break
            records = np.frombuffer(piece[: len(piece) // width * width], dtype=f"S{width}")
            if bytes(records[0]).ljust(width, b"\0") < last or not bool(np.all(records[:-1] <= records[1:])):
                return False
            last = bytes(records[-1]).ljust(width, b"\0")
            done += len(piece)
            progress(min(done, size), size)
    return True


def _convert(path: str, records: str, read: Read, progress: Progress) -> tuple[str, int]:
    """Converts a list into sorted, unique records. Hashes are divided among 256 files by their first byte, and each
    file is sorted, so that only a 256th of the list is in memory at a time."""

    def reading(done: int, total: int) -> None:
        progress(int(done * _READING_PART), total)

    def sorting(part: float) -> None:
        total = os.path.getsize(path)
        progress(int(total * (_READING_PART + (1 - _READING_PART) * part)), total)

    with tempfile.TemporaryDirectory(dir=os.path.dirname(records)) as scratch:
        spread: _Spread | None = None
        for hashes in read(path, reading):
            spread = spread or _Spread(scratch, hashes.shape[1])
            spread.add(hashes)
        if spread is None:
            raise ListFault(Kind.EMPTY, path, "there is no hash in this list.")
        whole = os.path.join(scratch, "records")
        count = spread.sort_into(whole, sorting)
        _replace(whole, records)
    return ALGORITHMS[spread.width], count


class _Spread:
    """Hashes in 256 files, by their first byte."""

    def __init__(self, scratch: str, width: int):
        self.width = width
        self._paths = [os.path.join(scratch, f"{first:02x}") for first in range(256)]
        self._waiting: list[npt.NDArray[np.uint8]] = []
        self._waiting_bytes = 0

    def add(self, hashes: npt.NDArray[np.uint8]) -> None:
        """Adds hashes, one per row."""
        self._waiting.append(hashes)
        self._waiting_bytes += hashes.nbytes
        if self._waiting_bytes > 2 * _PIECE_BYTES:
            self._write()

    def _write(self) -> None:
        hashes = np.concatenate(self._waiting) if self._waiting else np.empty((0, self.width), np.uint8)
        self._waiting, self._waiting_bytes = [], 0
        order = np.argsort(hashes[:, 0], kind="stable")
        hashes = hashes[order]
        ends = np.searchsorted(hashes[:, 0], np.arange(256), side="right").tolist()
        start = 0
        for path, end in zip(self._paths, ends, strict=True):
            if end > start:
                with open(path, "ab") as file:
                    file.write(hashes[start:end].data)
            start = end

    def sort_into(self, target: str, sorting: collections.abc.Callable[[float], None]) -> int:
        """Writes all hashes, sorted and unique; returns their number. `sorting` receives the share done."""
        self._write()
        count = 0
        with open(target, "wb", opener=_for_owner) as file:
            for number, path in enumerate(self._paths, 1):
                sorting(number / len(self._paths))
                if not os.path.exists(path):
                    continue
                hashes = _unique(np.fromfile(path, dtype=np.uint8).reshape(-1, self.width))
                os.remove(path)
                file.write(typing.cast(typing.Any, hashes.data))
                count += len(hashes)
            file.flush()
            os.fsync(file.fileno())
        return count


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _unique(hashes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Returns hashes sorted and unique. The first eight bytes sort fast as a number; among equals all bytes decide."""
    keys = np.ascontiguousarray(hashes[:, :8]).view(">u8").ravel().astype(np.uint64)
    order = np.argsort(keys)
    hashes, keys = hashes[order], keys[order]
    if np.any(keys[:-1] == keys[1:]):
        width = hashes.shape[1]
        whole = np.unique(np.ascontiguousarray(hashes).view(f"S{width}").ravel())
        return np.ascontiguousarray(whole).view(np.uint8).reshape(-1, width)
    return np.ascontiguousarray(hashes)
