//! A picture of a drive: its bytes cut into slices of one size, and for each node the slices of which it holds a part.
//!
//! A slice shows the worst of its bytes, so that one unreadable sector of a large drive is seen.

use cheetah_device::coverage::State;
use cheetah_device::placement::{self, Placement};
use cheetah_device::{ByteRange, Coverage};
use cheetah_error::Result;
use serde::Serialize;

use crate::file::digests::Digests;
use crate::file::{DriveFile, ImageState, NodePart, NodeSync, Set, SetNode, places};
use crate::layout::kind::Layout;
use crate::node::health::{NodeState, NodeStatus};

/// The part of a node in the picture of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChartRow {
    /// The node.
    pub node: String,
    /// One letter for each slice of the drive, in order: `.` the node holds no part of it; `r` all of it was read, and is
    /// there; `v` that, and it was compared with its digests since; `z` that, and all of it is zeros; `u` part of it is not read yet; `x` part of it could not be read from the source; `l` the node's part is lost;
    /// `n` it is not known, because the node does not answer or refuses; `s` the node lacks writes; `e` it was written
    /// without an image, or not at all.
    pub cells: String,
}

/// What records say of the content of a drive, for its picture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Whether all of the image was compared with the digests made at load, and nothing was recorded since that changes it.
    pub verified: bool,
    /// The ranges of the image that are zeros, in order, none touching another.
    pub zeros: Vec<ByteRange>,
    /// The parts of nodes in which the redundancy was compared with the content, and agreed.
    pub compared: Vec<NodePart>,
}

impl Known {
    /// Whether all that each node holds was compared. A verification reads one of several copies, and no parity, so of a drive
    /// with redundancy it says nothing of a single node, unless the redundancy was compared with the content, too.
    fn compared_all_of(&self, file: &DriveFile) -> Vec<bool> {
        let is_compared = |node: &SetNode| !file.is_redundant() || self.compared.contains(&NodePart::from(node));
        file.nodes().map(is_compared).collect()
    }
}

/// The ranges of a drive's image that are zeros, by the digests made at load: none without digests, and none if the drive was
/// opened for writing since. Reads the file of digests, 32 bytes for each MiB.
///
/// # Errors
///
/// If that file is missing, or another one.
pub fn zeros(file: &DriveFile) -> Result<Vec<ByteRange>> {
    let image = file.image.as_ref().filter(|image| is_as_loaded(image.state));
    match image.and_then(|image| Some((image.digests.as_ref()?, image.size))) {
        Some((digests, size)) => Ok(Digests::load(file, digests, size)?.zeros()),
        None => Ok(Vec::new()),
    }
}

const fn is_as_loaded(state: ImageState) -> bool {
    matches!(state, ImageState::Intact | ImageState::Incomplete)
}

/// The picture of a drive in `slices` slices, fewer if the drive is small, with the states of its nodes in file order.
pub(crate) fn chart(
    file: &DriveFile,
    nodes: &[NodeStatus],
    coverage: Option<&Coverage>,
    slices: usize,
    known: &Known,
) -> Vec<ChartRow> {
    let mut rows: Vec<ChartRow> =
        nodes.iter().map(|node| ChartRow { node: node.node.clone(), cells: String::new() }).collect();
    // A sealed drive takes more of its nodes than it has content.
    let placed_bytes = if file.sealed.is_some() { file.capacity() } else { file.size };
    let holders = Holders::of(file);
    let bad = file.bad_ranges();
    let compared = known.compared_all_of(file);
    let slices = (slices as u64).min(file.size);
    for index in 0..slices {
        let content = slice(file.size, index, slices);
        let held = holders.of_range(slice(placed_bytes, index, slices));
        let is_bad = bad.iter().any(|bad| bad.intersection(content).is_some());
        let state = if is_bad { 'l' } else { content_state(file, coverage, content, known) };
        for (node, (row, status)) in rows.iter_mut().zip(nodes).enumerate() {
            let cell = if held.contains(&node) { worst(state, status) } else { '.' };
            // A node stores no zeros. Of a sealed drive it stores ciphertext.
            let is_empty = cell == 'e' && status.used_bytes == Some(0) && file.sealed.is_none();
            let is_compared = compared.get(node).is_some_and(|is_compared| *is_compared);
            row.cells.push(match cell {
                _ if is_empty => 'z',
                'v' if !is_compared => 'r',
                cell => cell,
            });
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
fn content_state(file: &DriveFile, coverage: Option<&Coverage>, range: ByteRange, known: &Known) -> char {
    let Some(image) = &file.image else { return 'e' };
    let Some(range) = range.intersection(ByteRange::new(0, image.size)) else { return 'e' };
    let has_all = || match image.state {
        state if is_as_loaded(state) && is_within(&known.zeros, range) => 'z',
        ImageState::Intact if known.verified => 'v',
        _ => 'r',
    };
    match coverage {
        Some(coverage) => {
            let has = |wanted: State| coverage.runs(range).any(|(_, state)| state == wanted);
            match () {
                () if has(State::Unreadable) => 'x',
                () if has(State::Unread) => 'u',
                () => has_all(),
            }
        }
        // It is recorded only at the end how far the load came.
        None if image.state == ImageState::Loading => 'u',
        None => has_all(),
    }
}

/// Whether one of these ranges, which are in order, has all of a range.
fn is_within(ranges: &[ByteRange], range: ByteRange) -> bool {
    let after = ranges.partition_point(|one| one.offset <= range.offset);
    after.checked_sub(1).and_then(|index| ranges.get(index)).is_some_and(|one| one.end() >= range.end())
}

/// The letter of a cell: what the source could not read does not depend on the node.
fn worst(state: char, node: &NodeStatus) -> char {
    match (state, node.state, node.sync) {
        ('x', ..) => 'x',
        (_, NodeState::Lost | NodeState::Restarted, _) => 'l',
        (_, NodeState::Refused | NodeState::Unreachable | NodeState::Silent, _) => 'n',
        (_, NodeState::Ok | NodeState::Foreign, Some(NodeSync::Stale | NodeSync::Syncing)) => 's',
        // That a foreign server was restarted since goes unnoticed.
        ('v', NodeState::Foreign, None) => 'r',
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
        let rows = chart(&file, &statuses(&file, &[]), Some(&coverage), 8, &Known::default());
        assert!(cells(&rows).iter().all(|cells| *cells == "rrrrxrrr"), "{rows:?}");
        coverage.set(ByteRange::new(0, 1), State::Unread);
        let rows = chart(&file, &statuses(&file, &[]), Some(&coverage), 8, &Known::default());
        assert!(cells(&rows).iter().all(|cells| *cells == "urrrxrrr"), "{rows:?}");
    }

    #[test]
    fn a_lost_node_a_silent_node_and_one_that_lacks_writes_differ() {
        let file = with_image(redundant());
        let mut nodes = statuses(&file, &[]);
        nodes[0].state = NodeState::Restarted;
        nodes[1].state = NodeState::Silent;
        nodes[2].sync = Some(NodeSync::Syncing);
        let rows = chart(&file, &nodes, None, 4, &Known::default());
        assert_eq!(cells(&rows)[..3], ["llll", "nnnn", "ssss"]);
    }

    #[test]
    fn a_linear_drive_shows_each_slice_at_the_node_that_holds_it() {
        let mut file = example();
        file.sets[0].layout = crate::file::LayoutName::Linear;
        file.sets[0].unit = None;
        let rows = chart(&file, &statuses(&file, &[]), None, 64, &Known::default());
        for slice in 0..64 {
            let holders = rows.iter().filter(|row| row.cells.as_bytes()[slice] != b'.').count();
            assert!((1..=2).contains(&holders), "{rows:?}");
        }
        assert!(rows.iter().all(|row| row.cells.len() == 64 && row.cells.contains('.')), "{rows:?}");
    }

    #[test]
    fn zeros_and_verified_content_are_shown_where_they_are_known_and_nowhere_else() {
        let file = with_image(example());
        let known = Known { verified: true, zeros: vec![ByteRange::new(0, file.size / 4 + 1)], compared: Vec::new() };
        let letters = |file: &DriveFile, nodes: &[NodeStatus], known: &Known| -> String {
            let rows = chart(file, nodes, None, 8, known);
            let worst = |slice: usize| rows.iter().map(|row| row.cells.as_bytes()[slice]).find(|cell| *cell != b'.');
            (0..8).filter_map(|slice| worst(slice).map(char::from)).collect()
        };
        let mut nodes = statuses(&file, &[]);
        assert_eq!(letters(&file, &nodes, &known), "zzvvvvvv");
        assert_eq!(letters(&file, &nodes, &Known::default()), "rrrrrrrr");
        let mut modified = file.clone();
        modified.image.as_mut().unwrap().state = ImageState::Modified;
        assert_eq!(letters(&modified, &nodes, &known), "rrrrrrrr");
        let redundant = with_image(redundant());
        let zeros = Known { zeros: vec![ByteRange::new(0, redundant.size / 4)], ..known.clone() };
        assert_eq!(letters(&redundant, &statuses(&redundant, &[]), &zeros), "zzrrrrrr");
        nodes.iter_mut().for_each(|node| node.state = NodeState::Foreign);
        assert_eq!(letters(&file, &nodes, &known), "zzrrrrrr");
        nodes.iter_mut().for_each(|node| node.state = NodeState::Restarted);
        assert_eq!(letters(&file, &nodes, &known), "llllllll");
    }

    #[test]
    fn a_node_of_a_redundant_drive_is_verified_only_if_its_part_was_compared_with_the_redundancy() {
        let mut file = with_image(redundant());
        let compared: Vec<_> = file.nodes().map(NodePart::from).collect();
        let known = Known { verified: true, compared, ..Known::default() };
        let shown = |file: &DriveFile, known: &Known| -> Vec<String> {
            chart(file, &statuses(file, &[]), None, 4, known).into_iter().map(|row| row.cells).collect()
        };
        assert!(shown(&file, &known).iter().all(|cells| cells == "vvvv"));
        let only_compared = Known { verified: false, ..known.clone() };
        assert!(shown(&file, &only_compared).iter().all(|cells| cells == "rrrr"));
        // Its part was computed anew, by another instance of the node.
        file.sets[0].nodes[1].instance = Some("another".into());
        let shown = shown(&file, &known);
        assert_eq!((&*shown[0], &*shown[1]), ("vvvv", "rrrr"));
    }

    #[test]
    fn the_part_of_a_node_that_stores_nothing_is_zeros_unless_it_is_sealed() {
        let mut file = example();
        file.image = None;
        let mut nodes = statuses(&file, &[]);
        nodes[0].used_bytes = Some(0);
        nodes[1].used_bytes = Some(4096);
        let rows = chart(&file, &nodes, None, 4, &Known::default());
        let held = |index: usize| rows[index].cells.replace('.', "");
        assert!(held(0).chars().all(|cell| cell == 'z') && !held(0).is_empty(), "{rows:?}");
        assert!(held(1).chars().all(|cell| cell == 'e') && !held(1).is_empty(), "{rows:?}");
        let seal = crate::file::SealSection { suite: 1, unit: 64 << 10, holes: true, epoch: 1, keys: Vec::new() };
        file.sealed = Some(seal);
        assert!(!chart(&file, &nodes, None, 4, &Known::default())[0].cells.contains('z'));
    }

    #[test]
    fn a_drive_smaller_than_the_picture_has_a_slice_for_each_byte() {
        assert_eq!(slice(10, 3, 4), ByteRange::new(7, 3));
        let slices = (0..7).map(|index| slice(100, index, 7));
        assert_eq!(slices.map(|slice| slice.len).sum::<u64>(), 100);
    }
}
