"""The matrix: file sizes × record sizes × access orders, as in iozone, measured with fio."""

from collections.abc import Iterator

from cheetah.bench.storage.settings import Scope
from cheetah.bench.storage.steps.cell import OPERATIONS, STRIDE_RECORDS, STRIDED, MatrixCell
from cheetah.bench.units import GIB, KIB, MIB

SIZES = {
    Scope.QUICK: (16 * MIB,),
    Scope.NORMAL: (MIB, 64 * MIB),
    Scope.FULL: tuple(64 * KIB << shift for shift in range(0, 17, 2)),
}
RECORDS = {
    Scope.QUICK: (4 * KIB, MIB),
    Scope.NORMAL: (4 * KIB, 64 * KIB, MIB),
    Scope.FULL: tuple(4 * KIB << shift for shift in range(0, 13, 2)),
}
LIMIT_S = {Scope.QUICK: 1.0, Scope.NORMAL: 5.0, Scope.FULL: 60.0}
assert SIZES[Scope.FULL][-1] == 4 * GIB and RECORDS[Scope.FULL][-1] == 16 * MIB


def cells(extent: Scope) -> Iterator[MatrixCell]:
    """Yields all cells, those on the same file in sequence, beginning with writing it.

    A record is at most as large as the file, and a strided read has at least two records.
    """
    for size_bytes in SIZES[extent]:
        for record_bytes in RECORDS[extent]:
            for operation in OPERATIONS:
                least_bytes = record_bytes * (2 * STRIDE_RECORDS if operation.key == STRIDED else 1)
                if least_bytes <= size_bytes:
                    yield MatrixCell(operation, size_bytes, record_bytes, LIMIT_S[extent])


def files_bytes(extent: Scope) -> int:
    """Returns the space a target needs: one file of each size, if none is removed before the end."""
    return sum(SIZES[extent])
