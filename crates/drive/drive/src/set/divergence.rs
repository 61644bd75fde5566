//! Writers that wrote apart from each other: each with nodes that the other did not reach, each with a copy of the drive file.
//!
//! Where nodes alone cannot decide, as in a mirror over two, the drive file has a vote. Two copies of it then let two
//! writers go on, each with one node. Each node has content that the other lacks, and nothing says which is right.
//! Maps name the writers before theirs, and the map that each began with ([`DriveMap::lineage`]), so a map that does not come
//! from another one is recognised, and the drive is refused until an examiner decides for one side.

use cheetah_error::{Error, Result, next};
use cheetah_redundancy::MemberState;
use cheetah_redundancy::engine::newest_of_writer;

use super::lineage::{Ancestor, LINEAGE_MAX, short};
use super::map::DriveMap;
use crate::file::SetNode;
use crate::file::set::DriveSet;

/// Bits of an epoch that count the changes of one writer.
const EPOCH_BITS_OF_WRITER: u32 = newest_of_writer(0).count_ones();

/// Two maps of which neither comes from the other, and which have no node in common that holds all that was written.
#[derive(Debug, Clone)]
pub(crate) struct Divergence {
    /// The one with the higher epoch.
    pub newest: DriveMap,
    /// The other one.
    pub other: DriveMap,
}

impl DriveMap {
    /// The writers of the maps that come from this one: those before, and its own.
    pub fn lineage_of_next(&self, writer: &str) -> Vec<Ancestor> {
        let mut lineage = self.lineage.clone();
        if lineage.is_empty() && !self.writer.is_empty() {
            lineage.push(Ancestor { writer: short(&self.writer), began_with: None });
        }
        // A writer that never stored a map has left no trace, and needs none.
        lineage.push(Ancestor { writer: short(writer), began_with: Some(self.map.epoch) });
        let excess = lineage.len().saturating_sub(LINEAGE_MAX);
        lineage.drain(..excess);
        lineage
    }

    /// The number of the writer among the drive's writers.
    const fn generation(&self) -> u64 {
        self.map.epoch >> EPOCH_BITS_OF_WRITER
    }

    /// The nodes that hold all that was written, as far as this map knows.
    fn holders(&self) -> impl Iterator<Item = &SetNode> {
        let members = self.nodes.iter().zip(&self.map.members);
        members.filter(|(_, member)| member.state == MemberState::InSync).map(|(node, _)| node)
    }

    /// The names of these nodes.
    pub fn holder_names(&self) -> Vec<&str> {
        self.holders().map(|node| node.name.as_str()).collect()
    }

    /// Whether a node is among these, under a name or address that a user gives it.
    pub fn is_held_by(&self, name: &str) -> bool {
        let address = |node: &SetNode| node.uri().map(|uri| uri.address.to_string());
        self.holders().any(|node| node.name == name || address(node).is_some_and(|address| address == name))
    }

    fn excludes_a_member(&self) -> bool {
        self.map.members.iter().any(|member| member.state != MemberState::InSync)
    }

    /// The writer that many before this map's own, and what the one after it began with. `None` if that is not known.
    fn ancestor(&self, before: u64) -> Option<(&Ancestor, Option<u64>)> {
        let at = self.lineage.len().checked_sub(1 + usize::try_from(before).ok()?)?;
        Some((self.lineage.get(at)?, self.lineage.get(at + 1).and_then(|next| next.began_with)))
    }

    /// Whether this map comes from `other`, which has no higher epoch; true if that is not known.
    fn comes_from(&self, other: &Self) -> bool {
        let before = self.generation().saturating_sub(other.generation());
        match self.ancestor(before) {
            Some((ancestor, continued)) => {
                ancestor.writer == short(&other.writer) && continued.is_none_or(|epoch| epoch >= other.map.epoch)
            }
            None => before > 0 || self.writer == other.writer,
        }
    }

    /// Whether this map, of a writer, comes from that of a drive file. The file names no writer, so it is enough if a later
    /// writer knew its epoch.
    fn comes_from_file(&self, file: &Self) -> bool {
        let Some(before) = self.generation().checked_sub(file.generation()).filter(|before| *before > 0) else {
            return false;
        };
        let continued = self.ancestor(before - 1).and_then(|(next, _)| next.began_with);
        continued.is_none_or(|epoch| epoch >= file.map.epoch)
    }

    /// Whether the two were made by writers that wrote apart from each other.
    pub fn diverges_from(&self, other: &Self) -> bool {
        let (newest, oldest) = if self.map.epoch >= other.map.epoch { (self, other) } else { (other, self) };
        if self.holders().any(|node| other.holders().any(|same| same.is_same(node))) {
            return false;
        }
        // Without a writer it is the drive file's, or the map of a new drive.
        match (self.writer.is_empty(), other.writer.is_empty()) {
            (false, false) => !newest.comes_from(oldest),
            (true, false) => self.excludes_a_member() && !other.comes_from_file(self),
            (false, true) => other.excludes_a_member() && !self.comes_from_file(other),
            (true, true) => false,
        }
    }
}

impl Divergence {
    /// Looks for two maps among these that diverge. The first is the newest.
    pub fn among<'a>(newest: &DriveMap, others: impl IntoIterator<Item = &'a DriveMap>) -> Option<Box<Self>> {
        let other = others.into_iter().find(|other| newest.diverges_from(other))?;
        Some(Box::new(Self { newest: newest.clone(), other: other.clone() }))
    }

    /// The two sides.
    pub fn sides(&self) -> [&DriveMap; 2] {
        [&self.newest, &self.other]
    }

    /// Returns the refusal to use the set.
    pub fn refusal(&self, set: &DriveSet) -> Error {
        let [one, other] = self.sides().map(|side| side.holder_names().join(" and "));
        let drive = &set.drive.name;
        Error::evidence(format!(
            "{drive}: two writers have written to it apart from each other: one to {one}, without {other}, and one to {other}, \
             without {one}; each has writes that the other lacks"
        ))
        .next(next::Drive::Decide { drive: drive.clone(), one, other })
    }
}

/// Fails if two writers wrote apart from each other.
///
/// # Errors
///
/// `Kind::Evidence`, which names both sides.
pub(crate) fn agreed(set: &DriveSet, diverged: Option<&Divergence>) -> Result<()> {
    match diverged {
        Some(divergence) => Err(divergence.refusal(set)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use cheetah_redundancy::Regions;
    use cheetah_redundancy::map::Member;

    use super::*;
    use crate::file::DriveFile;
    use crate::file::Set;
    use crate::file::tests::redundant;
    use crate::layout::kind::Layout;

    /// The set of a mirror over two nodes.
    fn set() -> DriveSet {
        let mut file = redundant();
        let nodes = file.sets[0].nodes[..2].iter().map(|node| SetNode { state: None, ..node.clone() }).collect();
        let set = Set::new(Layout::Mirror { unit: 64 << 10, copies: 2 }, nodes);
        file = DriveFile { size: set.size, sets: vec![set], ..file };
        DriveSet::all(&file).next().unwrap()
    }

    /// A map by the writer of this number, which wrote without these members, and comes from `before`.
    fn map(before: &DriveMap, writer: &str, without: &[usize]) -> DriveMap {
        let mut map = before.clone();
        map.map.epoch = newest_of_writer(before.map.epoch) + 1;
        map.lineage = before.lineage_of_next(writer);
        map.writer = writer.into();
        for (index, member) in map.map.members.iter_mut().enumerate() {
            let state = if without.contains(&index) { MemberState::Stale } else { MemberState::InSync };
            *member = Member::new(state, Regions::all(1 << 30));
        }
        map
    }

    #[test]
    fn maps_of_writers_apart_from_each_other_diverge_however_long_each_went_on() {
        let common = map(&DriveMap::of_file(&set()), "w", &[]);
        let (mut one, mut other) = (map(&common, "a", &[1]), map(&common, "b", &[0]));
        for round in 0..40 {
            assert!(one.diverges_from(&other) && other.diverges_from(&one), "{round}");
            assert!(!one.diverges_from(&common) && !common.diverges_from(&other), "{round}");
            one = map(&one, &format!("a{round}"), &[1]);
            if round % 3 == 0 {
                other = map(&other, &format!("b{round}"), &[0]);
            }
        }
        assert!(one.lineage.len() <= LINEAGE_MAX);
    }

    #[test]
    fn a_writer_that_took_over_without_the_last_changes_of_the_one_before_diverges_from_it() {
        let common = map(&DriveMap::of_file(&set()), "a", &[]);
        // The network is cut: the first writer goes on without node 1, a second one without node 0, from what node 1 has.
        let mut first = common.clone();
        first.map.epoch += 1;
        first.map.members[1] = Member::new(MemberState::Stale, Regions::all(1 << 30));
        let second = map(&common, "b", &[0]);
        assert!(second.diverges_from(&first) && first.diverges_from(&second));
        // A drive file that the first writer kept says so, too, if node 0 is gone.
        let file = DriveMap { writer: String::new(), lineage: Vec::new(), ..first.clone() };
        assert!(second.diverges_from(&file) && file.diverges_from(&second));
        // One that knew the change does not diverge, nor do its successors.
        let next = map(&map(&first, "c", &[1]), "d", &[0]);
        assert!(!next.diverges_from(&first) && !next.diverges_from(&file));
        assert!(map(&second, "e", &[0]).diverges_from(&first));
    }

    #[test]
    fn an_ancestor_is_read_as_it_was_written_with_and_without_an_epoch() {
        for text in ["0123456789abcdef@4294967297", "0123456789abcdef"] {
            assert_eq!(String::from(Ancestor::from(text.to_owned())), text);
        }
    }

    #[test]
    fn a_node_that_missed_the_return_of_the_other_does_not_diverge() {
        let common = map(&DriveMap::of_file(&set()), "w", &[]);
        // Node 1 came back, and node 0, which had held the drive alone, was lost before it had the map that says so.
        let alone = map(&common, "a", &[1]);
        let returned = DriveMap { writer: "a".into(), ..map(&common, "a", &[]) };
        let without = map(&returned, "b", &[0]);
        assert!(!without.diverges_from(&alone));
        let same_writer =
            DriveMap { map: cheetah_redundancy::Map { epoch: alone.map.epoch + 5, ..without.map }, ..returned };
        assert!(!same_writer.diverges_from(&alone));
    }

    #[test]
    fn a_drive_file_that_is_behind_does_not_diverge_and_that_of_another_writer_does() {
        let file = |without: Option<usize>, epoch| {
            let mut map = DriveMap::of_file(&set());
            map.map.epoch = epoch;
            if let Some(member) = without {
                map.map.members[member] = Member::new(MemberState::Stale, Regions::all(1 << 30));
            }
            map
        };
        let common = map(&DriveMap::of_file(&set()), "w", &[]);
        let now = map(&common, "a", &[1]);
        assert!(!now.diverges_from(&file(None, 1)) && !now.diverges_from(&file(Some(0), 1)));
        assert!(now.diverges_from(&file(Some(0), now.map.epoch)));
        assert!(!now.diverges_from(&file(Some(1), now.map.epoch)));
    }
}
