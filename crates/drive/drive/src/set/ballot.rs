//! The ballot over a change of the map: which nodes count, and how many of them decide.
//!
//! A map is stored at the nodes that have it and at those that had the one before, and at the drive file where it has a vote. It
//! holds once both sets of nodes decide, so that a reader that knows either reaches a node with it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cheetah_control::api::NewMap;
use cheetah_redundancy::Map;
use tokio::sync::mpsc;

use super::shared::Shared;
use super::map::DriveMap;
use super::votes::votes;
use crate::file::{Set, SetNode};

/// How long a node may take to store a map. A write waits for it only if too few others answer sooner.
const STORE_TIMEOUT: Duration = Duration::from_millis(400);

/// In which of two sets of nodes a node counts that has stored a map.
#[derive(Clone, Copy)]
struct Counts {
    /// The nodes of this map.
    is_now: bool,
    /// Those of the map that was stored last.
    was_before: bool,
}

impl Shared {
    /// Stores a map at the nodes, and in the drive file.
    pub(super) async fn store(&self, map: Map) -> Result<(), String> {
        self.confirmation.wait().await?;
        let places = self.places.lock().clone();
        let nodes = places.iter().map(|place| place.node_at(map.epoch).clone()).collect();
        let incoming = places.iter().zip(&map.members).map(|(place, entry)| place.incoming_in(entry)).collect();
        let refetching = self.refetching.load(Ordering::Acquire);
        let former = self.stored_nodes.lock().clone();
        let lineage = self.lineage.lock().clone();
        let mut map =
            DriveMap { map, nodes, incoming, former: Vec::new(), refetching, writer: self.id.clone(), lineage };
        let other = |(former, now): (&SetNode, &SetNode)| Some(former.clone()).filter(|former| !former.is_same(now));
        map.former = former.iter().zip(&map.nodes).map(other).collect();
        let text = map.text(&self.set.lock());
        let (sender, mut answers) = mpsc::unbounded_channel();
        let send = |slot: usize, node: &SetNode, token: &Option<String>, counts: Counts| {
            if let (Some(export), Some(token)) = (self.exports.of(node, STORE_TIMEOUT), token.clone()) {
                let (sender, new) = (sender.clone(), NewMap { token, epoch: map.map.epoch, map: text.clone() });
                let stored = self.stores.store(slot, export, new);
                self.stores.spawn(async move {
                    // The store may already have returned, with or without this answer.
                    sender.send((counts, stored.await)).ok();
                });
            }
        };
        for (member, (entry, place)) in map.map.members.iter().zip(&places).enumerate() {
            if entry.state.is_written() {
                let is_now = place.node.is_same(&map.nodes[member]);
                let was_before = place.node.is_same(&former[member]);
                send(member, &place.node, &place.token, Counts { is_now, was_before });
            }
            // A node that the member has just left answers, and knows of no other lease.
            let left = place.former.as_ref().filter(|left| left.node.is_same(&former[member]));
            if let Some(left) = left.filter(|left| !left.node.is_same(&place.node)) {
                let is_now = left.node.is_same(&map.nodes[member]);
                send(places.len() + member, &left.node, &left.token, Counts { is_now, was_before: true });
            }
        }
        drop(sender);
        // From the next map on, a node that takes another's place counts. A reader that knows only the former nodes must
        // reach a node with this map, so the former nodes must decide, too.
        let losses_max = self.losses_max();
        let decides = |now: usize, before: usize| {
            votes(&map.nodes, losses_max).decide(now, true) && votes(&former, losses_max).decide(before, true)
        };
        let (mut stored, mut before, mut why) = (0, 0, Vec::new());
        // Does not wait for a silent node while the others suffice.
        while !decides(stored, before)
            && let Some((counts, answer)) = answers.recv().await
        {
            match answer {
                Ok(()) => {
                    stored += usize::from(counts.is_now);
                    before += usize::from(counts.was_before);
                }
                Err(error) => {
                    if error.is_refused {
                        self.confirmation.doubt();
                    }
                    why.push(error.why);
                }
            }
        }
        if !decides(stored, before) {
            return Err(format!("{stored} of {} nodes have it ({})", map.nodes.len(), why.join("; ")));
        }
        self.stored_epoch.fetch_max(map.map.epoch, Ordering::AcqRel);
        let has_vote = votes(&map.nodes, losses_max).of_file() > 0 || votes(&former, losses_max).of_file() > 0;
        match self.save(&map) {
            Ok(()) => {
                *self.file_is_behind.lock() = None;
                *self.stored_nodes.lock() = map.nodes;
            }
            Err(why) if has_vote => return Err(why),
            // The nodes alone decide. The nodes named in the file must still decide, because a process that opens it
            // must reach a node with this map.
            Err(why) => self.note_file_is_behind(why),
        }
        Ok(())
    }

    /// Notes that the drive file could not be saved. It is saved with the next map, or when the drive is closed.
    fn note_file_is_behind(&self, why: String) {
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
                "the drive file does not have the last changes, which the nodes have recorded: {why}; make it writable, then \
                 run cheetah repair"
            );
        }
    }

    /// Saves the drive file if nodes were lost, came back, were replaced or move, or bad ranges changed; these changes have
    /// the file's vote. A drive whose nodes store no maps has only its file.
    fn save(&self, map: &DriveMap) -> Result<(), String> {
        let mut saved = self.set.lock();
        let index = saved.index;
        let places = |set: &Set| -> Vec<_> { set.nodes.iter().map(|node| (node.nbd.clone(), node.state)).collect() };
        let mut changed = saved.clone();
        map.update(&mut changed.drive, index);
        let (now, before) = (changed.entry(), saved.entry());
        if places(now) == places(before) && now.bad == before.bad && now.incoming == before.incoming {
            return Ok(());
        }
        saved.update(|file| map.update(file, index)).map_err(|error| error.to_string())
    }
}
