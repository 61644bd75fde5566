//! A picture of a drive: its bytes cut into slices of one size, and for each node the slices of which it holds a part.
//!
//! A slice shows the worst of its bytes, so that one unreadable sector of a large drive is seen.

use cheetah_device::coverage::State;
use cheetah_device::placement::{self, Placement};
use cheetah_device::{ByteRange, Coverage};
use serde::Serialize;

use crate::file::{DriveFile, ImageState, NodeSync, Set, places};
use crate::layout::kind::Layout;
use crate::node::health::{NodeState, NodeStatus};

/// The part of a node in the picture of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChartRow {
    /// The node.
    pub node: String,
    /// One letter for each slice of the drive, in order: `.` the node holds no part of it; `r` all of it was read, and is
    /// there; `u` part of it is not read yet; `x` part of it could not be read from the source; `l` the node's part is lost;
    /// `n` it is not known, because the node does not answer or refuses; `s` the node lacks writes; `e` it was written
    /// without an image, or not at all.
    pub cells: String,
}

/// The picture of a drive in `slices` slices, fewer if the drive is small, with the states of its nodes in file order.
pub(crate) fn chart(
    file: &DriveFile,
    nodes: &[NodeStatus],
    coverage: Option<&Coverage>,
    slices: usize,
) -> Vec<ChartRow> {
    let mut rows: Vec<ChartRow> =
        nodes.iter().map(|node| ChartRow { node: node.node.clone(), cells: String::new() }).collect();
    // A sealed drive takes more of its nodes than it has content.
    let placed_bytes = if file.sealed.is_some() { file.capacity() } else { file.size };
    let holders = Holders::of(file);
    let bad = file.bad_ranges();
    let slices = (slices as u64).min(file.size);
    for index in 0..slices {
        let content = slice(file.size, index, slices);
        let held = holders.of_range(slice(placed_bytes, index, slices));
        let is_bad = bad.iter().any(|bad| bad.intersection(content).is_some());
        let state = if is_bad { 'l' } else { content_state(file, coverage, content) };
        for (node, (row, status)) in rows.iter_mut().zip(nodes).enumerate() {
            row.cells.push(if held.contains(&node) { worst(state, status) } else { '.' });
        }
    }
    rows
}

fn slice(bytes: u64, index: u64, slices: u64) -> ByteRange {
    let edge = |index: u64| {
        let edge = u128::from(bytes) * u128::from(index) / u128::from(slices.max(1));
        u64::try_from(edge).unwrap_or(bytes)
    };
    ByteRange::new(edge(index), edge(index + 1) - edge(index))
}

/// What the drive has of a range of the image.
fn content_state(file: &DriveFile, coverage: Option<&Coverage>, range: ByteRange) -> char {
    let Some(image) = &file.image else { return 'e' };
    let Some(range) = range.intersection(ByteRange::new(0, image.size)) else { return 'e' };
    match coverage {
        Some(coverage) => {
            let has = |wanted: State| coverage.runs(range).any(|(_, state)| state == wanted);
            match () {
                () if has(State::Unreadable) => 'x',
                () if has(State::Unread) => 'u',
                () => 'r',
            }
        }
        // It is recorded only at the end how far the load came.
        None if image.state == ImageState::Loading => 'u',
        None => 'r',
    }
}

/// The letter of a cell: what the source could not read does not depend on the node.
fn worst(state: char, node: &NodeStatus) -> char {
    match (state, node.state, node.sync) {
        ('x', ..) => 'x',
        (_, NodeState::Lost | NodeState::Restarted, _) => 'l',
        (_, NodeState::Refused | NodeState::Unreachable | NodeState::Silent, _) => 'n',
        (_, NodeState::Ok | NodeState::Foreign, Some(NodeSync::Stale | NodeSync::Syncing)) => 's',
        (state, NodeState::Ok | NodeState::Foreign, None) => state,
    }
}

/// Where the bytes of a drive's sets are.
struct Holders<'a> {
    file: &'a DriveFile,
    sets: Vec<OfSet>,
}

enum OfSet {
    /// Each byte is on one node.
    Placed(Placement),
    /// From each offset of the set on, these nodes hold data and redundancy.
    Zones(Vec<(u64, Vec<usize>)>),
    /// The set contradicts itself.
    Unknown,
}

impl OfSet {
    fn of(set: &Set) -> Self {
        let sizes: Vec<u64> = set.nodes.iter().map(|node| node.size).collect();
        let layout = match set.layout() {
            Layout::Linear => placement::Layout::Linear,
            Layout::Stripe { unit } => placement::Layout::Stripe { unit },
            Layout::Mirror { .. } | Layout::Parity { .. } => {
                let zones = |set: cheetah_redundancy::SetGeometry| {
                    set.zones().iter().map(|zone| (zone.start, zone.members.clone())).collect()
                };
                return set.geometry().map_or(Self::Unknown, |geometry| Self::Zones(zones(geometry)));
            }
        };
        Placement::new(layout, &sizes).map_or(Self::Unknown, Self::Placed)
    }

    /// The nodes that hold part of a range of the set.
    fn holders(&self, range: ByteRange) -> Vec<usize> {
        match self {
            // The first pieces name all nodes of a stripe: later ones repeat them, or are of fewer nodes.
            Self::Placed(placement) => {
                let pieces = placement.map(range).map(|piece| piece.child);
                let mut found: Vec<usize> = pieces.take(PIECES_MAX).collect();
                found.sort_unstable();
                found.dedup();
                found
            }
            Self::Zones(zones) => {
                let ends = zones.iter().skip(1).map(|(start, _)| *start).chain([u64::MAX]);
                let touched =
                    zones.iter().zip(ends).filter(|((start, _), end)| *start < range.end() && range.offset < *end);
                touched.flat_map(|((_, members), _)| members.iter().copied()).collect()
            }
            Self::Unknown => Vec::new(),
        }
    }
}

/// The most pieces of a slice that are looked at: more than a set has nodes.
const PIECES_MAX: usize = 4096;

impl<'a> Holders<'a> {
    fn of(file: &'a DriveFile) -> Self {
        Self { file, sets: file.sets.iter().map(OfSet::of).collect() }
    }

    /// The nodes that hold part of a range of the sets, in file order.
    fn of_range(&self, range: ByteRange) -> Vec<usize> {
        let first = |index: usize| self.file.sets[..index].iter().map(|set| set.nodes.len()).sum::<usize>();
        let mut found: Vec<usize> = Vec::new();
        for (set, within) in places::in_sets(&self.file.sets, range) {
            let nodes = self.sets.get(set).map(|of| of.holders(within)).unwrap_or_default();
            found.extend(nodes.into_iter().map(|node| first(set) + node));
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Image;
    use crate::file::tests::{example, redundant};
    use crate::status::tests::statuses;

    fn with_image(mut file: DriveFile) -> DriveFile {
        let image = Image {
            source: "disk.raw".into(),
            size: file.size,
            sector_size: None,
            state: ImageState::Intact,
            digests: None,
            hashes: crate::Hashes::default(),
            differ_bytes_max: 0,
        };
        file.image = Some(image);
        for set in &mut file.sets {
            set.bad.clear();
            set.nodes.iter_mut().for_each(|node| node.state = None);
        }
        file
    }

    fn cells(rows: &[ChartRow]) -> Vec<&str> {
        rows.iter().map(|row| &*row.cells).collect()
    }

    #[test]
    fn one_unreadable_sector_shows_at_each_node_of_its_slice_and_nowhere_else() {
        let file = with_image(redundant());
        let mut coverage = Coverage::new(file.size);
        coverage.set(ByteRange::new(0, file.size), State::Read);
        coverage.set(ByteRange::new(file.size / 2, 512), State::Unreadable);
        let rows = chart(&file, &statuses(&file, &[]), Some(&coverage), 8);
        assert!(cells(&rows).iter().all(|cells| *cells == "rrrrxrrr"), "{rows:?}");
        coverage.set(ByteRange::new(0, 1), State::Unread);
        let rows = chart(&file, &statuses(&file, &[]), Some(&coverage), 8);
        assert!(cells(&rows).iter().all(|cells| *cells == "urrrxrrr"), "{rows:?}");
    }

    #[test]
    fn a_lost_node_a_silent_node_and_one_that_lacks_writes_differ() {
        let file = with_image(redundant());
        let mut nodes = statuses(&file, &[]);
        nodes[0].state = NodeState::Restarted;
        nodes[1].state = NodeState::Silent;
        nodes[2].sync = Some(NodeSync::Syncing);
        let rows = chart(&file, &nodes, None, 4);
        assert_eq!(cells(&rows)[..3], ["llll", "nnnn", "ssss"]);
    }

    #[test]
    fn a_linear_drive_shows_each_slice_at_the_node_that_holds_it() {
        let mut file = example();
        file.sets[0].layout = crate::file::LayoutName::Linear;
        file.sets[0].unit = None;
        let rows = chart(&file, &statuses(&file, &[]), None, 64);
        for slice in 0..64 {
            let holders = rows.iter().filter(|row| row.cells.as_bytes()[slice] != b'.').count();
            assert!((1..=2).contains(&holders), "{rows:?}");
        }
        assert!(rows.iter().all(|row| row.cells.len() == 64 && row.cells.contains('.')), "{rows:?}");
    }

    #[test]
    fn a_drive_smaller_than_the_picture_has_a_slice_for_each_byte() {
        assert_eq!(slice(10, 3, 4), ByteRange::new(7, 3));
        let slices = (0..7).map(|index| slice(100, index, 7));
        assert_eq!(slices.map(|slice| slice.len).sum::<u64>(), 100);
    }
}
