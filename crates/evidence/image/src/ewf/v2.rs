//! Version 2: segments as chains of numbered sections, each descriptor behind its data, with a link to the previous
//! one.
//!
//! After Joachim Metz, "Expert Witness Compression Format 2 (EWF2)", the documentation of libewf.

use std::fmt;

use md5::Digest as _;

use super::defect::Defect;
use super::info::EwfFormat;
use super::record::{EwfRecord, Medium};
use super::sealed::is_sealed;
use super::segments::{Segment, Segments, missing};
use super::table::Table;
use super::text::{Method, TEXT_MAX, Values};
use super::v1::logical;
use cheetah_device::le::{u16_at, u32_at, u64_at};
use cheetah_error::{Error, Result};

/// The signature of a segment.
pub(super) const SIGNATURE: [u8; 8] = *b"EVF2\r\n\x81\0";
/// The signature of a segment of a logical evidence file (Lx01).
pub(super) const SIGNATURE_LOGICAL: [u8; 8] = *b"LEF2\r\n\x81\0";

/// The size of a file header.
const FILE_HEADER: u64 = 32;
/// The size of a section descriptor.
const DESCRIPTOR: u64 = 64;
/// The offset of a table's entries, after its header and padding.
const TABLE_HEADER: u64 = 32;
/// The maximum number of sections in a segment. EnCase writes three for some 1,600 chunks.
const SECTIONS_MAX: usize = 512 << 10;
/// The maximum size of an error section's data: some 512 Ki ranges.
const ERRORS_LEN_MAX: usize = 8 << 20;
/// Data flags of a section.
const HASHED: u32 = 1;
const ENCRYPTED: u32 = 2;

/// *Section types*.
mod kind {
    pub(super) const DEVICE: u32 = 0x01;
    pub(super) const CASE: u32 = 0x02;
    pub(super) const TABLE: u32 = 0x04;
    pub(super) const ERRORS: u32 = 0x05;
    pub(super) const MD5: u32 = 0x08;
    pub(super) const SHA1: u32 = 0x09;
    pub(super) const KEYS: u32 = 0x0b;
    pub(super) const NEXT: u32 = 0x0d;
    pub(super) const DONE: u32 = 0x0f;
    pub(super) const FILES: u32 = 0x20;
}

/// Reads all sections of all segments.
pub(super) fn read(segments: &dyn Segments) -> Result<EwfRecord> {
    let mut reader = Reader { record: EwfRecord::new(EwfFormat::Ex01), device: None, case: None };
    for number in 0.. {
        if number == segments.count() {
            return Err(missing(segments, number));
        }
        if reader.segment(Segment { all: segments, number })? == kind::DONE {
            break;
        }
    }
    Ok(reader.record)
}

#[derive(Clone, Copy)]
struct Section {
    kind: u32,
    flags: u32,
    /// The range of its data.
    start: u64,
    len: u64,
    integrity: [u8; 16],
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "section {:#04x} at offset {}", self.kind, self.start)
    }
}

struct Reader {
    record: EwfRecord,
    device: Option<Values>,
    case: Option<Values>,
}

impl Reader {
    /// Reads one segment, and returns the type of its last section.
    fn segment(&mut self, segment: Segment<'_>) -> Result<u32> {
        let method = self.file_header(segment)?;
        let sections = sections(segment)?;
        let last = sections.last().map_or(0, |section| section.kind);
        if !matches!(last, kind::NEXT | kind::DONE) {
            return Err(segment.fault("its last section is neither 'next' nor 'done', so the end is missing"));
        }
        for section in &sections {
            self.section(segment, section, method)?;
        }
        Ok(last)
    }

    /// *File header*: the compression of text and chunks.
    fn file_header(&mut self, segment: Segment<'_>) -> Result<Method> {
        let mut header = [0; FILE_HEADER as usize];
        segment.read(0, &mut header, "the file header")?;
        if header[..8] == SIGNATURE_LOGICAL {
            return Err(logical(segment));
        }
        if header[..8] != SIGNATURE {
            return Err(segment.fault("it does not have the header of a segment of an Ex01 image"));
        }
        if header[8] != 2 {
            return Err(segment.refusal(format_args!("version {}.{} of the format is not known", header[8], header[9])));
        }
        let (number, wanted) = (usize::try_from(u32_at(&header, 12)).unwrap_or(usize::MAX), segment.number + 1);
        if number != wanted {
            return Err(segment.defect(match segment.number {
                0 => Defect::NotFirst { number, ending: ".Ex01" },
                _ => Defect::OtherNumber { number, wanted },
            }));
        }
        if let Some(id) = header[16..].first_chunk() {
            self.record.set_id(segment, *id)?;
        }
        match u16_at(&header, 10) {
            0 => Ok(Method::None),
            1 => Ok(Method::Zlib),
            2 => Ok(Method::Bzip2),
            other => Err(segment.refusal(format_args!("compression method {other} is not known"))),
        }
    }

    fn section(&mut self, segment: Segment<'_>, section: &Section, method: Method) -> Result<()> {
        if section.flags & ENCRYPTED != 0 || section.kind == kind::KEYS {
            return Err(segment.refusal("the image is encrypted; decrypt it with the program that made it"));
        }
        match section.kind {
            kind::DEVICE => self.device = Some(values(segment, section, method)?),
            kind::CASE => self.case = Some(values(segment, section, method)?),
            kind::TABLE => return self.table(segment, section, method),
            kind::ERRORS => return self.errors(segment, section),
            kind::MD5 => {
                let hash = digest::<20>(segment, section)?;
                return EwfRecord::set_hash(segment, &mut self.record.hashes.md5, "MD5", &hash[..16]);
            }
            kind::SHA1 => {
                let hash = digest::<24>(segment, section)?;
                return EwfRecord::set_hash(segment, &mut self.record.hashes.sha1, "SHA-1", &hash[..20]);
            }
            kind::FILES => return Err(logical(segment)),
            // Chunks, which tables refer to; sessions of optical discs; EnCase's private data.
            _ => return Ok(()),
        }
        self.describe(segment)
    }

    /// *Device information* and *Case data*, once both are known.
    fn describe(&mut self, segment: Segment<'_>) -> Result<()> {
        let (Some(device), Some(case)) = (&self.device, &self.case) else {
            return Ok(());
        };
        let number = |values: &Values, name: &str| {
            let number = values.number(name);
            number.ok_or_else(|| segment.fault(format_args!("its header lacks the number '{name}'")))
        };
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let medium = Medium {
            sectors: number(device, "ts")?,
            sector_size: small(number(device, "bp")?),
            sectors_per_chunk: small(number(case, "sb")?),
            error_granularity: small(case.number("gr").unwrap_or(0)),
            physical: device.get("ph").is_some_and(|flag| flag == "1"),
        };
        self.record.set_medium(segment, medium)?;
        let about = &mut self.record.about;
        if segment.number == 0 {
            about.case.case_number = case.get("cn");
            about.case.evidence_number = case.get("en");
            about.case.examiner = case.get("ex");
            about.case.description = case.get("nm");
            about.case.notes = case.get("nt");
            about.tool = case.get("av");
            about.platform = case.get("os");
            about.acquired = case.get("tt");
            about.model = device.get("md");
            about.serial = device.get("sn");
        }
        Ok(())
    }

    /// *Sector table*.
    fn table(&mut self, segment: Segment<'_>, section: &Section, method: Method) -> Result<()> {
        // The header, without its padding.
        let mut header = [0; 20];
        segment.read(section.start, &mut header, section)?;
        if !is_sealed(&header) {
            return Err(sum_fault(segment, section));
        }
        let (first, count) = (u64_at(&header, 0), u32_at(&header, 8));
        if TABLE_HEADER + u64::from(count) * 16 + 4 > section.len {
            return Err(segment.fault(format_args!("{section} is too short for the {count} chunks it claims to list")));
        }
        let bzip2 = method == Method::Bzip2;
        let table = Table::check_v2(segment, section.start + TABLE_HEADER, first, count, bzip2)?;
        self.record.index.push(segment, table)
    }

    /// *Error table*.
    fn errors(&mut self, segment: Segment<'_>, section: &Section) -> Result<()> {
        let bytes = data(segment, section, ERRORS_LEN_MAX)?;
        let count = if bytes.len() < 20 { 0 } else { u32_at(&bytes, 0) as usize };
        let parts = bytes.split_at_checked(TABLE_HEADER as usize).and_then(|(header, entries)| {
            let len = count.checked_mul(16)?;
            Some((&header[..20], entries.get(..len)?, entries.get(..len + 4)?))
        });
        let Some((header, entries, summed)) = parts else {
            return Err(segment.fault(format_args!("{section} is too short for the {count} ranges it claims to list")));
        };
        if !is_sealed(header) || !is_sealed(summed) {
            return Err(sum_fault(segment, section));
        }
        let ranges = entries.chunks_exact(16).map(|entry| (u64_at(entry, 0), u32_at(entry, 8).into()));
        self.record.add_errors(segment, ranges)
    }
}

/// The sections of a segment, first to last. *Section descriptor*: they are chained from the end of the file.
fn sections(segment: Segment<'_>) -> Result<Vec<Section>> {
    let Some(mut at) = segment.len().checked_sub(DESCRIPTOR).filter(|at| *at >= FILE_HEADER) else {
        return Err(segment.fault("it ends within its file header"));
    };
    let mut sections = Vec::new();
    loop {
        let mut bytes = [0; DESCRIPTOR as usize];
        segment.read(at, &mut bytes, "a section descriptor")?;
        if !is_sealed(&bytes) {
            return Err(segment.fault(format_args!(
                "there is no good section descriptor at offset {at}, where the last section, or one that was pointed at, \
                 should end"
            )));
        }
        let (previous, len) = (u64_at(&bytes, 8), u64_at(&bytes, 16));
        let start = match previous {
            0 => FILE_HEADER,
            _ => previous.saturating_add(DESCRIPTOR),
        };
        let mut section = Section { kind: u32_at(&bytes, 0), flags: u32_at(&bytes, 4), start, len, integrity: [0; 16] };
        section.integrity.copy_from_slice(&bytes[32..48]);
        if start < FILE_HEADER || start > at || len > at - start {
            return Err(
                segment.fault(format_args!("{section} is {len} bytes long by its descriptor, but ends at {at}"))
            );
        }
        if sections.len() >= SECTIONS_MAX {
            return Err(segment.refusal(format_args!("it has more than {SECTIONS_MAX} sections")));
        }
        sections.push(section);
        if previous == 0 {
            sections.reverse();
            return Ok(sections);
        }
        at = previous;
    }
}

fn data(segment: Segment<'_>, section: &Section, max: usize) -> Result<Vec<u8>> {
    let len = usize::try_from(section.len).ok().filter(|len| *len <= max);
    let len = len.ok_or_else(|| segment.refusal(format_args!("{section} is larger than the {max} bytes expected")))?;
    let mut bytes = vec![0; len];
    segment.read(section.start, &mut bytes, section)?;
    if section.flags & HASHED != 0 && md5::Md5::digest(&bytes)[..] != section.integrity {
        return Err(segment.fault(format_args!("{section} does not match its MD5")));
    }
    Ok(bytes)
}

fn values(segment: Segment<'_>, section: &Section, method: Method) -> Result<Values> {
    let values = Values::unpack(&data(segment, section, TEXT_MAX)?, method);
    values.ok_or_else(|| {
        segment.defect(Defect::NotUnpacked { name: format!("{:#04x}", section.kind), at: section.start })
    })
}

/// Reads the first `N` bytes of a section, which end with their checksum.
fn digest<const N: usize>(segment: Segment<'_>, section: &Section) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    if section.len < N as u64 {
        return Err(segment.fault(format_args!("{section} is only {} bytes long", section.len)));
    }
    segment.read(section.start, &mut bytes, section)?;
    if is_sealed(&bytes) { Ok(bytes) } else { Err(sum_fault(segment, section)) }
}

fn sum_fault(segment: Segment<'_>, section: &Section) -> Error {
    segment.defect(Defect::Checksum { name: format!("{:#04x}", section.kind), at: section.start })
}
