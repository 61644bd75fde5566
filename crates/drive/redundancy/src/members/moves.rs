//! The members' part of moves: see [`crate::moves`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cheetah_device::{ByteRange, Data, Error, Result};

use super::{Members, PROBE, unless_silent};
use crate::engine::{Epoch, Finished, NotMoved};
use crate::environment::DynLink;
use crate::timing::SILENCE_MAX;

/// Another node that gets the writes of a member.
#[derive(Clone)]
pub(super) struct Second {
    link: DynLink,
    /// From which epoch on it is no longer the member, if it was. Otherwise the member moves to it.
    left: Option<Epoch>,
}

/// The progress of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moving {
    /// The member.
    pub member: usize,
    /// Regions that its incoming node may lack.
    pub regions_left: u64,
}

impl Members {
    /// Records that a member is about to move. `recorded` gets the first epoch with the move, before any map of that
    /// epoch is stored. Returns once the map is stored: from now on a later writer knows of the incoming node.
    ///
    /// # Errors
    ///
    /// If the member is not in sync or moves already, or the map cannot be stored.
    pub async fn begin_move(self: &Arc<Self>, member: usize, recorded: impl FnOnce(Epoch)) -> Result<()> {
        // Maps of a former move of this member name another incoming node.
        self.settle(self.members[member].left.load(Ordering::Acquire)).await?;
        let begun = self.with_engine(|engine| {
            let epoch = engine.begin_move(member)?;
            recorded(epoch);
            Ok(epoch)
        });
        match begun.ok_or(Error::ReadOnly)? {
            Ok(epoch) => self.settle(epoch).await,
            Err(why) => {
                let why = match why {
                    NotMoved::NotInSync => "it has to be resynchronized or replaced first",
                    NotMoved::Moving => "it moves already",
                };
                Err(Error::Invalid(format!("{} is not moved: {why}", self.name(member)).into()))
            }
        }
    }

    /// Sends every write of a member to its incoming node, too, which is filled from now on. Returns whether the member
    /// still moves.
    pub fn attach(&self, member: usize, link: DynLink) -> bool {
        let attached = self.with_engine(|engine| {
            let attached = engine.attach(member);
            if attached {
                *self.members[member].second.write() = Some(Second { link, left: None });
            }
            attached
        });
        self.work.notify_one();
        attached.unwrap_or(false)
    }

    /// Gives up a move, if there is one, and returns once that is settled.
    ///
    /// # Errors
    ///
    /// If too few members can store the map.
    pub async fn abandon_move(self: &Arc<Self>, member: usize) -> Result<()> {
        let epoch = self.with_engine(|engine| {
            let mut second = self.members[member].second.write();
            let epoch = engine.abandon_move(member);
            self.members[member].left.store(epoch, Ordering::Release);
            second.take_if(|second| second.left.is_none());
            epoch
        });
        self.settle(epoch.ok_or(Error::ReadOnly)?).await
    }

    /// The moves in progress.
    pub fn moving(&self) -> Vec<Moving> {
        let Some(map) = self.map() else { return Vec::new() };
        let members = map.members.iter().enumerate();
        members
            .filter_map(|(member, entry)| Some(Moving { member, regions_left: entry.incoming.as_ref()?.len() }))
            .collect()
    }

    /// Whether readers elsewhere may still read the node that a member left, so that it must not be wiped.
    pub fn is_leaving(&self, member: usize) -> bool {
        self.with_engine(|engine| engine.settled() < engine.left(member)).unwrap_or(false)
    }

    /// Whether a member's incoming node is being filled.
    pub(crate) fn is_filled(&self, member: usize) -> bool {
        self.members[member].second.read().as_ref().is_some_and(|second| second.left.is_none())
    }

    /// Reads what a member holds, for its incoming node. `None` if the member is not in sync, or does not return it.
    pub(crate) async fn read_to_copy(&self, member: usize, range: ByteRange) -> Option<Data> {
        if !self.is_in_sync(member) {
            return None;
        }
        self.read_unsynced(member, range).await.filter(|data| data.len() == range.len)
    }

    /// Sends edits of a member to the node that it moves to, or left a moment ago. Returns once that node has them, or it
    /// is settled that the node is not the member. Called with the groups locked.
    pub(crate) async fn write_second(self: &Arc<Self>, member: usize, edits: &[(u64, Data)], fua: bool) -> Result<()> {
        let own = &self.members[member];
        let Some(Second { link, .. }) = own.second.read().clone() else {
            return self.settle(own.left.load(Ordering::Acquire)).await;
        };
        let writes = edits.iter().map(|(offset, data)| link.device().write(*offset, data.clone(), fua));
        let written = unless_silent(&link, SILENCE_MAX, futures::future::join_all(writes)).await;
        let why = match written.map(|written| written.into_iter().collect::<Result<()>>()) {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) => error,
            None => self.lost(member, PROBE, "the node that it moves to, or left, is silent"),
        };
        self.drop_second(member, &link, &why).await
    }

    /// Continues without a node that missed a write.
    async fn drop_second(self: &Arc<Self>, member: usize, link: &DynLink, why: &Error) -> Result<()> {
        let epoch = self.with_engine(|engine| {
            let own = &self.members[member];
            let mut second = own.second.write();
            if let Some(dropped) = second.take_if(|second| Arc::ptr_eq(&second.link, link))
                && dropped.left.is_none()
            {
                tracing::warn!("{} stays where it is, because the node that it was moving to is lost: {why}", own.name);
                own.left.store(engine.abandon_move(member), Ordering::Release);
            }
            own.left.load(Ordering::Acquire)
        });
        self.settle(epoch.ok_or(Error::ReadOnly)?).await
    }

    /// Whether [`finish_moves`](Self::finish_moves) has something to do.
    pub(crate) fn has_moves_to_finish(&self) -> bool {
        let can_finish = |engine: &mut crate::Engine| (0..self.len()).any(|member| engine.can_finish(member));
        self.with_engine(can_finish).unwrap_or(false)
    }

    /// Puts incoming nodes that hold everything, or whose former node was lost, in the places of their members. Called
    /// with all groups locked: no write is in flight.
    pub(crate) fn finish_moves(&self) {
        for member in 0..self.len() {
            self.with_engine(|engine| self.finish_move(engine, member));
        }
        self.work.notify_one();
    }

    fn finish_move(&self, engine: &mut crate::Engine, member: usize) {
        let (Some(finished), Some(writer)) = (engine.finish_move(member), &self.writer) else { return };
        writer.environment.moved(member, finished.epoch());
        let own = &self.members[member];
        own.generation.fetch_add(1, Ordering::AcqRel);
        let Some(Second { link, .. }) = own.second.write().take() else { return };
        let former = own.link.write().replace(link);
        own.suspect.store(false, Ordering::Release);
        if let Finished::Moved(epoch) = finished {
            own.left.store(epoch, Ordering::Release);
            // It gets writes as long as readers elsewhere may read it.
            *own.second.write() = former.map(|link| Second { link, left: Some(epoch) });
        }
    }

    /// Stores the ends of moves, and ceases to write to nodes that readers elsewhere no longer read.
    ///
    /// # Errors
    ///
    /// If too few members can store the map.
    pub(crate) async fn settle_moves(self: &Arc<Self>) -> Result<()> {
        for member in &self.members {
            let left = member.second.read().as_ref().and_then(|second| second.left);
            if let Some(epoch) = left {
                self.settle(epoch).await?;
                member.second.write().take_if(|second| second.left == Some(epoch));
            }
        }
        Ok(())
    }
}
