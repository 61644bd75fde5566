//! The recovery engine: which map has to be stored before which write is acknowledged, and what has to be
//! resynchronized. Does no I/O and has no clock.
//!
//! | event | answer |
//! |---|---|
//! | [`admit`](Engine::admit): a write is about to change regions | the epoch that has to be stored first |
//! | [`finish`](Engine::finish): that write has ended | |
//! | [`mark_stale`](Engine::mark_stale): a member missed a write | the epoch that has to be stored before the write is acknowledged, or that the member cannot be spared |
//! | [`rejoin`](Engine::rejoin), [`replace`](Engine::replace): a member is written again | the epoch to store first |
//! | [`unsettle`](Engine::unsettle): redundancy disagrees with the data somewhere | |
//! | [`declare_bad`](Engine::declare_bad), [`heal`](Engine::heal): pages are lost, or were rewritten | the epoch to store first |
//! | [`next_resync`](Engine::next_resync) | the next region to resynchronize |
//! | [`resynced`](Engine::resynced): a region was resynchronized | |
//! | [`record_progress`](Engine::record_progress): time has passed | the epoch to store |
//! | [`next_store`](Engine::next_store) | the map to store now, one at a time |
//! | [`store_finished`](Engine::store_finished) | the members that readers elsewhere may still read by an older map |
//! | [`unread`](Engine::unread): readers no longer read these members | |
//! | [`begin_move`](Engine::begin_move), [`attach`](Engine::attach), [`abandon_move`](Engine::abandon_move), [`finish_move`](Engine::finish_move): a member moves to another node | the epoch to store |
//! | [`close`](Engine::close): the writer ends in order | the epoch to store last |
//!
//! Invariants, asserted where they could break: a region with a write in flight is unsettled; a stale member becomes in
//! sync only through syncing, once it lacks no write; the members in sync suffice to read every byte; epochs grow.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cheetah_device::ByteRange;

use crate::bad::Full;
use crate::map::{Map, Member, MemberState, Regions};

pub use self::moves::{Finished, NotMoved};

/// An epoch of the map.
pub type Epoch = u64;

/// Each writer's first epoch is above the next multiple of 2^20, hence above all epochs that a former writer may have
/// stored in part.
const EPOCHS_OF_WRITER: Epoch = (1 << 20) - 1;

/// The newest epoch that the writer of the map of epoch `known` may have stored, at members that have not answered.
pub const fn newest_of_writer(known: Epoch) -> Epoch {
    known | EPOCHS_OF_WRITER
}

/// The engine of one writer.
#[derive(Debug)]
pub struct Engine {
    map: Map,
    /// Epochs up to this one may have been stored in part by a former writer, at members that have not answered this
    /// one.
    former_epochs: Epoch,
    losses_max: usize,
    stored: Epoch,
    /// The newest epoch that this writer has stored; 0 before the first.
    own_stored: Epoch,
    /// The first epoch of each stored exclusion whose members readers elsewhere may still read by an older map.
    read_elsewhere: BTreeSet<Epoch>,
    storing: Option<Epoch>,
    /// Regions whose redundancy must be recomputed: unsettled when the drive was opened, or a write failed there.
    to_settle: Regions,
    /// Writes in flight, by region.
    writes: BTreeMap<u64, u32>,
    /// In which epoch each member became stale.
    stale_since: Vec<Epoch>,
    /// The members whose incoming node gets every write.
    attached: Vec<bool>,
    /// The last epoch in which each member left a node that may still have answered: the node it moved from, or the
    /// incoming node of a move that was abandoned.
    left: Vec<Epoch>,
    pass: Option<Pass>,
    /// Regions that are being resynchronized.
    taken: BTreeSet<u64>,
    /// Since the last change, a member received a region that it had missed.
    has_progress: bool,
}

/// One pass over the regions to resynchronize.
#[derive(Debug)]
struct Pass {
    todo: Regions,
    failed: bool,
}

/// The next step of a resynchronization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resync {
    /// This region next.
    Region(u64),
    /// Nothing until a region that is being resynchronized is done.
    Busy,
    /// Nothing is left to do.
    Done,
    /// Some regions could not be resynchronized. A retry helps only after something has changed.
    Incomplete,
}

/// Members that a stored map is the first to exclude.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclusion {
    /// The first epoch in which one of them was stale.
    pub epoch: Epoch,
    /// The members that became stale.
    pub members: Vec<usize>,
    /// Whether a member also left a node that still answers.
    pub has_left: bool,
}

/// A member that missed a write cannot be marked stale: without it, bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indispensable;

/// Why a member is not replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReplaced {
    /// The other members do not hold all its bytes.
    Indispensable,
    /// It takes part. Readers elsewhere may read it, and would not see later writes.
    NotStale,
    /// Its incoming node is about to take its place.
    Moving,
}

impl Engine {
    /// The engine for a drive of `size` bytes that survives `losses_max` losses, and whose newest stored map is `map`.
    pub fn new(map: Map, size: u64, losses_max: usize) -> Self {
        debug_assert!(map.unsettled.divide(size), "the map is of this drive");
        Self {
            stored: map.epoch,
            former_epochs: newest_of_writer(map.epoch),
            own_stored: 0,
            read_elsewhere: BTreeSet::new(),
            storing: None,
            to_settle: map.unsettled.clone(),
            writes: BTreeMap::new(),
            stale_since: map
                .members
                .iter()
                .map(|member| if member.state == MemberState::InSync { 0 } else { map.epoch })
                .collect(),
            attached: vec![false; map.members.len()],
            // A former writer that did not close the drive may have stored in part that a member moved.
            left: vec![if map.open { map.epoch } else { 0 }; map.members.len()],
            pass: None,
            taken: BTreeSet::new(),
            has_progress: false,
            losses_max,
            map,
        }
    }

    /// The map as it is to be; perhaps not stored yet.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// The newest epoch that is stored.
    pub fn stored(&self) -> Epoch {
        self.stored
    }

    /// The newest stored epoch such that every reader elsewhere reads by it or by a newer one. A write that a member
    /// missed is acknowledged only once the epoch that records this is settled.
    pub fn settled(&self) -> Epoch {
        self.read_elsewhere.first().map_or(self.stored, |epoch| epoch - 1)
    }

    /// Admits a write to `regions`. It may begin once the epoch returned is [`stored`](Self::stored).
    pub fn admit(&mut self, regions: Range<u64>) -> Epoch {
        let recorded = |map: &Map, region: u64| {
            let missed = |member: &Member| member.state != MemberState::Stale || member.missed.contains(region);
            map.unsettled.contains(region) && map.members.iter().all(missed)
        };
        // The former writer's last map may be stored at one member only, so nothing is acknowledged before a map of
        // this writer is stored.
        let is_own = self.map.epoch > self.former_epochs;
        if !is_own || !self.map.open || !regions.clone().all(|region| recorded(&self.map, region)) {
            self.change(|map| {
                map.open = true;
                for region in regions.clone() {
                    map.unsettled.insert(region);
                    for member in map.members.iter_mut().filter(|member| member.state == MemberState::Stale) {
                        member.missed.insert(region);
                    }
                }
            });
        }
        for region in regions {
            *self.writes.entry(region).or_insert(0) += 1;
        }
        self.assert_recorded();
        // The regions may have been recorded in a map that is not stored yet.
        self.map.epoch
    }

    /// Notes that an admitted write has ended; `consistent` unless it failed in a way that may have torn a group.
    pub fn finish(&mut self, regions: Range<u64>, consistent: bool) {
        for region in regions {
            if let Some(count) = self.writes.get_mut(&region) {
                *count -= 1;
                if *count == 0 {
                    self.writes.remove(&region);
                }
            }
            if !consistent {
                self.unsettle(region);
            }
        }
    }

    /// Notes that redundancy may disagree with the data in a region.
    pub fn unsettle(&mut self, region: u64) {
        // Recorded in the map, too: a write to a region in `to_settle` relies on the map to contain it.
        if !self.map.unsettled.contains(region) {
            self.change(|map| map.unsettled.insert(region));
        }
        self.to_settle.insert(region);
        self.pass = None;
    }

    /// Notes that a member holds a damaged page in a region. If the region is to be settled anyway, the pass is not
    /// restarted: resynchronization detects damaged pages itself.
    pub fn damaged(&mut self, region: u64) {
        if !self.to_settle.contains(region) {
            self.unsettle(region);
        }
    }

    /// Records pages that no member can return. They are bad once the epoch returned is stored. Redundancy is
    /// recomputed without them.
    ///
    /// # Errors
    ///
    /// If the list of bad ranges is full.
    pub fn declare_bad(&mut self, ranges: &[ByteRange]) -> Result<Epoch, Full> {
        let mut bad = self.map.bad.clone();
        bad.insert(ranges)?;
        self.change(|map| map.bad = bad);
        for range in ranges {
            self.map.unsettled.touched(range.offset, range.end()).for_each(|region| self.unsettle(region));
        }
        Ok(self.map.epoch)
    }

    /// Records that the pages within `range` were rewritten on every member that takes part. Once the epoch returned is
    /// stored, they can be read and the write can be acknowledged.
    ///
    /// # Errors
    ///
    /// If the list of bad ranges has no room for the remaining pieces.
    pub fn heal(&mut self, range: ByteRange) -> Result<Epoch, Full> {
        let mut bad = self.map.bad.clone();
        bad.remove(range)?;
        if bad != self.map.bad {
            self.change(|map| map.bad = bad);
        }
        Ok(self.map.epoch)
    }

    /// Whether every byte can be read without this member.
    pub fn can_spare(&self, member: usize) -> bool {
        let others = self.map.members_in_sync() - usize::from(self.map.members[member].state == MemberState::InSync);
        others + self.losses_max >= self.map.members.len()
    }

    /// Notes that a member missed a write. The write may be acknowledged once the epoch returned is
    /// [`settled`](Self::settled).
    ///
    /// # Errors
    ///
    /// If the member is indispensable: then the write has to be repeated until the member takes it.
    pub fn mark_stale(&mut self, member: usize) -> Result<Epoch, Indispensable> {
        if self.map.members[member].state != MemberState::Stale {
            if !self.can_spare(member) {
                return Err(Indispensable);
            }
            self.change(|map| {
                map.members[member].state = MemberState::Stale;
                let unsettled = map.unsettled.clone();
                map.members[member].missed.insert_all(&unsettled);
            });
            self.stale_since[member] = self.map.epoch;
        }
        self.assert_recorded();
        Ok(self.stale_since[member])
    }

    /// The epoch that records that a member is stale; `None` if it is not.
    pub fn stale_since(&self, member: usize) -> Option<Epoch> {
        (self.map.members[member].state == MemberState::Stale).then(|| self.stale_since[member])
    }

    /// Lets a stale member take part in writes again. It must hold what it held when it went stale, and nothing sent to
    /// it before may still take effect.
    pub fn rejoin(&mut self, member: usize) -> Epoch {
        if self.map.members[member].state == MemberState::Stale {
            self.change(|map| map.members[member].state = MemberState::Syncing);
            self.pass = None;
        }
        self.map.epoch
    }

    /// Puts a member that holds nothing, only zeros, in the place of a stale one that the drive can spare. That it is
    /// stale must be [`settled`](Self::settled).
    ///
    /// # Errors
    ///
    /// If the member is indispensable, not stale, or moves.
    pub fn replace(&mut self, member: usize) -> Result<Epoch, NotReplaced> {
        if self.map.members[member].state != MemberState::Stale {
            return Err(NotReplaced::NotStale);
        }
        if !self.can_spare(member) {
            return Err(NotReplaced::Indispensable);
        }
        if self.map.members[member].incoming.is_some() {
            return Err(NotReplaced::Moving);
        }
        let all = self.map.unsettled.whole();
        self.change(|map| map.members[member] = Member::new(MemberState::Syncing, all));
        self.pass = None;
        Ok(self.map.epoch)
    }

    /// Notes that no region is being resynchronized: the former pass was abandoned.
    pub fn begin_resync(&mut self) {
        self.taken.clear();
    }

    /// The next region to resynchronize; there may be several at a time. After the last one, members that lack no write
    /// become in sync.
    pub fn next_resync(&mut self) -> Resync {
        if self.pass.is_none() {
            // The former pass may not write everything to a region that this pass would.
            if !self.taken.is_empty() {
                return Resync::Busy;
            }
            let mut todo = self.to_settle.clone();
            self.syncing().for_each(|member| todo.insert_all(&self.map.members[member].missed));
            self.filling().for_each(|missed| todo.insert_all(missed));
            if todo.is_empty() && self.syncing().next().is_none() {
                return Resync::Done;
            }
            self.pass = Some(Pass { todo, failed: false });
        }
        let free = |region: &u64| !self.taken.contains(region);
        if let Some(region) = self.pass.as_ref().and_then(|pass| pass.todo.iter().find(free)) {
            self.taken.insert(region);
            return Resync::Region(region);
        }
        if !self.taken.is_empty() {
            return Resync::Busy;
        }
        let failed = self.pass.take().is_some_and(|pass| pass.failed);
        let done = |map: &Map, member: usize| map.members[member].missed.is_empty();
        let complete: Vec<usize> = self.syncing().filter(|member| done(&self.map, *member)).collect();
        self.change(|map| complete.iter().for_each(|member| map.members[*member].state = MemberState::InSync));
        if failed { Resync::Incomplete } else { Resync::Done }
    }

    /// The regions that the current pass still has to resynchronize.
    pub fn to_resync(&self) -> u64 {
        self.pass.as_ref().map_or(0, |pass| pass.todo.len())
    }

    /// The number of regions where redundancy has to be recomputed.
    pub fn to_settle(&self) -> u64 {
        self.to_settle.len()
    }

    /// Whether redundancy has to be recomputed in a region.
    pub fn is_to_settle(&self, region: u64) -> bool {
        self.to_settle.contains(region)
    }

    fn syncing(&self) -> impl Iterator<Item = usize> + '_ {
        let members = self.map.members.iter().enumerate();
        members.filter(|(_, member)| member.state == MemberState::Syncing).map(|(index, _)| index)
    }

    /// Notes that a region was resynchronized, or that it could not be in full. `members` are those that were written,
    /// `incoming` those whose incoming node was. The map is not stored for this alone: after a crash the region is
    /// resynchronized once more.
    pub fn resynced(&mut self, region: u64, members: &[bool], incoming: &[bool], complete: bool) {
        self.taken.remove(&region);
        // A change meanwhile may have ended the pass.
        if let Some(pass) = &mut self.pass {
            pass.todo.remove(region);
            pass.failed |= !complete;
            if complete {
                self.to_settle.remove(region);
                for (member, _) in members.iter().enumerate().filter(|(_, written)| **written) {
                    if self.map.members[member].state == MemberState::Syncing {
                        self.map.members[member].missed.remove(region);
                        self.has_progress = true;
                    }
                }
                for (member, _) in incoming.iter().enumerate().filter(|(_, written)| **written) {
                    if let Some(missed) = self.map.members[member].incoming.as_mut() {
                        missed.remove(region);
                        self.has_progress = true;
                    }
                }
                if !self.writes.contains_key(&region) {
                    self.map.unsettled.remove(region);
                }
            }
        }
        self.assert_recorded();
    }

    /// Makes the ranges resynchronized since the last change part of the next epoch; `None` if there is nothing.
    pub fn record_progress(&mut self) -> Option<Epoch> {
        self.has_progress.then(|| {
            self.change(|_| {});
            self.map.epoch
        })
    }

    /// Ends in order. Redundancy then agrees with the data, except where it had to be settled and was not.
    pub fn close(&mut self) -> Epoch {
        if self.map.open {
            let settled = self.writes.is_empty().then(|| self.to_settle.clone());
            self.change(|map| {
                map.open = false;
                map.unsettled = settled.unwrap_or_else(|| map.unsettled.clone());
            });
        }
        self.map.epoch
    }

    /// The map to store now, if there is one and none is being stored.
    pub fn next_store(&mut self) -> Option<Map> {
        if self.storing.is_some() || self.map.epoch == self.stored {
            return None;
        }
        self.storing = Some(self.map.epoch);
        Some(self.map.clone())
    }

    /// Notes the end of storing the map returned last. Returns the members that readers elsewhere may still read by an
    /// older map, although they missed a write since: those that this map, and none that this writer stored before,
    /// excludes.
    pub fn store_finished(&mut self, stored: bool) -> Option<Exclusion> {
        let epoch = self.storing.take()?;
        debug_assert!(epoch > self.stored, "epochs grow");
        if !stored {
            if epoch == self.map.epoch {
                // Some members may have it: the next attempt may carry other content, so it needs another epoch.
                self.map.epoch += 1;
            }
            return None;
        }
        let new = self.own_stored + 1..=epoch;
        let members: Vec<usize> =
            (0..self.map.members.len()).filter(|member| new.contains(&self.stale_since[*member])).collect();
        let left = self.left.iter().copied().filter(|left| new.contains(left)).min();
        self.stored = epoch;
        self.own_stored = epoch;
        // Writes wait for the epoch in which a member became stale, or left a node. Attempts to store it may have
        // failed since.
        let epoch = members.iter().map(|member| self.stale_since[*member]).chain(left).min()?;
        self.read_elsewhere.insert(epoch);
        Some(Exclusion { epoch, members, has_left: left.is_some() })
    }

    /// Notes that no reader elsewhere reads the members of the exclusion of this epoch any more.
    pub fn unread(&mut self, epoch: Epoch) {
        self.read_elsewhere.remove(&epoch);
    }

    /// Makes a change part of the next epoch.
    fn change(&mut self, change: impl FnOnce(&mut Map)) {
        change(&mut self.map);
        self.has_progress = false;
        self.map.epoch = self.map.epoch.max(self.former_epochs) + 1;
    }

    fn assert_recorded(&self) {
        debug_assert!(
            self.writes.keys().all(|region| self.map.unsettled.contains(*region)),
            "a region with a write in flight is unsettled"
        );
        debug_assert!(
            self.map.members.iter().all(|member| member.state != MemberState::InSync || member.missed.is_empty()),
            "a member in sync missed nothing"
        );
        debug_assert!(
            self.map.members_in_sync() + self.losses_max >= self.map.members.len(),
            "enough members are in sync to read every byte"
        );
    }
}

mod moves;
#[cfg(test)]
mod tests;
