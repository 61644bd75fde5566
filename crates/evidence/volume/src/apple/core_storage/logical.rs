//! The logical volume: its name, where it lies, and the keys that its passwords seal.

use std::collections::BTreeSet;
use std::io::Read as _;

use cheetah_device::le::{u32_at, u64_at};

use super::super::plist::Value;
use super::super::{Flaw, Result, Uuid};
use super::context::Context;
use super::header::Header;
use super::objects::{BLOCK_HEADER_BYTES, Objects, kind};

/// The longest description of a family, in bytes.
const DESCRIPTION_BYTES_MAX: usize = 4 << 20;
/// The most objects that a description is divided into.
const DESCRIPTION_PARTS_MAX: usize = 512;
/// Bytes of an entry of a list of objects, of segments and of bases, and of the number of entries before them.
const LISTED_BYTES: usize = 16;
const VOLUME_LISTED_BYTES: usize = 16;
const SEGMENT_BYTES: usize = 40;
const COUNT_BYTES: usize = 8;
/// A place is the number of a block, and in the highest 16 bits that of a disk.
const DISK_SHIFT: u32 = 48;

/// The logical volume on a physical one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalVolume {
    /// Its identifier, as it is written there.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The identifier of its family, of which the key of its tweaks is made.
    pub family: Uuid,
    /// Its size.
    pub size_bytes: u64,
    /// Where it lies: its parts in order, without gaps.
    pub segments: Vec<Segment>,
    /// The keys that its passwords seal; `None` if they are not in the metadata.
    pub context: Option<Context>,
}

/// A part of a logical volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins in the logical volume, in bytes.
    pub at: u64,
    /// Its length, in bytes.
    pub len: u64,
    /// Where it begins in the physical volume, in bytes.
    pub on_disk_at: u64,
}

impl LogicalVolume {
    /// Finds the volume of a group, of which this disk has the number `disk`.
    pub(super) fn find(objects: &Objects, header: &Header, disk: u64) -> Result<Self> {
        // What was deleted may still be in the log.
        let listed = listed_volumes(objects).unwrap_or_default();
        let volumes = if listed.is_empty() { objects.of_kind(kind::VOLUME) } else { listed };
        let [id] = volumes[..] else {
            return Err(match volumes.is_empty() {
                true => Flaw::Damaged("no logical volume is described"),
                false => Flaw::Unsupported("a group of several logical volumes".to_owned()),
            });
        };
        let block = objects.get(id, kind::VOLUME).ok_or(Flaw::Damaged("its logical volume is not described"))?;
        Self::parse(objects, block, header.block_bytes, disk)
    }

    fn parse(objects: &Objects, block: &[u8], block_bytes: u64, disk: u64) -> Result<Self> {
        let wrong = || Flaw::Damaged("its logical volume is not described");
        let content = block.get(BLOCK_HEADER_BYTES..).ok_or_else(wrong)?;
        let list = slice(block, u32_at(content, 64), u32_at(content, 68)).and_then(Value::parse).ok_or_else(wrong)?;
        let family = list.get("com.apple.corestorage.lv.familyUUID").and_then(Value::text).and_then(Uuid::parse);
        let size_bytes = list.get("com.apple.corestorage.lv.size").and_then(Value::number).ok_or_else(wrong)?;
        let table = Table { objects, block_bytes, disk };
        let segments = table.segments(u64_at(content, 8), u64_at(content, 48))?;
        let description = family_description(objects, u64_at(content, 0));
        Ok(Self {
            id: list.name("com.apple.corestorage.lv.uuid"),
            name: list.name("com.apple.corestorage.lv.name"),
            family: family.ok_or_else(wrong)?,
            size_bytes,
            segments: fitted(segments, size_bytes)?,
            context: description.and_then(|list| Context::of_family(&list)),
        })
    }
}

/// The bytes that a block says.
fn slice(block: &[u8], at: u32, len: u32) -> Option<&[u8]> {
    block.get(at as usize..)?.get(..len as usize)
}

/// The entries behind a number of entries: as many as that says, or `None`.
fn entries(block: &[u8], entry_bytes: usize) -> Option<impl Iterator<Item = &[u8]>> {
    let content = block.get(BLOCK_HEADER_BYTES..)?;
    let count = u32_at(content, 0) as usize;
    let entries = content.get(COUNT_BYTES..)?.chunks_exact(entry_bytes);
    (count <= entries.len()).then(|| entries.take(count))
}

/// The identifiers of the volumes that the group lists, from its top down; `None` if a list is missing.
fn listed_volumes(objects: &Objects) -> Option<Vec<u64>> {
    let top = objects.get(*objects.of_kind(kind::TOP).first()?, kind::TOP)?;
    let families = objects.get(u64_at(top, BLOCK_HEADER_BYTES), kind::FAMILIES)?;
    let mut volumes = BTreeSet::new();
    for family in entries(families, LISTED_BYTES)? {
        let family = objects.get(u64_at(family, 0), kind::FAMILY)?;
        let list = objects.get(u64_at(family, BLOCK_HEADER_BYTES + 24), kind::VOLUMES)?;
        // Behind the number of volumes comes one for each, before their keys.
        let count = u32_at(list, BLOCK_HEADER_BYTES) as usize;
        if count > 1 {
            return None;
        }
        let first = BLOCK_HEADER_BYTES + VOLUME_LISTED_BYTES;
        volumes.extend((0..count).map(|nth| u64_at(list, first + 8 * nth)));
    }
    Some(volumes.into_iter().collect())
}

/// The description of a family, which may be divided and compressed.
fn family_description(objects: &Objects, id: u64) -> Option<Value> {
    let block = objects.get(id, kind::FAMILY)?;
    let content = block.get(BLOCK_HEADER_BYTES..)?;
    let (packed, unpacked) = (u32_at(content, 40), u32_at(content, 44));
    let mut text = slice(block, u32_at(content, 48), u32_at(content, 52))?.to_vec();
    let mut next = u64_at(content, 32);
    for _ in 0..DESCRIPTION_PARTS_MAX {
        if next == 0 || text.len() > DESCRIPTION_BYTES_MAX {
            break;
        }
        let more = objects.get(next, kind::MORE)?.get(BLOCK_HEADER_BYTES..)?;
        text.extend_from_slice(slice(more, 16, u32_at(more, 8))?);
        next = u64_at(more, 0);
    }
    if packed != unpacked {
        let mut unpacked = Vec::new();
        let zlib = flate2::read::ZlibDecoder::new(&text[..]);
        zlib.take(DESCRIPTION_BYTES_MAX as u64).read_to_end(&mut unpacked).ok()?;
        text = unpacked;
    }
    Value::parse(&text)
}

/// The table of the places of a volume.
struct Table<'a> {
    objects: &'a Objects,
    block_bytes: u64,
    disk: u64,
}

impl Table<'_> {
    /// The segments in an object. If another one says where they begin, they are counted from there.
    fn segments(&self, id: u64, bases: u64) -> Result<Vec<Segment>> {
        let wrong = || Flaw::Damaged("where its logical volume lies is not described");
        if self.objects.get(id, kind::SEGMENTS_INDEX).is_some() {
            return Err(Flaw::Unsupported("a logical volume in a hundred pieces or more".to_owned()));
        }
        let base = self.base(bases)?;
        let block = self.objects.get(id, kind::SEGMENTS).ok_or_else(wrong)?;
        let mut segments = Vec::new();
        for entry in entries(block, SEGMENT_BYTES).ok_or_else(wrong)? {
            let bytes = |blocks: u64| blocks.checked_mul(self.block_bytes).ok_or_else(wrong);
            let first = self.block(u64_at(entry, 32))?.checked_add(base).ok_or_else(wrong)?;
            let (at, len) = (bytes(u64_at(entry, 8))?, bytes(u64::from(u32_at(entry, 16)))?);
            segments.push(Segment { at, len, on_disk_at: bytes(first)? });
        }
        segments.sort_by_key(|segment| segment.at);
        Ok(segments)
    }

    /// The block that segments are counted from.
    fn base(&self, id: u64) -> Result<u64> {
        let Some(block) = self.objects.get(id, kind::BASES) else { return Ok(0) };
        let bases: Vec<_> = entries(block, LISTED_BYTES).into_iter().flatten().collect();
        match bases[..] {
            [] => Ok(0),
            [base] => self.block(u64_at(base, 8)),
            _ => Err(Flaw::Unsupported("a logical volume whose pieces are counted from several places".to_owned())),
        }
    }

    /// The number of a block of this disk.
    fn block(&self, place: u64) -> Result<u64> {
        match place >> DISK_SHIFT == self.disk {
            true => Ok(place & ((1 << DISK_SHIFT) - 1)),
            false => Err(Flaw::Unsupported("a logical volume on several disks, such as a Fusion Drive,".to_owned())),
        }
    }
}

/// The segments that a volume of this size has; an error if there is a gap.
fn fitted(segments: Vec<Segment>, size_bytes: u64) -> Result<Vec<Segment>> {
    let (mut fitted, mut end) = (Vec::new(), 0);
    for segment in segments.into_iter().filter(|segment| segment.len > 0) {
        if segment.at != end {
            return Err(Flaw::Damaged("the pieces of its logical volume do not fit together"));
        }
        let len = segment.len.min(size_bytes - end);
        end += len;
        fitted.extend((len > 0).then_some(Segment { len, ..segment }));
        if end == size_bytes {
            return Ok(fitted);
        }
    }
    Err(Flaw::Damaged("the pieces of its logical volume are shorter than it"))
}
