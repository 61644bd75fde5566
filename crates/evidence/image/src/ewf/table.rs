//! Chunk tables: checked when the image is opened, and consulted again for each chunk.
//!
//! A 2 TB image of 32 KiB chunks has 64 Mi entries. They stay in the files, where a read finds the few it needs in the
//! page cache; memory holds one [`Table`] per table section, some 4,000 for that image.

use cheetah_device::Error as DeviceError;
use cheetah_device::le::{u32_at, u64_at};
use libdeflater::Adler32;

use super::defect::Defect;
use super::segments::{Segment, Segments};
use crate::unpack::Blocking;
use cheetah_error::Result;

/// The number of bytes of a table read at once.
const PIECE: usize = 64 << 10;
/// Flag in an entry of version 1: the chunk is compressed.
const COMPRESSED: u32 = 1 << 31;
/// Flags in an entry of version 2.
const V2_COMPRESSED: u32 = 1;
const V2_CHECKSUMMED: u32 = 2;
const V2_PATTERN: u32 = 4;
/// The size of an entry of version 2.
const V2_ENTRY: usize = 16;

/// The entries of one table section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Table {
    /// The chunk of its first entry.
    pub(super) first: u64,
    /// The number of entries; at least one.
    pub(super) count: u32,
    /// The segment that holds it and its chunks.
    pub(super) segment: u32,
    /// The offset of its entries in the segment.
    pub(super) entries: u64,
    pub(super) layout: Layout,
}

/// The format of its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// 31-bit offsets from `base`; each chunk reaches up to the next, the last up to `end`. From the entry `wide` on,
    /// offsets have 32 bits and chunks are stored: EnCase 6.7 writes that once 2 GiB are exceeded.
    V1 { base: u64, end: u64, wide: u32 },
    /// 64-bit offsets, sizes and flags. Compressed chunks are zlib, or bzip2.
    V2 { bzip2: bool },
}

/// The position of a chunk in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkLocation {
    pub(super) chunk: u64,
    pub(super) segment: usize,
    pub(super) offset: u64,
    /// Its size, or an upper bound if only the offset of the next chunk is known.
    pub(super) len: u64,
    pub(super) packing: Packing,
}

/// The storage form of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// Uncompressed, followed by its Adler-32.
    Summed,
    /// Uncompressed, without a checksum.
    Plain,
    Zlib,
    Bzip2,
    /// A repeated pattern.
    Pattern([u8; 8]),
}

/// Checks the offsets of a table of version 1 one by one, and detects the overflow of 31 bits.
#[derive(Default)]
struct Offsets {
    last: Option<u32>,
    seen: u32,
    wide: Option<u32>,
}

impl Offsets {
    /// False if the entry does not follow its predecessor.
    fn push(&mut self, raw: u32) -> bool {
        let narrow = if self.wide.is_some() { raw } else { raw & !COMPRESSED };
        let offset = match self.last {
            Some(last) if narrow <= last => {
                if raw <= last {
                    return false;
                }
                self.wide = Some(self.seen);
                raw
            }
            _ => narrow,
        };
        self.last = Some(offset);
        self.seen += 1;
        true
    }
}

impl Table {
    /// Reads and checks the `count` entries of version 1 at `entries`, followed by their checksum if `summed`. The
    /// section of the table, descriptor included, is `section`.
    pub(super) fn check_v1(
        segment: Segment<'_>,
        entries: u64,
        count: u32,
        base: u64,
        summed: bool,
        section: std::ops::Range<u64>,
    ) -> Result<Self> {
        let mut offsets = Offsets::default();
        let sum = read_entries(segment, entries, u64::from(count) * 4, |piece| {
            piece.chunks_exact(4).all(|entry| offsets.push(u32_at(entry, 0)))
        })?;
        if summed {
            check_sum(segment, entries + u64::from(count) * 4, sum.sum)?;
        }
        if !sum.good {
            return Err(segment.fault(format_args!(
                "the table at offset {entries} puts its chunk {} before the previous one",
                offsets.seen
            )));
        }
        // The size of the last chunk is not recorded. It lies either before the table (EnCase 2 and later), or after
        // the entries in the table's own section.
        let last = base.saturating_add(u64::from(offsets.last.unwrap_or(0)));
        let end = if last < section.start { section.start } else { section.end };
        if last >= end {
            return Err(segment.fault(format_args!(
                "the table at offset {entries} has its last chunk at {last}, where no chunk can be"
            )));
        }
        let layout = Layout::V1 { base, end, wide: offsets.wide.unwrap_or(u32::MAX) };
        // Segments are fewer than 65536.
        Ok(Self { first: 0, count, segment: segment.number as u32, entries, layout })
    }

    /// Reads and checks the `count` entries of version 2 at `entries`, followed by their checksum.
    pub(super) fn check_v2(segment: Segment<'_>, entries: u64, first: u64, count: u32, bzip2: bool) -> Result<Self> {
        let bytes = u64::from(count) * V2_ENTRY as u64;
        let inside = |entry: &[u8]| {
            let end = u64_at(entry, 0).checked_add(u64::from(u32_at(entry, 8)));
            let pattern = u32_at(entry, 12) & (V2_COMPRESSED | V2_PATTERN) == V2_COMPRESSED | V2_PATTERN;
            pattern || end.is_some_and(|end| end <= segment.len())
        };
        let sum = read_entries(segment, entries, bytes, |piece| piece.chunks_exact(V2_ENTRY).all(inside))?;
        check_sum(segment, entries + bytes, sum.sum)?;
        if !sum.good {
            return Err(
                segment.fault(format_args!("the table at offset {entries} has chunks beyond the end of the file"))
            );
        }
        let layout = Layout::V2 { bzip2 };
        Ok(Self { first, count, segment: segment.number as u32, entries, layout })
    }

    /// The chunk after its last.
    pub(super) const fn end(&self) -> u64 {
        self.first + self.count as u64
    }

    /// Appends the positions of those of `chunks` that are in this table to `out`. False if that would block.
    pub(super) fn locate(
        &self,
        segments: &dyn Segments,
        chunks: std::ops::Range<u64>,
        blocking: Blocking,
        out: &mut Vec<ChunkLocation>,
    ) -> cheetah_device::Result<bool> {
        // Positions in the table are below its count, which has 32 bits.
        let from = (chunks.start.max(self.first) - self.first) as u32;
        let to = (chunks.end.min(self.end()) - self.first) as u32;
        let segment = self.segment as usize;
        // An offset of version 1 needs its successor.
        let (entry, more) = match self.layout {
            Layout::V1 { .. } => (4, u32::from(to < self.count)),
            Layout::V2 { .. } => (V2_ENTRY, 0),
        };
        let mut bytes = vec![0; (to + more - from) as usize * entry];
        let at = self.entries + u64::from(from) * entry as u64;
        if !segments.read(segment, at, &mut bytes, blocking).map_err(|error| io(segments, segment, at, &error))? {
            return Ok(false);
        }
        for index in from..to {
            let bytes = &bytes[(index - from) as usize * entry..];
            let (offset, end, packing) = match self.layout {
                Layout::V1 { base, end, wide } => {
                    let (offset, packing) = offset_v1(u32_at(bytes, 0), index >= wide);
                    let next = (index + 1 < self.count).then(|| offset_v1(u32_at(bytes, 4), index + 1 >= wide).0);
                    (base + offset, next.map_or(end, |next| base + next), packing)
                }
                Layout::V2 { bzip2 } => {
                    let (offset, packing) = (u64_at(bytes, 0), packing_v2(bytes, bzip2));
                    (offset, offset.saturating_add(u64::from(u32_at(bytes, 8))), packing)
                }
            };
            let chunk = self.first + u64::from(index);
            if matches!(packing, Packing::Pattern(_)) {
                out.push(ChunkLocation { chunk, segment, offset: 0, len: 0, packing });
                continue;
            }
            // The entries were valid when the image was opened.
            let len = end.checked_sub(offset).filter(|_| end <= segments.len(segment));
            let len = len.ok_or_else(|| {
                DeviceError::Invalid(
                    format!("{} changed while it was read; start again", segments.name(segment)).into(),
                )
            })?;
            out.push(ChunkLocation { chunk, segment, offset, len, packing });
        }
        Ok(true)
    }
}

fn offset_v1(raw: u32, wide: bool) -> (u64, Packing) {
    let packing = if !wide && raw & COMPRESSED != 0 { Packing::Zlib } else { Packing::Summed };
    (u64::from(if wide { raw } else { raw & !COMPRESSED }), packing)
}

fn packing_v2(entry: &[u8], bzip2: bool) -> Packing {
    let flags = u32_at(entry, 12);
    match (flags & V2_COMPRESSED != 0, bzip2) {
        (true, _) if flags & V2_PATTERN != 0 => Packing::Pattern(u64_at(entry, 0).to_le_bytes()),
        (true, false) => Packing::Zlib,
        (true, true) => Packing::Bzip2,
        (false, _) if flags & V2_CHECKSUMMED != 0 => Packing::Summed,
        (false, _) => Packing::Plain,
    }
}

struct Sum {
    sum: u32,
    good: bool,
}

/// Passes entries to `check`, and computes their checksum.
fn read_entries(segment: Segment<'_>, at: u64, bytes: u64, mut check: impl FnMut(&[u8]) -> bool) -> Result<Sum> {
    let (mut adler, mut good, mut buf) = (Adler32::new(), true, [0; PIECE]);
    for piece in cheetah_device::ByteRange::new(0, bytes).split_at_multiples(PIECE as u64) {
        // No longer than a piece.
        let here = &mut buf[..piece.len as usize];
        segment.read(at + piece.offset, here, "the table of chunks")?;
        adler.update(here);
        good = good && check(here);
    }
    Ok(Sum { sum: adler.sum(), good })
}

fn check_sum(segment: Segment<'_>, at: u64, sum: u32) -> Result<()> {
    let mut stored = [0; 4];
    segment.read(at, &mut stored, "the checksum of a table of chunks")?;
    if u32_at(&stored, 0) == sum {
        return Ok(());
    }
    Err(segment.defect(Defect::TableChecksum { at }))
}

/// The device error for a failed read of a segment.
pub(super) fn io(segments: &dyn Segments, segment: usize, at: u64, error: &std::io::Error) -> DeviceError {
    let name = segments.name(segment);
    match error.raw_os_error() {
        Some(_) => DeviceError::io(format!("reading {name} at offset {at}"), error),
        None => DeviceError::Invalid(format!("reading {name} at offset {at}: {error}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment that consists of its table only.
    struct OnlyTable {
        len: u64,
        at: u64,
        entries: Vec<u8>,
    }

    impl Segments for OnlyTable {
        fn count(&self) -> usize {
            1
        }

        fn name(&self, _: usize) -> String {
            "only a table".to_owned()
        }

        fn len(&self, _: usize) -> u64 {
            self.len
        }

        fn read(&self, _: usize, offset: u64, buf: &mut [u8], _: Blocking) -> std::io::Result<bool> {
            let from = (offset - self.at) as usize;
            buf.copy_from_slice(&self.entries[from..from + buf.len()]);
            Ok(true)
        }
    }

    const AT: u64 = 0x9000_0000;

    fn check(offsets: &[u32], base: u64) -> Result<(OnlyTable, Table)> {
        let mut entries: Vec<_> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        entries.extend(libdeflater::adler32(&entries).to_le_bytes());
        let segments = OnlyTable { len: AT + 4096, at: AT, entries };
        let segment = Segment { all: &segments, number: 0 };
        let table = Table::check_v1(segment, AT, offsets.len() as u32, base, true, AT - 100..AT + 4096)?;
        Ok((segments, table))
    }

    fn located(offsets: &[u32], base: u64) -> Vec<(u64, u64, Packing)> {
        let (segments, table) = check(offsets, base).unwrap();
        let mut all = Vec::new();
        let every = 0..offsets.len() as u64;
        assert!(table.locate(&segments, every.clone(), Blocking::Refused, &mut all).unwrap());
        // Lookups one by one agree.
        let mut single = Vec::new();
        every.for_each(|chunk| {
            assert!(table.locate(&segments, chunk..chunk + 1, Blocking::Refused, &mut single).unwrap());
        });
        assert_eq!(all, single);
        all.into_iter().map(|at| (at.offset, at.len, at.packing)).collect()
    }

    #[test]
    fn offsets_beyond_two_gib_have_32_bits_and_their_chunks_are_stored() {
        let narrow = located(&[0x8000_1000, 0x0000_1100, 0x8000_9104], 0x10);
        let end = AT - 100;
        assert_eq!(narrow[0], (0x1010, 0x100, Packing::Zlib));
        assert_eq!(narrow[1], (0x1110, 0x8004, Packing::Summed));
        assert_eq!(narrow[2], (0x9114, end - 0x9114, Packing::Zlib));

        let wide = located(&[0xffff_0000, 0x7fff_8000, 0x8000_0004, 0x8000_8008], 0);
        assert_eq!(wide[0], (0x7fff_0000, 0x8000, Packing::Zlib));
        assert_eq!(wide[1], (0x7fff_8000, 0x8004, Packing::Summed));
        assert_eq!(wide[2], (0x8000_0004, 0x8004, Packing::Summed));
        assert_eq!(wide[3], (0x8000_8008, end - 0x8000_8008, Packing::Summed));
    }

    #[test]
    fn chunks_out_of_order_are_refused() {
        for offsets in [&[100, 100][..], &[200, 100], &[0xffff_0000, 0x8000_0004, 0x8000_0003], &[0x9000_0100]] {
            let base = if offsets.len() == 1 { AT } else { 0 };
            assert!(check(offsets, base).is_err(), "{offsets:x?}");
        }
        let (segments, _) = check(&[1, 2, 3], 0).unwrap();
        let segment = Segment { all: &segments, number: 0 };
        assert!(Table::check_v1(segment, AT, 2, 0, true, AT - 100..AT + 4096).is_err(), "checksum");
    }
}
