"""A preview of the names in an NTFS volume before it can be listed.

The Sleuth Kit reads the whole MFT before it returns the first name, which takes seconds over a link. Until then an
idle worker reads the MFT as well, from its beginning, and searches the names in its records for keywords. Nothing is
transferred twice: workers share a cache.

Previews are shown, not stored; the listing finds the same names later. Errors are therefore ignored.
"""

import dataclasses
from collections.abc import Callable, Iterator

from cheetah.triage.filesystem import mft_record
from cheetah.triage.listing import bodyfile
from cheetah.triage.reading.worker import Worker
from cheetah.triage.search import name_search, scan
from cheetah.triage.task import Finding, Result, Task, Volume

FIRST_BYTES = 2 << 20
"""The bytes that the first task reads; each further task reads twice as many."""
TASK_BYTES_MAX = 16 << 20
MFT_BYTES_MAX = 256 << 20
PIECE_BYTES = 1 << 20
"""Read and searched at once; a task ends with the first piece that has findings."""
FINDINGS_MAX = 100
_RECORD_BYTES_MAX = 64 << 10
_DEPTH_MAX = 64
_ROOT = 5

Pread = Callable[[int, int], bytes]


def first_task(volume: int) -> Task:
    """Returns the first preview task of a volume. Its `what` is an offset in the MFT and a length."""
    return Task("preview", volume, (0, FIRST_BYTES))


@dataclasses.dataclass(frozen=True)
class Mft:
    """The location of a volume's MFT. `runs` are pairs of an offset in the source and a length, in bytes."""

    pread: Pread
    runs: tuple[tuple[int, int], ...]
    record_bytes: int
    size: int
    """The bytes of it that can be located."""

    def read(self, offset: int, length: int) -> bytes:
        """Returns bytes of the MFT, fewer at its end. Raises OSError if the source cannot be read."""
        content = bytearray()
        for start, there in self.runs:
            count = min(length - len(content), there - offset)
            if count > 0:
                piece = self.pread(start + offset, count)
                content += piece
                if len(piece) < count:
                    break
            offset = max(0, offset - there)
        return bytes(content)

    def record(self, number: int) -> mft_record.Record | None:
        """Returns the record with a number, if there is one."""
        return mft_record.parse(self.read(number * self.record_bytes, self.record_bytes))


def find(pread: Pread, volume: Volume) -> Mft | None:
    """Locates the MFT by the boot sector and its own first record; returns None if these are invalid. Raises OSError
    if they cannot be read."""
    boot = pread(volume.start, mft_record.SECTOR_BYTES)
    cluster = mft_record.cluster_bytes(boot)
    if len(boot) < mft_record.SECTOR_BYTES or not mft_record.SECTOR_BYTES // 2 <= cluster <= 2 << 20:
        return None
    first = int.from_bytes(boot[48:56], "little") * cluster
    size = mft_record.record_bytes(boot)
    if (
        not mft_record.SECTOR_BYTES // 2 <= size <= _RECORD_BYTES_MAX
        or PIECE_BYTES % size
        or first + size > volume.length
    ):
        return None
    raw = pread(volume.start + first, size)
    if not mft_record.is_record(raw):
        return None
    for one in mft_record.attributes(mft_record.fixed_up(raw)):
        if one.kind == mft_record.DATA and not one.resident and not one.name:
            runs = tuple(_inside(one.runs(), cluster, volume))
            return Mft(pread, runs, size, min(one.size(), sum(length for _, length in runs)))
    return None


def _inside(runs: list[tuple[int, int]], cluster: int, volume: Volume) -> Iterator[tuple[int, int]]:
    """Yields runs in bytes of the source, up to the first outside the volume."""
    for first, count in runs:
        if (first + count) * cluster > volume.length:
            return
        yield volume.start + first * cluster, count * cluster


def look(worker: Worker, task: Task) -> Result:
    """Searches a part of the MFT; if nothing is found, returns a task for the next part."""
    result = Result()
    searching = name_search.engine(worker)
    start, length = task.what
    if searching is None:
        return result

    def pread(offset: int, length: int) -> bytes:
        worker.beat()
        return worker.source.pread(offset, length)

    try:
        mft = find(pread, worker.volumes[task.volume])
        if mft is None:
            return result
        end = min(mft.size, start + length, MFT_BYTES_MAX)
        for offset in range(start, end, PIECE_BYTES):
            piece = mft.read(offset, min(PIECE_BYTES, end - offset))
            result.findings = _found(searching, mft, piece, offset, task.volume)
            if result.findings or len(piece) < min(PIECE_BYTES, end - offset):
                return result
    except (OSError, OverflowError, scan.TooLong):
        return result
    if end == start + length:
        result.tasks = [Task("preview", task.volume, (end, min(2 * length, TASK_BYTES_MAX)))]
    return result


def _found(searching: scan.Engine, mft: Mft, piece: bytes, offset: int, volume: int) -> list[Finding]:
    """Returns the findings in the names of a piece's records. `offset` is where the piece begins."""
    size = mft.record_bytes
    places = {place // size for hit in searching.scan(piece) for place in hit.offsets}
    # The word may occur anywhere in a record; only names count.
    named = [
        (offset // size + place, one, name)
        for place in sorted(places)
        if (one := mft_record.parse(piece[place * size : (place + 1) * size])) is not None
        for name in one.names
    ]
    texts = [_sane(name.text).encode("utf-8", "replace") for _, _, name in named]
    folders = _Folders(mft, offset + len(piece))
    found: list[Finding] = []
    for which, _, keyword in sorted(name_search.find(searching, texts) if texts else ()):
        if len(found) == FINDINGS_MAX:
            break
        number, one, name = named[which]
        address = str(one.base or number)
        if one.stream is not None and not one.base:
            address = f"{number}-{one.stream.kind}-{one.stream.number}"
        what = "folder" if one.folder else "file"
        path = folders.path(name)
        found.append(name_search.finding(volume, keyword, what, address, path, not one.in_use))
    return found


class _Folders:
    """The paths of folders whose records are among the bytes of the MFT already read."""

    def __init__(self, mft: Mft, end: int):
        self._mft = mft
        self._end = end
        self._known: dict[int, mft_record.Record | None] = {}

    def path(self, name: mft_record.Name) -> str:
        """Returns the path of a name, beginning with a slash if it is complete."""
        parts = [_sane(name.text)]
        for _ in range(_DEPTH_MAX):
            if name.parent == _ROOT:
                return "/" + "/".join(reversed(parts))
            folder = self._record(name.parent)
            if folder is None or not folder.names or folder.sequence != name.parent_sequence:
                break
            name = folder.names[0]
            parts.append(_sane(name.text))
        return "/".join(reversed(parts))

    def _record(self, number: int) -> mft_record.Record | None:
        if number not in self._known:
            there = (number + 1) * self._mft.record_bytes <= self._end
            self._known[number] = self._mft.record(number) if there else None
        return self._known[number]


def _sane(name: str) -> str:
    return bodyfile.sane(name.encode("utf-8", "replace")).decode("utf-8")
