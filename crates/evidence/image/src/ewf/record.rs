//! Combines the metadata of all segments, and checks that the image is complete.

use cheetah_device::ByteRange;

use super::defect::Defect;
use super::info::{EwfFormat, EwfInfo};
use super::segments::{Segment, Segments};
use super::table::{ChunkLocation, Table};
use super::text::Values;
use crate::hash::Hashes;
use crate::identity::CaseData;
use crate::unpack::Blocking;
use cheetah_error::{Error, Result};

/// The maximum size of a chunk, which is held in memory. Writers offer up to 32,768 sectors of 512 bytes.
const CHUNK_MAX: u32 = 64 << 20;
/// The maximum size of a sector.
const SECTOR_MAX: u32 = 1 << 20;
/// The maximum number of tables: they take 48 MiB of memory. With EnCase's 1,600 chunks of 32 KiB per table that is 50 TiB.
const TABLES_MAX: usize = 1 << 20;
/// The maximum number of unreadable runs: they take 48 MiB with the ranges made of them.
const ERRORS_MAX: usize = 1 << 20;

/// The shape of the evidence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Medium {
    pub(super) sectors: u64,
    pub(super) sector_size: u32,
    pub(super) sectors_per_chunk: u32,
    pub(super) error_granularity: u32,
    pub(super) physical: bool,
}

/// The combined content of the sections of all segments.
pub(super) struct EwfRecord {
    pub(super) format: EwfFormat,
    pub(super) medium: Option<Medium>,
    pub(super) set_id: [u8; 16],
    pub(super) about: About,
    pub(super) hashes: Hashes,
    /// Unreadable runs: first sector and number of sectors.
    pub(super) errors: Vec<(u64, u64)>,
    pub(super) index: Index,
}

/// Case data and disk data.
#[derive(Debug, Default)]
pub(super) struct About {
    pub(super) case: CaseData,
    pub(super) model: Option<String>,
    pub(super) serial: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) platform: Option<String>,
    pub(super) acquired: Option<String>,
}

impl About {
    /// Converts the values of version 1 (libewf, "EWF specification", *Header2 values*).
    pub(super) fn of_v1(values: &Values) -> Self {
        Self {
            case: CaseData {
                case_number: values.get("c"),
                evidence_number: values.get("n"),
                examiner: values.get("e"),
                description: values.get("a"),
                notes: values.get("t"),
            },
            model: values.get("md"),
            serial: values.get("sn"),
            tool: values.get("av"),
            platform: values.get("ov"),
            acquired: values.get("m"),
        }
    }
}

/// All tables, in the order of their chunks.
#[derive(Debug, Default)]
pub(super) struct Index {
    tables: Vec<Table>,
}

impl Index {
    /// The number of chunks.
    pub(super) fn chunks(&self) -> u64 {
        self.tables.last().map_or(0, Table::end)
    }

    /// Appends a table, which must start with the next chunk.
    pub(super) fn push(&mut self, segment: Segment<'_>, table: Table) -> Result<()> {
        if table.first != self.chunks() {
            return Err(segment.fault(format_args!(
                "a table begins with chunk {} instead of {}",
                table.first,
                self.chunks()
            )));
        }
        if self.tables.len() >= TABLES_MAX {
            return Err(segment.refusal(format_args!("the image has more than {TABLES_MAX} tables")));
        }
        if table.count > 0 {
            self.tables.push(table);
        }
        Ok(())
    }

    /// Locates `chunks`; `None` if that would block.
    pub(super) fn locate(
        &self,
        segments: &dyn Segments,
        chunks: std::ops::Range<u64>,
        blocking: Blocking,
    ) -> cheetah_device::Result<Option<Vec<ChunkLocation>>> {
        let mut located = Vec::new();
        let first = self.tables.partition_point(|table| table.end() <= chunks.start);
        for table in self.tables[first..].iter().take_while(|table| table.first < chunks.end) {
            if !table.locate(segments, chunks.clone(), blocking, &mut located)? {
                return Ok(None);
            }
        }
        Ok(Some(located))
    }
}

impl EwfRecord {
    pub(super) fn new(format: EwfFormat) -> Self {
        Self {
            format,
            medium: None,
            set_id: [0; 16],
            about: About::default(),
            hashes: Hashes::default(),
            errors: Vec::new(),
            index: Index::default(),
        }
    }

    /// Records a segment's description of the evidence; all segments must agree.
    pub(super) fn set_medium(&mut self, segment: Segment<'_>, medium: Medium) -> Result<()> {
        let (sector, chunk) = (medium.sector_size, medium.sectors_per_chunk);
        if sector == 0 || sector > SECTOR_MAX || chunk == 0 || chunk > CHUNK_MAX / sector {
            return Err(segment.refusal(format_args!(
                "chunks of {chunk} sectors of {sector} bytes cannot be read; at most {CHUNK_MAX} bytes can"
            )));
        }
        if medium.sectors.checked_mul(u64::from(sector)).is_none_or(|size| i64::try_from(size).is_err()) {
            return Err(segment.fault(format_args!("it claims to be an image of {} sectors", medium.sectors)));
        }
        match self.medium {
            Some(before) if (before.sector_size, before.sectors_per_chunk) != (sector, chunk) => {
                Err(segment.fault("its sectors or chunks are of another size than those of the first segment"))
            }
            // The size is repeated in each segment, and a version of libewf wrote 0 into the first.
            Some(before) if before.sectors > 0 => Ok(()),
            _ => {
                self.medium = Some(medium);
                Ok(())
            }
        }
    }

    /// Records a segment's set identifier; all segments that have one must agree.
    pub(super) fn set_id(&mut self, segment: Segment<'_>, id: [u8; 16]) -> Result<()> {
        if self.set_id == [0; 16] {
            self.set_id = id;
        } else if id != [0; 16] && id != self.set_id {
            return Err(segment.defect(Defect::OtherImage { first: segment.all.name(0) }));
        }
        Ok(())
    }

    /// Records unreadable runs of sectors.
    pub(super) fn add_errors(&mut self, segment: Segment<'_>, runs: impl Iterator<Item = (u64, u64)>) -> Result<()> {
        self.errors.extend(runs);
        if self.errors.len() > ERRORS_MAX {
            return Err(segment.refusal(format_args!("the image has more than {ERRORS_MAX} unreadable ranges")));
        }
        Ok(())
    }

    /// Records a stored hash; a repetition must be equal.
    pub(super) fn set_hash(segment: Segment<'_>, slot: &mut Option<String>, name: &str, digest: &[u8]) -> Result<()> {
        if digest.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let digest = crate::hash::hex(digest);
        if let Some(other) = slot.as_ref().filter(|before| **before != digest) {
            return Err(segment.fault(format_args!("the image has two different {name} hashes, {other} and {digest}")));
        }
        *slot = Some(digest);
        Ok(())
    }

    /// Returns the image, if complete.
    pub(super) fn finish(self, segments: &dyn Segments) -> Result<(EwfInfo, Index)> {
        let whole = Segment { all: segments, number: 0 };
        let Some(medium) = self.medium else {
            return Err(whole.fault("the size of the evidence is unknown (there is no volume section)"));
        };
        let size = medium.sectors * u64::from(medium.sector_size);
        let chunk_size = medium.sectors_per_chunk * medium.sector_size;
        let (chunks, wanted) = (self.index.chunks(), size.div_ceil(u64::from(chunk_size)));
        if size == 0 && chunks > 0 {
            return Err(whole.fault(format_args!(
                "its volume section says 0 sectors, but the tables of its {} segments list {chunks} chunks",
                segments.count()
            )));
        }
        if size == 0 {
            return Err(Error::evidence(format!(
                "{}: the image in it is empty; was it written completely?",
                whole.name()
            )));
        }
        if chunks != wanted {
            return Err(whole.fault(format_args!(
                "{size} bytes make {wanted} chunks, but the tables of its {} segments list {chunks}",
                segments.count()
            )));
        }
        let info = EwfInfo {
            format: self.format,
            segments: segments.paths(),
            size,
            sector_size: medium.sector_size,
            chunk_size,
            error_granularity: medium.error_granularity,
            set_id: self.set_id,
            physical: medium.physical,
            model: self.about.model,
            serial: self.about.serial,
            tool: self.about.tool,
            platform: self.about.platform,
            acquired: self.about.acquired,
            case: self.about.case,
            hashes: self.hashes,
            unreadable: ranges(&self.errors, medium.sector_size, size),
        };
        Ok((info, self.index))
    }
}

/// Runs of sectors as ranges of bytes within `size`: in order, apart.
fn ranges(runs: &[(u64, u64)], sector_size: u32, size: u64) -> Vec<ByteRange> {
    let bytes = |sectors: u64| sectors.saturating_mul(u64::from(sector_size)).min(size);
    let mut sorted: Vec<_> = runs
        .iter()
        .map(|(first, count)| ByteRange::between(bytes(*first), bytes(first.saturating_add(*count))))
        .collect();
    sorted.sort_unstable();
    let mut apart: Vec<ByteRange> = Vec::new();
    for range in sorted.into_iter().filter(|range| !range.is_empty()) {
        match apart.last_mut() {
            Some(last) if last.end() >= range.offset => {
                *last = ByteRange::between(last.offset, last.end().max(range.end()))
            }
            _ => apart.push(range),
        }
    }
    apart
}
