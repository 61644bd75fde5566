"""Lines as `fls -m /` prints them, byte for byte (a reimplementation of The Sleuth Kit's tsk_fs_name_print_mac), except
for times that do not fit into 32 bits without a sign: `fls` prints other times for them."""

META_LETTERS = "-rdpcblshwvV"
"""Indexed by TSK_FS_META_TYPE_ENUM."""
NAME_LETTERS = "-pcdbrlshwvV"
"""Indexed by TSK_FS_NAME_TYPE_ENUM."""

_SANE = bytes.maketrans(bytes(range(32)), b"^" * 32)
_U32 = 0xFFFFFFFF
_MODES: dict[tuple[int, int], str] = {}


def sane(text: bytes) -> bytes:
    """Returns a name with its control characters replaced, so that it stays on its line."""
    return text.translate(_SANE)


def name_letter(name_type: int) -> str:
    """Returns the type of a file according to its directory entry."""
    return NAME_LETTERS[name_type] if name_type < len(NAME_LETTERS) else "-"


def mode(meta_type: int, bits: int) -> str:
    """Returns the mode as `ls -l` prints it."""
    known = _MODES.get((meta_type, bits))
    if known is None:
        known = _MODES[meta_type, bits] = _mode(meta_type, bits)
    return known


def _mode(meta_type: int, bits: int) -> str:
    text = [META_LETTERS[meta_type] if meta_type < len(META_LETTERS) else "-"]
    for shift, special, letter in ((6, 0o4000, "s"), (3, 0o2000, "s"), (0, 0o1000, "t")):
        three = bits >> shift
        text.append("r" if three & 4 else "-")
        text.append("w" if three & 2 else "-")
        execute = bool(three & 1)
        if bits & special:
            text.append(letter if execute else letter.upper())
        else:
            text.append("x" if execute else "-")
    return "".join(text)


def line(
    shown: bytes,
    address: str,
    name_letter: str,
    mode_text: str,
    uid: int,
    gid: int,
    size: int,
    times: tuple[int, int, int, int],
) -> bytes:
    """Returns one line, without its end. `shown` is the name with its markers; `times` are a, m, c and cr in
    seconds."""
    atime, mtime, ctime, crtime = times
    return b"0|/%b|%b|%b/%b|%d|%d|%d|%d|%d|%d|%d" % (
        shown,
        address.encode(),
        name_letter.encode(),
        mode_text.encode(),
        uid & _U32,
        gid & _U32,
        size,
        atime,
        mtime,
        ctime,
        crtime,
    )
