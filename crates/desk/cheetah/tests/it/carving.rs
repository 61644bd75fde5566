//! `search --carve` beside the carvers of the field: what each saves of the same image, and why one has what another has not.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::search::MAKE_FILES;
use crate::support::run::run;
use crate::support::{Desk, MIB, cheetah, need, noise};

/// Writes more files, beside those of `MAKE_FILES`: a picture, one with a smaller one in it, an animation, a document that was
/// saved again, a PNG with one bit changed, an archive that holds a picture as it is, and the two ends of an archive with nothing
/// right between them.
const MAKE_MORE: &str = r"
import os, struct, sys, zipfile
os.chdir(sys.argv[1])
def segment(marker, body):
    return b'\xff' + bytes([marker]) + struct.pack('>H', 2 + len(body)) + body
def jpeg(more=b'', size=3000):
    data = os.urandom(size).replace(b'\xff', b'\xfe')
    frame = segment(0xc0, struct.pack('>BHHB', 8, 64, 64, 1) + b'\x01\x11\x00')
    begin = b'\xff\xd8' + segment(0xe0, b'JFIF\0\x01\x01\0\0\x01\0\x01\0\0')
    return begin + more + frame + segment(0xda, b'\x01\x01\x00\x00\x3f\x00') + data + b'\xff\xd9'
def write(name, body):
    open(name, 'wb').write(body)
write('e.jpg', jpeg())
write('f.jpg', jpeg(segment(0xe1, b'Exif\0\0' + jpeg(size=500))))
image = b',' + struct.pack('<HHHHB', 0, 0, 9, 9, 0) + b'\x02\x02\x4c\x01\0'
write('g.gif', b'GIF89a' + struct.pack('<HHBBB', 9, 9, 0x80, 0, 0) + bytes(range(1, 7)) + image + b';')
objects = b'%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n'
table = b'xref\n0 1\n0000000000 65535 f \ntrailer\n<< /Size 1 >>\nstartxref\n%d\n%%%%EOF\n'
first = objects + table % len(objects)
write('h.pdf', first + b'2 0 obj\n<< >>\nendobj\n' + table % (len(first) + 21))
png = open('a.png', 'rb').read()
write('i.png', png[:200] + bytes([png[200] ^ 1]) + png[201:])
with zipfile.ZipFile('j.zip', 'w', zipfile.ZIP_STORED) as archive:
    archive.write('a.png')
write('k.zip', b'PK\x03\x04' + os.urandom(500) + b'PK\x05\x06' + os.urandom(18))
";

/// The files, in the order in which they lie on the disk, a MiB apart.
const FILES: [&str; 11] =
    ["a.png", "b.zip", "c.gz", "d.sqlite", "e.jpg", "f.jpg", "g.gif", "h.pdf", "i.png", "j.zip", "k.zip"];

/// Scalpel's own configuration has nothing enabled. Formats without an end mark cannot be carved whole by it.
const SCALPEL: &str = r"
png y 20000000 \x89PNG\x0d\x0a\x1a\x0a IEND\xae\x42\x60\x82
jpg y 20000000 \xff\xd8\xff \xff\xd9
gif y 20000000 GIF89a \x00\x3b
pdf y 20000 %PDF- %%EOF\x0a REVERSE
zip y 20000000 PK\x03\x04 PK\x05\x06??????????????????
";

/// Prints for each file its SHA-256, whether it is right from its first to its last byte, and its name. Written apart from our carver.
const CHECK: &str = r"
import hashlib, io, re, struct, sys, zipfile, zlib
def png(body):
    at = 8
    while True:
        size, = struct.unpack_from('>I', body, at)
        kind, (checksum,) = body[at + 4:at + 8], struct.unpack_from('>I', body, at + 8 + size)
        if zlib.crc32(body[at + 4:at + 8 + size]) != checksum:
            return False
        at += 12 + size
        if kind == b'IEND':
            return at == len(body)
def jpg(body):
    at = 2
    while body[at + 1] != 0xd9:
        marker, (size,) = body[at + 1], struct.unpack_from('>H', body, at + 2)
        if body[at] != 0xff or not 0xc0 <= marker <= 0xfe:
            return False
        at += 2 + size
        if marker == 0xda:
            at = re.compile(rb'\xff[^\x00\xd0-\xd7]').search(body, at).start()
    return body[at] == 0xff and at + 2 == len(body)
def gif(body):
    colours = lambda flags: 3 << (flags & 7) + 1 if flags & 0x80 else 0
    at = 13 + colours(body[10])
    while body[at] != 0x3b:
        if body[at] not in b'!,':
            return False
        at += 2 if body[at] == 0x21 else 11 + colours(body[at + 9])
        while body[at]:
            at += 1 + body[at]
        at += 1
    return at + 1 == len(body)
def pdf(body):
    place = re.search(rb'startxref\s+(\d+)\s+%%EOF\s*$', body)
    return place is not None and body[int(place[1]):].startswith(b'xref')
def zip(body):
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return min(info.header_offset for info in archive.infolist()) == 0 and archive.testzip() is None
for name in sys.argv[1:]:
    body = open(name, 'rb').read()
    try:
        right = globals()[name.rsplit('.', 1)[1]](body)
    except Exception:
        right = False
    print(hashlib.sha256(body).hexdigest(), int(right), name)
";

/// A file that was carved.
struct Carved {
    offset: u64,
    len: u64,
    sha256: String,
    /// Whether it is right, by [`CHECK`].
    is_right: bool,
}

/// Why a file of another carver is not one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// It is one of ours.
    Same,
    /// It is cut, damaged, or no file.
    NotRight,
    /// It lies in one of ours, such as a preview, or an older revision of a document.
    Inside,
    /// There is no reason.
    Missing,
}

/// Where the file of this name begins.
fn place(name: &str) -> u64 {
    let nth = FILES.iter().position(|file| *file == name).unwrap();
    MIB * nth as u64 + 512 * 3
}

/// A disk with the files.
fn disk(desk: &Desk) -> String {
    let folder = desk.dir("files");
    for script in [MAKE_FILES, MAKE_MORE] {
        let mut python = Command::new("python3");
        python.args(["-c", script, &folder]);
        run(python).ok();
    }
    let mut content = noise(12 * MIB, 46);
    for name in FILES {
        let (file, at) = (fs::read(Path::new(&folder).join(name)).unwrap(), place(name) as usize);
        content[at..at + file.len()].copy_from_slice(&file);
    }
    desk.file("disk.raw", &content)
}

/// The files of our table, which are taken to be right.
fn ours(desk: &Desk, disk: &str) -> Vec<Carved> {
    let formats = "jpeg,png,gif,pdf,zip,gzip,sqlite";
    cheetah(&["search", disk, "--headers", formats, "--carve", "--out", &desk.arg("ours")]).ok();
    let table = fs::read_to_string(desk.at("ours").join("carved").join("carved.csv")).unwrap();
    let row = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        let [offset, len, _, sha256, _] = fields[..] else { panic!("{line}") };
        Carved { offset: offset.parse().unwrap(), len: len.parse().unwrap(), sha256: sha256.into(), is_right: true }
    };
    table.lines().skip(1).map(row).collect()
}

/// The files of another carver in this folder. `name` and `offset` are the fields of a line of its log that say which file begins where.
fn theirs(folder: &Path, name: usize, offset: usize) -> Vec<Carved> {
    let log = fs::read_to_string(folder.join("audit.txt")).unwrap();
    let entry = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (name, offset) = (*fields.get(name)?, fields.get(offset)?.parse::<u64>().ok()?);
        name.contains('.').then(|| (name.to_owned(), offset))
    };
    let places: BTreeMap<String, u64> = log.lines().filter_map(entry).collect();
    let mut python = Command::new("python3");
    python.args(["-c", CHECK]).args(files_below(folder));
    let checked = run(python).ok().out();
    let carved = |line: &str| {
        let mut fields = line.splitn(3, ' ');
        let mut next = || fields.next().unwrap();
        let (sha256, is_right, path) = (next().to_owned(), next() == "1", Path::new(next()));
        let offset = places[path.file_name().unwrap().to_str().unwrap()];
        Carved { offset, len: fs::metadata(path).unwrap().len(), sha256, is_right }
    };
    let files: Vec<_> = checked.lines().map(carved).collect();
    assert_eq!(files.len(), places.len());
    files
}

/// The files in the folders of a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    entries(folder).into_iter().filter(|path| path.is_dir()).flat_map(|path| entries(&path)).collect()
}

/// Why a file of another carver is not among ours.
fn why(file: &Carved, ours: &[Carved]) -> Why {
    let end = |file: &Carved| file.offset + file.len;
    let is_same = |own: &&Carved| (own.offset, own.len, &own.sha256) == (file.offset, file.len, &file.sha256);
    match () {
        () if ours.iter().any(|own| is_same(&own)) => Why::Same,
        () if !file.is_right => Why::NotRight,
        () if ours.iter().any(|own| own.offset <= file.offset && end(file) <= end(own)) => Why::Inside,
        () => Why::Missing,
    }
}

/// The reasons for the files of another carver, by their offsets. None of them is right and missing among ours.
fn compared(ours: &[Carved], theirs: &[Carved]) -> BTreeMap<u64, Why> {
    let reasons: BTreeMap<u64, Why> = theirs.iter().map(|file| (file.offset, why(file, ours))).collect();
    let missing: Vec<_> = reasons.iter().filter(|(_, why)| **why == Why::Missing).collect();
    assert!(missing.is_empty(), "right, and not carved by us: {missing:?}");
    reasons
}

#[test]
fn each_right_file_that_scalpel_or_foremost_carves_is_carved_and_the_other_differences_have_reasons() {
    if !need::programs(&["python3", "scalpel", "foremost"]) {
        return;
    }
    let desk = Desk::new();
    let disk = disk(&desk);
    let ours = ours(&desk, &disk);
    let of = |reasons: &BTreeMap<u64, Why>, name: &str| reasons.get(&place(name)).copied();

    let config = desk.file("scalpel.conf", SCALPEL.as_bytes());
    let mut scalpel = Command::new("scalpel");
    scalpel.args(["-c", &config, "-o", &desk.arg("scalpel"), &disk]);
    run(scalpel).ok();
    let scalpel = theirs(&desk.at("scalpel"), 0, 1);
    let reasons = compared(&ours, &scalpel);
    for name in ["a.png", "b.zip", "e.jpg", "g.gif", "h.pdf", "j.zip"] {
        assert_eq!(of(&reasons, name), Some(Why::Same), "{name}");
    }
    // Cut at the end of the picture in it; damaged; no archive.
    for name in ["f.jpg", "i.png", "k.zip"] {
        assert_eq!(of(&reasons, name), Some(Why::NotRight), "{name}");
    }
    assert!(reasons.iter().any(|(at, why)| *at > place("f.jpg") && *at < place("g.gif") && *why == Why::Inside));
    // The picture that an archive holds as it is.
    assert!(reasons.iter().any(|(at, why)| *at > place("j.zip") && *at < place("k.zip") && *why == Why::Same));
    // What we have and Scalpel has not: formats without an end mark, and the picture that it cuts.
    let has = |own: &Carved| reasons.get(&own.offset) == Some(&Why::Same);
    let more: Vec<_> = ours.iter().filter(|own| !has(own)).map(|own| own.offset).collect();
    assert_eq!(more, ["c.gz", "d.sqlite", "f.jpg"].map(place));

    let mut foremost = Command::new("foremost");
    foremost.args(["-t", "png,jpg,gif,pdf,zip", "-i", &disk, "-o", &desk.arg("foremost")]);
    run(foremost).ok();
    let reasons = compared(&ours, &theirs(&desk.at("foremost"), 1, 4));
    for name in ["a.png", "b.zip", "g.gif", "j.zip"] {
        assert_eq!(of(&reasons, name), Some(Why::Same), "{name}");
    }
}
