//! The faults of a run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cheetah_redundancy::{MemberState, Redundancy};
use tokio::time::{Instant, sleep};

use super::{Bounds, READERS, Run};
use crate::network::{Faults, World};

/// The numbers of members whose node was restarted begin here.
const LOST: usize = 1000;

impl Run {
    /// Nodes that a further fault must not join: lost, out of sync, or damaged. A member whose node was restarted, and may
    /// have another member by now, counts by a number of its own.
    fn impaired(&self) -> BTreeSet<usize> {
        let writer = self.writer.lock().clone();
        let (drive_file, mut bad) = {
            let state = self.world.state.lock();
            let unwell = |node: &crate::node::Node| {
                !node.up || node.frozen || node.isolated || node.refuse_maps > 0 || !node.damaged.is_empty()
            };
            let mut bad: BTreeSet<usize> = (0..state.nodes.len()).filter(|node| unwell(&state.nodes[*node])).collect();
            bad.extend(state.cut_off.map(|(node, _)| node));
            (state.drive_file.clone(), bad)
        };
        let mut count = |map: &cheetah_redundancy::Map, places: &[crate::node::Place]| {
            for (index, (member, place)) in map.members.iter().zip(places).enumerate() {
                let instance = self.world.with_node(place.node, |node| node.instance);
                if instance != place.instance {
                    bad.insert(LOST + index);
                } else if member.state != MemberState::InSync {
                    bad.insert(place.node);
                }
            }
        };
        if let Some(stored) = drive_file {
            count(&stored.map, &stored.places);
        }
        if let Some(writer) = writer {
            count(&writer.map(), &writer.environment.places.lock());
        }
        bad
    }

    /// Whether the bounds allow a fault at a node, and the nodes that are impaired before.
    pub(super) fn allows(&self, node: usize) -> (bool, BTreeSet<usize>) {
        let mut bad = self.impaired();
        let mut recent = self.recent.lock();
        recent.retain(|(until, _)| *until > Instant::now());
        bad.extend(recent.iter().map(|(_, node)| *node));
        let losses_max = self.plan.shape.losses_max();
        let parity = matches!(self.plan.shape.redundancy, Redundancy::Parity { .. });
        let after = bad.len() + usize::from(!bad.contains(&node));
        let allowed = match self.plan.bounds {
            // After a crash, groups may be torn: then they have no redundancy to lose.
            Bounds::Survived => after <= losses_max && (!parity || self.is_settled()),
            Bounds::WithWriter => after <= losses_max,
            Bounds::Exceeded => after <= losses_max + 1 + self.below(2) as usize,
        };
        (allowed, bad)
    }

    /// Notes a fault at a node that ends after a pause.
    pub(super) fn note_recent(&self, node: usize, pause: Duration) {
        self.recent.lock().push((Instant::now() + pause + Duration::from_millis(1200), node));
    }

    /// Whether redundancy agrees with the data, according to the writer.
    fn is_settled(&self) -> bool {
        let writer = self.writer.lock().clone();
        writer.is_some_and(|writer| {
            writer.process.is_alive() && !self.is_deposed(&writer) && writer.drive.members().to_settle() == 0
        })
    }

    /// Ends a fault after a pause.
    fn later(&self, pause: Duration, end: impl FnOnce(&Arc<World>) + Send + 'static) {
        let world = self.world.clone();
        tokio::spawn(async move {
            sleep(pause).await;
            end(&world);
        });
    }

    pub(super) async fn inject(self: Arc<Self>) {
        let begun = Instant::now();
        let parity = matches!(self.plan.shape.redundancy, Redundancy::Parity { .. });
        let mut rivals = 0;
        let mut snapshots = Vec::new();
        while begun.elapsed() < self.plan.duration {
            sleep(Duration::from_millis(1 + self.below(60))).await;
            let nodes = self.world.state.lock().nodes.len() as u64;
            let node = self.below(nodes) as usize;
            let (allowed, bad) = self.allows(node);
            // A mirror's groups can be read from each copy, so the writer's death is no further loss.
            let writer_may_die = self.plan.bounds != Bounds::Survived || !parity || bad.is_empty();
            let kind = self.below(16);
            let pause = Duration::from_millis(10 + [100, 700, 3000][self.below(3) as usize]);
            if matches!(kind, 0..=12 | 15) && !allowed {
                continue;
            }
            let up = self.world.with_node(node, |node| node.up);
            let faults = |count: fn(&mut Faults)| count(&mut self.world.state.lock().faults);
            self.world.note(&[40, kind, node as u64]);
            if crate::verbose() {
                println!("fault {kind} at node {node} for {pause:?}, impaired before: {bad:?}");
            }
            if matches!(kind, 0..=12 | 15) {
                self.note_recent(node, pause);
            }
            match kind {
                0 | 1 if up => {
                    self.world.kill(node);
                    faults(|faults| faults.killed += 1);
                    self.later(pause, move |world| world.restart(node));
                }
                2..=4 if up => {
                    self.world.freeze(node, true);
                    faults(|faults| faults.frozen += 1);
                    self.later(pause, move |world| world.freeze(node, false));
                }
                5 | 6 if up => {
                    self.world.isolate(node, true);
                    faults(|faults| faults.isolated += 1);
                    self.later(pause, move |world| world.isolate(node, false));
                }
                7 | 8 if up => {
                    self.world.break_connections(|connection| connection.node == node);
                    faults(|faults| faults.connections_broken += 1);
                }
                9..=11 if up => {
                    let page = self.below(self.plan.shape.geometry().member_bytes() / crate::node::PAGE);
                    self.world.with_node(node, |node| node.damaged.insert(page));
                    faults(|faults| faults.damaged += 1);
                    // Healthy reads do not touch redundancy: after a while, the damage is removed.
                    self.later(Duration::from_secs(3), move |world| {
                        world.with_node(node, |node| node.damaged.remove(&page));
                    });
                }
                12 if up => {
                    let times = 1 + self.below(2) as u32;
                    self.world.with_node(node, |node| node.refuse_maps += times);
                    faults(|faults| faults.maps_refused += 1);
                    self.later(pause, move |world| world.with_node(node, |node| node.refuse_maps = 0));
                }
                13 if self.below(12) == 0 && writer_may_die => {
                    let with_node = self.plan.bounds == Bounds::WithWriter && up && allowed;
                    if self.sealing.is_some() && !with_node && self.below(2) == 0 {
                        // The writer dies between two steps of a write, or of a change of the seal record.
                        let left = self.below(12);
                        self.world.state.lock().writes_left = Some(left);
                        sleep(Duration::from_millis(60)).await;
                    }
                    if with_node {
                        // The writer dies in mid-write, together with a node on its machine.
                        let left = self.below(8);
                        self.world.state.lock().writes_left = Some(left);
                        sleep(Duration::from_millis(60)).await;
                    }
                    let killed = self.kill_writer();
                    self.world.state.lock().writes_left = None;
                    self.world.state.lock().faults.writers_killed += u64::from(killed);
                    if with_node {
                        self.note_recent(node, pause);
                        self.world.kill(node);
                        faults(|faults| faults.killed += 1);
                        self.later(pause, move |world| world.restart(node));
                    }
                }
                14 if self.below(20) == 0 && writer_may_die => {
                    rivals += 1;
                    faults(|faults| faults.rivals += 1);
                    let run = self.clone();
                    tokio::spawn(async move { run.open_writer(10_000 + rivals).await });
                }
                15 if up && self.world.state.lock().cut_off.is_none() => {
                    // Neither its writer nor the other nodes can reach it; one reader can.
                    let reader = READERS.start + self.below(2);
                    self.world.cut_off(Some((node, reader)));
                    faults(|faults| faults.readers_cut_off += 1);
                    self.later(pause, move |world| world.cut_off(None));
                }
                _ => {}
            }
            self.roll_back(&mut snapshots);
        }
    }
}
