//! Reads the physical volumes in a device, and puts their groups together.

use std::collections::BTreeMap;

use cheetah_device::{ByteRange, Device};
use futures::future::try_join_all;

use super::group::{Group, parse_group};
use super::label::{HEADER_BYTES, LABEL_BYTES, parse_header, parse_label};
use super::refused::{Defect, NotOpened};
use super::resolve::{Places, resolve};
use super::volume::LogicalVolume;
use crate::assembly::examine_each;
use crate::checks::Checks;

/// The logical volumes of a device, by group, in the order of the metadata. The places are those of physical volumes of a group.
pub type Assembly = crate::assembly::Assembly<LogicalVolume, NotOpened>;

/// A physical volume in the device.
struct Found {
    place: ByteRange,
    id: String,
    /// The newest group in its metadata; `None` if it has none.
    group: Option<Group>,
}

/// Puts together the logical volumes on the physical ones at `places` of a device. Reads a sector of each place, and the metadata
/// of physical volumes.
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
    for look in examine_each(places, |place| examine(device, place, checks)).await {
        match look {
            Ok(one) => found.extend(one),
            Err(not_opened) => assembly.not_opened.push(not_opened),
        }
    }
    let by_id = distinct(&found, &mut assembly.not_opened);
    for group in newest(&found, &mut assembly.not_opened) {
        let (volumes, not_opened) = resolve(group, &by_id);
        assembly.volumes.extend(volumes);
        assembly.not_opened.extend(not_opened);
        let ids: Vec<_> = group.physical.iter().map(|one| &one.id).collect();
        assembly.places.extend(found.iter().filter(|one| ids.contains(&&one.id)).map(|one| one.place));
    }
    assembly
}

/// The places of physical volumes, without those whose identifier several have: a copy may be older.
fn distinct(found: &[Found], not_opened: &mut Vec<NotOpened>) -> Places {
    // Sorted, so that a report says the same each time.
    let mut places = BTreeMap::<_, Vec<_>>::new();
    found.iter().for_each(|one| places.entry(one.id.clone()).or_default().push(one.place));
    let mut by_id = Places::new();
    for (id, places) in places {
        match places[..] {
            [place] => drop(by_id.insert(id, place)),
            _ => {
                let why = Defect::SameId(id);
                let several = places.into_iter().map(|place| NotOpened::Physical { place, why: why.clone() });
                not_opened.extend(several);
            }
        }
    }
    by_id
}

/// The newest metadata of each group, in the order of the places; of groups of one name, the first.
fn newest<'a>(found: &'a [Found], not_opened: &mut Vec<NotOpened>) -> Vec<&'a Group> {
    let mut groups: Vec<&Group> = Vec::new();
    for group in found.iter().filter_map(|one| one.group.as_ref()) {
        match groups.iter_mut().find(|known| known.id == group.id) {
            Some(known) if known.sequence < group.sequence => *known = group,
            Some(_) => {}
            None => groups.push(group),
        }
    }
    let mut named: Vec<&Group> = Vec::new();
    for group in groups {
        if named.iter().any(|known| known.name == group.name) {
            not_opened.push(NotOpened::SameName { name: group.name.clone(), id: group.id.clone() });
        } else {
            named.push(group);
        }
    }
    named
}

/// Examines a place; `None` if it is no physical volume.
async fn examine(device: &dyn Device, place: ByteRange, checks: Checks) -> Result<Option<Found>, NotOpened> {
    let refused = |why: Defect| NotOpened::Physical { place, why };
    // What cannot be read is not known to be one: that is told of it elsewhere.
    let Ok(start) = read(device, place, ByteRange::new(0, LABEL_BYTES.min(place.len))).await else { return Ok(None) };
    let label = match parse_label(&start, checks) {
        None => return Ok(None),
        Some(Ok(label)) => label,
        Some(Err(why)) => return Err(refused(why.into())),
    };
    let (mut group, mut defects) = (None::<Group>, Vec::new());
    for area in label.areas {
        match metadata(device, place, area, checks).await {
            Ok(Some(one)) if group.as_ref().is_none_or(|known| known.sequence < one.sequence) => group = Some(one),
            Ok(_) => {}
            Err(why) => defects.push(why),
        }
    }
    match defects.pop() {
        // Another copy may be whole.
        Some(why) if group.is_none() => Err(refused(why)),
        _ => Ok(Some(Found { place, id: label.id, group })),
    }
}

/// Reads the group in a metadata area.
async fn metadata(
    device: &dyn Device,
    place: ByteRange,
    area: ByteRange,
    checks: Checks,
) -> Result<Option<Group>, Defect> {
    let header = read(device, place, ByteRange::new(area.offset, HEADER_BYTES)).await?;
    let Some(text) = parse_header(&header, area, checks)? else { return Ok(None) };
    let parts = try_join_all(text.parts.iter().map(|part| read(device, place, *part))).await?;
    let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
    if checks == Checks::Compared && !text.has_right(&parts) {
        return Err("the checksum of its metadata is wrong".into());
    }
    Ok(Some(parse_group(&parts.concat())?))
}

/// Reads a range of a place.
async fn read(device: &dyn Device, place: ByteRange, range: ByteRange) -> Result<Vec<u8>, Defect> {
    if !range.fits(place.len) {
        return Err("its metadata lies beyond its end".into());
    }
    let data = device.read(range.shifted(place.offset)).await?;
    match data.len() == range.len {
        true => Ok(data.into_bytes().into()),
        false => Err("a reply to a read has the wrong length".into()),
    }
}
