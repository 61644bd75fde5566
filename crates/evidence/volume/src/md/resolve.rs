//! Where the bytes of an array lie.

use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_device::visible::OneLine;

use super::array::{Array, Content};
use super::geometry::Geometry;
use super::level::{Level, words};
use super::members::{Found, Member, Members};
use super::redundant::Redundant;
use super::refused::{NotOpened, Remark, Why};
use super::superblock::{Shape, Superblock};
use crate::parts::{Part, Parts};

/// The layouts of the rows of a RAID 0 that only the larger members have: which member a chunk lies on is counted from the start of
/// the array, or from the start of these rows.
const ORIGINAL: u32 = 1;
const ALTERNATE: u32 = 2;

/// Resolves the array of these superblocks; `None` without any.
pub(super) fn resolve(found: &[&Found]) -> Option<Result<Array, NotOpened>> {
    // Of several, the first.
    let newest = &found.iter().rev().max_by_key(|one| one.superblock.events)?.superblock;
    let members = Members::select(newest, found);
    let opened = check(newest, found).and_then(|()| open(newest, &members));
    let (name, id) = (newest.name.clone(), newest.id.clone());
    Some(match opened {
        Ok((size_bytes, content)) => Ok(Array {
            label: label(newest),
            level: words(newest.shape.level),
            is_whole: members.missing().is_empty(),
            remarks: remarks(newest, &members),
            name,
            id,
            size_bytes,
            content,
        }),
        Err(why) => Err(NotOpened::Array { name, id, why, left_out: members.left_out }),
    })
}

fn check(newest: &Superblock, found: &[&Found]) -> Result<(), Why> {
    if let Some(obstacle) = newest.obstacle {
        return Err(obstacle.into());
    }
    let of_its_time = |one: &&&Found| one.superblock.events == newest.events;
    match found.iter().filter(of_its_time).any(|one| one.superblock.contradicts(newest)) {
        true => Err(Why::Contradiction),
        false => Ok(()),
    }
}

/// The name of an array as a file: without a hyphen, which all names of logical volumes have.
fn label(newest: &Superblock) -> String {
    // Of a name with the name of a machine, the rest.
    let name = newest.name.rsplit(':').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '+') { c } else { '_' };
    match name {
        "" => format!("md_{}", newest.id.replace(':', "")),
        name if name.bytes().all(|byte| byte.is_ascii_digit()) => format!("md{name}"),
        name if name.strip_prefix("md").is_some_and(|rest| rest.parse::<u32>().is_ok()) => name.to_owned(),
        name => format!("md_{}", name.chars().map(plain).collect::<String>()),
    }
}

/// What is to be said of an array that is open.
fn remarks(newest: &Superblock, members: &Members) -> Vec<Remark> {
    let missing = members.missing();
    let mut remarks = Vec::new();
    if !missing.is_empty() {
        remarks.push(Remark::Degraded(missing));
    }
    if newest.shape.level > 0 && !newest.is_clean {
        remarks.push(Remark::NotClosed);
    }
    remarks.extend(members.left_out.iter().cloned().map(Remark::LeftOut));
    remarks
}

/// The size of an array, and where its content lies.
fn open(newest: &Superblock, members: &Members) -> Result<(u64, Content), Why> {
    let shape = newest.shape;
    let level = Level::of(&shape)?;
    let (count, missing) = (members.present.len(), members.missing());
    let too_few = || Why::Missing { level: words(shape.level), members: count, missing: missing.clone() };
    let geometry = match level {
        Level::Linear | Level::Striped => {
            let parts = without_redundancy(&shape, members, level).unwrap_or_else(|| Err(too_few()))?;
            let size_bytes = parts.ranges().try_fold(0u64, |sum, range| sum.checked_add(range.len));
            return Ok((size_bytes.ok_or(Why::Damaged("its size is not possible"))?, Content::Parts(parts)));
        }
        Level::Mirror => Geometry::Copies { members: count, copies: count },
        Level::Near(copies) => Geometry::Copies { members: count, copies },
        Level::Parity { rotation, has_q } => {
            Geometry::Parity { members: count, parities: 1 + usize::from(has_q), rotation }
        }
    };
    // A mirror is one chunk.
    let chunk_bytes = if level == Level::Mirror { shape.member_bytes } else { shape.chunk_bytes };
    let rows = shape.member_bytes.checked_div(chunk_bytes).filter(|rows| *rows > 0);
    let size_bytes = geometry.chunks(rows.ok_or(Why::Damaged("it has no size"))?);
    let size_bytes = size_bytes.and_then(|chunks| chunks.checked_mul(chunk_bytes)).filter(|bytes| *bytes > 0);
    let size_bytes = size_bytes.ok_or(Why::Damaged("its size is not possible"))?;
    let has_enough = match geometry {
        Geometry::Parity { parities, .. } => missing.len() <= parities,
        Geometry::Copies { members: count, copies } => (0..count as u64).all(|chunk| {
            let holders = Geometry::copies(count, copies, chunk).unwrap_or_default();
            holders.iter().any(|(member, _)| members.present[*member].is_some())
        }),
    };
    if !has_enough {
        return Err(too_few());
    }
    if matches!(geometry, Geometry::Parity { .. }) && !missing.is_empty() && !newest.is_clean {
        return Err(Why::Dirty(missing));
    }
    if let (Level::Mirror, Some(only)) = (level, only(members)) {
        let mut parts = Parts::default();
        parts.push(Part::Linear(ByteRange::new(only.data.offset, size_bytes)));
        return Ok((size_bytes, Content::Parts(parts)));
    }
    let name = format!("{} {}", words(shape.level), OneLine(&newest.name)).into();
    let (members, is_clean) = (members.present.clone(), newest.is_clean);
    let redundant = Redundant { name, size_bytes, chunk_bytes, geometry, members, is_clean };
    Ok((size_bytes, Content::Redundant(Arc::new(redundant))))
}

/// The member that is there, if it is the only one and has all of its data.
fn only(members: &Members) -> Option<&Member> {
    let mut present = members.present.iter().flatten();
    present.next().filter(|only| present.next().is_none() && only.bad.is_empty())
}

/// The parts of an array without redundancy; `None` if a member is missing.
fn without_redundancy(shape: &Shape, members: &Members, level: Level) -> Option<Result<Parts, Why>> {
    let all: Vec<_> = members.present.iter().map(Option::as_ref).collect::<Option<_>>()?;
    if let Some(number) = all.iter().position(|one: &&Member| !one.bad.is_empty()) {
        return Some(Err(Why::BadBlocks(number)));
    }
    // Linear arrays of old have no chunks.
    let unit = shape.chunk_bytes.max(1);
    let ranges: Vec<_> = all.iter().map(|one| ByteRange::new(one.data.offset, one.data.len / unit * unit)).collect();
    if ranges.iter().any(|range| range.is_empty()) {
        return Some(Err(Why::Damaged("a member has no data")));
    }
    Some(match level {
        Level::Linear => {
            let mut parts = Parts::default();
            ranges.into_iter().for_each(|range| parts.push(Part::Linear(range)));
            Ok(parts)
        }
        _ => striped(shape, &ranges),
    })
}

/// The parts of a RAID 0: rows that all members have, then rows that the larger ones have, and so on.
fn striped(shape: &Shape, ranges: &[ByteRange]) -> Result<Parts, Why> {
    let chunk_bytes = shape.chunk_bytes;
    let (mut parts, mut start, mut done) = (Parts::default(), 0u64, 0u64);
    while let Some(end) = ranges.iter().map(|range| range.len).filter(|len| *len > done).min() {
        let larger = ranges.iter().filter(|range| range.len > done);
        let mut stripes: Vec<_> = larger.map(|range| ByteRange::new(range.offset + done, end - done)).collect();
        let count = stripes.len();
        match shape.layout {
            _ if done == 0 => {}
            Some(ALTERNATE) => {}
            // Not truncated: less than the number of members.
            Some(ORIGINAL) => stripes.rotate_left((start / chunk_bytes % count as u64) as usize),
            _ => return Err(Why::Kind("RAID 0 of members of different sizes, without its layout".to_owned())),
        }
        let chunks = || Why::Kind(format!("RAID 0 in chunks of {chunk_bytes} bytes"));
        parts.push(Part::striped(chunk_bytes, stripes).ok_or_else(chunks)?);
        // The sum is checked where the size is.
        start = start.saturating_add((end - done).saturating_mul(count as u64));
        done = end;
    }
    Ok(parts)
}
