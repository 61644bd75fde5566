//! The ballot over a change of the map: which nodes are asked to store it, which of them count, and how many decide. Does no
//! I/O.
//!
//! A map is stored at the nodes that have it and at those that had the one before, and at the drive file where it has a vote. It
//! holds once both sets of nodes decide, so that a reader that knows either reaches a node with it.

use cheetah_redundancy::Votes;

use super::map::DriveMap;
use super::shared::Place;
use super::votes::votes;
use crate::file::SetNode;

/// The votes on a change of the map, counted as nodes store it.
#[derive(Debug)]
pub(super) struct Ballot {
    /// Those of the nodes of this map.
    now: Tally,
    /// Those of the nodes of the map that was stored last. From the next map on, a node that takes another's place counts.
    /// A reader that knows only the former nodes must reach a node with this map, so the former nodes must decide, too.
    before: Tally,
}

/// The votes of one set of nodes.
#[derive(Debug)]
struct Tally {
    votes: Votes,
    stored: usize,
}

impl Tally {
    fn of(nodes: &[SetNode], losses_max: usize) -> Self {
        Self { votes: votes(nodes, losses_max), stored: 0 }
    }

    fn decides(&self) -> bool {
        self.votes.decide(self.stored, true)
    }
}

/// In which of two sets of nodes a node counts that has stored a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// The nodes of this map.
    pub is_now: bool,
    /// Those of the map that was stored last.
    pub was_before: bool,
}

/// A node that is asked to store the map.
#[derive(Debug)]
pub(super) struct Elector<'a> {
    /// Its place among all that may be asked: those of the members, then those that the members have left.
    pub slot: usize,
    pub node: &'a SetNode,
    /// The lease there; without one, it cannot be asked.
    pub token: Option<&'a str>,
    pub counts: Counts,
}

impl Ballot {
    /// No votes yet, on a map over the nodes `now`, after a map over the nodes `before`.
    pub fn new(now: &[SetNode], before: &[SetNode], losses_max: usize) -> Self {
        Self { now: Tally::of(now, losses_max), before: Tally::of(before, losses_max) }
    }

    /// Counts a node that has stored the map.
    pub fn stored(&mut self, counts: Counts) {
        self.now.stored += usize::from(counts.is_now);
        self.before.stored += usize::from(counts.was_before);
    }

    /// The number of nodes of this map that have stored it.
    pub fn stored_now(&self) -> usize {
        self.now.stored
    }

    /// Whether the map holds, provided that the drive file has it where it has a vote.
    pub fn is_decided(&self) -> bool {
        self.now.decides() && self.before.decides()
    }

    /// Whether the drive file has a vote.
    pub fn needs_file(&self) -> bool {
        self.now.votes.of_file() > 0 || self.before.votes.of_file() > 0
    }
}

/// The nodes that are asked to store a map: those of the members that are written, and those that members have just left. A
/// reader may know only the latter. `before` are the nodes of the map that was stored last.
pub(super) fn electors<'a>(map: &DriveMap, places: &'a [Place], before: &[SetNode]) -> Vec<Elector<'a>> {
    let mut electors = Vec::new();
    for (member, (entry, place)) in map.map.members.iter().zip(places).enumerate() {
        let is_now = |node: &SetNode| node.is_same(&map.nodes[member]);
        let was_before = |node: &SetNode| node.is_same(&before[member]);
        if entry.state.is_written() {
            let counts = Counts { is_now: is_now(&place.node), was_before: was_before(&place.node) };
            electors.push(Elector { slot: member, node: &place.node, token: place.token.as_deref(), counts });
        }
        // A node that the member has just left answers, and knows of no other lease.
        if let Some(left) = &place.former
            && was_before(&left.node)
            && !left.node.is_same(&place.node)
        {
            let (slot, counts) = (places.len() + member, Counts { is_now: is_now(&left.node), was_before: true });
            electors.push(Elector { slot, node: &left.node, token: left.token.as_deref(), counts });
        }
    }
    electors
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cheetah_redundancy::map::Member;
    use cheetah_redundancy::{Map, MemberState, Regions};
    use proptest::prelude::*;

    use super::*;
    use crate::set::shared::Former;

    const EPOCH: u64 = 10;

    /// A member: its state, and whether it has left a node that the map stored last names.
    #[derive(Debug, Clone, Copy)]
    struct Shape {
        state: MemberState,
        moved: Moved,
        /// Whether its node is a Cheetah node, and so votes.
        votes: bool,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Moved {
        /// It is where it was.
        No,
        /// It left its node, which the map to store still names.
        Next,
        /// It left its node, which only the map before names.
        Now,
        /// It left its node, and a map that says so was stored.
        Before,
    }

    fn shape() -> impl Strategy<Value = Shape> {
        let state = prop_oneof![
            3 => Just(MemberState::InSync),
            1 => Just(MemberState::Syncing),
            1 => Just(MemberState::Stale)
        ];
        let moved =
            prop_oneof![4 => Just(Moved::No), 1 => Just(Moved::Next), 1 => Just(Moved::Now), 1 => Just(Moved::Before)];
        (state, moved, prop::bool::weighted(0.9)).prop_map(|(state, moved, votes)| Shape { state, moved, votes })
    }

    fn node(name: String, votes: bool) -> SetNode {
        SetNode {
            nbd: format!("nbd://{name}/part"),
            http: votes.then(|| format!("{name}:10810")),
            instance: votes.then(|| name.clone()),
            name,
            size: 1 << 20,
            state: None,
            receipt: None,
        }
    }

    /// A map to store, the places of its members, and the nodes of the map before.
    fn setting(shapes: &[Shape]) -> (DriveMap, Vec<Place>, Vec<SetNode>) {
        let mut map = Map::new(shapes.len(), 1 << 20);
        map.epoch = EPOCH;
        let (mut places, mut nodes, mut before) = (Vec::new(), Vec::new(), Vec::new());
        for (member, Shape { state, moved, votes }) in shapes.iter().enumerate() {
            map.members[member] = Member::new(*state, Regions::new(1 << 20));
            let has = node(format!("node{member}"), *votes);
            let left = node(format!("left{member}"), *votes);
            let until = if *moved == Moved::Next { EPOCH + 1 } else { EPOCH };
            let former = (*moved != Moved::No).then(|| Former { node: left.clone(), token: None, until });
            let place = Place { node: has.clone(), token: None, unconfirmed: None, former, incoming: None };
            nodes.push(place.node_at(EPOCH).clone());
            before.push(if matches!(moved, Moved::Next | Moved::Now) { left } else { has });
            places.push(place);
        }
        let none = || vec![None; shapes.len()];
        let map = DriveMap {
            map,
            nodes,
            incoming: none(),
            former: none(),
            refetching: false,
            writer: String::new(),
            lineage: Vec::new(),
        };
        (map, places, before)
    }

    /// Whether the nodes that stored a map, and the drive file, have more than half of the votes of these nodes.
    fn majority(nodes: &[SetNode], losses_max: usize, stored: &BTreeSet<&str>) -> bool {
        let voters = nodes.iter().filter(|node| node.http.is_some()).count();
        let file = (2 * losses_max + 1).saturating_sub(voters);
        let votes = nodes.iter().filter(|node| stored.contains(node.nbd.as_str())).count() + file;
        2 * votes > voters + file
    }

    proptest! {
        #[test]
        fn a_map_holds_once_the_nodes_of_both_maps_decide(
            shapes in prop::collection::vec(shape(), 1..7),
            losses_max in 1usize..4,
            answers in prop::collection::vec(any::<bool>(), 14),
        ) {
            let (map, places, before) = setting(&shapes);
            let electors = electors(&map, &places, &before);
            let slots: BTreeSet<usize> = electors.iter().map(|elector| elector.slot).collect();
            prop_assert_eq!(slots.len(), electors.len(), "each is asked once");
            prop_assert!(slots.iter().all(|slot| *slot < 2 * places.len()));
            // Nodes of foreign servers have no lease, and are not sent anything.
            let asked: Vec<_> = electors.iter().filter(|elector| elector.node.http.is_some()).collect();
            let mut ballot = Ballot::new(&map.nodes, &before, losses_max);
            let mut stored = BTreeSet::new();
            for (elector, answer) in asked.iter().zip(answers) {
                let expected = majority(&map.nodes, losses_max, &stored) && majority(&before, losses_max, &stored);
                prop_assert_eq!(ballot.is_decided(), expected, "{:?}", stored);
                if answer {
                    stored.insert(elector.node.nbd.as_str());
                    ballot.stored(elector.counts);
                }
            }
            let expected = majority(&map.nodes, losses_max, &stored) && majority(&before, losses_max, &stored);
            prop_assert_eq!(ballot.is_decided(), expected, "{:?}", stored);
            let now = map.nodes.iter().filter(|node| stored.contains(node.nbd.as_str())).count();
            prop_assert_eq!(ballot.stored_now(), now);
        }

        #[test]
        fn a_reader_that_knows_either_map_reaches_a_node_with_the_new_one(
            shapes in prop::collection::vec(shape(), 1..7),
            losses_max in 1usize..4,
            answers in prop::collection::vec(prop::bool::weighted(0.9), 14),
            heard in prop::collection::vec(prop::bool::weighted(0.7), 7),
        ) {
            let (map, places, before) = setting(&shapes);
            let mut ballot = Ballot::new(&map.nodes, &before, losses_max);
            let mut stored = BTreeSet::new();
            for (elector, _) in electors(&map, &places, &before).iter().zip(answers).filter(|(_, answer)| *answer) {
                if elector.node.http.is_some() {
                    stored.insert(elector.node.nbd.clone());
                    ballot.stored(elector.counts);
                }
            }
            prop_assume!(ballot.is_decided());
            // One that has the drive file as well has the new map by itself.
            for known in [&map.nodes, &before] {
                let heard: Vec<_> = known.iter().zip(&heard).filter(|(node, heard)| **heard && node.http.is_some()).collect();
                if votes(known, losses_max).decide(heard.len(), false) {
                    prop_assert!(heard.iter().any(|(node, _)| stored.contains(&node.nbd)));
                }
            }
        }
    }
}
