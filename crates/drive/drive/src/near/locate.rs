//! Where a range of a drive lies, if one node has all of it at one place. Does no I/O.

use cheetah_device::coverage::State;
use cheetah_device::placement::{Layout as Placed, Placement};
use cheetah_device::{ByteRange, Coverage, coalesce};
use cheetah_error::{Error, Result};
use cheetah_redundancy::{BadRanges, SetGeometry};
use cheetah_seal::Units;

use crate::file::units::units_of;
use crate::file::{DriveFile, Set, coverage, places};
use crate::layout::kind::Layout;

/// A place that holds a range of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The index of the node among those of the drive.
    pub node: usize,
    /// The offset in the node's export.
    pub offset: u64,
}

/// Finds places in a drive.
pub(crate) struct Locator {
    sets: Vec<Set>,
    maps: Vec<SetMap>,
    /// Ranges that the image does not have, in order.
    gaps: Vec<ByteRange>,
    /// The units of the seal, if there is one.
    seal: Option<Units>,
}

/// Where the bytes of a set lie on its nodes.
struct SetMap {
    /// The index of its first node.
    first_node: usize,
    kind: Kind,
}

enum Kind {
    Plain(Placement),
    Redundant { geometry: SetGeometry, bad: BadRanges },
}

impl Locator {
    /// A locator in the drive that `file` describes, which has the newest maps.
    ///
    /// # Errors
    ///
    /// If the file describes no drive, or its coverage map is not the recorded one.
    pub fn new(file: &DriveFile) -> Result<Self> {
        let bad = Error::device(format!("finding the bytes of {}", file.name));
        let mut first_node = 0;
        let maps = file.sets.iter().map(|set| {
            let map = SetMap { first_node, kind: kind(set)? };
            first_node += set.nodes.len();
            Ok(map)
        });
        let maps = maps.collect::<cheetah_device::Result<_>>().map_err(bad)?;
        let has_not =
            |covered: &Coverage| [State::Unread, State::Unreadable].map(|state| covered.in_state(state).collect());
        let gaps: Vec<Vec<ByteRange>> = coverage::recorded(file)?.iter().flat_map(has_not).collect();
        let seal = file.sealed.as_ref().map(|seal| units_of(seal.unit, file.size)).transpose()?;
        Ok(Self { sets: file.sets.clone(), maps, gaps: coalesce(gaps.concat(), 0), seal })
    }

    /// The places that hold all of `range`: one, or one for each copy. None if no node has all of it at one place, or if its
    /// content is lost, or the image does not have it. On a sealed drive, all of the units that it touches, with their trailers.
    pub fn places(&self, range: ByteRange) -> Vec<Place> {
        if self.has_gap(range) {
            return Vec::new();
        }
        self.places_of_stored(self.seal.map_or(range, |units| {
            let (first, end) = units.touched(range);
            units.sealed_range(first, end)
        }))
    }

    /// Whether the image does not have all of `range`.
    pub fn has_gap(&self, range: ByteRange) -> bool {
        let next = self.gaps.partition_point(|gap| gap.end() <= range.offset);
        self.gaps.get(next).is_some_and(|gap| gap.offset < range.end())
    }

    /// The same for a range of what the nodes store: on a sealed drive, ciphertext and trailers.
    pub fn places_of_stored(&self, range: ByteRange) -> Vec<Place> {
        let in_sets = places::in_sets(&self.sets, range);
        match in_sets[..] {
            [(set, within)] if within.len == range.len => {
                self.maps.get(set).map_or_else(Vec::new, |map| map.places(within))
            }
            _ => Vec::new(),
        }
    }
}

fn kind(set: &Set) -> cheetah_device::Result<Kind> {
    let placed = match set.layout() {
        Layout::Linear => Placed::Linear,
        Layout::Stripe { unit } => Placed::Stripe { unit },
        Layout::Mirror { .. } | Layout::Parity { .. } => {
            return Ok(Kind::Redundant { geometry: set.geometry()?, bad: set.bad_ranges() });
        }
    };
    let sizes: Vec<u64> = set.nodes.iter().map(|node| node.size).collect();
    Ok(Kind::Plain(Placement::new(placed, &sizes)?))
}

impl SetMap {
    fn places(&self, range: ByteRange) -> Vec<Place> {
        let place = |member: usize, offset| Place { node: self.first_node + member, offset };
        match &self.kind {
            Kind::Plain(placement) => {
                let whole = placement.map(range).next().filter(|piece| piece.range.len == range.len);
                whole.map(|piece| place(piece.child, piece.range.offset)).into_iter().collect()
            }
            Kind::Redundant { bad, .. } if bad.touch(range) => Vec::new(),
            Kind::Redundant { geometry, .. } => {
                redundant(geometry, range).into_iter().map(|(member, offset)| place(member, offset)).collect()
            }
        }
    }
}

/// The members that hold a range of a set, and where.
fn redundant(geometry: &SetGeometry, range: ByteRange) -> Vec<(usize, u64)> {
    let zone = geometry.zone_at(range.offset).and_then(|zone| geometry.zones().get(zone));
    let Some(zone) = zone.filter(|zone| range.end() <= zone.end()) else { return Vec::new() };
    let array = &zone.array;
    let mut spans = array.spans(ByteRange::new(range.offset - zone.start, range.len));
    let (Some(span), None) = (spans.next(), spans.next()) else { return Vec::new() };
    let data = (array.data_member(span.group, span.index), array.data_offset(span.group, span.index));
    // The redundancy of a mirror is the data again.
    let copies = if array.data_units() == 1 { array.redundancy_units() } else { 0 };
    let copies =
        (0..copies).map(|copy| (array.redundancy_member(span.group, copy), array.redundancy_offset(span.group, copy)));
    let placed = std::iter::once(data).chain(copies).filter_map(|(member, offset)| {
        let start = zone.member_starts.get(member)?;
        Some((*zone.members.get(member)?, start + offset + span.within.offset))
    });
    placed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::example;
    use crate::file::{LayoutName, SealSection, SetNode};

    const KIB: u64 = 1 << 10;
    const UNIT: u64 = 64 * KIB;

    /// A set of nodes of these sizes, in units.
    fn set(layout: LayoutName, units: &[u64]) -> Set {
        let node = |size: &u64| SetNode { size: size * UNIT, ..example().sets[0].nodes[0].clone() };
        let layout = match layout {
            LayoutName::Linear => Layout::Linear,
            LayoutName::Stripe => Layout::Stripe { unit: UNIT },
            LayoutName::Mirror => Layout::Mirror { unit: UNIT, copies: 2 },
            LayoutName::Parity => Layout::Parity { unit: UNIT, parities: 1 },
        };
        Set::new(layout, units.iter().map(node).collect())
    }

    fn file(sets: Vec<Set>) -> DriveFile {
        DriveFile { size: places::capacity(&sets), sets, ..example() }
    }

    #[test]
    fn a_range_on_two_nodes_has_no_place() {
        let file = file(vec![set(LayoutName::Stripe, &[4, 4]), set(LayoutName::Linear, &[1, 3])]);
        let locator = Locator::new(&file).unwrap();
        let place = |offset, len| locator.places(ByteRange::new(offset, len));
        assert_eq!(place(UNIT, UNIT), [Place { node: 1, offset: 0 }]);
        assert_eq!(place(2 * UNIT + 5, 10), [Place { node: 0, offset: UNIT + 5 }]);
        assert_eq!(place(UNIT / 2, UNIT), []);
        assert_eq!(place(8 * UNIT - 1, 2), [], "on two sets");
        assert_eq!(place(9 * UNIT, 3 * UNIT), [Place { node: 3, offset: 0 }]);
        assert_eq!(place(9 * UNIT - 1, 2), []);
        assert_eq!(place(12 * UNIT - 1, 2), [], "beyond the end");
    }

    #[test]
    fn a_unit_of_a_sealed_drive_lies_with_its_trailer_behind_those_before_it() {
        let seal = SealSection { suite: 1, unit: 4 * KIB, holes: false, epoch: 1, keys: Vec::new() };
        let stripe = set(LayoutName::Stripe, &[2, 2]);
        let file = DriveFile { size: 60 * 4 * KIB, sealed: Some(seal), ..file(vec![stripe]) };
        let locator = Locator::new(&file).unwrap();
        let place = |unit: u64| locator.places(ByteRange::new(unit * 4 * KIB, 4 * KIB));
        assert_eq!(place(0), [Place { node: 0, offset: 0 }]);
        assert_eq!(place(3), [Place { node: 0, offset: 3 * (4 * KIB + 24) }]);
        assert_eq!(place(15), [], "its end is on the second node");
        assert_eq!(place(16), [Place { node: 1, offset: 16 * (4 * KIB + 24) - UNIT }]);
    }

    #[test]
    fn each_copy_of_a_mirror_is_a_place_and_what_is_lost_has_none() {
        let mirror = Set { bad: "16".into(), ..set(LayoutName::Mirror, &[8, 8, 8]) };
        let file = file(vec![mirror]);
        let locator = Locator::new(&file).unwrap();
        let places = locator.places(ByteRange::new(0, UNIT));
        assert_eq!(places.iter().map(|place| place.node).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(places[0].offset, 0);
        assert_eq!(locator.places(ByteRange::new(UNIT, UNIT)), [], "its first page is bad");
    }
}
