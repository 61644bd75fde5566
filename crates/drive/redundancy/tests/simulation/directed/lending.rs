//! Nodes that join, and nodes that drop their parts because their machines need the memory.

use std::time::Duration;

use cheetah_device::{ByteRange, Device as _};
use tokio::time::sleep;

use super::{MIRROR, PARITY, PATIENCE, Rig, play};

#[test]
fn a_node_that_joins_takes_the_place_of_a_lost_member_and_then_of_one_that_moves() {
    for redundancy in [PARITY, MIRROR] {
        play(async move {
            let (mut rig, writer) = Rig::written(redundancy, 3).await;
            rig.world.kill(1);
            writer.until_stale(1, true).await;
            let joined = rig.world.join();
            writer.replace(&rig.world, 1, joined).await.unwrap();
            assert!(writer.until_complete(PATIENCE).await);
            let joined = rig.world.join();
            let left = writer.environment.places.lock()[2];
            let place = writer.begin_move(&rig.world, 2, joined, Duration::ZERO).await.unwrap();
            assert!(tokio::time::timeout(PATIENCE, writer.until_moved(2, place)).await.unwrap());
            rig.world.release(left);
            rig.write(&writer, 2).await.unwrap();
            rig.check(&writer, 2).await;
            // The next writer finds them.
            writer.kill(&rig.world);
            let next = rig.open().await;
            rig.check(&next, 2).await;
        });
    }
}

/// The deadline of a node does not wait for the move of its part, nor for the node that the part moves to.
#[test]
fn a_part_that_is_dropped_at_any_moment_of_its_move_costs_no_byte_and_redundancy_returns() {
    for (redundancy, with_new) in [(PARITY, false), (PARITY, true), (MIRROR, false), (MIRROR, true)] {
        for after_ms in (0..900).step_by(25) {
            play(async move {
                let (rig, writer) = Rig::written(redundancy, 3).await;
                let moving = writer.begin_move(&rig.world, 1, 3, Duration::from_millis(40));
                let dropped = async {
                    sleep(Duration::from_millis(after_ms)).await;
                    let has_moved = writer.environment.places.lock()[1].node == 3;
                    for node in [Some(1), Some(3).filter(|_| with_new)].into_iter().flatten() {
                        rig.world.kill(node);
                        rig.world.restart(node);
                    }
                    has_moved
                };
                let (_, has_moved) = tokio::join!(moving, dropped);
                rig.write(&writer, 2).await.unwrap();
                let read = writer.drive.read(ByteRange::new(0, rig.shape.size())).await.unwrap().into_bytes();
                assert!(read.iter().all(|byte| *byte == 2), "after {after_ms} ms");
                if with_new {
                    writer.until_stale(1, true).await;
                    let joined = rig.world.join();
                    writer.replace(&rig.world, 1, joined).await.unwrap();
                }
                assert!(
                    writer.until_complete(PATIENCE).await,
                    "after {after_ms} ms, moved {has_moved}: {:?}",
                    writer.map()
                );
                rig.check(&writer, 2).await;
            });
        }
    }
}
