"""Opens file systems for The Sleuth Kit, which sees what it would read wrongly of them corrected."""

import pytsk3

from cheetah.triage.filesystem import exfat
from cheetah.triage.reading.worker import Worker


def file_system(worker: Worker, volume: int) -> pytsk3.FS_Info:
    """Returns the file system of a volume, opened once. Raises OSError if it cannot be opened."""

    def opened() -> pytsk3.FS_Info:
        found = worker.volumes[volume]
        correct(worker, found.start, found.fs)
        kind = getattr(pytsk3, f"TSK_FS_TYPE_{found.fs.upper()}", pytsk3.TSK_FS_TYPE_DETECT)
        return pytsk3.FS_Info(worker.image(), offset=found.start, type=kind)

    return worker.kept("file systems", volume, opened)


def correct(worker: Worker, start: int, fs: str) -> None:
    """Corrects what The Sleuth Kit is to see of the file system at `start`, so that it can be opened."""
    if fs == "exfat" and (corrected := exfat.correction(worker.image().pread_noted, start)):
        worker.image().correct(corrected.offset, corrected.content)
