"""The types expected of extensions, and the mismatches worth a finding.

A meaningless mismatch costs an examiner more than a missed one. So an unknown extension expects nothing, a picture
may be any picture, a film any film, and a text anything but what people hide behind one.
"""

from cheetah.triage.kinds.signatures import Type


def words(text: str) -> frozenset[str]:
    """Returns the words of a text."""
    return frozenset(text.split())


# Types that may be hidden behind another name.
_HIDDEN = frozenset(("image", "video", "audio", "document", "archive", "executable", "encrypted", "mail", "disk"))

_TEXT = words(
    "txt log ini cfg conf inf csv tsv md htm html xhtml css js mjs json xml xsl xsd svg yml yaml toml c h cc cpp hpp cs"
    " java py rb pl php sh bash bat cmd ps1 vbs reg sql tex srt properties"
)

# Families whose extensions are interchangeable in practice.
_FAMILIES: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        words("jpg jpeg jpe jfif png gif bmp dib webp tif tiff heic heif avif psd jp2"), frozenset(("image",))
    ),
    **dict.fromkeys(words("ico cur"), frozenset(("image",))),
    **dict.fromkeys(words("mp4 m4v mov avi mkv webm wmv asf flv mpg mpeg vob 3gp"), frozenset(("video", "audio"))),
    **dict.fromkeys(words("mp3 wav flac ogg oga m4a wma aac amr aif aiff mid"), frozenset(("audio", "video"))),
    **dict.fromkeys(words("exe dll sys ocx cpl scr drv efi mui"), frozenset(("executable",))),
    **dict.fromkeys(words("so ko"), frozenset(("executable", "text"))),
    **dict.fromkeys(words("ttf otf ttc woff woff2"), frozenset(("font",))),
}

# Types by name. Office programs keep old extensions for new formats, and vice versa.
_NAMES: dict[str, frozenset[str]] = {
    extension: words(names)
    for extensions, names in (
        ("pdf", "pdf"),
        ("doc dot", "doc ole docx rtf html xml text eml wordperfect ooxml-encrypted"),
        ("xls xlt", "xls ole xlsx html xml text ooxml-encrypted"),
        ("ppt pps", "ppt ole pptx ooxml-encrypted"),
        ("docx docm dotx", "docx zip ole ooxml-encrypted"),
        ("xlsx xlsm xltx", "xlsx zip ole ooxml-encrypted"),
        ("pptx pptm ppsx", "pptx zip ole ooxml-encrypted"),
        ("odt ods odp odg", "odt ods odp odg zip"),
        ("rtf", "rtf text"),
        ("epub", "epub zip"),
        ("zip", "zip zip-encrypted docx xlsx pptx vsdx odt ods odp odg epub jar apk xps ipa"),
        ("jar war ear", "jar zip apk"),
        ("apk", "apk jar zip"),
        ("7z", "7z"),
        ("rar", "rar rar-encrypted"),
        ("gz tgz", "gzip"),
        ("bz2 tbz tbz2", "bzip2"),
        ("xz txz", "xz"),
        ("zst", "zstd"),
        ("tar", "tar gzip bzip2 xz"),
        ("cab", "cab"),
        ("msi msp", "msi ole"),
        ("pst ost", "pst ost"),
        ("msg", "msg ole"),
        ("eml", "eml mbox text html"),
        ("evtx", "evtx"),
        ("lnk", "lnk"),
        ("pf", "prefetch"),
        ("sqlite sqlite3", "sqlite"),
        ("mdb", "mdb accdb"),
        ("accdb", "accdb mdb"),
        ("pcap", "pcap pcapng"),
        ("pcapng", "pcapng pcap"),
        ("e01", "e01"),
        ("vhdx", "vhdx"),
        ("qcow2", "qcow"),
        ("chm", "chm"),
        ("class", "java-class"),
    )
    for extension in words(extensions)
}

# Without their signature these are damaged, encrypted or something else.
_STRICT = words("jpg jpeg png gif pdf docx xlsx pptx exe dll sys zip 7z rar gz")


def mismatch(extension: str, found: Type | None, head: bytes = b"", trusted: bool = True) -> str | None:
    """Returns why a file does not look like its extension, or None. `extension` has no dot. `trusted` is False for
    deleted files, whose content may be another file's: then only a signature counts."""
    extension = extension.lower()
    if found is not None and (found.name in ("empty", "appledouble") or (found.name == "random" and not trusted)):
        return None
    if found is None:
        strict = extension in _STRICT and trusted and any(head[:512])
        return f"its name ends in .{extension}, but it does not begin as such a file does" if strict else None
    if not _odd(extension, found):
        return None
    return f"its name ends in .{extension}, but its content is {found.name}"


def _odd(extension: str, found: Type) -> bool:
    if extension in _TEXT:
        # "svg" and "html" belong to the family "text"; old mail and PostScript are text as well.
        return found.family in _HIDDEN and found.name not in ("rtf", "eml", "mbox", "pgp", "postscript")
    if extension in _FAMILIES:
        return found.family not in _FAMILIES[extension] and (found.family in _HIDDEN or extension in _STRICT)
    if extension in _NAMES and found.name not in _NAMES[extension]:
        return found.family in _HIDDEN or extension in _STRICT
    return False
