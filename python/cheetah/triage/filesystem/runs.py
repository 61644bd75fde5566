"""The runs of a stream: where the blocks of a file lie, as The Sleuth Kit lists them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytsk3

_STORED = int(pytsk3.TSK_FS_ATTR_NONRES)
_HOLE = int(pytsk3.TSK_FS_ATTR_RUN_FLAG_SPARSE) | int(pytsk3.TSK_FS_ATTR_RUN_FLAG_FILLER)


class BlockRun(NamedTuple):
    """Consecutive blocks of a stream, which are consecutive in the file system."""

    at: int
    """The first of them in the stream."""
    block: int
    """The first of them in the file system."""
    blocks: int
    """Their number."""
    flags: int
    """What The Sleuth Kit says of them; 0 if they are stored as they are."""

    @property
    def is_hole(self) -> bool:
        """Returns whether nothing of them is stored, or it is not known where."""
        return bool(self.flags & _HOLE)


def are_stored(attribute: Any) -> bool:
    """Returns whether the content of a stream lies in runs, and not in the metadata."""
    return bool(int(attribute.info.flags) & _STORED)


def of(attribute: Any) -> Iterator[BlockRun]:
    """Yields the runs of a stream that lies in runs, in the order of the stream."""
    for run in attribute:
        yield BlockRun(int(run.offset), int(run.addr), int(run.len), int(run.flags))
