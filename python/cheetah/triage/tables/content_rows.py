"""The rows of a listing that have content, and why the content of some is not read."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

REALLOCATED = "its metadata belongs to another file now"
PRETENDED = "it stands for the whole volume"
_DATA, _BAD_CLUSTERS = 128, "8-128-"

Mask = npt.NDArray[np.bool_]


def has_content(rows: pa.RecordBatch) -> Mask:
    """Returns which rows are streams with content: regular files, and on NTFS each of their streams."""
    attribute = pc.fill_null(rows.column("attr_type"), -1).to_numpy(zero_copy_only=False)
    regular = pc.equal(rows.column("kind"), "r").to_numpy(zero_copy_only=False)
    mask: Mask = (attribute == _DATA) | (regular & (attribute == -1))
    return mask


def skipped(rows: pa.RecordBatch) -> list[str | None]:
    """Returns why each row with content is not read, or None if it is."""
    realloc = pc.and_(rows.column("deleted"), rows.column("allocated")).to_pylist()
    bad = pc.and_(
        pc.starts_with(rows.column("address"), _BAD_CLUSTERS), pc.ends_with(rows.column("path"), "/$BadClus:$Bad")
    ).to_pylist()
    return [REALLOCATED if one else PRETENDED if other else None for one, other in zip(realloc, bad, strict=True)]
