"""The streams of the files of a volume, and where they lie."""

import itertools
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytsk3

from cheetah.places import ntfs_records
from cheetah.places.ntfs_records import Run
from cheetah.places.pipe import Pipe
from cheetah.triage.filesystem import distrust, exfat, mft_record
from cheetah.triage.filesystem import runs as block_runs
from cheetah.triage.filesystem.metadata import Metadata
from cheetah.triage.listing import bodyfile
from cheetah.triage.reading.reader import reason
from cheetah.triage.reading.worker import Worker
from cheetah.triage.task import Volume

RUNS_MAX = 1 << 20
"""The runs of a stream that are listed."""
_RUNS_AT_ONCE = 4096
_COLUMNS = ["path", "kind", "name_kind", "deleted", "allocated", "size", "inode", "attr_type", "attr_id"]
_OFFSET_MAX = (1 << 63) - 1
"""The largest offset in a file."""
_SYSTEM_INODES = {"ntfs": 16, "hfs": 16}
"""The number of the first record that is not one of a structure of the file system."""
_EXTEND = "/$Extend/"
_RESIDENT, _COMPRESSED = int(pytsk3.TSK_FS_ATTR_RES), int(pytsk3.TSK_FS_ATTR_COMP)
_DATA, _INDEX_ROOT, _FILE_NAME = mft_record.DATA, mft_record.INDEX_ROOT, mft_record.FILE_NAME
_CONTENT = frozenset(
    int(kind) for kind in (pytsk3.TSK_FS_ATTR_TYPE_DEFAULT, pytsk3.TSK_FS_ATTR_TYPE_HFS_DATA)
)  # fmt: skip
_RESOURCES = int(pytsk3.TSK_FS_ATTR_TYPE_HFS_RSRC)
_ATTRIBUTE_LIST = 32
_LIST_BYTES_MAX = 256 << 10
"""The bytes of an `$ATTRIBUTE_LIST` that are looked at: NTFS allows no more."""
_NTFS_NAMES = {
    32: "$ATTRIBUTE_LIST", 80: "$SECURITY_DESCRIPTOR", 160: "$INDEX_ALLOCATION", 176: "$BITMAP", 192: "$REPARSE_POINT",
    224: "$EA", 256: "$LOGGED_UTILITY_STREAM",
}  # fmt: skip
_VIRTUAL = ("v", "V")
_NOT_MAPPED = ("yaffs2",)
"""File systems whose blocks lie in the volume otherwise than by their numbers."""


class _OpenFile:
    """A file and its streams, which are only there as long as it is."""

    def __init__(self, system: pytsk3.FS_Info, inode: int):
        self.inode = inode
        self._file = system.open_meta(inode=inode)
        self.attributes: list[Any] = list(self._file)
        self._by_number = {(int(one.info.type), int(one.info.id)): one for one in reversed(self.attributes)}
        self._content = next((one for one in self.attributes if int(one.info.type) in _CONTENT), None)
        self._records: dict[tuple[int, str], int] | None = None

    def own(self, row: dict[str, Any]) -> Any:
        """Returns the stream of a row of the listing, or None."""
        kind = row["attr_type"]
        return self._content if kind is None else self._by_number.get((kind, row["attr_id"]))

    def records(self) -> dict[tuple[int, str], int]:
        """Returns the records of NTFS in which streams begin, by type and name; nothing if all do in the file's own."""
        if self._records is None:
            self._records = {}
            for one in self.attributes:
                if int(one.info.type) == _ATTRIBUTE_LIST and (size := min(int(one.info.size), _LIST_BYTES_MAX)):
                    self._records = ntfs_records.listed(
                        bytes(self._file.read_random(0, size, _ATTRIBUTE_LIST, int(one.info.id)))
                    )
        return self._records


class Files:
    """Says each stream of a volume once, with its runs; its further names are counted."""

    def __init__(
        self, worker: Worker, volume: Volume, system: pytsk3.FS_Info, pipe: Pipe, problem: Callable[[str], None]
    ):
        self._worker = worker
        self._volume = volume
        self._system = system
        self._pipe = pipe
        self._problem = problem
        self._block = int(system.info.block_size)
        self._ntfs = volume.fs == "ntfs"
        self._seen: dict[tuple[int, int, int], int] = {}
        self._inodes: set[int] = set()
        self._open: _OpenFile | None = None
        self._said = 0
        self._extents: set[str] = set()
        """The paths of files of ISO 9660: each extent of a file is listed as a file."""
        self.counts_names = True
        self.left_out = 0
        """Streams with more runs than are listed."""
        if volume.fs in _NOT_MAPPED or int(system.info.block_pre_size) or int(system.info.block_post_size):
            raise OSError(0, "its blocks do not follow each other on the disk, so no file is named")
        self._base = volume.start + _embedded(self._bytes, volume.fs)
        size = int(system.info.block_count) * self._block
        self._end = min(max(volume.start + volume.length, self._base + size), worker.source.size)
        self._metadata = Metadata(worker.image(), volume.start)
        self._records = self._read_records() if self._ntfs else None

    def _bytes(self, offset: int, length: int) -> bytes:
        """Returns bytes of the volume."""
        return self._worker.image().pread_noted(self._volume.start + offset, length)

    def _read_records(self) -> ntfs_records.Records | None:
        for attribute in self._system.open_meta(inode=0):
            if int(attribute.info.type) == _DATA and not attribute.info.name:
                runs = [(at, place - self._volume.start, length) for at, place, length in self._runs(attribute)]
                return ntfs_records.Records(self._metadata.bytes_at, runs)
        return None

    def rows(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """Returns the rows of a listing that may have streams."""
        return list(batch.select(_COLUMNS).to_pylist())

    def places(self, row: dict[str, Any]) -> list[Run]:
        """Returns where the content of a row of a listing lies as it is read, as far as that is known. Raises OSError if its metadata
        cannot be read."""
        if self._volume.fs == "iso9660":
            # A further extent of a file has the same path.
            return []
        self._open = None
        self._open = _OpenFile(self._system, row["inode"])
        own = self._open.own(row)
        if own is None or int(own.info.flags) & _COMPRESSED:
            return []
        size = int(own.info.size)
        stored = self._stored(row, own, size)
        if int(own.info.flags) & _RESIDENT:
            return list(self._resident(stored))
        valid = min(self._valid(row, stored, size), size)
        runs = itertools.islice(self._runs(own), RUNS_MAX)
        return [(at, place, min(length, valid - at)) for at, place, length in runs if at < valid]

    def say(self, row: dict[str, Any]) -> None:
        """Says the stream of a row of a listing, if it has one."""
        kind, number, inode = row["attr_type"], row["attr_id"], row["inode"]
        # The metadata of a deleted name that are in use are another file's.
        if kind == _FILE_NAME or (row["deleted"] and row["allocated"]) or (self._ntfs and kind is None):
            return
        key = (inode, -1 if kind is None else kind, -1 if number is None else number)
        known = self._seen.get(key)
        if known is not None:
            if self.counts_names and known >= 0:
                self._pipe.say(name=known)
            return
        self._seen[key] = -1
        failed: OSError | None = None
        try:
            self._say_streams(row, key)
        except OSError as error:
            failed = error
        # After a failed read, The Sleuth Kit may leave streams and runs out, and say nothing.
        unreadable = self._worker.take_unreadable()
        if unreadable:
            self._problem(f"{row['path']}: its runs could not be read: {reason(unreadable, failed)}")
        elif failed is not None and self._is_whole(row):
            self._problem(f"{row['path']}: its record is damaged: {reason([], failed)}")

    def _say_streams(self, row: dict[str, Any], key: tuple[int, int, int]) -> None:
        inode = row["inode"]
        is_new = inode not in self._inodes
        self._inodes.add(inode)
        # The rows of a file follow each other, and it may have thousands of streams.
        if self._open is None or self._open.inode != inode:
            self._open = None
            self._open = _OpenFile(self._system, inode)
        own = self._open.own(row)
        if own is None and row["kind"] == "r" and row["size"] and self._is_whole(row):
            self._problem(f"{row['path']}: its record does not say where its content lies")
        for attribute in self._open.attributes if is_new else [own]:
            if attribute is None:
                continue
            if attribute is own:
                self._seen[key] = self._say(row, row["path"], attribute, is_content=True)
            elif not int(attribute.info.flags) & _RESIDENT and not self._is_listed(attribute):
                self._say(row, self._path_beside(row, own, attribute), attribute, is_content=False)

    def _is_whole(self, row: dict[str, Any]) -> bool:
        """Returns whether a row is of a file that exists: of others, the record may be damaged."""
        return bool(row["allocated"] and not row["deleted"])

    def _is_listed(self, attribute: Any) -> bool:
        """Returns whether a stream has a row of its own in the listing."""
        kind = int(attribute.info.type)
        return kind in (_DATA, _INDEX_ROOT) if self._ntfs else kind in _CONTENT

    def _path_beside(self, row: dict[str, Any], own: Any, attribute: Any) -> str:
        """Returns the path of a stream that the listing does not have, beside that of a row."""
        path: str = row["path"]
        kind = int(attribute.info.type)
        if not self._ntfs:
            return path + ("/..namedfork/rsrc" if kind == _RESOURCES else "")
        if own is not None:
            path = path.removesuffix(_stream_name(own))
        # As Windows names it: the file, the stream, and its type.
        return f"{path}{_stream_name(attribute)}:{_NTFS_NAMES.get(kind, f'attribute {kind}')}"

    def _say(self, row: dict[str, Any], path: str, attribute: Any, is_content: bool) -> int:
        """Says a stream, and returns its number."""
        flags, size = int(attribute.info.flags), int(attribute.info.size)
        is_resident = bool(flags & _RESIDENT)
        valid = size
        runs: Iterator[Run] = iter(())
        stored = self._stored(row, attribute, size)
        if is_resident:
            runs = self._resident(stored)
            if self._ntfs and stored is None and size and self._is_whole(row):
                self._problem(f"{path}: it is not known where in its record its content lies")
        else:
            valid = self._valid(row, stored, size) if is_content else size
            runs = self._runs(attribute)
        is_metadata = not is_content and int(attribute.info.type) != _RESOURCES
        self._pipe.say(
            file={
                "path": path,
                "deleted": not row["allocated"],
                "metadata": is_metadata or self._is_metadata(row),
                "resident": is_resident,
                "mapped": not flags & _COMPRESSED
                and (is_content or self._ntfs or not is_metadata)
                and not self._is_later_extent(row),
                "valid": max(0, min(valid, size)),
            }
        )
        self._say_runs(runs)
        self._said += 1
        return self._said - 1

    def _is_later_extent(self, row: dict[str, Any]) -> bool:
        """Returns whether a row may be a further extent of a file of ISO 9660, which begins at an offset that is not known."""
        if self._volume.fs != "iso9660" or row["kind"] != "r":
            return False
        is_known = row["path"] in self._extents
        self._extents.add(row["path"])
        return is_known

    def _say_runs(self, runs: Iterator[Run]) -> None:
        some: list[Run] = []
        for number, run in enumerate(runs):
            if number == RUNS_MAX:
                self.left_out += 1
                break
            some.append(run)
            if len(some) == _RUNS_AT_ONCE:
                self._pipe.say(runs=some)
                some = []
        if some:
            self._pipe.say(runs=some)

    def _is_metadata(self, row: dict[str, Any]) -> bool:
        """Returns whether a file is a structure of the file system: a folder, or one of its own files."""
        is_system = row["inode"] < _SYSTEM_INODES.get(self._volume.fs, 0)
        is_system |= self._ntfs and row["path"].startswith(_EXTEND)
        # The Sleuth Kit's names of the bitmap and the table of exFAT may also be a user's.
        is_system |= (
            self._volume.fs == "exfat" and row["path"].startswith("/$") and not self._is_exfat_file(row["inode"])
        )
        return is_system or row["kind"] == "d" or row["kind"] in _VIRTUAL or row["name_kind"] in _VIRTUAL

    def _is_exfat_file(self, inode: int) -> bool:
        """Returns whether the entry of a folder of exFAT is a file's."""
        layout = exfat.Layout.of(self._metadata.bytes_at(0, mft_record.SECTOR_BYTES))
        at = None if layout is None else layout.entry(inode)
        entry = b"" if at is None else self._metadata.bytes_at(at, exfat.ENTRY_BYTES)
        return bool(entry) and exfat.is_file(entry)

    def _stored(self, row: dict[str, Any], attribute: Any, size: int) -> tuple[int, bytes, mft_record.Attribute] | None:
        """Returns where the record of an NTFS stream lies in the volume, its bytes and the attribute; None if it is not known."""
        if self._records is None or self._open is None:
            return None
        kind, number = int(attribute.info.type), row["inode"]
        called: str | int = int(attribute.info.id)
        if records := self._open.records():
            called = (attribute.info.name or b"").decode("utf-8", "replace")
            number = records.get((kind, called))
        if number is None or (found := self._records.record(number)) is None:
            return None
        place, raw = found
        if number != row["inode"] and mft_record.base(raw) != row["inode"]:
            return None
        one = ntfs_records.attribute(raw, kind, called, size)
        return None if one is None else (place, raw, one)

    def _resident(self, stored: tuple[int, bytes, mft_record.Attribute] | None) -> Iterator[Run]:
        """Returns the runs of resident content. That of other file systems, in inodes, has none."""
        if stored is None or not stored[2].resident:
            return iter(())
        return ((at, self._volume.start + place, length) for at, place, length in ntfs_records.resident_runs(*stored))

    def _valid(self, row: dict[str, Any], stored: tuple[int, bytes, mft_record.Attribute] | None, size: int) -> int:
        """Returns the number of the first bytes of a stream that are its own: what is behind them reads as zeros."""
        if stored is not None and not stored[2].resident:
            return stored[2].initialised_bytes()
        found: int | None = size
        if self._ntfs and stored is None:
            found = None
        elif self._volume.fs == "exfat" and size and row["kind"] == "r":
            found = distrust.valid_length(self._worker, self._volume.index, row["inode"], size)
        if found is None and size and self._is_whole(row):
            self._problem(f"{row['path']}: it is not known how much of its clusters was written")
        return size if found is None else found

    def _runs(self, attribute: Any) -> Iterator[Run]:
        """Yields the stored runs of a stream within the volume, with offsets in the source, in the order of the stream."""
        for run in block_runs.of(attribute):
            if run.is_hole:
                continue
            at, place = run.at * self._block, self._base + run.block * self._block
            length = min(run.blocks * self._block, self._end - place)
            # The other program ends the listing at a number that it cannot hold.
            if length > 0 and at + length <= _OFFSET_MAX:
                yield at, place, length


def _stream_name(attribute: Any) -> str:
    """Returns the name of a stream behind that of its file; nothing for one without, and for the index of a folder."""
    name = attribute.info.name
    if not name or name == b"$I30":
        return ""
    return ":" + bodyfile.sane(name).decode("utf-8", "backslashreplace")


def _embedded(read: Callable[[int, int], bytes], fs: str) -> int:
    """Returns the offset in the volume of an HFS+ in a wrapper of HFS; 0 for every other file system."""
    if fs != "hfs":
        return 0
    block = read(1024, 162)
    if len(block) < 162 or block[:2] != b"BD" or block[124:126] not in (b"H+", b"HX"):
        return 0
    (allocation_bytes,) = struct.unpack_from(">I", block, 20)
    (first_sector,) = struct.unpack_from(">H", block, 28)
    (first_block,) = struct.unpack_from(">H", block, 126)
    return int(first_sector * mft_record.SECTOR_BYTES + first_block * allocation_bytes)
