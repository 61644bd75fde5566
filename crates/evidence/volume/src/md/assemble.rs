//! Reads the superblocks in a device, and puts their arrays together.

use std::collections::{BTreeMap, BTreeSet};

use cheetah_device::{ByteRange, Device};
use futures::future::join_all;

use super::array::Array;
use super::members::Found;
use super::refused::{Defect, NotOpened, Why};
use super::resolve::resolve;
use super::superblock::Superblock;
use super::{version_0, version_1};
use crate::assembly::examine_each;
use crate::checks::Checks;

/// The arrays of a device, in the order of their identifiers. The places are those of their members.
pub type Assembly = crate::assembly::Assembly<Array, NotOpened>;

/// Puts together the arrays whose members are at `places` of a device. Reads some KiB of each place.
pub async fn assemble(device: &dyn Device, places: &[ByteRange]) -> Assembly {
    with_checks(device, places, Checks::Compared).await
}

/// As [`assemble`], whatever the checksums are.
pub(crate) async fn assemble_unchecked(device: &dyn Device, places: &[ByteRange]) -> Assembly {
    with_checks(device, places, Checks::Ignored).await
}

async fn with_checks(device: &dyn Device, places: &[ByteRange], checks: Checks) -> Assembly {
    let mut assembly = Assembly::default();
    let mut found = Vec::new();
    for look in examine_each(places, |place| examine(device, place, checks)).await.into_iter().flatten() {
        match look {
            Ok(one) => found.push(one),
            Err(not_opened) => assembly.not_opened.push(not_opened),
        }
    }
    // The superblock at the end of a disk may be that of its last partition: it counts once, for the smaller place.
    found.sort_by_key(|one| (one.offset, one.place.len));
    found.dedup_by_key(|one| one.offset);
    // Sorted, so that a report says the same each time.
    let mut by_id = BTreeMap::<_, Vec<_>>::new();
    found.iter().for_each(|one| by_id.entry(one.superblock.id.as_str()).or_default().push(one));
    for outcome in by_id.values().filter_map(|of_one| resolve(of_one)) {
        match outcome {
            Ok(array) => assembly.volumes.push(array),
            Err(not_opened) => assembly.not_opened.push(not_opened),
        }
    }
    assembly.places = found.iter().map(|one| one.place).collect::<BTreeSet<_>>().into_iter().collect();
    name_apart(&mut assembly);
    assembly
}

/// Gives arrays of one name different ones as files.
fn name_apart(assembly: &mut Assembly) {
    let mut labels = BTreeSet::new();
    for mut array in std::mem::take(&mut assembly.volumes) {
        if labels.contains(&array.label) {
            array.label = format!("{}_{}", array.label, array.id.replace(':', ""));
        }
        match labels.insert(array.label.clone()) {
            true => assembly.volumes.push(array),
            false => {
                let Array { name, id, .. } = array;
                assembly.not_opened.push(NotOpened::Array { name, id, why: Why::SameName, left_out: Vec::new() });
            }
        }
    }
}

/// Examines a place. It may have several superblocks: an array may be a member of another one, or there are the remains of an old one.
async fn examine(device: &dyn Device, place: ByteRange, checks: Checks) -> Vec<Result<Found, NotOpened>> {
    let mut offsets: Vec<_> = version_1::places(place.len).into_iter().chain(version_0::place(place.len)).collect();
    offsets.sort_unstable();
    offsets.dedup();
    let reads: Vec<_> = offsets.iter().map(|at| read(device, place, *at)).collect();
    let mut found = Vec::new();
    for (at, bytes) in offsets.iter().zip(join_all(reads).await) {
        let parsed = match version_1::places(place.len).contains(at) {
            true => version_1::parse(&bytes, *at, place.len, checks),
            false => version_0::parse(&bytes, *at, checks),
        };
        let refused = |why: Defect| NotOpened::Member { place, why };
        match parsed {
            Some(Ok(superblock)) => {
                let bad = bad_blocks(device, place, &superblock).await;
                let offset = place.offset + at;
                found.push(bad.map(|bad| Found { place, offset, superblock, bad }).map_err(refused));
            }
            Some(Err(why)) => found.push(Err(refused(why.into()))),
            None => {}
        }
    }
    found
}

/// Reads what may be a superblock, up to the end of its place. What cannot be read is not known to be one: that is told of it
/// elsewhere.
async fn read(device: &dyn Device, place: ByteRange, at: u64) -> Vec<u8> {
    let wanted = ByteRange::new(at, version_1::SUPERBLOCK_BYTES);
    match wanted.intersection(ByteRange::new(0, place.len)) {
        Some(inside) => {
            device.read(inside.shifted(place.offset)).await.map_or_else(|_| Vec::new(), |data| data.into_bytes().into())
        }
        None => Vec::new(),
    }
}

/// The ranges of a member's data that it does not have.
async fn bad_blocks(device: &dyn Device, place: ByteRange, superblock: &Superblock) -> Result<Vec<ByteRange>, Defect> {
    let Some(list) = superblock.bad_blocks else { return Ok(Vec::new()) };
    let bytes = device.read(list.place.shifted(place.offset)).await?.into_bytes();
    Ok(version_1::parse_bad_blocks(&bytes, list.unit_bits, superblock.data)?)
}
