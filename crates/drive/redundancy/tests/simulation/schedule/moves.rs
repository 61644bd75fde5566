//! Members that move to other nodes during a run.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{OPERATION_MAX, Phase, Run};
use crate::process::Writer;

impl Run {
    /// Moves members at random times. Faults interrupt the moves at every step.
    pub(super) async fn move_members(self: Arc<Self>) {
        while self.phase() == Phase::Safety {
            sleep(Duration::from_millis(200 + self.below(4000))).await;
            let Some(writer) = self.writer.lock().clone().filter(|writer| writer.process.is_alive()) else { continue };
            let member = self.below(self.plan.shape.members as u64) as usize;
            self.move_one(&writer, member).await;
        }
    }

    /// Moves a member to a free node, if there is one.
    pub(super) async fn move_one(&self, writer: &Arc<Writer>, member: usize) {
        let placing = self.placing.lock().await;
        let Some(node) = self.free_node(writer, None) else { return };
        let left = writer.environment.places.lock()[member];
        let pause = Duration::from_millis([0, 5, 300][self.below(3) as usize]);
        let begun = timeout(OPERATION_MAX, writer.begin_move(&self.world, member, node, pause)).await;
        self.world.note(&[34, member as u64, node as u64]);
        let place = match begun {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return,
            Err(_) => return self.problem("beginning a move takes for ever".into()),
        };
        drop(placing);
        self.outcome.lock().moves.begun += 1;
        if self.below(6) == 0 {
            sleep(Duration::from_millis(self.below(200))).await;
            let given_up = timeout(OPERATION_MAX, writer.drive.members().abandon_move(member)).await;
            self.outcome.lock().moves.given_up += u64::from(matches!(given_up, Ok(Ok(()))));
        }
        // A move may wait for nodes that are lost.
        let patience = Duration::from_secs(1 + self.below(20));
        if let Ok(true) = timeout(patience, writer.until_moved(member, place)).await
            && writer.process.is_alive()
            && !self.is_deposed(writer)
        {
            self.outcome.lock().moves.moved += 1;
            self.world.note(&[35, member as u64, node as u64]);
            if self.below(2) == 0 {
                self.world.release(left);
            }
        }
    }
}
