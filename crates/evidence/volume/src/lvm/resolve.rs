//! Where the bytes of the logical volumes of a group lie.

use std::collections::HashMap;

use cheetah_device::ByteRange;

use super::group::{Area, Content, Group, Logical, Physical, Segment, Snapshot};
use super::refused::{NotOpened, Why};
use super::volume::LogicalVolume;
use crate::parts::{Part, Parts};

/// The places of physical volumes in the device, by their identifiers.
pub(super) type Places = HashMap<String, ByteRange>;

/// Resolves the logical volumes that users of a group see.
pub(super) fn resolve(group: &Group, places: &Places) -> (Vec<LogicalVolume>, Vec<NotOpened>) {
    let physical = group.physical.iter().map(|one| (one.name.as_str(), one)).collect();
    let segments = group.logical.iter().flat_map(|one| &one.segments);
    let known = Known { group, places, physical, snapshots: segments.filter_map(snapshot).collect() };
    let (mut opened, mut refused) = (Vec::new(), known.missing());
    for logical in group.logical.iter().filter(|one| one.is_visible) {
        match known.open(logical) {
            Ok(volume) => opened.push(volume),
            Err(why) => {
                let (group, name) = (group.name.clone(), logical.name.clone());
                refused.push(NotOpened::Logical { group, name, why });
            }
        }
    }
    (opened, refused)
}

fn snapshot(segment: &Segment) -> Option<&Snapshot> {
    match &segment.content {
        Content::Other { snapshot, .. } => snapshot.as_ref(),
        Content::Striped { .. } => None,
    }
}

/// A group, and what of it is there.
struct Known<'a> {
    group: &'a Group,
    places: &'a Places,
    physical: HashMap<&'a str, &'a Physical>,
    snapshots: Vec<&'a Snapshot>,
}

impl Known<'_> {
    fn place_of(&self, physical: &Physical) -> Option<ByteRange> {
        self.places.get(&physical.id).copied().filter(|_| !physical.is_left)
    }

    fn missing(&self) -> Vec<NotOpened> {
        let missing = self.group.physical.iter().filter(|one| self.place_of(one).is_none());
        let named = |one: &Physical| NotOpened::Missing {
            group: self.group.name.clone(),
            physical: one.name.clone(),
            id: one.id.clone(),
            hint: one.hint.clone(),
        };
        missing.map(named).collect()
    }

    fn open(&self, logical: &Logical) -> Result<LogicalVolume, Why> {
        for snapshot in &self.snapshots {
            // The volume of that name has the changes; the snapshot shows them over its origin.
            if snapshot.store == logical.name {
                return Err(Why::of_type("snapshot"));
            }
            if snapshot.merges && snapshot.origin == logical.name {
                return Err(Why::Merging);
            }
        }
        self.check_places(logical)?;
        let (mut parts, mut extents) = (Parts::default(), 0u64);
        for segment in &logical.segments {
            if segment.first != extents || segment.extents == 0 {
                return Err(Why::Damaged("its segments do not follow each other"));
            }
            extents = extents.checked_add(segment.extents).ok_or(Why::Damaged("it is too large"))?;
            parts.push(self.part(segment)?);
        }
        let size_bytes = extents.checked_mul(self.group.extent_bytes).filter(|bytes| *bytes > 0);
        Ok(LogicalVolume {
            group: self.group.name.clone(),
            name: logical.name.clone(),
            id: logical.id.clone(),
            size_bytes: size_bytes.ok_or(Why::Damaged("it has no size"))?,
            is_of_whole_group: self.group.physical.iter().all(|one| self.place_of(one).is_some()),
            parts,
        })
    }

    /// Fails if a part lies elsewhere than on physical volumes, or on one that is missing.
    fn check_places(&self, logical: &Logical) -> Result<(), Why> {
        let mut missing = Vec::new();
        for segment in &logical.segments {
            let areas = match &segment.content {
                Content::Striped { areas, .. } => areas,
                Content::Other { kind, .. } => return Err(Why::of_type(kind)),
            };
            for area in areas {
                let physical = self.physical.get(area.on.as_str()).ok_or_else(|| Why::OnLogical(area.on.clone()))?;
                if self.place_of(physical).is_none() && !missing.contains(&area.on) {
                    missing.push(area.on.clone());
                }
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(Why::Missing(missing)) }
    }

    fn part(&self, segment: &Segment) -> Result<Part, Why> {
        let Content::Striped { unit_bytes, areas } = &segment.content else {
            return Err(Why::Damaged("it has no place"));
        };
        let stripes = areas.len() as u64;
        if stripes == 0 || !segment.extents.is_multiple_of(stripes) {
            return Err(Why::Damaged("its stripes have different lengths"));
        }
        let ranges: Vec<_> =
            areas.iter().map(|area| self.range(area, segment.extents / stripes)).collect::<Result<_, _>>()?;
        Part::striped(*unit_bytes, ranges).ok_or_else(|| Why::Kind(format!("striped in units of {unit_bytes} bytes")))
    }

    /// The range of the device that an area with this number of extents takes.
    fn range(&self, area: &Area, extents: u64) -> Result<ByteRange, Why> {
        let physical = self.physical.get(area.on.as_str()).ok_or_else(|| Why::OnLogical(area.on.clone()))?;
        let place = self.place_of(physical).ok_or_else(|| Why::Missing(vec![area.on.clone()]))?;
        let beyond = || Why::Beyond(area.on.clone());
        let end = area.first.checked_add(extents).filter(|end| *end <= physical.extents).ok_or_else(beyond)?;
        let offset = |extent: u64| extent.checked_mul(self.group.extent_bytes)?.checked_add(physical.start_bytes);
        let (start, end) = offset(area.first).zip(offset(end)).ok_or_else(beyond)?;
        let inside = ByteRange::between(start, end);
        if inside.fits(place.len) { Ok(inside.shifted(place.offset)) } else { Err(beyond()) }
    }
}
