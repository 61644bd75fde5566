"""The allocated blocks of the volumes, read once for each volume by a worker.

An allocation that cannot be determined (`allocation.Unknown`) stays unknown. One that could not be read may become
readable, so the failure is remembered only until the end of the task, which saves trying a bad sector again for each
file.
"""

import pytsk3

from cheetah.triage.filesystem import allocation, opening
from cheetah.triage.reading import salvage
from cheetah.triage.reading.reader import reason
from cheetah.triage.reading.worker import Worker

BITMAP_INODE = 6
"""The inode of NTFS's $Bitmap."""


class Unreadable(Exception):
    """The allocation could not be read: why, as the end of a sentence. `offset` and `length` are bytes in the
    image."""

    def __init__(self, offset: int, length: int, why: str):
        super().__init__(why)
        self.offset = offset
        self.length = length


class AllocationMaps:
    """The volumes' allocations, for one worker."""

    def __init__(self, worker: Worker):
        self._worker = worker
        self._known: dict[int, allocation.Allocation | allocation.Unknown] = {}
        self._failed: dict[int, Unreadable] = {}

    def begin(self) -> None:
        """Begins a task: failed reads are tried again."""
        self._failed.clear()

    def of(self, volume: int) -> allocation.Allocation:
        """Returns the allocation of a volume. Raises allocation.Unknown if it cannot be determined, Unreadable if it
        could not be read."""
        if volume in self._failed:
            raise self._failed[volume].with_traceback(None)
        if volume not in self._known:
            try:
                self._known[volume] = self._read(volume)
            except allocation.Unknown as error:
                self._known[volume] = error
            except Unreadable as error:
                self._failed[volume] = error
                raise
        found = self._known[volume]
        if isinstance(found, allocation.Unknown):
            # Otherwise it would accumulate tracebacks, with all their local variables.
            raise found.with_traceback(None)
        return found

    def _read(self, volume: int) -> allocation.Allocation:
        worker = self._worker
        found = worker.volumes[volume]

        def read(offset: int, length: int) -> bytes:
            worker.beat()
            try:
                return worker.image().pread(found.start + offset, length)
            except OSError as error:
                raise Unreadable(found.start + offset, length, error.strerror or str(error)) from error

        return allocation.of(found.fs, found.length, read, lambda most: self._bitmap(volume, most))

    def _bitmap(self, volume: int, most: int) -> bytes:
        """Returns up to `most` first bytes of an NTFS's $Bitmap. After failed reads The Sleuth Kit may return zeros,
        which would mean free clusters, so failures are checked."""
        worker = self._worker
        failed: OSError | None = None
        content = b""
        worker.take_unreadable()
        try:
            content = _content(opening.file_system(worker, volume), most)
        except OSError as error:
            failed = error
        unreadable = worker.take_unreadable()
        if unreadable:
            raise Unreadable(*unreadable[-1])
        if failed is not None:
            raise allocation.Unknown(f"the file system's record of its free blocks is damaged: {reason([], failed)}")
        return content


def _content(file_system: pytsk3.FS_Info, most: int) -> bytes:
    file = file_system.open_meta(inode=BITMAP_INODE)
    size = min(int(file.info.meta.size), most)
    step = salvage.PIECE_BYTES
    return b"".join(file.read_random(place, min(step, size - place)) for place in range(0, size, step))
