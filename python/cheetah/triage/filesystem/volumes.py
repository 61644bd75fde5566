"""Partitions and their file systems. Unrecognised ones are reported, never omitted.

`cheetah._native` reads the partition tables and names formats, as for `cheetah mount`; The Sleuth Kit opens the file
systems. If it does not open one that is there, its reason is a problem of the result, and a gap in it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytsk3

from cheetah import _native
from cheetah.triage.filesystem import exfat, opening
from cheetah.triage.filesystem.logs import log_in
from cheetah.triage.reading.reader import reason
from cheetah.triage.reading.worker import Worker
from cheetah.triage.task import Problem, Result, Task, Volume

_NAMES = {
    int(getattr(pytsk3, f"TSK_FS_TYPE_{name}")): name.lower()
    for name in (
        "NTFS", "FAT12", "FAT16", "FAT32", "EXFAT", "EXT2", "EXT3", "EXT4", "FFS1",
        "FFS1B", "FFS2", "HFS", "ISO9660", "YAFFS2",
    )
}  # fmt: skip
TYPES = {name: number for number, name in _NAMES.items()}
"""The Sleuth Kit's numbers for file systems, by name."""
_FAMILIES = {
    "ntfs": "NTFS", "fat": "FAT_DETECT", "exfat": "EXFAT", "ext": "EXT_DETECT", "ufs": "FFS_DETECT",
    "hfs": "HFS", "iso9660": "ISO9660",
}  # fmt: skip
_WHOLE = "the whole source"
_UNLOCKED = "unlocked"
"""The end of the name of the content of an opened volume."""
_UNKNOWN: tuple[Any, ...] = ((), (), (), None, ())
"""What a task says of opened, locked and logical volumes, of the size of the source and of shadow copies if it says nothing."""


@dataclasses.dataclass(frozen=True)
class Extent:
    """The place of a partition in bytes, and its description in the table. `length` is that of the table."""

    start: int
    length: int
    description: str
    sector_size: int
    partitioned: bool = True
    logical: bool = False
    """Whether it is an array or a logical volume, which may lie behind the end of the source."""


@dataclasses.dataclass
class Opened:
    """The file systems in an extent, mostly one, and what is known of it otherwise."""

    systems: list[pytsk3.FS_Info] = dataclasses.field(default_factory=list)
    formats: list[str] = dataclasses.field(default_factory=list)
    """The names of the formats whose signatures are there."""
    refusals: list[str] = dataclasses.field(default_factory=list)
    """Why The Sleuth Kit does not open a format that it knows, a sentence each."""


def task(
    sector_size: int | None = None,
    opened: Sequence[Mapping[str, Any]] = (),
    locked: Sequence[str] = (),
    logical: Mapping[str, Sequence[Any]] | None = None,
    size: int | None = None,
) -> Task:
    """Returns the task that finds the volumes of a source with sectors of `sector_size` bytes, if that is known. `opened`
    are encrypted volumes that are read decrypted, as in `cheetah.Device.unlocked`; `locked` says what no key opened. `logical` are
    the arrays, logical volumes, partitions in them and shadow copies, as in `cheetah.Device.logical`, of a source of `size` bytes."""
    has_logical = logical is not None and any(logical.values())
    copies = _copies([] if logical is None else logical.get("shadow_copies", []))
    if not opened and not locked and not has_logical:
        return Task("volumes", -1, (sector_size or 0,))
    inner = {_holder(one): one for one in opened}
    places = tuple(_innermost(one, inner) for one in opened if "inside" not in one)
    volumes = [] if logical is None else logical["volumes"]
    groups = [_listed(one, inner) for one in volumes]
    # In another source, whose partitions are not listed themselves.
    known = {one["label"] for one in volumes}
    for holder, one in inner.items():
        if "inside" in one and holder not in known and not holder.endswith(_UNLOCKED):
            groups.append((*_innermost(one, inner, holder), False))
    if not has_logical and not groups:
        return Task("volumes", -1, (sector_size or 0, places, tuple(locked)))
    said = (*locked, *(() if logical is None else logical["not_opened"]))
    what = (sector_size or 0, places, said, tuple(groups), size)
    return Task("volumes", -1, (*what, copies) if copies else what)


def _copies(listed: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns a sentence about each shadow copy whose files are not listed."""
    sentences = []
    for one in listed:
        if not one["is_shown"]:
            defect = one.get("why_not")
            why = f"it cannot be read: {defect}" if defect else f"--shadow-copy {one['label']} does that"
            sentences.append(f"{one['label']} is a {one['description']}, whose files are not listed; {why}")
    return tuple(sentences)


def _holder(opened: Mapping[str, Any]) -> str:
    """Returns the name of the volume that an opened volume is encrypted in; none for the whole source."""
    partition = f"p{opened['partition']}" if "partition" in opened else ""
    return ".".join(filter(None, (opened.get("inside", ""), partition)))


def _innermost(one: Mapping[str, Any], inner: Mapping[str, Mapping[str, Any]], what: str = "") -> tuple[int, int, str]:
    """Returns the place and the description of the content of an opened volume; of another one that is encrypted in it, that
    one's. `what` describes the volume that holds it."""
    described = [what] if what else []
    while True:
        described.append(f"{one['format']}, opened with {one['protector']}")
        found = inner.get(".".join(filter(None, (_holder(one), _UNLOCKED))))
        if found is None:
            return one["offset"], one["size_bytes"], ", ".join(described)
        one = found


def _listed(volume: Mapping[str, Any], inner: Mapping[str, Mapping[str, Any]]) -> tuple[int, int, str, bool]:
    """Returns the place and the description of an array or a logical volume, or of what was opened in it, and whether another
    volume is read from it."""
    if volume["label"] in inner:
        return (*_innermost(inner[volume["label"]], inner, volume["description"]), False)
    return volume["offset"], volume["size_bytes"], volume["description"], volume.get("is_used", False)


def find(worker: Worker, what: Task) -> Result:
    """Finds all partitions and their file systems; without a partition table, or if no partition holds one, the source
    as a whole."""
    known = what.what[1:]
    opened, locked, logical, size, copies = known + _UNKNOWN[len(known) :]
    size = worker.source.size if size is None else size
    finder = _Finder(worker, size, opened)
    finder.result.problems += [Problem("volumes", sentence, gap=True) for sentence in locked]
    finder.result.problems += [Problem("volumes", sentence) for sentence in copies]
    sector_size = what.what[0] or getattr(worker.source, "sector_size", None)
    given = worker.settings.sector_size
    tables = _native.read_partition_tables(worker.image().pread_noted, size, sector_size, given)
    finder.result.problems += [Problem("volumes", sentence, gap=gap) for sentence, gap in tables.remarks]
    places = sorted([*tables.partitions, *tables.beyond], key=lambda one: one.number)
    for place in places:
        finder.add(finder.opened_in(_extent(place)))
    for place in tables.others:
        finder.add_if_known(_extent(place))
    for start, length, description, is_used in logical:
        # A mirror whose superblock lies at its end begins where its partition does.
        if not finder.has_file_system_at(start):
            add = finder.add_if_known if is_used else finder.add
            add(Extent(start, length, description, sector_size or 512, logical=True))
    whole = finder.opened_in(Extent(0, size, _WHOLE, sector_size or 512, partitioned=False), places)
    if not any(volume.start == whole.start for volume in finder.result.volumes):
        if finder.any_file_system():
            is_divided = bool(places or tables.others)
            described = f"{_WHOLE}, which also has a partition table" if is_divided else whole.description
            finder.add_if_known(dataclasses.replace(whole, description=described))
        else:
            finder.add_whole(whole)
    return finder.result


def _extent(place: _native.Partition) -> Extent:
    return Extent(place.start, place.recorded_length, place.description, place.sector_size)


class _Finder:
    """Collects volumes, and the problems with them."""

    def __init__(self, worker: Worker, size: int, opened: Sequence[tuple[int, int, str]] = ()):
        self._worker = worker
        self._source_size = size
        self._opened = opened
        self.result = Result()

    def opened_in(self, extent: Extent, partitions: Sequence[_native.Partition] = ()) -> Extent:
        """Returns the place of the opened volume that is encrypted in an extent, or the extent itself. Those in
        `partitions` are none of the whole source."""
        for start, length, description in self._opened:
            inside = any(one.start <= start < one.start + one.length for one in partitions)
            if extent.start <= start < extent.start + extent.length and not inside:
                described = f"{extent.description}, {description}"
                # Behind its own header, The Sleuth Kit finds it only if it is told where.
                partitioned = extent.partitioned or start > 0
                return dataclasses.replace(
                    extent, start=start, length=length, description=described, partitioned=partitioned
                )
        return extent

    def has_file_system_at(self, start: int) -> bool:
        """Returns whether a volume so far holds a file system that begins there."""
        return any(volume.fs and volume.start == start for volume in self.result.volumes)

    def any_file_system(self) -> bool:
        """Returns whether any volume so far holds a file system."""
        return any(volume.fs for volume in self.result.volumes)

    def add(self, extent: Extent) -> None:
        """Adds what is in an extent, even if that is nothing known."""
        self._add(extent, self._open(extent))

    def add_if_known(self, extent: Extent) -> None:
        """Adds the file systems in an extent, if there are any."""
        opened = self._open(extent)
        if opened.systems or opened.refusals:
            self._add(extent, opened)

    def add_whole(self, extent: Extent) -> None:
        """Adds the source as a whole if it holds a file system, or if there is no partition. Otherwise the partitions
        stand for it."""
        opened = self._open(extent)
        if opened.systems:
            # Partitions without a file system are then parts of it, or remains.
            kept = {problem for problem in self.result.problems if problem.volume < 0}
            self.result = Result(problems=[one for one in self.result.problems if one in kept])
            self._add(extent, opened)
        elif opened.formats and self.result.volumes:
            sentence = f"the source as a whole has the signature of {' and of '.join(opened.formats)}"
            self.result.problems.append(Problem("volumes", sentence))
        if not self.result.volumes:
            self._add(extent, opened)

    def _add(self, extent: Extent, opened: Opened) -> None:
        for system in opened.systems or [None]:
            self._volume(extent, opened, None if system is None else system.info)
        if len(opened.systems) > 1:
            names = " and ".join(_NAMES.get(int(one.info.ftype), "another") for one in opened.systems)
            sentence = f"{self._place(extent)} hold two file systems, {names}: both are listed, one may be remains"
            self.result.problems.append(Problem("volumes", sentence, len(self.result.volumes) - 1))

    def _volume(self, extent: Extent, opened: Opened, info: pytsk3.TSK_FS_INFO | None) -> None:
        index = len(self.result.volumes)
        described = [extent.description]
        end = extent.start + extent.length
        if extent.start >= self._size(extent):
            described.append("beyond the end of the source")
        else:
            if info is not None:
                end = max(end, extent.start + int(info.block_count) * int(info.block_size))
            described += _beside(opened.formats, info)
            if end > self._size(extent):
                described.append("cut short: the source ends before it")
        self._missing(index, extent, end)
        volume = Volume(
            index,
            extent.start,
            max(0, min(extent.length, self._size(extent) - extent.start)),
            _NAMES.get(int(info.ftype), "other") if info is not None else "",
            ", ".join(described),
            extent.sector_size,
            int(info.block_size) if info is not None else 0,
            extent.partitioned,
            int(info.root_inum) if info is not None else 0,
            int(info.last_inum) if info is not None else 0,
        )
        self.result.volumes.append(volume)
        for refusal in opened.refusals:
            self.result.problems.append(Problem("volumes", f"{self._place(extent)}: {refusal}", index, gap=True))
        if info is None and not opened.refusals:
            named = f" ({volume.description})"
            place = f"bytes {volume.start} to {volume.start + volume.length}"
            log = log_in(opened.formats)
            sentence = (
                f"{place}{named} hold the {log}: no file is listed, and the file system that it belongs to lies elsewhere"
                if log
                else f"{place}{named} hold no supported file system"
            )
            self.result.problems.append(Problem("volumes", sentence, index))
        if volume.fs == "exfat" and (corrected := exfat.correction(self._worker.image().pread_noted, extent.start)):
            self.result.problems.append(Problem("volumes", corrected.sentence, index))

    def _missing(self, index: int, extent: Extent, end: int) -> None:
        """Reports the bytes that the source lacks of a volume."""
        if end > self._size(extent):
            first = max(self._size(extent), extent.start)
            sentence = (
                f"the source ends before the volume: its last {end - first} of {end - extent.start} bytes are missing"
            )
            self.result.problems.append(Problem("volumes", sentence, index, None, first, end - first))

    def _size(self, extent: Extent) -> int:
        """Returns the size of what the extent lies in."""
        return self._worker.source.size if extent.logical else self._source_size

    def _place(self, extent: Extent) -> str:
        return f"bytes {extent.start} to {min(extent.start + extent.length, self._size(extent))} ({extent.description})"

    def _open(self, extent: Extent) -> Opened:
        """Opens the file systems in an extent."""
        opened = Opened()
        length = min(extent.length, self._size(extent) - extent.start)
        if length <= 0:
            return opened
        found, unread = _native.identify(self._worker.image().pread_noted, self._size(extent), extent.start, length)
        opened.formats = [name for name, _ in found]
        opening.correct(self._worker, extent.start, "exfat" if any(family == "exfat" for _, family in found) else "")
        try:
            opened.systems = [pytsk3.FS_Info(self._worker.image(), offset=extent.start)]
        except OSError as error:
            self._ask_for_each(extent, found, reason([], error), opened)
        if unread is not None and not opened.systems:
            opened.refusals.append(f"a part that names its format could not be read: {unread}")
        return opened

    def _ask_for_each(self, extent: Extent, found: list[tuple[str, str]], refusal: str, opened: Opened) -> None:
        """Asks The Sleuth Kit for each file system whose signature is there. Left to find out by itself, it says only
        that it cannot: it keeps no reason, and refuses a volume that looks like two."""
        for name, family in found:
            if not family:
                continue
            kind = getattr(pytsk3, f"TSK_FS_TYPE_{_FAMILIES[family]}")
            try:
                opened.systems.append(pytsk3.FS_Info(self._worker.image(), offset=extent.start, type=kind))
            except OSError as error:
                opened.refusals.append(f"{name}, which The Sleuth Kit does not open: {reason([], error)}")
        if not found and "determine" not in refusal:
            opened.refusals.append(f"The Sleuth Kit failed to look for a file system: {refusal}")
        if opened.systems:
            opened.refusals.clear()


def _beside(formats: list[str], info: pytsk3.TSK_FS_INFO | None) -> list[str]:
    """Returns the formats to name beside a file system: of a volume that is not listed all, of others those that say
    that the file system is only a layer in it."""
    if info is None:
        return formats
    return [name for name in formats if name.startswith("member of") or name in ("bcache", "DRBD")]
