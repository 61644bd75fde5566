//! Checks a QCOW2 image (docs/interop/qcow2.txt in QEMU's sources): that it depends on no other file, and that its file
//! holds every cluster that its tables refer to.

use cheetah_device::ByteRange;

use super::checked::Checked;
use super::file::{Places, read, size, table};
use crate::clean::clean;
use crate::note::ImageNote;
use crate::raw::RawFile;
use cheetah_error::{Error, Result};

/// Bytes of the header that are interpreted.
const HEADER_LEN: u64 = 104;
/// Incompatible features: the data is in another file; L2 entries describe subclusters.
const EXTERNAL_DATA: u64 = 1 << 2;
const EXTENDED_L2: u64 = 1 << 4;
/// The header extension with the name of the file with the data.
const DATA_FILE_NAME: u32 = 0x4441_5441;
/// Sizes of clusters that qemu accepts, as powers of two.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// The maximum number of L1 entries, as in qemu: they take 32 MiB.
const L1_ENTRIES_MAX: u32 = 4 << 20;
/// The offset in an L1 or L2 entry.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// The flag of a compressed cluster in an L2 entry.
const COMPRESSED: u64 = 1 << 62;
/// The flag of a cluster that reads as zeros.
const ZERO: u64 = 1;
/// The number of names shown; bytes of a name.
const NAMES_MAX: u32 = 5;
const NAME_LEN_MAX: u64 = 1023;

/// The header.
struct Header {
    bytes: Vec<u8>,
    cluster_bits: u32,
    features: u64,
}

impl Header {
    fn parse(file: &RawFile) -> Result<Self> {
        let bytes = read(file, 0, HEADER_LEN)?;
        let damaged = |why: &str| Error::evidence(format!("{}: a QCOW2 image {why}", file.path()));
        let is_new = bytes.get(4..8).is_some_and(|version| version > &[0, 0, 0, 2][..]);
        if bytes.len() < if is_new { HEADER_LEN as usize } else { 72 } {
            return Err(damaged("that is cut short"));
        }
        let mut header = Self { bytes, cluster_bits: 0, features: 0 };
        header.cluster_bits = header.u32(20);
        header.features = if is_new { header.u64(72) } else { 0 };
        if !CLUSTER_BITS.contains(&header.cluster_bits) {
            return Err(damaged(&format!("with clusters of 2^{} bytes: it is damaged", header.cluster_bits)));
        }
        Ok(header)
    }

    fn u32(&self, at: usize) -> u32 {
        be32(&self.bytes, at)
    }

    fn u64(&self, at: usize) -> u64 {
        be64(&self.bytes, at)
    }

    const fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Refuses an image that depends on other files, or is cut short.
pub(super) fn check(file: &RawFile) -> Result<Checked> {
    let header = Header::parse(file)?;
    alone(file, &header)?;
    let mut places = Places::of(file);
    for at in l2_tables(file, &header)? {
        let range = ByteRange::new(at, header.cluster_bytes());
        table(file, "a table of clusters", range, |piece| clusters(piece, &header, size(file), &mut places))?;
    }
    let notes = places.note().into_iter().chain(snapshots(file, &header)?).collect();
    Ok(Checked { files: Vec::new(), notes })
}

/// Refuses an image that depends on other files; names them.
fn alone(file: &RawFile, header: &Header) -> Result<()> {
    let not_whole = |what: String| Err(Error::failed(format!("{}: {what}", file.path())));
    let backing = header.u64(8);
    if backing != 0 {
        let name = text(file, backing, u64::from(header.u32(16)).min(NAME_LEN_MAX))?;
        return not_whole(format!(
            "a QCOW2 image that holds only what differs from another image (its backing file, {name}); convert it with \
             qemu-img convert where that image is, and read the result"
        ));
    }
    if header.u32(32) != 0 {
        return not_whole("an encrypted QCOW2 image; decrypt it with qemu-img convert first".into());
    }
    if header.features & EXTERNAL_DATA != 0 {
        let name = extension(file, header, DATA_FILE_NAME)?.unwrap_or_else(|| "which it does not name".into());
        return not_whole(format!(
            "a QCOW2 image whose data is in another file ({name}); convert it with qemu-img convert first"
        ));
    }
    Ok(())
}

fn text(file: &RawFile, at: u64, len: u64) -> Result<String> {
    Ok(clean(&String::from_utf8_lossy(&read(file, at, len)?)))
}

/// Returns the content of a header extension, as text.
fn extension(file: &RawFile, header: &Header, wanted: u32) -> Result<Option<String>> {
    let mut at = u64::from(header.u32(100)).max(HEADER_LEN);
    while at < header.cluster_bytes() {
        let head = read(file, at, 8)?;
        let (kind, len) = (be32(&head, 0), u64::from(be32(&head, 4)));
        if kind == wanted {
            return text(file, at + 8, len.min(NAME_LEN_MAX)).map(Some);
        }
        if kind == 0 {
            break;
        }
        at += 8 + len.next_multiple_of(8);
    }
    Ok(None)
}

/// The offsets of the L2 tables, each once.
fn l2_tables(file: &RawFile, header: &Header) -> Result<Vec<u64>> {
    let (entries, at) = (header.u32(36), header.u64(40));
    if entries > L1_ENTRIES_MAX {
        return Err(Error::evidence(format!(
            "{}: a QCOW2 image with a table of {entries} tables: it is damaged",
            file.path()
        )));
    }
    let mut tables = Vec::new();
    table(file, "the table of tables", ByteRange::new(at, u64::from(entries) * 8), |piece| {
        tables.extend(piece.chunks_exact(8).map(|entry| be64(entry, 0) & OFFSET).filter(|at| *at != 0));
        Ok(())
    })?;
    tables.sort_unstable();
    tables.dedup();
    Ok(tables)
}

/// Checks the clusters that a piece of an L2 table refers to.
fn clusters(piece: &[u8], header: &Header, size: u64, places: &mut Places<'_>) -> Result<()> {
    let extended = header.features & EXTENDED_L2 != 0;
    for entry in piece.chunks_exact(if extended { 16 } else { 8 }) {
        let (word, subclusters) = (be64(entry, 0), be64(entry, 8));
        if word & COMPRESSED != 0 {
            // The offset has fewer bits in larger clusters; the rest is the number of further sectors.
            let offset_bits = 62 - (header.cluster_bits - 8);
            let start = word & ((1 << offset_bits) - 1);
            let sectors = ((word & (COMPRESSED - 1)) >> offset_bits) + 1;
            let end = (start & !511) + sectors * 512;
            // The last sector need not be whole.
            if end > size.next_multiple_of(512) {
                places.check(start.max(size), 1)?;
            }
            continue;
        }
        let offset = word & OFFSET;
        let reads_zeros = if extended { subclusters & 0xffff_ffff == 0 } else { word & ZERO != 0 };
        if offset != 0 && !reads_zeros {
            places.check(offset, header.cluster_bytes())?;
        }
    }
    Ok(())
}

/// Returns a note on the snapshots in the image, which are other states of the disk.
fn snapshots(file: &RawFile, header: &Header) -> Result<Option<ImageNote>> {
    let (count, mut at) = (header.u32(60), header.u64(64));
    if count == 0 {
        return Ok(None);
    }
    let mut names = Vec::new();
    for _ in 0..count.min(NAMES_MAX) {
        let head = read(file, at, 40)?;
        let u16_at = |at: usize| u64::from(be32(&head, at) >> 16);
        let (id, name, extra) = (u16_at(12), u16_at(14), u64::from(be32(&head, 36)));
        let Some(start) = at.checked_add(40 + extra + id).filter(|_| head.len() == 40) else { break };
        names.push(text(file, start, name.min(NAME_LEN_MAX))?);
        at = start.saturating_add(name).next_multiple_of(8);
    }
    Ok(Some(ImageNote::Snapshots { path: file.path().to_string(), count, names }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// An image of 1 MiB in clusters of 64 KiB: header, L1 and one L2 table, and clusters at these offsets.
    fn image(version: u32, entries: &[u64], len: u64) -> Vec<u8> {
        let mut bytes = vec![0; 3 << 16];
        bytes[..8].copy_from_slice(&[b"QFI\xfb", &version.to_be_bytes()[..]].concat());
        bytes[20..24].copy_from_slice(&16u32.to_be_bytes());
        bytes[24..32].copy_from_slice(&(1u64 << 20).to_be_bytes());
        bytes[36..40].copy_from_slice(&1u32.to_be_bytes());
        bytes[40..48].copy_from_slice(&(1u64 << 16).to_be_bytes());
        bytes[100..104].copy_from_slice(&104u32.to_be_bytes());
        bytes[1 << 16..][..8].copy_from_slice(&(1 << 63 | 2u64 << 16).to_be_bytes());
        for (at, entry) in bytes[2 << 16..].chunks_exact_mut(8).zip(entries) {
            at.copy_from_slice(&entry.to_be_bytes());
        }
        bytes.resize(len as usize, 0);
        bytes
    }

    fn checked(bytes: &[u8]) -> Result<Checked> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        check(&RawFile::open(file.path()).unwrap())
    }

    fn changed(at: usize, value: &[u8]) -> Result<Checked> {
        let mut bytes = image(3, &[3 << 16], 4 << 16);
        bytes[at..at + value.len()].copy_from_slice(value);
        checked(&bytes)
    }

    const FLAG: u64 = 1 << 63;

    #[test]
    fn every_cluster_must_be_in_the_file() {
        for version in [2, 3] {
            assert_eq!(checked(&image(version, &[FLAG | 3 << 16, FLAG | 4 << 16], 5 << 16)).unwrap().notes.len(), 0);
            let partly = checked(&image(version, &[FLAG | 3 << 16, FLAG | 4 << 16], (5 << 16) - 512)).unwrap();
            assert!(matches!(partly.notes[0], ImageNote::PieceCut { .. }), "{:?}", partly.notes);
            for len in [4 << 16, (4 << 16) - 1, 3 << 16, (2 << 16) + 9, 1 << 16, 60] {
                let refused = checked(&image(version, &[FLAG | 3 << 16, FLAG | 4 << 16], len)).err().unwrap();
                assert_eq!(refused.exit_code(), 3, "{len}: {refused}");
            }
        }
        // Zeros have no place in the file, nor has an entry that is all zeros.
        assert!(checked(&image(3, &[0, 9 << 16 | ZERO], 3 << 16)).is_ok());
        // One sector of compressed bytes; then two, of which the second is missing.
        assert!(checked(&image(3, &[COMPRESSED | 3 << 16], (3 << 16) + 100)).is_ok());
        assert!(checked(&image(3, &[COMPRESSED | 1 << 54 | 3 << 16], (3 << 16) + 100)).is_err());
        assert!(checked(&image(3, &[COMPRESSED | 5 << 16], (3 << 16) + 100)).is_err());
    }

    #[test]
    fn an_image_that_needs_more_than_itself_is_refused_and_the_other_file_is_named() {
        let mut bytes = image(3, &[3 << 16], 4 << 16);
        bytes[8..16].copy_from_slice(&1024u64.to_be_bytes());
        bytes[16..20].copy_from_slice(&8u32.to_be_bytes());
        bytes[1024..1032].copy_from_slice(b"base.raw");
        let refused = checked(&bytes).err().unwrap().to_string();
        assert!(refused.contains("base.raw"), "{refused}");
        assert!(changed(32, &1u32.to_be_bytes()).is_err());
        bytes[8..16].fill(0);
        bytes[72..80].copy_from_slice(&EXTERNAL_DATA.to_be_bytes());
        bytes[104..112].copy_from_slice(&[&DATA_FILE_NAME.to_be_bytes()[..], &8u32.to_be_bytes()].concat());
        bytes[112..120].copy_from_slice(b"data.raw");
        let refused = checked(&bytes).err().unwrap().to_string();
        assert!(refused.contains("data.raw"), "{refused}");
        assert!(changed(20, &99u32.to_be_bytes()).is_err() && changed(36, &u32::MAX.to_be_bytes()).is_err());
    }

    #[test]
    fn snapshots_are_named() {
        let mut bytes = image(3, &[3 << 16], 4 << 16);
        bytes[60..64].copy_from_slice(&1u32.to_be_bytes());
        bytes[64..72].copy_from_slice(&2048u64.to_be_bytes());
        bytes[2048 + 12..2048 + 16].copy_from_slice(&[0, 1, 0, 6]);
        bytes[2088..2095].copy_from_slice(b"1before");
        let notes = checked(&bytes).unwrap().notes;
        let ImageNote::Snapshots { count: 1, names, .. } = &notes[0] else { panic!("{notes:?}") };
        assert_eq!(*names, ["before"]);
    }
}
