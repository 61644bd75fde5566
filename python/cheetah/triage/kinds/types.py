"""Identifies files by content: signatures first, then the content of containers, then text."""

import functools
import re
import struct

import numpy as np

from cheetah.triage.kinds.signatures import HEAD_BYTES, SIGNATURES, Signature, Type

EMPTY = Type("empty", "inode/x-empty", "empty")
RANDOM = Type("random", "application/octet-stream", "encrypted")
"""No signature, and bytes that look random: perhaps an encrypted container."""

EFS = Type("efs", "application/octet-stream", "encrypted")
"""Encrypted by NTFS, according to the file system."""

ZIP = Type("zip", "application/zip", "archive")
ZIP_ENCRYPTED = Type("zip-encrypted", "application/zip", "encrypted")
OLE = Type("ole", "application/x-ole-storage", "document")
RAR = Type("rar", "application/vnd.rar", "archive")
RAR_ENCRYPTED = Type("rar-encrypted", "application/vnd.rar", "encrypted")
PDF = Type("pdf", "application/pdf", "document")
PE = Type("pe", "application/vnd.microsoft.portable-executable", "executable")
MZ = Type("mz", "application/x-dosexec", "executable")
MACH_FAT = Type("mach-o", "application/x-mach-binary", "executable")
JAVA_CLASS = Type("java-class", "application/java-vm", "executable")
BMP = Type("bmp", "image/bmp", "image")
ICO = Type("ico", "image/vnd.microsoft.icon", "image")
MP3 = Type("mp3", "audio/mpeg", "audio")
MATROSKA = Type("matroska", "video/x-matroska", "video")
WEBM = Type("webm", "video/webm", "video")
EXT = Type("ext", "application/x-ext", "disk")
MBR = Type("mbr", "application/x-disk-image", "disk")

TEXT = Type("text", "text/plain", "text")
# Two header fields, one of them common to all mail.
_MAIL = (
    r"(?=[\s\S]*?(?:^|\n)(from|to|subject|date):)"
    r"(return-path|received|from|to|subject|date|message-id|mime-version|delivered-to|x-[a-z-]+)"
    r": ?\S[^\n]*\n([a-z-]+:|[ \t])"
)
_TEXT_KINDS: tuple[tuple[re.Pattern[str], Type], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), Type(name, mime, family))
    for pattern, name, mime, family in (
        (r"-----BEGIN PGP MESSAGE", "pgp", "application/pgp-encrypted", "encrypted"),
        (r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY", "private-key", "application/x-pem-file", "text"),
        (r"-----BEGIN ", "pem", "application/x-pem-file", "text"),
        (r"#!", "script", "text/x-script", "text"),
        (r"%!PS", "postscript", "application/postscript", "document"),
        (r"(windows registry editor version |regedit4)", "reg", "text/x-ms-regedit", "text"),
        (r"(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)?(<!doctype svg[^>]*>\s*)?<svg[\s>]", "svg", "image/svg+xml", "text"),
        (r"(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)?<(!doctype html|html|head|body)[\s>]", "html", "text/html", "text"),
        (r"<\?xml", "xml", "text/xml", "text"),
        (r"begin:vcard", "vcard", "text/vcard", "text"),
        (r"begin:vcalendar", "ical", "text/calendar", "text"),
        (r"From \S+.*\d\d:\d\d", "mbox", "application/mbox", "mail"),
        (_MAIL, "eml", "message/rfc822", "mail"),
    )
)
# The characters that decide the kind of text.
_TEXT_CHARS = 2048

_ZIP_ENTRIES_MAX = 64
_ZIP_BY_MIME = {
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.oasis.opendocument.presentation": "odp",
    "application/vnd.oasis.opendocument.graphics": "odg",
    "application/epub+zip": "epub",
}
_OOXML = "application/vnd.openxmlformats-officedocument."
_ZIP_BY_NAME: tuple[tuple[str, Type], ...] = (
    ("word/", Type("docx", _OOXML + "wordprocessingml.document", "document")),
    ("xl/", Type("xlsx", _OOXML + "spreadsheetml.sheet", "document")),
    ("ppt/", Type("pptx", _OOXML + "presentationml.presentation", "document")),
    ("visio/", Type("vsdx", "application/vnd.ms-visio.drawing.main+xml", "document")),
    ("AndroidManifest.xml", Type("apk", "application/vnd.android.package-archive", "executable")),
    ("classes.dex", Type("apk", "application/vnd.android.package-archive", "executable")),
    ("Payload/", Type("ipa", "application/x-ios-app", "executable")),
    ("FixedDocSeq.fdseq", Type("xps", "application/vnd.ms-xpsdocument", "document")),
    ("META-INF/MANIFEST.MF", Type("jar", "application/java-archive", "executable")),
)

_OLE_BY_STREAM: tuple[tuple[str, Type], ...] = (
    ("EncryptedPackage", Type("ooxml-encrypted", "application/x-ooxml-protected", "encrypted")),
    ("WordDocument", Type("doc", "application/msword", "document")),
    ("Workbook", Type("xls", "application/vnd.ms-excel", "document")),
    ("Book", Type("xls", "application/vnd.ms-excel", "document")),
    ("PowerPoint Document", Type("ppt", "application/vnd.ms-powerpoint", "document")),
    ("VisioDocument", Type("vsd", "application/vnd.visio", "document")),
    ("__properties_version1.0", Type("msg", "application/vnd.ms-outlook", "mail")),
    ("DestList", Type("jumplist", "application/x-ms-jumplist", "system")),
    ("Catalog", Type("thumbs.db", "application/x-ms-thumbs", "system")),
    ("\u4840\u3f3f\u4577\u446c\u3b6a\u45e4\u4824", Type("msi", "application/x-msi", "executable")),
)

_FAMILIES = {
    found.name: found.family
    for found in (
        *(signature.type for signature in SIGNATURES),
        *(found for table in (_TEXT_KINDS, _ZIP_BY_NAME, _OLE_BY_STREAM) for _, found in table),
        EMPTY, RANDOM, EFS, ZIP, ZIP_ENCRYPTED, OLE, RAR, RAR_ENCRYPTED, PDF, PE, MZ, MACH_FAT, JAVA_CLASS, BMP, ICO,
        MP3, MATROSKA, WEBM, EXT, MBR, TEXT,
    )
} | dict.fromkeys(_ZIP_BY_MIME.values(), "document")  # fmt: skip


def family(name: str | None) -> str:
    """Returns the family of a type by name ("jpeg": "image"), or ""."""
    return _FAMILIES.get(name, "") if name is not None else ""


def recognise(head: bytes, size: int) -> Type | None:
    """Returns the type of a file of `size` bytes that begins with `head` (its first HEAD_BYTES, or all of it), or
    None."""
    if size == 0:
        return EMPTY
    if not head:
        return None
    head = head[:HEAD_BYTES]
    return _by_signature(head) or _inside(head) or _text(head, size) or _random(head, size)


@functools.cache
def _by_first_byte() -> tuple[list[Signature], ...]:
    """Returns the signatures possible for each first byte, in order."""
    return tuple(
        [one for one in SIGNATURES if one.parts[0][0] > 0 or one.parts[0][1][0] == first] for first in range(256)
    )


def _by_signature(head: bytes) -> Type | None:
    for signature in _by_first_byte()[head[0]]:
        if signature.fits(head):
            return signature.type if signature.type.name != "truetype" or _is_truetype(head) else None
    return None


def _is_truetype(head: bytes) -> bool:
    """Returns whether a TrueType table directory is consistent."""
    if len(head) < 28:
        return False
    tables, search = struct.unpack_from(">HH", head, 4)
    return bool(0 < tables < 256 and search == 16 << (tables.bit_length() - 1))


def _inside(head: bytes) -> Type | None:
    """Identifies formats that bytes at fixed offsets do not suffice for."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08PK\x03\x04")):
        return _zip(head)
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return _ole(head)
    if head.startswith(b"Rar!\x1a\x07"):
        return _rar(head)
    if b"%PDF-" in head[:1024]:
        return PDF
    if head.startswith(b"MZ") and len(head) >= 64:
        return _mz(head)
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return WEBM if b"webm" in head[:64] else MATROSKA
    return _by_arithmetic(head)


def _by_arithmetic(head: bytes) -> Type | None:
    """Identifies short signatures whose fields must be plausible as well."""
    if head.startswith(b"BM") and len(head) >= 26:
        offset, header = struct.unpack_from("<II", head, 10)
        if header in (12, 40, 52, 56, 64, 108, 124) and 14 + header <= offset < 1 << 16:
            return BMP
    if head.startswith((b"\0\0\x01\0", b"\0\0\x02\0")) and len(head) >= 22:
        count = struct.unpack_from("<H", head, 4)[0]
        length, offset = struct.unpack_from("<II", head, 14)
        if 0 < count < 256 and offset == 6 + 16 * count and 0 < length < 1 << 24 and head[9] == 0:
            return ICO
    if head.startswith(b"\xca\xfe\xba\xbe") and len(head) >= 8:
        # The number of architectures, or Java's version, which began at 45.
        return MACH_FAT if 0 < struct.unpack_from(">I", head, 4)[0] < 43 else JAVA_CLASS
    if _is_mp3(head):
        return MP3
    if head[1080:1082] == b"\x53\xef" and not any(head[:64]):
        return EXT
    if head[510:512] == b"\x55\xaa" and head[446:447] in (b"\0", b"\x80") and _is_mbr(head):
        return MBR
    return None


def _is_mp3(head: bytes) -> bool:
    """Returns whether there are two MPEG audio layer 3 frames, the second where the first ends."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xFE not in (0xFA, 0xF2):
        return False
    mpeg1 = bool(head[1] & 0x08)
    rates = (
        (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0)
        if mpeg1
        else (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0)
    )
    rate = rates[head[2] >> 4]
    hertz = (44100, 48000, 32000, 0)[head[2] >> 2 & 3] // (1 if mpeg1 else 2)
    if not rate or not hertz:
        return False
    length = (144 if mpeg1 else 72) * rate * 1000 // hertz + (head[2] >> 1 & 1)
    return head[length : length + 2] == head[:2]


def _is_mbr(head: bytes) -> bool:
    entries = [head[446 + 16 * place : 462 + 16 * place] for place in range(4)]
    used = [entry for entry in entries if entry[4]]
    return bool(used) and all(
        entry[0] in (0, 0x80) and struct.unpack_from("<I", entry, 8)[0] and struct.unpack_from("<I", entry, 12)[0]
        for entry in used
    )


def _zip(head: bytes) -> Type:
    """Identifies a ZIP by the names of its first entries; notes an encrypted first entry."""
    if head.startswith(b"PK\x03\x04") and len(head) > 30 and head[6] & 1:
        return ZIP_ENCRYPTED
    names: list[str] = []
    place = head.find(b"PK\x03\x04")
    while 0 <= place <= len(head) - 30 and len(names) < _ZIP_ENTRIES_MAX:
        name_length, extra_length = struct.unpack_from("<HH", head, place + 26)
        name = head[place + 30 : place + 30 + name_length].decode("utf-8", "replace")
        if name == "mimetype" and not names:
            content = head[place + 30 + name_length + extra_length :][:64]
            mime = re.match(rb"[a-z0-9.+/-]*", content)
            said = mime.group().decode() if mime else ""
            said = said.split("PK")[0]
            if said in _ZIP_BY_MIME:
                return Type(_ZIP_BY_MIME[said], said, "document")
        names.append(name)
        place = head.find(b"PK\x03\x04", place + 4)
    for wanted, found in _ZIP_BY_NAME:
        if any(name.startswith(wanted) for name in names):
            return found
    return ZIP


def _ole(head: bytes) -> Type:
    """Identifies a compound file by the names in its directory, as far as it is in `head`."""
    if len(head) < 512:
        return OLE
    shift = struct.unpack_from("<H", head, 30)[0]
    first = struct.unpack_from("<I", head, 48)[0]
    if shift not in (9, 12):
        return OLE
    place = (first + 1) << shift
    names = set()
    for entry in range(place, min(place + (4 << 12), len(head) - 127), 128):
        length = struct.unpack_from("<H", head, entry + 64)[0]
        if 2 <= length <= 64:
            names.add(head[entry : entry + length - 2].decode("utf-16-le", "replace"))
    for wanted, found in _OLE_BY_STREAM:
        if wanted in names:
            return found
    return OLE


def _rar(head: bytes) -> Type:
    """Returns whether the names in a RAR are encrypted: a flag in version 4, a header in version 5."""
    if head.startswith(b"Rar!\x1a\x07\0") and len(head) >= 14:
        return RAR_ENCRYPTED if head[9] == 0x73 and head[10] & 0x80 else RAR
    return RAR_ENCRYPTED if head[13:14] == b"\x04" else RAR


def _mz(head: bytes) -> Type:
    place = struct.unpack_from("<I", head, 60)[0]
    return PE if head[place : place + 4] == b"PE\0\0" else MZ


def _text(head: bytes, size: int) -> Type | None:
    """Identifies UTF-8, UTF-16 or an older 8-bit code, without control characters."""
    sample = head[: 1 << 15]
    text = _decoded(sample, cut=size > len(sample))
    if text is None:
        return None
    start = text[:_TEXT_CHARS].lstrip("\ufeff \t\r\n")
    for pattern, found in _TEXT_KINDS:
        if pattern.match(start):
            return found
    return TEXT


_CONTROLS = re.compile("[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
_CONTROL_BYTES = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")


def _decoded(sample: bytes, cut: bool) -> str | None:
    """Returns decoded text, or None. `cut`: the sample may end inside a character."""
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _wide(sample, "utf-16")
    if len(sample) >= 16 and not any(sample[1:64:2]) and all(sample[0:64:2]):
        return _wide(sample, "utf-16-le")
    if _CONTROL_BYTES.search(sample):
        return None
    try:
        return sample.decode("utf-8")
    except UnicodeDecodeError as error:
        if cut and error.start >= len(sample) - 3:
            return sample[: error.start].decode("utf-8")
    high = sum(byte >= 0x80 for byte in sample)
    return sample.decode("latin-1") if high * 10 <= len(sample) else None


def _wide(sample: bytes, encoding: str) -> str | None:
    try:
        text = sample[: len(sample) // 2 * 2].decode(encoding, "strict")
    except UnicodeDecodeError as error:
        if error.start < len(sample) - 4:
            return None
        text = sample[: error.start].decode(encoding)
    return None if _CONTROLS.search(text) else text


# The minimum to call something random; a compressed stream of this length is recognisable.
RANDOM_BYTES_MIN = 1 << 16


def _random(head: bytes, size: int) -> Type | None:
    """Returns the random type if byte values are distributed like noise, by a chi-squared test with 255 degrees of
    freedom: noise fails less than once in a million files."""
    if len(head) < RANDOM_BYTES_MIN or size % 512:
        return None
    counts = np.bincount(np.frombuffer(head, dtype=np.uint8), minlength=256)
    expected = len(head) / 256
    chi_squared = float(((counts - expected) ** 2).sum() / expected)
    return RANDOM if 155 < chi_squared < 375 else None
