//! Machines that come and go: nodes that join, and nodes that need their memory back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Phase, Run};
use crate::process::Writer;

/// The most nodes that join in a run.
const JOINED_MAX: u64 = 3;

impl Run {
    /// New nodes join. Spares and moves use them.
    pub(super) async fn join_nodes(self: Arc<Self>) {
        for _ in 0..JOINED_MAX {
            sleep(Duration::from_millis(1000 + self.below(20_000))).await;
            if self.phase() != Phase::Safety {
                return;
            }
            let node = self.world.join();
            self.world.state.lock().faults.joined += 1;
            self.world.note(&[60, node as u64]);
        }
    }

    /// The machines of nodes need their memory. Such a node takes no new part, its part moves away until a deadline, and
    /// then it drops the part. After a while it lends again.
    pub(super) async fn press_nodes(self: Arc<Self>) {
        while self.phase() == Phase::Safety {
            sleep(Duration::from_millis(500 + self.below(8000))).await;
            let nodes = self.world.state.lock().nodes.len() as u64;
            let node = self.below(nodes) as usize;
            self.world.with_node(node, |node| node.pressed = true);
            self.world.state.lock().faults.pressed += 1;
            self.world.note(&[61, node as u64]);
            let deadline = Instant::now() + Duration::from_millis([0, 30, 300, 4000][self.below(4) as usize]);
            while self.phase() == Phase::Safety && Instant::now() < deadline {
                if let Some((writer, member)) = self.member_at(node) {
                    // The deadline does not wait for the move.
                    let run = self.clone();
                    tokio::spawn(async move { run.move_one(&writer, member).await });
                }
                sleep(deadline.saturating_duration_since(Instant::now()).min(Duration::from_millis(200))).await;
            }
            self.drop_part(node);
            sleep(Duration::from_millis(self.below(3000))).await;
            self.world.with_node(node, |node| node.pressed = false);
        }
    }

    /// The member whose part a node holds, and the writer that can move it.
    fn member_at(&self, node: usize) -> Option<(Arc<Writer>, usize)> {
        let writer = self.writer.lock().clone().filter(|writer| writer.process.is_alive())?;
        let places = writer.environment.places.lock().clone();
        let instance = self.world.with_node(node, |node| node.instance);
        let member = places.iter().position(|place| place.node == node && place.instance == instance)?;
        Some((writer, member))
    }

    /// Drops the part of a node, if there is one and the bounds allow the loss. The node goes on.
    fn drop_part(&self, node: usize) {
        let holds = self.member_at(node).is_some() && self.world.with_node(node, |node| node.up);
        if self.phase() != Phase::Safety || !holds || !self.allows(node).0 {
            return;
        }
        self.note_recent(node, Duration::ZERO);
        self.world.note(&[62, node as u64]);
        self.world.kill(node);
        self.world.restart(node);
        self.world.state.lock().faults.dropped += 1;
    }
}
