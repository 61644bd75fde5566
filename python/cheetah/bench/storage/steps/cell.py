"""One cell of the matrix: files of one size, read or written in records of one size, in one order."""

import dataclasses
import errno
import functools
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from cheetah.bench import fio
from cheetah.bench.storage.steps.step import Base, Command, Workplace
from cheetah.bench.units import MIB, iec

STRIDE_RECORDS = 17
"""The stride of strided reads in records, as in iozone."""
DIRECT_RECORD_BYTES = 4096
WRITTEN_BYTES_MIN = 64 * MIB
"""Small files are written repeatedly up to this total: fio counts the time of writes in milliseconds."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """An access order."""

    key: str
    title: str
    rw: str
    """The form for fio; `{back}` and `{skip}` are its sizes for backward and strided access."""

    @property
    def writes(self) -> bool:
        """Whether it writes."""
        return "write" in self.rw


WRITE, REREAD, STRIDED, CACHED = "write", "reread", "strided", "cached"
OPERATIONS = (
    Operation(WRITE, "write", "write"),
    Operation("rewrite", "rewrite", "write"),
    Operation("read", "read", "read"),
    Operation(REREAD, "reread", "read"),
    Operation("random-read", "random read", "randread"),
    Operation("random-write", "random write", "randwrite"),
    Operation("backward", "backward read", "read:-{back}"),
    Operation(STRIDED, "strided read", "read:{skip}"),
    Operation(CACHED, "read from the page cache", "read"),
)


class MatrixCell(Base):
    """fio with plain reads and writes at depth 1, with direct I/O if the target supports it, but for reads from the page
    cache; cut off at the time limit, when its rate is known. Writes are flushed at the end."""

    tools = ("fio",)
    after = ()
    reads = False

    def __init__(self, operation: Operation, size_bytes: int, record_bytes: int, limit_s: float) -> None:
        self._operation = operation
        self._size_bytes = size_bytes
        self._record_bytes = record_bytes
        self._limit_s = limit_s
        self.key = f"fio/{operation.key}/{iec(size_bytes)}/{iec(record_bytes)}"
        self.title = f"{operation.title}, {iec(record_bytes)} of {iec(size_bytes)}"

    def needs(self, place: Workplace) -> Sequence[Path]:
        """Returns the file, which an earlier cell may have left; otherwise it is made."""
        return () if self._operation.key == WRITE else (self._file(place),)

    def outputs(self, place: Workplace) -> Sequence[Path]:
        """Returns a new file, if writing it is measured; a file for reading stays for the next cells."""
        return (self._file(place),) if self._operation.key == WRITE else ()

    def commands(self, place: Workplace) -> Sequence[Command]:
        """Returns one command. A reread, and a read from the page cache, reads twice, and the second time counts."""
        file = self._file(place)
        if self._operation.key != WRITE and not (file.exists() and file.stat().st_size == self._size_bytes):
            _fill(file, self._size_bytes)
        is_direct = self._operation.key != CACHED and takes_direct(place.directory)
        return (Command(self._argv(file, is_direct)),)

    def rate(self, printed: str) -> float | None:
        """Returns fio's rate."""
        return fio.rate(printed)

    def busy(self, printed: str) -> tuple[float, float] | None:
        """Returns fio's times."""
        return fio.busy(printed)

    def warnings(self, place: Workplace) -> Sequence[str]:
        """Warns if the page cache cannot be bypassed."""
        if self._operation.key == CACHED or takes_direct(place.directory):
            return ()
        if self._operation.key == REREAD:
            return ("the target does not support direct I/O: this is read from memory",)
        return ("the target does not support direct I/O: through the page cache, which was dropped before",)

    def _file(self, place: Workplace) -> Path:
        return place.directory / f"fio-{iec(self._size_bytes)}.dat"

    def _argv(self, file: Path, direct: bool) -> tuple[str, ...]:
        operation, record_bytes = self._operation, self._record_bytes
        # fio adds this to the end of the last record; going back by one record would repeat it for ever.
        rw = operation.rw.format(back=2 * record_bytes, skip=(STRIDE_RECORDS - 1) * record_bytes)
        job = [f"--name={operation.key}", f"--rw={rw}", f"--bs={record_bytes}", f"--size={self._size_bytes}"]
        job += [f"--filename={file}", "--ioengine=psync", "--thread", f"--direct={int(direct)}", "--invalidate=0"]
        job += [f"--runtime={self._limit_s:g}s"]
        if operation.writes:
            job += ["--fallocate=none", "--end_fsync=1", f"--loops={-(-WRITTEN_BYTES_MIN // self._size_bytes)}"]
        if operation.key == WRITE:
            job += ["--unlink_each_loop=1"]
        if operation.key == STRIDED:
            job += [f"--io_size={self._size_bytes // (STRIDE_RECORDS * record_bytes) * record_bytes}"]
        again = ["--stonewall", *job] if operation.key in (REREAD, CACHED) else []
        return ("fio", "--output-format=json", *job, *again)


@functools.lru_cache(maxsize=128)
def takes_direct(directory: Path) -> bool:
    """Returns whether files there support direct I/O. Raises OSError if they cannot be written at all.

    Work directories have unique names, so each is tried once.
    """
    path = directory / ".direct"
    page = mmap.mmap(-1, DIRECT_RECORD_BYTES)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        try:
            return os.pwrite(file, page, 0) == os.preadv(file, [page], 0) == DIRECT_RECORD_BYTES
        finally:
            os.close(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return False
    finally:
        path.unlink(missing_ok=True)
        page.close()


def _fill(file: Path, size_bytes: int) -> None:
    """Writes a file of random bytes, flushed when this returns."""
    with file.open("wb") as out:
        for start in range(0, size_bytes, MIB):
            out.write(os.urandom(min(MIB, size_bytes - start)))
        out.flush()
        os.fsync(out.fileno())
