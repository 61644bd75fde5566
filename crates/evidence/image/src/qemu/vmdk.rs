//! Checks VMware's descriptors ("Virtual Disk Format 5.0"), which list the files of a disk.
//!
//! qemu's reader (vmdk_parse_extents in block/vmdk.c) parses fields with sscanf, skips lines it does not understand,
//! and follows any file name. So only known lines are allowed: a line of another kind, or one that two readers could
//! read in two ways, is refused.

use std::io::ErrorKind;
use std::path::Path;

use cheetah_device::le::u64_at;

use super::checked::Checked;
use super::extent::{self, SE_SPARSE, SPARSE, VMFS_SPARSE};
use super::file::{cut, read, size};
use crate::clean::clean;
use crate::note::ImageNote;
use crate::raw::RawFile;
use crate::source::SourceFile;
use cheetah_error::{Error, Kind, Result};

/// The number of bytes of a descriptor that we and qemu read; VMware's own are below 20 KiB.
const DESCRIPTOR_LEN_MAX: u64 = (1 << 20) - 1;

/// The maximum length of a name in qemu, which would cut a longer one and open another file.
const NAME_LEN_MAX: usize = 511;

/// The unit of the sparse header and the descriptor.
const SECTOR: u64 = 512;

/// Why the files of a disk cannot be read as its descriptor says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum BadDescriptor {
    /// Other encodings are refused: qemu must open the file that we checked.
    #[error("a VMDK descriptor that is not plain text in UTF-8; correct it, or convert the disk to raw")]
    NotText,
    /// It has a parent, whose name may be known.
    #[error(
        "a VMDK that holds only what differs from another disk (its parent{}); consolidate the snapshots first, and read \
         the result", .0.as_ref().map(|parent| format!(", {parent}")).unwrap_or_default()
    )]
    Parent(Option<String>),
    /// It is encrypted.
    #[error("an encrypted VMDK; decrypt it first")]
    Encrypted,
    /// It lists no extent.
    #[error("a VMDK whose descriptor names no file that holds its data")]
    NoExtent,
    /// A line of it.
    #[error("{why} (line {number} of the descriptor)")]
    Line { number: usize, why: BadLine },
}

/// Why a file is not read as an extent: a clause about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum BadExtent {
    /// A link could lead to any file of this machine.
    #[error("is a link or no file at all; put the file itself beside the descriptor")]
    NotAFile,
    /// There is none.
    #[error("is missing; put all files of the disk in one folder")]
    Missing,
    /// It does not begin as the descriptor says.
    #[error("has no signature of an extent: it is damaged, or in another format")]
    NoSignature,
    /// It would have qemu read other files.
    #[error("has no data and refers to further files, unlike any disk made by VMware")]
    FurtherFiles,
}

/// Why a line of a descriptor is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum BadLine {
    /// It is no line that VMware writes.
    #[error("a VMDK descriptor with an unknown line")]
    Unknown,
    /// qemu skips the blank line as white space, reads the extent, and then reads it again.
    #[error("a VMDK with a blank line before an extent, which qemu misreads; delete the blank line")]
    BehindBlank,
    /// qemu leaves the extent out.
    #[error(
        "a VMDK with an extent that qemu leaves out (RDONLY, NOACCESS or ZERO), so that the data after it would be in the \
         wrong place; convert it to raw with VMware's own tools"
    )]
    LeftOut,
    /// It names no file.
    #[error("a VMDK with an extent that has no name")]
    NoName,
    /// Its data is on a disk of the machine that made it.
    #[error("a VMDK that refers to a physical disk; image that disk itself")]
    PhysicalDisk,
    /// It could name any file of this machine.
    #[error("a VMDK with files in other folders; put them beside it, and correct their names in its descriptor")]
    OtherFolders,
}

/// Refuses a disk that has a parent, is encrypted, or refers to anything but plain data files beside it.
pub(super) fn check(path: &Path, file: &RawFile) -> Result<Checked> {
    let refuse = |why: BadDescriptor| Error::failed(format!("{}: {why}", path.display())).because(why);
    let start = read(file, 0, SECTOR)?;
    let descriptor = if start.starts_with(SPARSE) {
        // qemu looks for the parent in the second sector, regardless of the header.
        let second = read(file, SECTOR, DESCRIPTOR_LEN_MAX)?;
        if let Some(why) = not_alone(&to_first_nul(second)) {
            return Err(refuse(why));
        }
        embedded(file, &start)?
    } else {
        whole(file)?
    };
    if let Some(why) = not_alone(&descriptor) {
        return Err(refuse(why));
    }
    // A sparse disk with an embedded descriptor has only one extent. The descriptor then holds an old name, in any
    // encoding, and qemu opens no file that it names.
    if start.starts_with(SPARSE) && capacity(&start) != 0 {
        return Ok(Checked { files: Vec::new(), notes: extent::check(file)?.into_iter().collect() });
    }
    let extents = parse(&descriptor).map_err(&refuse)?;
    if extents.is_empty() {
        return Err(refuse(BadDescriptor::NoExtent));
    }
    let mut checked = Checked::default();
    for extent in extents {
        let (file, note) = extent.check(path)?;
        checked.files.push(file);
        checked.notes.extend(note);
    }
    Ok(checked)
}

/// Returns the capacity of a sparse extent in sectors. With 0, qemu takes it for the descriptor of a disk.
fn capacity(header: &[u8]) -> u64 {
    u64_at(header, 12)
}

/// Reads the descriptor that a sparse extent's header points to.
fn embedded(file: &RawFile, header: &[u8]) -> Result<Vec<u8>> {
    let (offset, len) = (u64_at(header, 28), u64_at(header, 36));
    if offset == 0 || len == 0 {
        let what = "an extent of a VMDK without its descriptor; give the descriptor, the small .vmdk file beside it";
        return Err(Error::failed(format!("{}: {what}", file.path())));
    }
    // qemu's product wraps around; ours must not differ.
    let start = offset.checked_mul(SECTOR).filter(|start| *start < size(file)).ok_or_else(|| {
        Error::evidence(format!(
            "{}: a VMDK whose descriptor lies beyond its end: it is cut short or damaged",
            file.path()
        ))
    })?;
    // Up to the first NUL, as qemu does, regardless of the header.
    let bytes = read(file, start, DESCRIPTOR_LEN_MAX)?;
    let read_len = bytes.len() as u64;
    let descriptor = to_first_nul(bytes);
    if descriptor.len() as u64 == read_len && read_len == DESCRIPTOR_LEN_MAX {
        return Err(too_long(file));
    }
    Ok(descriptor)
}

fn whole(file: &RawFile) -> Result<Vec<u8>> {
    if size(file) > DESCRIPTOR_LEN_MAX {
        return Err(too_long(file));
    }
    read(file, 0, DESCRIPTOR_LEN_MAX).map(to_first_nul)
}

fn too_long(file: &RawFile) -> Error {
    Error::failed(format!("{}: a VMDK descriptor of more than 1 MiB", file.path()))
}

/// Cuts a descriptor at its first NUL, as qemu does.
fn to_first_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

/// Returns why the disk cannot be read by itself: it has a parent, or is encrypted. A parent's name counts anywhere, as
/// in qemu.
fn not_alone(descriptor: &[u8]) -> Option<BadDescriptor> {
    let text = String::from_utf8_lossy(descriptor);
    let lower = text.to_ascii_lowercase();
    let parent = |line: &str| {
        let value = line.trim().strip_prefix("parentcid")?.trim_start().strip_prefix('=')?;
        Some(value.trim() != "ffffffff")
    };
    let hint = lower.find("parentfilenamehint");
    if hint.is_some() || lower.lines().any(|line| parent(line) == Some(true)) {
        // Lower-case ASCII has the length of the text.
        let named = hint.and_then(|at| text.get(at..)?.lines().next()?.split_once('=')).map(|(_, name)| name.trim());
        return Some(BadDescriptor::Parent(named.map(|name| clean(name.trim_matches('"')))));
    }
    let encrypted = lower.lines().any(|line| line.trim().starts_with("encryption."));
    encrypted.then_some(BadDescriptor::Encrypted)
}

/// A part of a disk in a file beside its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent<'a> {
    name: &'a str,
    /// The required signature of the file, if it is more than data; nothing else is interpreted.
    magics: &'static [&'static [u8]],
    /// Up to this offset, in sectors, a file of plain data must reach.
    end: u64,
}

/// Parses the extents that a descriptor lists.
fn parse(descriptor: &[u8]) -> std::result::Result<Vec<Extent<'_>>, BadDescriptor> {
    let text = std::str::from_utf8(descriptor).ok().filter(|text| !text.contains(is_odd));
    let text = text.ok_or(BadDescriptor::NotText)?;
    let mut extents = Vec::new();
    let mut after_blank = false;
    for (number, line) in (1..).zip(text.split('\n')) {
        let line = line.strip_suffix('\r').unwrap_or(line).trim_matches(BLANK);
        let is_blank = line.is_empty();
        if !is_blank && !line.starts_with('#') && !is_setting(line) {
            let extent = if after_blank { Err(BadLine::BehindBlank) } else { parse_extent(line) };
            extents.push(extent.map_err(|why| BadDescriptor::Line { number, why })?);
        }
        after_blank = is_blank;
    }
    Ok(extents)
}

const BLANK: [char; 2] = [' ', '\t'];

/// Whether it is a control character other than a line end or tab. Some are white space to qemu and not to others.
fn is_odd(c: char) -> bool {
    c.is_control() && !['\t', '\r', '\n'].contains(&c)
}

/// Whether the line is `key = value`, which cannot be an extent: an extent's second word is a number.
fn is_setting(line: &str) -> bool {
    let Some((key, _)) = line.split_once('=') else { return false };
    let key = key.trim_end_matches(BLANK);
    !line.contains('\r')
        && key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

/// `RW SECTORS TYPE "FILE"`, and the offset in the file where the type is FLAT.
fn parse_extent(line: &str) -> std::result::Result<Extent<'_>, BadLine> {
    let mut rest = line;
    let mut word = || {
        let (word, behind) = rest.split_once(BLANK)?;
        rest = behind.trim_start_matches(BLANK);
        Some(word)
    };
    let access = word().ok_or(BadLine::Unknown)?;
    if ["RDONLY", "NOACCESS"].contains(&access) || line.ends_with("ZERO") {
        return Err(BadLine::LeftOut);
    }
    let sectors = word().filter(|_| access == "RW").ok_or(BadLine::Unknown)?;
    if !is_number(sectors) || sectors.bytes().all(|digit| digit == b'0') {
        return Err(BadLine::Unknown);
    }
    let kind = word().ok_or(BadLine::NoName)?;
    let magics: &[&[u8]] = match kind {
        "FLAT" | "VMFS" => &[],
        "SPARSE" | "VMFSSPARSE" => &[SPARSE, VMFS_SPARSE],
        "SESPARSE" => &[SE_SPARSE],
        _ => return Err(BadLine::PhysicalDisk),
    };
    let name = rest.strip_prefix('"').and_then(|rest| rest.split_once('"'));
    let (name, offset) = name.filter(|(name, _)| !name.is_empty()).ok_or(BadLine::NoName)?;
    // A colon could name a protocol of qemu's, a slash a file anywhere on this machine.
    if name.contains(['/', '\\', ':', '\r']) || [".", ".."].contains(&name) || name.len() > NAME_LEN_MAX {
        return Err(BadLine::OtherFolders);
    }
    let is_right = match kind {
        "FLAT" => offset.starts_with(BLANK) && is_number(offset.trim_start_matches(BLANK)),
        _ => offset.is_empty(),
    };
    // Numbers of at most 18 digits.
    let number = |text: &str| text.trim_matches(BLANK).parse::<u64>().unwrap_or_default();
    let end = number(sectors) + number(offset);
    is_right.then_some(Extent { name, magics, end }).ok_or(BadLine::Unknown)
}

/// Parses digits that fit in the 63 bits of qemu's counters.
fn is_number(text: &str) -> bool {
    (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Extent<'_> {
    /// Refuses a file that does not exist, is a link, refers to further files, or is cut short. Returns it, and what is in doubt.
    fn check(&self, descriptor: &Path) -> Result<(SourceFile, Option<ImageNote>)> {
        let name = self.name;
        let path = descriptor.with_file_name(name);
        let refused = |kind: Kind, why: BadExtent| {
            Error::new(kind, format!("{}: its extent {name} {why}", descriptor.display())).because(why)
        };
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err(refused(Kind::Failed, BadExtent::NotAFile)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(refused(Kind::Evidence, BadExtent::Missing));
            }
            Err(error) => return Err(Error::io(format_args!("looking at {}", path.display()), &error)),
        }
        let file = RawFile::open_beside(&path)?;
        let found = SourceFile { path, size: size(&file) };
        if self.magics.is_empty() {
            let end = self.end.saturating_mul(SECTOR);
            return if end > found.size { Err(cut(&file, "the end of the extent", end)) } else { Ok((found, None)) };
        }
        let start = read(&file, 0, SECTOR)?;
        if !self.magics.iter().any(|magic| start.starts_with(magic)) {
            return Err(refused(Kind::Evidence, BadExtent::NoSignature));
        }
        if start.starts_with(SPARSE) && capacity(&start) == 0 {
            return Err(refused(Kind::Failed, BadExtent::FurtherFiles));
        }
        Ok((found, extent::check(&file)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAT: &str = "# Disk DescriptorFile\nversion=1\nCID=5b1d9b7e\nparentCID=ffffffff\r\n\
        createType=\"monolithicFlat\"\n\n# Extent description\nRW 20480 FLAT \"disk-flat.vmdk\" 0\n\
        \n# The Disk Data Base\nddb.geometry.cylinders = \"20\"\n";

    fn header(capacity: u8, descriptor_at: u64) -> Vec<u8> {
        let mut header = vec![0; 512];
        header[..4].copy_from_slice(SPARSE);
        header[12] = capacity;
        header[28..36].copy_from_slice(&descriptor_at.to_le_bytes());
        header[36] = 20;
        // Grains of 8 sectors, 512 in a table, and the directory in the next sector.
        (header[20], header[45], header[56]) = (8, 2, 1);
        header
    }

    fn refusal(path: &Path) -> Error {
        check(path, &RawFile::open(path).unwrap()).unwrap_err()
    }

    #[test]
    fn extents_lie_beside_the_descriptor() {
        assert_eq!(parse(FLAT.as_bytes()).unwrap(), [Extent { name: "disk-flat.vmdk", magics: &[], end: 20480 }]);
        let long = "x".repeat(512);
        for (was, is, because) in [
            ("disk-flat.vmdk", "/etc/shadow", BadLine::OtherFolders),
            ("disk-flat.vmdk", "..\\disk", BadLine::OtherFolders),
            ("disk-flat.vmdk", "..", BadLine::OtherFolders),
            ("disk-flat.vmdk", "json:{}", BadLine::OtherFolders),
            ("disk-flat.vmdk", &long, BadLine::OtherFolders),
            ("\"disk-flat.vmdk\"", "", BadLine::NoName),
            ("RW 20480 FLAT \"disk-flat.vmdk\"", "RW\t1\tFLAT\t\"../disk\"", BadLine::OtherFolders),
            ("FLAT", "VMFSRDM", BadLine::PhysicalDisk),
            ("RW 20480 FLAT \"disk-flat.vmdk\" 0", "RW 8 ZERO", BadLine::LeftOut),
            ("RW 20480", "RDONLY 20480", BadLine::LeftOut),
            ("# Extent description\n", "", BadLine::BehindBlank),
        ] {
            let refused = parse(FLAT.replace(was, is).as_bytes()).unwrap_err();
            assert!(matches!(refused, BadDescriptor::Line { why, .. } if why == because), "{is}: {refused}");
        }
        assert_eq!(not_alone(FLAT.as_bytes()), None);
        for (was, is, why) in [
            ("parentCID=ffffffff", "parentCID = 12345678", BadDescriptor::Parent(None)),
            ("version=1", "parentFileNameHint=\"base.vmdk\"", BadDescriptor::Parent(Some("base.vmdk".into()))),
            ("version=1", "encryption.keySafe = \"x\"", BadDescriptor::Encrypted),
        ] {
            assert_eq!(not_alone(FLAT.replace(was, is).as_bytes()), Some(why), "{is}");
        }
    }

    #[test]
    fn an_ambiguous_line_is_refused() {
        for line in [
            "RW\x0b100\x0bFLAT \"/etc/shadow\" 0",
            "RW\x0c100\x0cFLAT\x0c\"/etc/shadow\"\x0c0",
            "RW\r100\rFLAT \"/etc/shadow\" 0",
            "RW\n100\nFLAT \"/etc/shadow\" 0",
            "RW\n100 FLAT \"/etc/shadow\" 0 = 1",
            "RW 100 FLAT \"/etc/shadow\" 0 = 1",
            "RW 100 FLAT \"a\"",
            "RW 100 FLAT \"a\" 0 0",
            "RW 100 SPARSE \"a",
            "RW 100 SPARSE \"a\" 0",
            "RW 0x64 FLAT \"a\" 0",
            "RW 0 FLAT \"a\" 0",
            "RW 9999999999999999999 FLAT \"a\" 0",
            "rw 100 FLAT \"a\" 0",
            "\u{a0}RW 100 FLAT \"a\" 0",
            "RW 100 FLAT \"a\u{85}\" 0",
            "anything else",
        ] {
            let text = FLAT.replace("# The Disk", &format!("#\n{line}\n# The Disk"));
            assert!(parse(text.as_bytes()).is_err(), "{line:?}");
        }
        assert!(parse(&[FLAT.as_bytes(), b"RW 1 SPARSE \"\xff\"\n"].concat()).is_err(), "not UTF-8");
    }

    #[test]
    fn an_extent_is_a_file_in_the_same_folder_without_further_references() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (disk, secret) = (at("b.vmdk"), at("secret"));
        std::fs::write(&secret, [7; 512 * 100]).unwrap();
        let sparse = FLAT.replace("RW 20480 FLAT \"disk-flat.vmdk\" 0", "RW 100 SPARSE \"b-s001.vmdk\"");
        std::fs::write(&disk, sparse).unwrap();

        let extent = at("b-s001.vmdk");
        assert_eq!(refusal(&disk).cause(), Some(&BadExtent::Missing));
        assert!(refusal(&disk).to_string().contains("b-s001.vmdk"));
        let inner = format!("# Disk DescriptorFile\nRW 100 FLAT \"{}\" 0\n", secret.display());
        std::fs::write(&extent, [&header(0, 1)[..], inner.as_bytes(), &[0; 10240]].concat()).unwrap();
        assert_eq!(refusal(&disk).cause(), Some(&BadExtent::FurtherFiles));
        std::fs::write(&extent, &inner).unwrap();
        assert_eq!(refusal(&disk).cause(), Some(&BadExtent::NoSignature));
        std::fs::write(&extent, [header(1, 0), vec![0; 512]].concat()).unwrap();
        check(&disk, &RawFile::open(&disk).unwrap()).unwrap();

        std::fs::write(&disk, FLAT.replace("20480", "100")).unwrap();
        std::os::unix::fs::symlink(&secret, at("disk-flat.vmdk")).unwrap();
        assert_eq!(refusal(&disk).cause(), Some(&BadExtent::NotAFile));
        std::fs::remove_file(at("disk-flat.vmdk")).unwrap();
        std::fs::rename(&secret, at("disk-flat.vmdk")).unwrap();
        check(&disk, &RawFile::open(&disk).unwrap()).unwrap();
    }

    #[test]
    fn an_embedded_descriptor_is_read_as_qemu_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("a.vmdk");
        let hostile = FLAT.replace("disk-flat.vmdk", "/etc/shadow");
        let write = |at: u64| {
            std::fs::write(&disk, [&header(0, at)[..], hostile.as_bytes(), &[0; 10240]].concat()).unwrap();
        };
        write(1);
        let refused = refusal(&disk);
        let is_right =
            matches!(refused.cause::<BadDescriptor>(), Some(BadDescriptor::Line { why: BadLine::OtherFolders, .. }));
        assert!(is_right, "{refused}");
        // In 64 bits, qemu's product of this and 512 is 512 again.
        write((1 << 55) + 1);
        assert!(refusal(&disk).is_evidence(), "{}", refusal(&disk));
    }
}
