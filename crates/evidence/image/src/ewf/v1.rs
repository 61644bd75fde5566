//! Version 1: segments as chains of named sections, each descriptor pointing at the next.
//!
//! After Joachim Metz, "Expert Witness Compression Format (EWF)", the documentation of libewf.

use std::fmt;

use super::defect::Defect;
use super::info::EwfFormat;
use super::record::{About, EwfRecord, Medium};
use super::sealed::is_sealed;
use super::segments::{Segment, Segments, missing};
use super::table::Table;
use super::text::{Method, TEXT_MAX, Values, inflate};
use crate::hash::{HashKind, is_hex};
use cheetah_device::le::{u16_at, u32_at, u64_at};
use cheetah_error::{Error, Result};

/// The signature of a segment.
pub(super) const SIGNATURE: [u8; 8] = *b"EVF\x09\x0d\x0a\xff\0";
/// The signature of a segment of a logical evidence file (L01).
pub(super) const SIGNATURE_LOGICAL: [u8; 8] = *b"LVF\x09\x0d\x0a\xff\0";

/// The size of a file header.
const FILE_HEADER: u64 = 13;
/// The size of a section descriptor.
const DESCRIPTOR: u64 = 76;
/// The size of the volume section's data: in the original format, and in all later ones.
const VOLUME_ORIGINAL: u64 = 94;
const VOLUME: u64 = 1052;
/// The size of a table's header.
const TABLE_HEADER: u64 = 24;
/// The size of an error section's header.
const ERROR_HEADER: usize = 520;
/// The maximum size of an error section's data: some 1 Mi ranges.
const ERRORS_LEN_MAX: usize = 8 << 20;
/// The media type of logical evidence files.
const MEDIA_LOGICAL: u8 = 0x0e;
/// The media flag of physical disks.
const FLAG_PHYSICAL: u8 = 2;

/// Reads all sections of all segments.
pub(super) fn read(segments: &dyn Segments) -> Result<EwfRecord> {
    let mut reader = Reader { record: EwfRecord::new(EwfFormat::E01), broken: None, broken_header: None, headers: 0 };
    for number in 0.. {
        if number == segments.count() {
            return Err(missing(segments, number));
        }
        if reader.segment(Segment { all: segments, number })? == End::Done {
            break;
        }
    }
    match reader.broken_header {
        Some(error) if reader.headers == 0 => Err(error),
        _ => Ok(reader.record),
    }
}

/// The end of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Another segment follows.
    Next,
    /// The last segment.
    Done,
}

struct Section {
    name: String,
    /// The offset of its descriptor.
    start: u64,
    /// The end of its data.
    end: u64,
}

impl Section {
    fn data(&self) -> u64 {
        self.start + DESCRIPTOR
    }

    fn len(&self) -> u64 {
        self.end - self.data()
    }

    fn quoted(&self) -> String {
        format!("'{}'", self.name)
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "section {} at offset {}", self.quoted(), self.start)
    }
}

struct Reader {
    record: EwfRecord,
    /// The defect of the last table, unless its copy is valid.
    broken: Option<Error>,
    /// The defect of a header, unless another one is valid.
    broken_header: Option<Error>,
    /// The rank of the header in use: 0 none, 1 `header`, 2 `header2`.
    headers: u8,
}

impl Reader {
    fn segment(&mut self, segment: Segment<'_>) -> Result<End> {
        check_file_header(segment)?;
        let mut at = FILE_HEADER;
        loop {
            let (section, next) = descriptor(segment, at)?;
            if section.name != "table2"
                && let Some(error) = self.broken.take()
            {
                return Err(error);
            }
            match section.name.as_str() {
                "next" => return Ok(End::Next),
                "done" => return Ok(End::Done),
                _ => self.section(segment, &section)?,
            }
            at = next;
        }
    }

    fn section(&mut self, segment: Segment<'_>, section: &Section) -> Result<()> {
        match section.name.as_str() {
            "volume" | "disk" | "data" => self.volume(segment, section),
            "header" => self.header(segment, section, 1),
            "header2" => self.header(segment, section, 2),
            "table" => match self.table(segment, section) {
                Err(error) if error.is_evidence() => {
                    self.broken = Some(error);
                    Ok(())
                }
                other => other,
            },
            // A copy, used if the original is damaged.
            "table2" => match self.broken.take() {
                None => Ok(()),
                Some(_) => self.table(segment, section),
            },
            "error2" => self.errors(segment, section),
            "hash" => {
                let hash = sealed_data::<36>(segment, section)?;
                EwfRecord::set_hash(segment, &mut self.record.hashes.md5, "MD5", &hash[..16])
            }
            "digest" => {
                let digest = sealed_data::<80>(segment, section)?;
                EwfRecord::set_hash(segment, &mut self.record.hashes.md5, "MD5", &digest[..16])?;
                EwfRecord::set_hash(segment, &mut self.record.hashes.sha1, "SHA-1", &digest[16..36])
            }
            "xhash" => self.xhash(segment, section),
            "ltree" | "ltypes" => Err(logical(segment)),
            "incomplete" => Err(segment.refusal(format_args!(
                "{section} records that the acquisition was interrupted, so the image is incomplete"
            ))),
            // Chunks, which tables refer to; sessions of optical discs; programs' private data.
            _ => Ok(()),
        }
    }

    /// *Volume section*, *Disk section*, *Data section*.
    fn volume(&mut self, segment: Segment<'_>, section: &Section) -> Result<()> {
        let mut bytes = [0; VOLUME as usize];
        let original = section.len() == VOLUME_ORIGINAL;
        if !original && section.len() < VOLUME {
            return Err(segment.fault(format_args!("{section} is only {} bytes long", section.len())));
        }
        let bytes = &mut bytes[..if original { VOLUME_ORIGINAL as usize } else { VOLUME as usize }];
        segment.read(section.data(), bytes, section)?;
        // Logicube's Talon and Dossier omit the checksum of the copy.
        let unsealed = section.name == "data" && bytes.ends_with(&[0; 4]);
        if !unsealed && !is_sealed(bytes) {
            return Err(sum_fault(segment, section));
        }
        if original {
            self.record.format = EwfFormat::S01;
        } else if bytes[0] == MEDIA_LOGICAL {
            return Err(logical(segment));
        }
        let medium = Medium {
            sectors: if original { u32_at(bytes, 16).into() } else { u64_at(bytes, 16) },
            sector_size: u32_at(bytes, 12),
            sectors_per_chunk: u32_at(bytes, 8),
            error_granularity: if original { 0 } else { u32_at(bytes, 56) },
            physical: !original && bytes[36] & FLAG_PHYSICAL != 0,
        };
        self.record.set_medium(segment, medium)?;
        match bytes.get(64..80).and_then(<[u8]>::first_chunk) {
            Some(id) if !original => self.record.set_id(segment, *id),
            _ => Ok(()),
        }
    }

    /// *Header section* and *Header2 section*: any valid one is used, preferably the second kind.
    fn header(&mut self, segment: Segment<'_>, section: &Section, kind: u8) -> Result<()> {
        if self.headers >= kind {
            return Ok(());
        }
        let packed = data(segment, section, TEXT_MAX)?;
        match Values::unpack(&packed, Method::Zlib) {
            Some(values) => {
                self.record.about = About::of_v1(&values);
                self.headers = kind;
            }
            None => {
                let error = not_unpacked(segment, section);
                self.broken_header.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// *Table section* and *Table2 section*.
    fn table(&mut self, segment: Segment<'_>, section: &Section) -> Result<()> {
        let mut header = [0; TABLE_HEADER as usize];
        segment.read(section.data(), &mut header, section)?;
        if !is_sealed(&header) {
            return Err(sum_fault(segment, section));
        }
        let (count, base) = (u32_at(&header, 0), u64_at(&header, 8));
        // The original format has no checksum after the entries.
        let summed = self.record.format != EwfFormat::S01;
        let needed = TABLE_HEADER + u64::from(count) * 4 + if summed { 4 } else { 0 };
        if needed > section.len() {
            return Err(segment.fault(format_args!("{section} is too short for the {count} chunks it claims to list")));
        }
        if count == 0 {
            return Ok(());
        }
        let entries = section.data() + TABLE_HEADER;
        let table = Table::check_v1(segment, entries, count, base, summed, section.start..section.end)?;
        self.record.index.push(segment, Table { first: self.record.index.chunks(), ..table })
    }

    /// *Error2 section*.
    fn errors(&mut self, segment: Segment<'_>, section: &Section) -> Result<()> {
        let bytes = data(segment, section, ERRORS_LEN_MAX)?;
        let count = if bytes.len() < ERROR_HEADER { 0 } else { u32_at(&bytes, 0) as usize };
        let parts = bytes.split_at_checked(ERROR_HEADER).and_then(|(header, entries)| {
            let len = count.checked_mul(8)?;
            Some((header, entries.get(..len)?, entries.get(..len + 4)?))
        });
        let Some((header, entries, summed)) = parts else {
            return Err(segment.fault(format_args!("{section} is too short for the {count} ranges it claims to list")));
        };
        if !is_sealed(header) || !is_sealed(summed) {
            return Err(sum_fault(segment, section));
        }
        let ranges = entries.chunks_exact(8).map(|entry| (u32_at(entry, 0).into(), u32_at(entry, 4).into()));
        self.record.add_errors(segment, ranges)
    }

    /// *EWF-X*, *Xhash*: the hashes libewf adds, as XML.
    fn xhash(&mut self, segment: Segment<'_>, section: &Section) -> Result<()> {
        let text = inflate(&data(segment, section, TEXT_MAX)?);
        let text = text.ok_or_else(|| not_unpacked(segment, section))?;
        let text = String::from_utf8_lossy(&text);
        let sha256 = text.split_once("<sha256>").and_then(|(_, rest)| rest.split_once("</sha256>"));
        if let Some((digest, _)) = sha256.filter(|(digest, _)| is_hex(digest, HashKind::Sha256.digits())) {
            self.record.hashes.sha256 = Some(digest.to_owned());
        }
        Ok(())
    }
}

/// *File header*.
fn check_file_header(segment: Segment<'_>) -> Result<()> {
    let mut header = [0; FILE_HEADER as usize];
    segment.read(0, &mut header, "the file header")?;
    if header[..8] == SIGNATURE_LOGICAL {
        return Err(logical(segment));
    }
    if header[..8] != SIGNATURE || header[8] != 1 || header[11..] != [0, 0] {
        return Err(segment.fault("it does not have the header of a segment of an E01 image"));
    }
    let number = usize::from(u16_at(&header, 9));
    if number == segment.number + 1 {
        return Ok(());
    }
    Err(match segment.number {
        0 => segment.defect(Defect::NotFirst { number, ending: ".E01" }),
        before => segment.defect(Defect::OtherNumber { number, wanted: before + 1 }),
    })
}

/// *Section descriptor*: the section at `at`, and the offset of the next one.
fn descriptor(segment: Segment<'_>, at: u64) -> Result<(Section, u64)> {
    let mut bytes = [0; DESCRIPTOR as usize];
    segment.read(at, &mut bytes, "a section descriptor")?;
    if !is_sealed(&bytes) {
        return Err(segment.fault(format_args!("the section descriptor at offset {at} does not match its checksum")));
    }
    let name: String = bytes[..16].iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
    let (next, size) = (u64_at(&bytes, 16), u64_at(&bytes, 24));
    let data = at + DESCRIPTOR;
    if matches!(name.as_str(), "next" | "done") {
        return Ok((Section { name, start: at, end: data }, data));
    }
    let section = Section { name, start: at, end: next };
    if next < data || next > segment.len() {
        return Err(segment.fault(format_args!(
            "{section} has an end at offset {next} in its descriptor, which is invalid in a file of {} bytes",
            segment.len()
        )));
    }
    // If size and offset of the next section disagreed, the file would hold two images. Expert Witness 1.35 omits the
    // size.
    if size != 0 && size != next - at {
        return Err(segment.fault(format_args!(
            "{section} is {size} bytes long by its descriptor, but the next one is at offset {next}"
        )));
    }
    Ok((section, next))
}

fn data(segment: Segment<'_>, section: &Section, max: usize) -> Result<Vec<u8>> {
    let len = usize::try_from(section.len()).ok().filter(|len| *len <= max);
    let len = len.ok_or_else(|| segment.refusal(format_args!("{section} is larger than the {max} bytes expected")))?;
    let mut bytes = vec![0; len];
    segment.read(section.data(), &mut bytes, section)?;
    Ok(bytes)
}

/// Reads the first `N` bytes of a section, which end with their checksum.
fn sealed_data<const N: usize>(segment: Segment<'_>, section: &Section) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    if section.len() < N as u64 {
        return Err(segment.fault(format_args!("{section} is only {} bytes long", section.len())));
    }
    segment.read(section.data(), &mut bytes, section)?;
    if is_sealed(&bytes) { Ok(bytes) } else { Err(sum_fault(segment, section)) }
}

fn not_unpacked(segment: Segment<'_>, section: &Section) -> Error {
    segment.defect(Defect::NotUnpacked { name: section.quoted(), at: section.start })
}

fn sum_fault(segment: Segment<'_>, section: &Section) -> Error {
    segment.defect(Defect::Checksum { name: section.quoted(), at: section.start })
}

/// The refusal of logical evidence files.
pub(super) fn logical(segment: Segment<'_>) -> Error {
    segment.refusal(
        "this is a logical evidence file: it holds files, not a disk; export them with the program that made it",
    )
}
