"""Hash sets of EnCase, versions 1 and 2: a header of 1152 bytes, and records of 18, each of which begins with an MD5.

EnCase documents no format. This is what The Sleuth Kit reads as such (`tsk/hashdb/encase.c`).
"""

import collections.abc
import os

import numpy as np

from cheetah.triage.search.fault import Kind, ListFault
from cheetah.triage.search.hashtext import Hashes, Progress

START = b"HASH\r\n\xff\0"
"""The bytes with which a set begins."""
HEADER_BYTES = 1152
RECORD_BYTES = 18
_MD5_BYTES = 16
# The beginning of a set whose other bytes were changed, as by a transfer as text.
_NEARLY = (b"HASH\r\n", b"HASH\n\xff", b"HASH\r\xff")
_RECORDS = 200_000


def is_set(path: str, start: bytes) -> bool:
    """Returns whether a file that starts with these bytes is a set. Raises ListFault if it nearly is."""
    if start.startswith(START):
        return True
    if start.startswith(_NEARLY):
        raise ListFault(
            Kind.OTHER_HEADER,
            path,
            "this begins like a hash set of EnCase, and has another header: it was changed, or is of a version that is "
            "not known. Export the set again, or give its hashes as text.",
        )
    return False


def read(path: str, progress: Progress) -> collections.abc.Iterator[Hashes]:
    """Yields the MD5s of a set in blocks, a row each. Raises ListFault if the last record is not whole."""
    with open(path, "rb") as file:
        total = os.fstat(file.fileno()).st_size
        if total < HEADER_BYTES or (total - HEADER_BYTES) % RECORD_BYTES:
            raise ListFault(
                Kind.CUT,
                path,
                f"this hash set of EnCase does not end with a whole record of {RECORD_BYTES} bytes: part of it is "
                "missing, or it is of a version that is not known. Export it again.",
            )
        file.seek(HEADER_BYTES)
        while piece := file.read(_RECORDS * RECORD_BYTES):
            whole = len(piece) // RECORD_BYTES * RECORD_BYTES
            records = np.frombuffer(piece[:whole], dtype=np.uint8).reshape(-1, RECORD_BYTES)
            yield np.ascontiguousarray(records[:, :_MD5_BYTES])
            progress(min(file.tell(), total), total)
