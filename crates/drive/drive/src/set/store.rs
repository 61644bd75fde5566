//! Storing a map at the nodes and in the drive file, by a ballot.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cheetah_control::api::NewMap;
use cheetah_error::{Error, Next, next};
use cheetah_redundancy::{Cause, Map, NotStored};
use tokio::sync::mpsc;

use super::ballot::{Ballot, Elector, electors};
use super::confirmation::Unconfirmed;
use super::map::DriveMap;
use super::shared::{Place, Shared};
use crate::file::{Set, SetNode};

/// How long a node may take to store a map. A write waits for it only if too few others answer sooner.
const STORE_TIMEOUT: Duration = Duration::from_millis(400);
/// The longest time, in multiples of this: it doubles with each attempt that fails, so that overloaded machines can follow.
const STORE_TIMEOUTS_MAX: u32 = 8;

/// The time that a node has to store a map, after this number of failed attempts in a row.
fn timeout(failures: u32) -> Duration {
    STORE_TIMEOUT * 1_u32.checked_shl(failures).map_or(STORE_TIMEOUTS_MAX, |timeouts| timeouts.min(STORE_TIMEOUTS_MAX))
}

impl Shared {
    /// Stores a map at the nodes, and in the drive file.
    pub(super) async fn store(&self, map: Map) -> Result<(), NotStored> {
        self.confirmation.wait().await.map_err(|why| match why {
            Unconfirmed::Fenced => NotStored::Fenced(Arc::new(why)),
            why => NotStored::Unconfirmed(Arc::new(why)),
        })?;
        let places = self.places.lock().clone();
        let before = self.stored_nodes.lock().clone();
        let map = self.name_nodes(map, &places, &before);
        let mut ballot = Ballot::new(&map.nodes, &before, self.losses_max());
        let why = self.ask(&map, &electors(&map, &places, &before), &mut ballot).await;
        if !ballot.is_decided() {
            self.failed_stores.fetch_add(1, Ordering::AcqRel);
            return Err(NotStored::TooFew { stored: ballot.stored_now(), members: map.nodes.len(), why });
        }
        self.failed_stores.store(0, Ordering::Release);
        self.stored_epoch.fetch_max(map.map.epoch, Ordering::AcqRel);
        match self.save(&map) {
            Ok(()) => {
                *self.file_is_behind.lock() = None;
                *self.stored_nodes.lock() = map.nodes;
            }
            Err(why) if ballot.needs_file() => return Err(NotStored::File(Arc::new(why))),
            // The nodes alone decide. The nodes named in the file must still decide, because a process that opens it
            // must reach a node with this map.
            Err(why) => self.note_file_is_behind(why),
        }
        Ok(())
    }

    /// The map with the nodes that its members have. `before` are the nodes of the map that was stored last.
    fn name_nodes(&self, map: Map, places: &[Place], before: &[SetNode]) -> DriveMap {
        let nodes: Vec<SetNode> = places.iter().map(|place| place.node_at(map.epoch).clone()).collect();
        let incoming = places.iter().zip(&map.members).map(|(place, entry)| place.incoming_in(entry)).collect();
        let other = |(former, now): (&SetNode, &SetNode)| Some(former.clone()).filter(|former| !former.is_same(now));
        let former = before.iter().zip(&nodes).map(other).collect();
        let refetching = self.refetching.load(Ordering::Acquire);
        let lineage = self.lineage.lock().clone();
        DriveMap { map, nodes, incoming, former, refetching, writer: self.id.clone(), lineage }
    }

    /// Has nodes store a map until the ballot is decided, or each has answered. Does not wait for a silent node while the
    /// others suffice. Returns why nodes have not stored it.
    async fn ask(&self, map: &DriveMap, electors: &[Elector<'_>], ballot: &mut Ballot) -> Vec<Cause> {
        let text = map.text(&self.set.lock());
        let session = self.session().within(timeout(self.failed_stores.load(Ordering::Acquire)));
        let (sender, mut answers) = mpsc::unbounded_channel();
        for Elector { slot, node, token, counts } in electors {
            if let (Some(export), Some(token)) = (self.exports.of(node, &session), token) {
                let new = NewMap { token: (*token).to_owned(), epoch: map.map.epoch, map: text.clone() };
                let (sender, counts, stored) = (sender.clone(), *counts, self.stores.store(*slot, export, new));
                self.stores.spawn(async move {
                    // The store may already have returned, with or without this answer.
                    sender.send((counts, stored.await)).ok();
                });
            }
        }
        drop(sender);
        let mut why = Vec::new();
        while !ballot.is_decided()
            && let Some((counts, answer)) = answers.recv().await
        {
            match answer {
                Ok(()) => ballot.stored(counts),
                Err(missed) => {
                    if missed.is_refused() {
                        self.confirmation.doubt();
                    }
                    why.push(Arc::new(missed) as Cause);
                }
            }
        }
        why
    }

    /// Notes that the drive file could not be saved. It is saved with the next map, or when the drive is closed.
    fn note_file_is_behind(&self, why: Error) {
        let mut behind = self.file_is_behind.lock();
        if behind.is_none() {
            tracing::warn!(
                "the nodes have recorded a change, but the drive file has not: {why}; make it writable again"
            );
        }
        *behind = Some(why);
    }

    /// Warns if the drive file is still behind the nodes, when the drive is closed.
    pub fn warn_if_file_is_behind(&self) {
        if let Some(why) = self.file_is_behind.lock().take() {
            tracing::warn!(
                next = %Next::from(next::Drive::RepairWritable).record(),
                "the drive file does not have the last changes, which the nodes have recorded: {why}"
            );
        }
    }

    /// Saves the drive file if nodes were lost, came back, were replaced or move, or bad ranges changed; these changes have
    /// the file's vote. A drive whose nodes store no maps has only its file.
    fn save(&self, map: &DriveMap) -> Result<(), Error> {
        let mut saved = self.set.lock();
        let index = saved.index;
        let places = |set: &Set| -> Vec<_> { set.nodes.iter().map(|node| (node.nbd.clone(), node.state)).collect() };
        let mut changed = saved.clone();
        map.update(&mut changed.drive, index);
        let (now, before) = (changed.entry(), saved.entry());
        if places(now) == places(before) && now.bad == before.bad && now.incoming == before.incoming {
            return Ok(());
        }
        saved.update(|file| map.update(file, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_each_attempt_that_failed_a_node_has_twice_as_long_up_to_a_limit() {
        let times_ms: Vec<_> = [0, 1, 2, 3, 4, 31, 32, u32::MAX].map(|failures| timeout(failures).as_millis()).into();
        assert_eq!(times_ms, [400, 800, 1600, 3200, 3200, 3200, 3200, 3200]);
    }
}
