"""The times in an NTFS file's $FILE_NAME attribute, chosen as The Sleuth Kit does.

`fls -m` prints a second line for each file, with the times of its last name that is not a DOS name. pytsk3 does not
return them, so they are parsed from the attribute.
"""

import struct

import pytsk3

from cheetah.triage.filesystem import mft_record

STANDARD_NAME = pytsk3.TSK_FS_ATTR_TYPE_NTFS_FNAME
ATTRIBUTE_LIST = pytsk3.TSK_FS_ATTR_TYPE_NTFS_ATTRLIST
_FNAME, _ATTRLIST = int(STANDARD_NAME), int(ATTRIBUTE_LIST)
_DOS = 2
_FIXED_BYTES = 66
_TO_1970 = 116_444_736_000_000_000
_RECORDS_MAX = 256
_ATTRIBUTE_LIST_MAX = 1 << 20

Times = tuple[int, int, int, int]
NONE: Times = (0, 0, 0, 0)


def seconds(filetime: int) -> int:
    """Returns a Windows time as seconds since 1970, negative before; 0 if it is not set."""
    # A signed number; one below zero is no time.
    return (filetime - _TO_1970) // 10_000_000 if 0 < filetime < 1 << 63 else 0


def times_of(file_system: pytsk3.FS_Info, file: pytsk3.File, attributes: list[tuple[int, int]]) -> tuple[int, Times]:
    """Returns the id of the attribute that the times are from (0 if there is none), and access, modification, change
    and birth.

    `attributes` are the file's, as (type, id), in The Sleuth Kit's order.
    """
    if any(kind == _ATTRLIST for kind, _ in attributes):
        found = _from_records(file_system, file, attributes)
        if found is not None:
            return found
    for kind, number in reversed(attributes):
        if kind == _FNAME:
            try:
                content = file.read_random(0, _FIXED_BYTES, STANDARD_NAME, number)
            except OSError:
                continue
            if len(content) == _FIXED_BYTES and content[65] != _DOS:
                return number, _times(content)
    return 0, NONE


def _times(content: bytes) -> Times:
    birth, modified, changed, accessed = struct.unpack_from("<4Q", content, 8)
    return seconds(accessed), seconds(modified), seconds(changed), seconds(birth)


def _from_records(
    file_system: pytsk3.FS_Info, file: pytsk3.File, attributes: list[tuple[int, int]]
) -> tuple[int, Times] | None:
    """Returns the same for a file of several records: The Sleuth Kit gives attributes in further records other ids,
    but remembers the ones on disk. So the records themselves are read."""
    number = next(number for kind, number in attributes if kind == _ATTRLIST)
    try:
        table = file_system.open_meta(inode=0)
        size = _record_size(table)
        content = file.read_random(0, _ATTRIBUTE_LIST_MAX, ATTRIBUTE_LIST, number)
        base = file.info.meta.addr
        found = None
        for record in [base, *_further_records(content, base)]:
            for one in _names_in(table.read_random(record * size, size)):
                found = one
    except (OSError, struct.error):
        return None
    return found


def _record_size(table: pytsk3.File) -> int:
    """Returns the size of a record, according to the first one."""
    return int(struct.unpack_from("<I", table.read_random(0, 48), 28)[0])


def _further_records(content: bytes, base: int) -> list[int]:
    """Returns the records named by an attribute list, besides the base record, in its order."""
    found = (one.record for one in mft_record.listed(content))
    further = dict.fromkeys(record for record in found if record not in (base, 0))
    return list(further)[:_RECORDS_MAX]


def _names_in(record: bytes) -> list[tuple[int, Times]]:
    """Returns the names in a record that are not DOS names: attribute id on disk, and times."""
    if not mft_record.is_record(record):
        return []
    names: list[tuple[int, Times]] = []
    for one in mft_record.attributes(mft_record.fixed_up(record)):
        if one.kind == _FNAME and one.resident:
            content = one.content(_FIXED_BYTES)
            if len(content) == _FIXED_BYTES and content[65] != _DOS:
                names.append((one.number, _times(content)))
    return names
