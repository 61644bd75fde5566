"""Lists directories as `fls -r -m /` does: the same entries, in the same order, with the same lines.

It follows tsk_fs_dir_walk and tsk_fs_fls exactly.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytsk3

from cheetah.triage.filesystem import mft_file_name
from cheetah.triage.filesystem import places as file_places
from cheetah.triage.filesystem import times as file_times
from cheetah.triage.listing import bodyfile
from cheetah.triage.listing.subtree import Deferred, SubtreeStart
from cheetah.triage.reading.image import TskImage
from cheetah.triage.reading.reader import reason
from cheetah.triage.search import name_search
from cheetah.triage.tables.schemas import LISTING
from cheetah.triage.task import Problem, Volume

TANGLES_MAX = 100
"""The maximum number of reports about directories with several names, for each volume."""
PACK_ROWS = 8192
DEPTH_MAX = 128
PATH_BYTES_MAX = 4096
"""The path length at which The Sleuth Kit stops descending."""

_ALLOC, _UNALLOC = 1, 2
_META_DIR, _META_LNK, _META_VIRT_DIR = 2, 6, 11
_DIR_METAS = (_META_DIR, _META_VIRT_DIR)
_NAME_UNDEF, _NAME_DIR, _NAME_VIRT_DIR = 0, 3, 11
_DESCEND_NAMES = (_NAME_UNDEF, _NAME_DIR, _NAME_VIRT_DIR)
_DATA, _INDEX_ROOT, _FILE_NAME = 128, 144, 48
_DOTS = (b".", b"..")
_FIRST, _LATER, _LAST = (
    (b"users", b"documents and settings", b"home", b"programdata"),
    (b"windows", b"$orphan"),
    (
        b"pagefile",
        b"hiberfil",
    ),
)
_FAT_TYPES = tuple(
    int(kind)
    for kind in (
        pytsk3.TSK_FS_TYPE_FAT12,
        pytsk3.TSK_FS_TYPE_FAT16,
        pytsk3.TSK_FS_TYPE_FAT32,
        pytsk3.TSK_FS_TYPE_EXFAT,
    )
)


class Lister:
    """Lists directories into rows until there are `entries_max` of them; then only the directories that it was given to
    list."""

    def __init__(self, image: TskImage, file_system: pytsk3.FS_Info, volume: int, entries_max: int):
        self._image = image
        self._fs = file_system
        self._volume = volume
        self._entries_max = entries_max
        self._entries = 0
        info = file_system.info
        self._root = int(info.root_inum)
        self._orphans = int(info.last_inum)
        kind = int(info.ftype)
        self._ntfs = kind == int(pytsk3.TSK_FS_TYPE_NTFS)
        self._fat = kind in _FAT_TYPES
        self._times: file_times.FileTimes = file_times.FileTimes()
        self._places = file_places.Places()
        self._rows: list[tuple[Any, ...]] = []
        self._tables: list[pa.Table] = []
        self.count = self.directories = 0
        self.once: set[int] | None = None
        """The directories seen so far, if each is to be listed only once."""
        self.names: name_search.NameSearch | None = None
        """Searches keywords in names, if there are any."""
        self._tangles = 0
        self._starts = 0
        self.left: list[Deferred] = []
        self.problems: list[Problem] = []

    def correct_times(self, start: int) -> None:
        """Prepares to correct times of the file system, which is at `start` of the image."""
        try:
            self._times = file_times.of(self._fs, self._image, start)
        except OSError as error:
            why = error.strerror or str(error)
            self._problem(b"", f"times before 1970 and after 2038 may be wrong: {why}", start, 1)

    def note_places(self, volume: Volume) -> None:
        """Prepares to note where the content of files begins. Call it after `correct_times`."""
        self._places = file_places.of(self._times, volume)

    def table(self) -> pa.Table:
        """Returns the rows."""
        self._pack()
        return pa.concat_tables(self._tables)

    def _pack(self) -> None:
        """Packs the rows into a table; as Python objects they take several times the memory."""
        columns: list[Sequence[Any]] = list(zip(*self._rows, strict=True)) if self._rows else [()] * len(LISTING)
        if self.names is not None:
            named = self.names.look(dict(zip(LISTING.names, columns, strict=True)))
            columns[LISTING.get_field_index("named")] = named
        arrays = [pa.array(column, field.type) for column, field in zip(columns, LISTING, strict=True)]
        self._tables.append(pa.table(arrays, schema=LISTING))
        self._rows = []

    def start(self, start: SubtreeStart) -> None:
        """Lists one of the task's starts, or defers it if there are enough entries."""
        if self._entries >= self._entries_max:
            self._leave(start)
        else:
            self._open_above(start)
            self.directory(start)
        self._starts += 1

    def _leave(self, start: SubtreeStart) -> None:
        self.left.append(Deferred(self._starts, self.count, start))

    def _open_above(self, start: SubtreeStart) -> None:
        """Opens the directories above on FAT, which stores no parent addresses: otherwise The Sleuth Kit searches the
        whole volume for the parent of a directory that it has not met on the way down."""
        if self._fat and not start.orphan:
            for inode in (self._root, *start.above[:-1]):
                with contextlib.suppress(OSError):
                    self._fs.open_dir(inode=inode)

    def directory(self, start: SubtreeStart) -> None:
        """Lists a directory and everything below it."""
        self.directories += 1
        try:
            directory = self._fs.open_dir(inode=start.inode)
        except OSError as error:
            self._problem(start.path, f"the directory could not be listed: {reason([], error)}")
            self._unreadable(start.path)
            return
        self._unreadable(start.path)
        for file in _by_priority(directory) if start.inode == self._root else directory:
            if len(self._rows) >= PACK_ROWS:
                self._pack()
            row = len(self._rows)
            name, meta, file = self._with_meta(file)
            self._lines(name, meta, file, start)
            self._entries += 1
            self._unreadable(start.path + (name.name or b""), row)
            below = self._below(name, meta, start)
            if below is None:
                continue
            if len(start.above) >= DEPTH_MAX or PATH_BYTES_MAX < len(below.path):
                self._problem(
                    below.path,
                    "deeper than The Sleuth Kit descends: nothing below it is listed, nor the rest of its directory",
                )
                return
            if self.once is not None:
                if self._is_new(below):
                    self.directory(below)
            elif below.orphan != start.orphan or self._entries >= self._entries_max and not below.orphan:
                self._leave(below)
            else:
                self.directory(below)

    def _is_new(self, below: SubtreeStart) -> bool:
        """Returns whether a directory is seen for the first time; otherwise reports it."""
        assert self.once is not None
        new = below.inode not in self.once
        self.once.add(below.inode)
        if not new:
            self._tangles += 1
            if self._tangles <= TANGLES_MAX:
                self._problem(
                    below.path, "the directory is already listed under another name: nothing below it is listed"
                )
        return new

    def _with_meta(self, file: pytsk3.File) -> tuple[pytsk3.TSK_FS_NAME, pytsk3.TSK_FS_META | None, pytsk3.File]:
        """Returns an entry's name and metadata. pytsk3 omits metadata whose sequence number differs from the name's,
        even if it is that of the deleted file; The Sleuth Kit's walk does not."""
        name, meta = file.info.name, file.info.meta
        address = name.meta_addr
        if meta is not None or not (address or int(name.flags) & _ALLOC):
            return name, meta, file
        try:
            alone = self._fs.open_meta(inode=address)
        except OSError:
            return name, None, file
        meta = alone.info.meta
        if self._ntfs and address != self._orphans:
            sequence = meta.seq
            if int(meta.flags) & _UNALLOC and sequence > 0:
                sequence -= 1
            if name.meta_seq != sequence:
                return name, None, file
        return name, meta, alone

    def _lines(
        self,
        name: pytsk3.TSK_FS_NAME,
        meta: pytsk3.TSK_FS_META | None,
        file: pytsk3.File,
        start: SubtreeStart,
    ) -> None:
        """Adds the lines of one entry: on NTFS one for each stream, index and name; elsewhere one."""
        text = name.name or b""
        path = start.path + text
        if not self._ntfs or meta is None:
            if text not in _DOTS:
                own = self._times_of(meta, file, path)
                # After a failed read, no other is tried for this.
                place = None if meta is None or self._image.unreadable else self._places.of_file(meta)
                self._line(name, meta, start, own_times=own, place=place)
            return
        attributes = [
            (int(info.type), info.id, info.name, info.size, self._places.of_stream(one))
            for one, info in ((one, one.info) for one in file)
        ]
        own = self._times_of(meta, file, path, [one[:2] for one in attributes])
        times: tuple[int, mft_file_name.Times] | None = None
        printed = False
        for kind, number, stream, size, place in attributes:
            if kind == _DATA:
                printed = True
                if int(meta.type) != _META_DIR or len(text) != 2 or text[:1] != b".":
                    self._line(name, meta, start, kind, number, stream, size, own, place)
            elif kind == _INDEX_ROOT:
                printed = True
                if text not in _DOTS:
                    self._line(name, meta, start, kind, number, None if stream == b"$I30" else stream, size, own)
            elif kind == _FILE_NAME and text not in _DOTS:
                if times is None:
                    times = mft_file_name.times_of(self._fs, file, [one[:2] for one in attributes])
                if number == times[0]:
                    self._line(name, meta, start, kind, number, None, size, times[1])
        if not printed:
            self._line(name, meta, start, own_times=own)

    def _times_of(
        self,
        meta: pytsk3.TSK_FS_META | None,
        file: pytsk3.File,
        path: bytes,
        attributes: Sequence[tuple[int, int]] = (),
    ) -> mft_file_name.Times:
        """Returns the times of an entry."""
        if meta is None:
            return mft_file_name.NONE
        try:
            return self._times.of(file, meta, attributes)
        except OSError as error:
            self._problem(path, f"its times may be wrong, as they could not be read: {error.strerror or error}")
            return meta.atime, meta.mtime, meta.ctime, meta.crtime

    def _line(
        self,
        name: pytsk3.TSK_FS_NAME,
        meta: pytsk3.TSK_FS_META | None,
        start: SubtreeStart,
        kind: int | None = None,
        number: int | None = None,
        stream: bytes | None = None,
        size: int | None = None,
        own_times: mft_file_name.Times = mft_file_name.NONE,
        place: int | None = None,
    ) -> None:
        """Adds one row with its line. Attribute, stream and size are the entry's unless given."""
        own = name.name or b""
        if stream is not None:
            own += b":" + stream
        own = bodyfile.sane(own)
        path = bodyfile.sane(start.path) + own
        deleted = bool(int(name.flags) & _UNALLOC)
        meta_type = bits = uid = gid = 0
        allocated = False
        shown = path + b" ($FILE_NAME)" if kind == _FILE_NAME else path
        if meta is None:
            size, own_times = 0, mft_file_name.NONE
        else:
            meta_type, bits, uid, gid = int(meta.type), int(meta.mode), meta.uid, meta.gid
            allocated = bool(int(meta.flags) & _ALLOC)
            if meta_type == _META_LNK and meta.link is not None:
                shown += b" -> " + meta.link
            if size is None:
                size = meta.size
        if deleted:
            shown += b" (deleted-realloc)" if allocated else b" (deleted)"
        inode = name.meta_addr
        address = str(inode) if kind is None else f"{inode}-{kind}-{number}"
        mode = bodyfile.mode(meta_type, bits)
        letter = bodyfile.name_letter(int(name.type))
        line = bodyfile.line(shown, address, letter, mode, uid, gid, size, own_times)
        own_text = own.decode("utf-8", "backslashreplace")
        atime, mtime, ctime, crtime = own_times
        self._rows.append((
            self._volume, address, "/" + path.decode("utf-8", "backslashreplace"), own_text, mode[0], letter, deleted,
            start.orphan, allocated, size, mtime, atime, ctime, crtime, mode, uid, gid, inode, kind, number,
            _extension(own_text) if stream is None else "", None, None, line, place,
        ))  # fmt: skip
        self.count += 1

    def _below(
        self, name: pytsk3.TSK_FS_NAME, meta: pytsk3.TSK_FS_META | None, start: SubtreeStart
    ) -> SubtreeStart | None:
        """Returns the directory of an entry, if it is one to descend into."""
        if meta is None or int(meta.type) not in _DIR_METAS or int(name.type) not in _DESCEND_NAMES:
            return None
        flags = int(name.flags)
        if not flags & _ALLOC and not (flags & _UNALLOC and int(meta.flags) & _UNALLOC):
            return None
        text, inode = name.name or b"", name.meta_addr
        if text in _DOTS or inode in start.above:
            return None
        return SubtreeStart(
            inode, start.path + text + b"/", (*start.above, inode), start.orphan or inode == self._orphans
        )

    def _problem(self, path: bytes, sentence: str, offset: int | None = None, length: int | None = None) -> None:
        shown = "/" + bodyfile.sane(path).decode("utf-8", "backslashreplace")
        self.problems.append(Problem("listing", sentence, self._volume, shown, offset, length))

    def _unreadable(self, path: bytes, row: int | None = None) -> None:
        """Reports the reads that failed since the last call, and marks the unpacked rows from `row` on as affected."""
        if not self._image.unreadable:
            return
        failed = self._image.take_unreadable()
        for offset, length, why in failed:
            self._problem(path, f"metadata could not be read: {why}", offset, length)
        if row is not None:
            place, why = LISTING.get_field_index("why"), f"its metadata could not be read: {failed[0][2]}"
            self._rows[row:] = [(*one[:place], why, *one[place + 1 :]) for one in self._rows[row:]]


def _by_priority(directory: pytsk3.Directory) -> list[pytsk3.File]:
    """Returns the root's entries in The Sleuth Kit's order: users' folders first, system folders and orphans late,
    swap files last."""
    files = list(directory)

    def rank(file: pytsk3.File) -> int:
        name = (file.info.name.name or b"").lower()
        if name.startswith(_FIRST):
            return 0
        return 2 if name.startswith(_LATER) else 3 if name.startswith(_LAST) else 1

    return sorted(files, key=rank)


def _extension(name: str) -> str:
    """Returns the part after the last dot in lower case; nothing for names that only begin with one."""
    stem, dot, extension = name.rpartition(".")
    return extension.lower() if dot and stem else ""
