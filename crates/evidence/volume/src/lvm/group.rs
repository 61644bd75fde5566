//! A volume group, as its metadata describes it.

use super::SECTOR_BYTES;
use super::text::{Section, Value, parse};

/// The maximum numbers of physical and logical volumes in a group, of segments in all of it, and of stripes in a segment.
const PHYSICAL_MAX: usize = 1024;
const LOGICAL_MAX: usize = 4096;
const SEGMENTS_MAX: usize = 1 << 14;
const STRIPES_MAX: usize = 128;
/// The longest name of a group or volume, in bytes.
const NAME_BYTES_MAX: usize = 127;

/// A volume group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub name: String,
    pub id: String,
    /// Counts the changes of the metadata: the largest is the newest.
    pub sequence: u64,
    pub extent_bytes: u64,
    pub physical: Vec<Physical>,
    pub logical: Vec<Logical>,
}

/// A physical volume of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Physical {
    pub name: String,
    /// Without hyphens.
    pub id: String,
    /// The device that it was when the metadata was written.
    pub hint: String,
    /// Where its first extent begins, in bytes from its start.
    pub start_bytes: u64,
    /// The number of its extents.
    pub extents: u64,
    /// Whether the group has gone on without it, so that its content is old.
    pub is_left: bool,
}

/// A logical volume of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Logical {
    pub name: String,
    pub id: String,
    /// Whether users see it; otherwise it is a part of another one.
    pub is_visible: bool,
    /// In order of their first extents.
    pub segments: Vec<Segment>,
}

/// Some extents of a logical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub first: u64,
    pub extents: u64,
    pub content: Content,
}

/// What a segment is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Places on physical volumes that take turns, each for `unit_bytes`; a linear segment has one.
    Striped { unit_bytes: u64, areas: Vec<Area> },
    /// Something else: its type, and the snapshots that it names.
    Other { kind: String, snapshot: Option<Snapshot> },
}

/// A place on a physical volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Area {
    /// The name of the physical volume, or of a logical volume.
    pub on: String,
    /// The first extent.
    pub first: u64,
}

/// A snapshot: which volume keeps the changes of which other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub origin: String,
    pub store: String,
    /// Whether it is being merged into its origin.
    pub merges: bool,
}

/// Parses the metadata of a volume group.
pub(super) fn parse_group(text: &[u8]) -> Result<Group, &'static str> {
    let all = parse(text)?;
    let (name, section) = all.sections().next().ok_or("its metadata has no volume group")?;
    let extent_sectors = section.number("extent_size").filter(|sectors| *sectors > 0);
    let empty = Section::default();
    let volumes = |name| section.section(name).unwrap_or(&empty).sections();
    let (physical, logical) = (volumes("physical_volumes"), volumes("logical_volumes"));
    let mut segments_left = SEGMENTS_MAX;
    let group = Group {
        name: self::name(name)?,
        id: id(section)?,
        sequence: section.number("seqno").ok_or("its metadata has no number")?,
        extent_bytes: extent_sectors.and_then(in_bytes).ok_or("its extents have no size")?,
        physical: physical
            .take(PHYSICAL_MAX + 1)
            .map(|(name, one)| self::physical(name, one))
            .collect::<Result<_, _>>()?,
        logical: logical
            .take(LOGICAL_MAX + 1)
            .map(|(name, one)| self::logical(name, one, &mut segments_left))
            .collect::<Result<_, _>>()?,
    };
    if group.physical.len() > PHYSICAL_MAX || group.logical.len() > LOGICAL_MAX {
        return Err("its group has more volumes than are supported");
    }
    Ok(group)
}

fn physical(name: &[u8], section: &Section<'_>) -> Result<Physical, &'static str> {
    Ok(Physical {
        name: self::name(name)?,
        id: id(section)?,
        hint: String::from_utf8_lossy(section.text("device").unwrap_or_default()).into_owned(),
        start_bytes: section.number("pe_start").and_then(in_bytes).ok_or("a physical volume has no start")?,
        extents: section.number("pe_count").ok_or("a physical volume has no size")?,
        is_left: section.lists("status", "MISSING") || section.lists("flags", "MISSING"),
    })
}

fn logical(name: &[u8], section: &Section<'_>, segments_left: &mut usize) -> Result<Logical, &'static str> {
    let mut segments = Vec::new();
    for (_, one) in section.sections() {
        *segments_left = segments_left.checked_sub(1).ok_or("its group has more segments than are supported")?;
        segments.push(segment(one)?);
    }
    segments.sort_by_key(|segment| segment.first);
    let is_visible = section.lists("status", "VISIBLE");
    Ok(Logical { name: self::name(name)?, id: id(section)?, is_visible, segments })
}

fn segment(section: &Section<'_>) -> Result<Segment, &'static str> {
    let number = |name| section.number(name).ok_or("a segment has no place");
    let kind = String::from_utf8_lossy(section.text("type").ok_or("a segment has no type")?).into_owned();
    let content = match kind.as_str() {
        "striped" | "linear" => Content::Striped {
            // In sectors; a linear segment has none.
            unit_bytes: section.number("stripe_size").and_then(in_bytes).unwrap_or(0),
            areas: areas(section)?,
        },
        _ => Content::Other { snapshot: snapshot(section), kind },
    };
    Ok(Segment { first: number("start_extent")?, extents: number("extent_count")?, content })
}

fn areas(section: &Section<'_>) -> Result<Vec<Area>, &'static str> {
    let (pairs, rest) = section.list("stripes").as_chunks::<2>();
    let count = section.number("stripe_count").unwrap_or(1);
    if pairs.is_empty() || pairs.len() > STRIPES_MAX || !rest.is_empty() || pairs.len() as u64 != count {
        return Err("a segment has no stripes, or too many, or others than it counts");
    }
    let area = |pair: &[Value<'_>; 2]| match pair {
        [Value::Text(on), Value::Number(first)] => Ok(Area { on: name(on)?, first: *first }),
        _ => Err("a stripe has no place"),
    };
    pairs.iter().map(area).collect()
}

fn snapshot(section: &Section<'_>) -> Option<Snapshot> {
    let named = |key: &str| section.text(key).and_then(|text| name(text).ok());
    let (store, merges) = match named("cow_store") {
        Some(store) => (store, false),
        None => (named("merging_store")?, true),
    };
    Some(Snapshot { origin: named("origin")?, store, merges })
}

fn in_bytes(sectors: u64) -> Option<u64> {
    sectors.checked_mul(SECTOR_BYTES)
}

/// A name that LVM2 allows. Others could not be names of files.
fn name(text: &[u8]) -> Result<String, &'static str> {
    let is_right = |byte: &u8| byte.is_ascii_alphanumeric() || b"+_.-".contains(byte);
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.iter().all(is_right);
    match is_name && text != b"." && text != b".." {
        true => Ok(String::from_utf8_lossy(text).into_owned()),
        false => Err("it has a name that LVM2 does not allow"),
    }
}

/// The identifier of a section, without hyphens.
fn id(section: &Section<'_>) -> Result<String, &'static str> {
    let text = section.text("id").unwrap_or_default().iter().copied().filter(|byte| *byte != b'-');
    let id: Vec<u8> = text.take(33).collect();
    match id.len() == 32 && id.iter().all(u8::is_ascii_alphanumeric) {
        true => Ok(String::from_utf8_lossy(&id).into_owned()),
        false => Err("an identifier has not 32 characters"),
    }
}
