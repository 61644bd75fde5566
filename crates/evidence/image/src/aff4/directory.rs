//! The central directory of a ZIP64 archive (PKWARE's APPNOTE.TXT, 4.3.12 to 4.3.16).
//!
//! Parsed here rather than by a library, so that no size claimed by the archive causes an allocation before it is
//! checked against the file.

use cheetah_device::ByteRange;

use crate::file::ImageFile;
use cheetah_error::{Error, Result};

/// The maximum size of the directory, in bytes: 2 TiB of evidence in segments of 32 MiB need half of it. Bounds the memory that
/// a hostile directory can take: an entry takes three times its size, so this budget is 128 MiB.
const DIRECTORY_LEN_MAX: u64 = 32 << 20;

/// The size of an entry without its name, extra fields and comment.
const ENTRY_LEN: usize = 46;

/// The size of the end record without its comment.
const END_LEN: usize = 22;

/// The size of the ZIP64 locator, which precedes the end record.
const LOCATOR_LEN: u64 = 20;

/// The size of the ZIP64 end record.
const END64_LEN: u64 = 56;

/// The value of a 32-bit field whose value is in the ZIP64 record.
const SEE_LARGE: u64 = 0xffff_ffff;

/// A member's directory entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub name: Box<str>,
    pub encrypted: bool,
    /// 0: stored; 8: deflated.
    pub method: u16,
    pub crc: u32,
    pub packed_len: u64,
    pub len: u64,
    pub header_start: u64,
}

/// The position of the directory, and its number of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DirectoryPlace {
    range: ByteRange,
    count: u64,
}

/// All entries, in directory order.
pub(super) fn entries(file: &dyn ImageFile) -> Result<Vec<Entry>> {
    let damaged = |why: &str| {
        let path = file.name();
        Error::evidence(format!(
            "{path}: a ZIP archive, as AFF4 images are, but not a whole one ({why}): it is cut short or damaged"
        ))
    };
    let place = find(file)?.ok_or_else(|| damaged("it has no directory at its end"))?;
    if place.range.len > DIRECTORY_LEN_MAX {
        return Err(damaged("its directory is too large"));
    }
    let bytes = read(file, place.range)?;
    parse(&bytes, place.count).ok_or_else(|| damaged("its directory does not have the entries it should have"))
}

fn read(file: &dyn ImageFile, range: ByteRange) -> Result<Vec<u8>> {
    let read = file.read(range).map_err(Error::device(format!("reading {}", file.name())))?;
    Ok(read.into())
}

/// Locates the directory from the end of the archive; `None` if the end record is invalid.
fn find(file: &dyn ImageFile) -> Result<Option<DirectoryPlace>> {
    let size = file.len();
    let tail_start = size.saturating_sub((END_LEN + usize::from(u16::MAX)) as u64);
    let tail = read(file, ByteRange::between(tail_start, size))?;
    // The record's comment may contain another record, but only one record's comment ends at the end of the file.
    let reaches = |at: &usize| {
        tail[*at..].starts_with(b"PK\x05\x06")
            && number(&tail, at + 20, 2).is_some_and(|len| (at + END_LEN) as u64 + len == tail.len() as u64)
    };
    let Some(at) = (0..tail.len()).rev().find(reaches) else { return Ok(None) };
    let end = tail_start + at as u64;
    let small = |at: usize, len| number(&tail, at, len).unwrap_or_default();
    let (disks, count) = ((small(at + 4, 2), small(at + 6, 2)), (small(at + 8, 2), small(at + 10, 2)));
    let (len, start) = (small(at + 12, 4), small(at + 16, 4));
    let is_large = count.1 == u64::from(u16::MAX) || len == SEE_LARGE || start == SEE_LARGE;
    if is_large && let Some(at) = end.checked_sub(LOCATOR_LEN) {
        let locator = read(file, ByteRange::new(at, LOCATOR_LEN))?;
        if locator.starts_with(b"PK\x06\x07") {
            return large(file, &locator, at);
        }
    }
    Ok((disks == (0, 0) && count.0 == count.1).then(|| place(start, len, count.1, end)).flatten())
}

/// Reads the ZIP64 end record that `locator`, at `locator_at`, refers to.
fn large(file: &dyn ImageFile, locator: &[u8], locator_at: u64) -> Result<Option<DirectoryPlace>> {
    let Some(at) = number(locator, 8, 8).filter(|at| ByteRange::new(*at, END64_LEN).fits(locator_at)) else {
        return Ok(None);
    };
    let record = read(file, ByteRange::new(at, END64_LEN))?;
    let field = |at, len| number(&record, at, len).unwrap_or_default();
    let is_one = (field(16, 4), field(20, 4)) == (0, 0) && field(24, 8) == field(32, 8);
    let is_right = record.starts_with(b"PK\x06\x06") && is_one;
    Ok(is_right.then(|| place(field(48, 8), field(40, 8), field(32, 8), at)).flatten())
}

/// A directory that ends before `end` and is large enough for its entries.
fn place(start: u64, len: u64, count: u64, end: u64) -> Option<DirectoryPlace> {
    let range = ByteRange::new(start, len);
    (range.fits(end) && count <= len / ENTRY_LEN as u64).then_some(DirectoryPlace { range, count })
}

/// Parses `count` entries.
fn parse(mut bytes: &[u8], count: u64) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    for _ in 0..count {
        let (head, behind) = bytes.split_at_checked(ENTRY_LEN)?;
        let len = |at| Some(usize::from(u16::from_le_bytes(*head.get(at..)?.first_chunk()?)));
        let (name, behind) = behind.split_at_checked(len(28)?)?;
        let (extra, behind) = behind.split_at_checked(len(30)?)?;
        bytes = behind.get(len(32)?..)?;
        entries.push(entry(head, name, extra)?);
    }
    Some(entries)
}

fn entry(head: &[u8], name: &[u8], extra: &[u8]) -> Option<Entry> {
    let field = |at, len| number(head, at, len);
    let mut large = large_fields(extra);
    // ZIP64 fields have this order; only those that exceed their 32-bit field are present.
    let mut either = |small: u64| if small == SEE_LARGE { large.next() } else { Some(small) };
    let (len, packed_len) = (either(field(24, 4)?)?, either(field(20, 4)?)?);
    let header_start = either(field(42, 4)?)?;
    head.starts_with(b"PK\x01\x02").then_some(())?;
    Some(Entry {
        name: String::from_utf8_lossy(name).into(),
        encrypted: field(8, 2)? & 1 != 0,
        // Two and four bytes, so they fit.
        method: field(10, 2)? as u16,
        crc: field(16, 4)? as u32,
        packed_len,
        len,
        header_start,
    })
}

/// The numbers of the ZIP64 extra field (4.5.3), if present.
fn large_fields(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut found: &[u8] = &[];
    while let (Some(kind), Some(len)) = (number(extra, 0, 2), number(extra, 2, 2)) {
        // At most 65535.
        let end = 4 + len as usize;
        let Some(field) = extra.get(4..end) else { break };
        if kind == 1 {
            found = field;
            break;
        }
        extra = &extra[end..];
    }
    found.chunks_exact(8).filter_map(|bytes| number(bytes, 0, 8))
}

/// A little-endian number of `len` bytes, at most eight.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::RawFile;
    use proptest::prelude::*;

    /// A sparse file of `size` bytes that ends with a ZIP64 record claiming this directory.
    fn claiming(size: u64, count: u64, len: u64, start: u64) -> RawFile {
        let at = size - END64_LEN - LOCATOR_LEN - END_LEN as u64;
        let mut end = b"PK\x06\x06".to_vec();
        end.extend(44u64.to_le_bytes());
        end.extend([0; 12]);
        [count, count, len, start].iter().for_each(|number| end.extend(number.to_le_bytes()));
        end.extend(b"PK\x06\x07\0\0\0\0");
        end.extend(at.to_le_bytes());
        end.extend([1, 0, 0, 0]);
        end.extend(b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0");
        RawFile::open(&super::super::tests::file_of(&end, at)).unwrap()
    }

    #[test]
    fn claimed_counts_and_sizes_allocate_nothing() {
        const TIB: u64 = 1 << 40;
        for (count, len, start) in
            [(TIB / 64, TIB / 2, 0), (u64::MAX, 460, 0), (11, 460, 0), (10, 460, TIB), (10, 460, u64::MAX - 4)]
        {
            let refused = entries(&claiming(TIB, count, len, start)).unwrap_err();
            assert!(refused.is_evidence(), "{refused}");
        }
        assert_eq!(entries(&claiming(1000, 0, 0, 0)).unwrap(), []);
    }

    #[test]
    fn zip64_fields_replace_saturated_ones() {
        let mut head = [0; ENTRY_LEN];
        head[..4].copy_from_slice(b"PK\x01\x02");
        head[20..24].copy_from_slice(&[9, 0, 0, 0]);
        head[24..28].copy_from_slice(&[0xff; 4]);
        head[42..46].copy_from_slice(&[0xff; 4]);
        let mut extra = vec![7, 0, 1, 0, 9, 1, 0, 16, 0];
        extra.extend([1u64 << 40, 1 << 50].iter().flat_map(|number| number.to_le_bytes()));
        let found = entry(&head, b"a", &extra).unwrap();
        assert_eq!((found.len, found.packed_len, found.header_start), (1 << 40, 9, 1 << 50));
        assert_eq!(entry(&head, b"a", &extra[..17]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), count in 0u64..9) {
            let _ = parse(&bytes, count);
            let head = [b"PK\x01\x02", &bytes[..]].concat();
            let _ = parse(&head, count);
            large_fields(&bytes).count();
        }
    }
}
