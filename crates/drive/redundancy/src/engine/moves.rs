//! The engine's part of moves: see [`crate::moves`].

use super::{Engine, Epoch};
use crate::map::{Map, Member, MemberState, Regions};

/// Why a member does not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotMoved {
    /// It is not in sync: it has to be resynchronized or replaced.
    NotInSync,
    /// It moves already.
    Moving,
}

/// How a move has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// The incoming node holds everything, and is the member from this epoch on. Readers elsewhere may read the former
    /// node until the epoch is settled.
    Moved(Epoch),
    /// The former node was lost. From this epoch on, the incoming node is a replacement that is being synchronized.
    Replaced(Epoch),
}

impl Finished {
    /// The first epoch in which the incoming node has the member's place.
    pub const fn epoch(self) -> Epoch {
        match self {
            Self::Moved(epoch) | Self::Replaced(epoch) => epoch,
        }
    }
}

impl Engine {
    /// Records that a member is about to move to a node that holds nothing, only zeros, and gets no writes yet. What the
    /// member has [left](Self::left) before must be [`settled`](Self::settled).
    ///
    /// # Errors
    ///
    /// If the member is not in sync, or moves already.
    pub fn begin_move(&mut self, member: usize) -> Result<Epoch, NotMoved> {
        match &self.map.members[member] {
            Member { incoming: Some(_), .. } => return Err(NotMoved::Moving),
            Member { state: MemberState::InSync, .. } => {}
            Member { .. } => return Err(NotMoved::NotInSync),
        }
        let all = self.map.unsettled.whole();
        self.attached[member] = false;
        self.change(|map| {
            map.open = true;
            map.members[member].incoming = Some(all);
        });
        self.pass = None;
        Ok(self.map.epoch)
    }

    /// Notes that every write to a member is sent to its incoming node, too, from now on. Returns whether the member
    /// moves.
    pub fn attach(&mut self, member: usize) -> bool {
        let moves = self.map.members[member].incoming.is_some();
        self.attached[member] = moves;
        self.pass = None;
        moves
    }

    /// Gives up a move: the incoming node gets no more writes. Returns the epoch that has to be settled before a write
    /// that the node missed is acknowledged: a former writer may have stored, in part, that the move was complete.
    pub fn abandon_move(&mut self, member: usize) -> Epoch {
        if self.map.members[member].incoming.is_some() {
            self.attached[member] = false;
            self.change(|map| map.members[member].incoming = None);
            // A region that is being written for this node must not count for the next one.
            self.pass = None;
            self.left[member] = self.map.epoch;
        }
        self.left[member]
    }

    /// Whether [`finish_move`](Self::finish_move) would put the incoming node in the member's place.
    pub fn can_finish(&self, member: usize) -> bool {
        let Member { state, incoming: Some(missed), .. } = &self.map.members[member] else { return false };
        self.attached[member]
            && match state {
                MemberState::Stale => self.settled() >= self.stale_since[member],
                MemberState::InSync | MemberState::Syncing => missed.is_empty(),
            }
    }

    /// Puts the incoming node in the member's place, if it holds everything, or if the former node was lost. No write may
    /// be in flight.
    pub fn finish_move(&mut self, member: usize) -> Option<Finished> {
        if !self.can_finish(member) {
            return None;
        }
        let is_lost = self.map.members[member].state == MemberState::Stale;
        let state = if is_lost { MemberState::Syncing } else { MemberState::InSync };
        self.attached[member] = false;
        self.change(|map: &mut Map| {
            let missed = map.members[member].incoming.take();
            map.members[member] = Member::new(state, missed.unwrap_or_else(|| map.unsettled.whole()));
        });
        self.pass = None;
        let epoch = self.map.epoch;
        if is_lost {
            return Some(Finished::Replaced(epoch));
        }
        self.left[member] = epoch;
        Some(Finished::Moved(epoch))
    }

    /// The last epoch in which a member left a node that may still answer; 0 if it left none.
    pub fn left(&self, member: usize) -> Epoch {
        self.left[member]
    }

    /// The members whose incoming node gets every write.
    pub fn attached(&self) -> &[bool] {
        &self.attached
    }

    /// What the incoming nodes that get every write may lack.
    pub(super) fn filling(&self) -> impl Iterator<Item = &Regions> + '_ {
        let members = self.map.members.iter().zip(&self.attached);
        members.filter(|(_, attached)| **attached).filter_map(|(member, _)| member.incoming.as_ref())
    }
}
