"""The matrix: file sizes × record sizes × access orders, as in iozone, measured with fio."""

from collections.abc import Iterator

from cheetah.bench.storage.settings import Extent
from cheetah.bench.storage.steps.cell import OPERATIONS, STRIDE_RECORDS, STRIDED, Cell
from cheetah.bench.units import GIB, KIB, MIB

SIZES = {
    Extent.QUICK: (16 * MIB,),
    Extent.NORMAL: (MIB, 64 * MIB),
    Extent.FULL: tuple(64 * KIB << shift for shift in range(0, 17, 2)),
}
RECORDS = {
    Extent.QUICK: (4 * KIB, MIB),
    Extent.NORMAL: (4 * KIB, 64 * KIB, MIB),
    Extent.FULL: tuple(4 * KIB << shift for shift in range(0, 13, 2)),
}
LIMIT_S = {Extent.QUICK: 1.0, Extent.NORMAL: 5.0, Extent.FULL: 60.0}
assert SIZES[Extent.FULL][-1] == 4 * GIB and RECORDS[Extent.FULL][-1] == 16 * MIB


def cells(extent: Extent) -> Iterator[Cell]:
    """Yields all cells, those on the same file in sequence, beginning with writing it.

    A record is at most as large as the file, and a strided read has at least two records.
    """
    for size_bytes in SIZES[extent]:
        for record_bytes in RECORDS[extent]:
            for operation in OPERATIONS:
                least_bytes = record_bytes * (2 * STRIDE_RECORDS if operation.key == STRIDED else 1)
                if least_bytes <= size_bytes:
                    yield Cell(operation, size_bytes, record_bytes, LIMIT_S[extent])


def files_bytes(extent: Extent) -> int:
    """Returns the space a target needs: one file of each size, if none is removed before the end."""
    return sum(SIZES[extent])
