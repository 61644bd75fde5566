"""File signatures, from the published specifications of the formats.

A signature is bytes at an offset, and perhaps further bytes at others. The first match in the table counts, so longer
and rarer signatures precede short ones. `types` handles formats that need more than comparing bytes, such as the
content of a ZIP.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Type:
    """The type of a file. `name` is short and lower-case ("jpeg"); `family` is its purpose ("image")."""

    name: str
    mime: str
    family: str


@dataclasses.dataclass(frozen=True)
class Signature:
    """A type and its signature: pairs of an offset and bytes."""

    type: Type
    parts: tuple[tuple[int, bytes], ...]

    def fits(self, head: bytes) -> bool:
        """Returns whether a file that begins with `head` matches."""
        # A generator expression takes twice as long, and this is called often.
        for offset, what in self.parts:
            if not head.startswith(what, offset):
                return False
        return True


# The bytes of a file that are examined: ISO 9660 has its signature at 32,769, a Reiser file system at 65,588.
HEAD_BYTES = 1 << 17


def _rows() -> list[tuple[str, str, str, tuple[tuple[int, bytes], ...]]]:
    """Returns rows of family, name, MIME type, parts."""
    at = 0
    return [
        # Images
        ("image", "jpeg", "image/jpeg", ((at, b"\xff\xd8\xff"),)),
        ("image", "png", "image/png", ((at, b"\x89PNG\r\n\x1a\n"),)),
        ("image", "gif", "image/gif", ((at, b"GIF87a"),)),
        ("image", "gif", "image/gif", ((at, b"GIF89a"),)),
        ("image", "webp", "image/webp", ((at, b"RIFF"), (8, b"WEBP"))),
        ("image", "cr2", "image/x-canon-cr2", ((at, b"II*\0"), (8, b"CR\x02"))),
        ("image", "tiff", "image/tiff", ((at, b"II*\0"),)),
        ("image", "tiff", "image/tiff", ((at, b"MM\0*"),)),
        ("image", "bigtiff", "image/tiff", ((at, b"II+\0\x08\0"),)),
        ("image", "psd", "image/vnd.adobe.photoshop", ((at, b"8BPS\0\x01"),)),
        ("image", "jp2", "image/jp2", ((at, b"\0\0\0\x0cjP  \r\n\x87\n"),)),
        ("image", "jxl", "image/jxl", ((at, b"\0\0\0\x0cJXL \r\n\x87\n"),)),
        ("image", "heif", "image/heif", ((4, b"ftypheic"),)),
        ("image", "heif", "image/heif", ((4, b"ftypheix"),)),
        ("image", "heif", "image/heif", ((4, b"ftypmif1"),)),
        ("image", "avif", "image/avif", ((4, b"ftypavif"),)),
        ("image", "cr3", "image/x-canon-cr3", ((4, b"ftypcrx "),)),
        ("image", "djvu", "image/vnd.djvu", ((at, b"AT&TFORM"), (12, b"DJV"))),
        ("image", "xcf", "image/x-xcf", ((at, b"gimp xcf "),)),
        ("image", "dds", "image/vnd-ms.dds", ((at, b"DDS |\0\0\0"),)),
        ("image", "emf", "image/emf", ((at, b"\x01\0\0\0"), (40, b" EMF"))),
        ("image", "wmf", "image/wmf", ((at, b"\xd7\xcd\xc6\x9a\0\0"),)),
        # Video
        ("video", "3gp", "video/3gpp", ((4, b"ftyp3g"),)),
        ("audio", "m4a", "audio/mp4", ((4, b"ftypM4A"),)),
        ("video", "quicktime", "video/quicktime", ((4, b"ftypqt  "),)),
        ("video", "mp4", "video/mp4", ((4, b"ftyp"),)),
        ("video", "quicktime", "video/quicktime", ((4, b"moov"),)),
        ("video", "quicktime", "video/quicktime", ((4, b"mdat"),)),
        ("video", "avi", "video/x-msvideo", ((at, b"RIFF"), (8, b"AVI "))),
        ("video", "asf", "video/x-ms-asf", ((at, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\0\xaa\0\x62\xce\x6c"),)),
        ("video", "flv", "video/x-flv", ((at, b"FLV\x01"),)),
        ("video", "mpeg", "video/mpeg", ((at, b"\0\0\x01\xba"),)),
        ("video", "mpeg", "video/mpeg", ((at, b"\0\0\x01\xb3"),)),
        ("video", "mpeg-ts", "video/mp2t", ((at, b"G"), (188, b"G"), (376, b"G"), (564, b"G"), (752, b"G"))),
        ("video", "mpeg-ts", "video/mp2t", ((4, b"G"), (196, b"G"), (388, b"G"), (580, b"G"), (772, b"G"))),
        ("video", "swf", "application/x-shockwave-flash", ((at, b"CWS"), (7, b"\0"))),
        ("video", "swf", "application/x-shockwave-flash", ((at, b"FWS"), (7, b"\0"))),
        # Audio
        ("audio", "wav", "audio/x-wav", ((at, b"RIFF"), (8, b"WAVE"))),
        ("audio", "mp3", "audio/mpeg", ((at, b"ID3\x02"),)),
        ("audio", "mp3", "audio/mpeg", ((at, b"ID3\x03"),)),
        ("audio", "mp3", "audio/mpeg", ((at, b"ID3\x04"),)),
        ("audio", "flac", "audio/flac", ((at, b"fLaC"),)),
        ("audio", "ogg", "application/ogg", ((at, b"OggS\0"),)),
        ("audio", "amr", "audio/amr", ((at, b"#!AMR"),)),
        ("audio", "aiff", "audio/x-aiff", ((at, b"FORM"), (8, b"AIF"))),
        ("audio", "midi", "audio/midi", ((at, b"MThd\0\0\0\x06"),)),
        ("audio", "caf", "audio/x-caf", ((at, b"caff\0\x01"),)),
        # Documents
        ("document", "rtf", "application/rtf", ((at, b"{\\rtf"),)),
        ("document", "chm", "application/vnd.ms-htmlhelp", ((at, b"ITSF\x03\0\0\0"),)),
        ("document", "hlp", "application/winhlp", ((at, b"?_\x03\0"),)),
        ("document", "mobi", "application/x-mobipocket-ebook", ((60, b"BOOKMOBI"),)),
        (
            "document",
            "onenote",
            "application/onenote",
            ((at, b"\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d\xae\xb1\x53\x78\xd0\x29\x96\xd3"),),
        ),
        ("document", "wordperfect", "application/vnd.wordperfect", ((at, b"\xffWPC"),)),
        ("document", "dwg", "image/vnd.dwg", ((at, b"AC10"), (6, b"\0\0\0\0\0"))),
        # Archives and compression
        ("archive", "7z", "application/x-7z-compressed", ((at, b"7z\xbc\xaf\x27\x1c"),)),
        ("archive", "xz", "application/x-xz", ((at, b"\xfd7zXZ\0"),)),
        ("archive", "gzip", "application/gzip", ((at, b"\x1f\x8b\x08"),)),
        ("archive", "bzip2", "application/x-bzip2", ((at, b"BZh"), (4, b"1AY&SY"))),
        ("archive", "bzip2", "application/x-bzip2", ((at, b"BZh"), (4, b"\x17\x72\x45\x38\x50\x90"))),
        ("archive", "zstd", "application/zstd", ((at, b"\x28\xb5\x2f\xfd"),)),
        ("archive", "lz4", "application/x-lz4", ((at, b"\x04\x22\x4d\x18"),)),
        ("archive", "compress", "application/x-compress", ((at, b"\x1f\x9d\x90"),)),
        ("archive", "lzh", "application/x-lzh", ((2, b"-lh"), (6, b"-"))),
        ("archive", "ace", "application/x-ace-compressed", ((7, b"**ACE**"),)),
        ("archive", "arj", "application/x-arj", ((at, b"\x60\xea"), (10, b"\x02"))),
        ("archive", "cab", "application/vnd.ms-cab-compressed", ((at, b"MSCF\0\0\0\0"),)),
        ("archive", "deb", "application/vnd.debian.binary-package", ((at, b"!<arch>\ndebian-binary"),)),
        ("archive", "ar", "application/x-archive", ((at, b"!<arch>\n"),)),
        ("archive", "rpm", "application/x-rpm", ((at, b"\xed\xab\xee\xdb"),)),
        ("archive", "tar", "application/x-tar", ((257, b"ustar\0"),)),
        ("archive", "tar", "application/x-tar", ((257, b"ustar  \0"),)),
        ("archive", "cpio", "application/x-cpio", ((at, b"070701"),)),
        ("archive", "cpio", "application/x-cpio", ((at, b"070707"),)),
        ("archive", "wim", "application/x-ms-wim", ((at, b"MSWIM\0\0\0"),)),
        ("archive", "xar", "application/x-xar", ((at, b"xar!\0\x1c"),)),
        # Programs
        ("executable", "elf", "application/x-executable", ((at, b"\x7fELF"),)),
        ("executable", "mach-o", "application/x-mach-binary", ((at, b"\xcf\xfa\xed\xfe"),)),
        ("executable", "mach-o", "application/x-mach-binary", ((at, b"\xce\xfa\xed\xfe"),)),
        ("executable", "dex", "application/vnd.android.dex", ((at, b"dex\n03"), (7, b"\0"))),
        ("executable", "wasm", "application/wasm", ((at, b"\0asm\x01\0\0\0"),)),
        ("executable", "lua-bytecode", "application/x-lua-bytecode", ((at, b"\x1bLua"),)),
        # Mail stores and contacts
        ("mail", "pst", "application/vnd.ms-outlook-pst", ((at, b"!BDN"), (8, b"SM"))),
        ("mail", "pab", "application/vnd.ms-outlook-pab", ((at, b"!BDN"), (8, b"AB"))),
        ("mail", "ost", "application/vnd.ms-outlook-pst", ((at, b"!BDN"), (8, b"SO"))),
        ("mail", "dbx", "application/vnd.ms-outlook-express", ((at, b"\xcf\xad\x12\xfe"),)),
        ("mail", "nsf", "application/vnd.lotus-notes", ((at, b"\x1a\0\0\x04\0\0"),)),
        ("mail", "tnef", "application/vnd.ms-tnef", ((at, b"\x78\x9f\x3e\x22"),)),
        # Databases
        ("database", "sqlite", "application/vnd.sqlite3", ((at, b"SQLite format 3\0"),)),
        ("database", "sqlite-wal", "application/vnd.sqlite3", ((at, b"\x37\x7f\x06\x82\0\x2d\xe2\x18"),)),
        ("database", "sqlite-wal", "application/vnd.sqlite3", ((at, b"\x37\x7f\x06\x83\0\x2d\xe2\x18"),)),
        ("database", "sqlite-journal", "application/vnd.sqlite3", ((at, b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"),)),
        ("database", "ese", "application/x-ms-ese", ((4, b"\xef\xcd\xab\x89"),)),
        ("database", "mdb", "application/x-msaccess", ((at, b"\0\x01\0\0Standard Jet DB\0"),)),
        ("database", "accdb", "application/x-msaccess", ((at, b"\0\x01\0\0Standard ACE DB\0"),)),
        ("database", "leveldb-table", "application/x-leveldb", ((at, b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"),)),
        # System artefacts
        ("system", "registry", "application/x-ms-registry", ((at, b"regf"),)),
        ("system", "evtx", "application/x-ms-evtx", ((at, b"ElfFile\0"),)),
        ("system", "evt", "application/x-ms-evt", ((at, b"0\0\0\0LfLe"),)),
        (
            "system",
            "lnk",
            "application/x-ms-shortcut",
            ((at, b"\x4c\0\0\0\x01\x14\x02\0\0\0\0\0\xc0\0\0\0\0\0\0\x46"),),
        ),
        ("system", "prefetch", "application/x-ms-prefetch", ((4, b"SCCA"),)),
        ("system", "prefetch", "application/x-ms-prefetch", ((at, b"MAM\x04"),)),
        ("system", "thumbcache", "application/x-ms-thumbcache", ((at, b"CMMM"),)),
        ("system", "index.dat", "application/x-ms-cache", ((at, b"Client UrlCache MMF Ver "),)),
        ("system", "crash-dump", "application/x-ms-dump", ((at, b"MDMP\x93\xa7"),)),
        ("system", "crash-dump", "application/x-ms-dump", ((at, b"PAGEDU"),)),
        ("system", "hibernation", "application/x-ms-hibernation", ((at, b"HIBR"),)),
        ("system", "hibernation", "application/x-ms-hibernation", ((at, b"hibr"),)),
        ("system", "systemd-journal", "application/x-systemd-journal", ((at, b"LPKSHHRH"),)),
        ("system", "bplist", "application/x-bplist", ((at, b"bplist0"),)),
        ("system", "appledouble", "multipart/appledouble", ((at, b"\0\x05\x16\x07\0\x02\0\0"),)),
        ("system", "ds_store", "application/x-apple-ds-store", ((at, b"\0\0\0\x01Bud1"),)),
        ("system", "torrent", "application/x-bittorrent", ((at, b"d8:announce"),)),
        ("system", "gettext", "application/x-gettext-translation", ((at, b"\xde\x12\x04\x95\0\0"),)),
        # Fonts
        ("font", "truetype", "font/ttf", ((at, b"\0\x01\0\0\0"), (12, b""))),
        ("font", "opentype", "font/otf", ((at, b"OTTO\0"),)),
        ("font", "font-collection", "font/collection", ((at, b"ttcf\0"),)),
        ("font", "woff", "font/woff", ((at, b"wOFF"),)),
        ("font", "woff2", "font/woff2", ((at, b"wOF2"),)),
        # Captured traffic
        ("capture", "pcap", "application/vnd.tcpdump.pcap", ((at, b"\xd4\xc3\xb2\xa1\x02\0"),)),
        ("capture", "pcap", "application/vnd.tcpdump.pcap", ((at, b"\xa1\xb2\xc3\xd4\0\x02"),)),
        ("capture", "pcap", "application/vnd.tcpdump.pcap", ((at, b"\x4d\x3c\xb2\xa1\x02\0"),)),
        ("capture", "pcapng", "application/x-pcapng", ((at, b"\x0a\x0d\x0d\x0a"), (8, b"\x4d\x3c\x2b\x1a"))),
        ("capture", "pcapng", "application/x-pcapng", ((at, b"\x0a\x0d\x0d\x0a"), (8, b"\x1a\x2b\x3c\x4d"))),
        # Encrypted content
        ("encrypted", "luks", "application/x-luks", ((at, b"LUKS\xba\xbe"),)),
        ("encrypted", "bitlocker", "application/x-bitlocker", ((3, b"-FVE-FS-"),)),
        ("encrypted", "keepass", "application/x-keepass", ((at, b"\x03\xd9\xa2\x9a"),)),
        ("encrypted", "axcrypt", "application/x-axcrypt", ((at, b"\xc0\xb9\x07\x2e\x4f\x93\xf1\x46"),)),
        ("encrypted", "aescrypt", "application/x-aescrypt", ((at, b"AES\x02\0"),)),
        ("encrypted", "openssl", "application/x-openssl-salted", ((at, b"Salted__"),)),
        ("encrypted", "age", "application/x-age", ((at, b"age-encryption.org/v1\n"),)),
        # Disk images and file systems
        ("disk", "e01", "application/x-ewf", ((at, b"EVF\x09\x0d\x0a\xff\0"),)),
        ("disk", "ex01", "application/x-ewf", ((at, b"EVF2\x0d\x0a\x81\0"),)),
        ("disk", "vmdk", "application/x-vmdk", ((at, b"KDMV"),)),
        ("disk", "vhdx", "application/x-vhdx", ((at, b"vhdxfile"),)),
        ("disk", "vhd", "application/x-vhd", ((at, b"conectix"),)),
        ("disk", "qcow", "application/x-qemu-disk", ((at, b"QFI\xfb\0\0\0"),)),
        ("disk", "vdi", "application/x-virtualbox-vdi", ((64, b"\x7f\x10\xda\xbe"),)),
        ("disk", "sparsebundle", "application/x-apple-diskimage", ((at, b"sprs"),)),
        ("disk", "squashfs", "application/x-squashfs", ((at, b"hsqs"),)),
        ("disk", "iso9660", "application/x-iso9660-image", ((32769, b"CD001"),)),
        ("disk", "ntfs", "application/x-ntfs", ((3, b"NTFS    "), (510, b"\x55\xaa"))),
        ("disk", "exfat", "application/x-exfat", ((3, b"EXFAT   "), (510, b"\x55\xaa"))),
        ("disk", "fat32", "application/x-fat", ((82, b"FAT32   "), (510, b"\x55\xaa"))),
        ("disk", "fat", "application/x-fat", ((54, b"FAT1"), (510, b"\x55\xaa"))),
        ("disk", "xfs", "application/x-xfs", ((at, b"XFSB\0\0"),)),
        ("disk", "btrfs", "application/x-btrfs", ((65600, b"_BHRfS_M"),)),
        ("disk", "apfs", "application/x-apfs", ((32, b"NXSB"),)),
        ("disk", "gpt", "application/x-disk-image", ((510, b"\x55\xaa"), (512, b"EFI PART"))),
    ]


SIGNATURES: tuple[Signature, ...] = tuple(
    Signature(Type(name, mime, family), parts) for family, name, mime, parts in _rows()
)
