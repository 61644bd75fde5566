//! Members that move to other nodes.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Device as _};
use cheetah_redundancy::timing::READ_LEASE;
use cheetah_redundancy::{MemberState, Redundancy};
use tokio::time::sleep;

use super::{MIRROR, PARITY, PATIENCE, Rig, play};
use crate::network::Process;
use crate::node::Place;
use crate::process::{Reader, Writer};

/// The node without a part of the drive.
const FREE: usize = 3;

async fn moved(rig: &Rig, writer: &Writer, member: usize) -> Place {
    let left = writer.environment.places.lock()[member];
    let place = writer.begin_move(&rig.world, member, FREE, Duration::ZERO).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, writer.until_moved(member, place)).await;
    assert!(ended.unwrap(), "the member is at its new node");
    left
}

#[test]
fn a_member_that_moved_is_read_and_written_at_its_new_node_only() {
    for redundancy in [PARITY, MIRROR, Redundancy::Parity { parities: 2 }, Redundancy::Mirror { copies: 3 }] {
        play(async move {
            let (mut rig, writer) = Rig::written(redundancy, 3).await;
            let left = moved(&rig, &writer, 1).await;
            rig.world.release(left);
            rig.write(&writer, 2).await.unwrap();
            assert_eq!(writer.map().members_in_sync(), 3);
            assert_eq!(writer.drive.members().stats().members_lost, 0);
            rig.check(&writer, 2).await;
            writer.kill(&rig.world);
            let next = rig.open().await;
            rig.check(&next, 2).await;
        });
    }
}

#[test]
fn writes_during_a_move_reach_both_nodes() {
    for after_ms in (0..600).step_by(30) {
        play(async move {
            let (rig, writer) = Rig::written(PARITY, 3).await;
            let left = writer.environment.places.lock()[0];
            let place = writer.begin_move(&rig.world, 0, FREE, Duration::ZERO).await.unwrap();
            sleep(Duration::from_millis(after_ms)).await;
            rig.write(&writer, 2).await.unwrap();
            assert!(writer.until_moved(0, place).await);
            rig.world.release(left);
            rig.check(&writer, 2).await;
        });
    }
}

/// Readers elsewhere go on by the map that names the former node until their leases end. They get the bytes of every write
/// that was acknowledged before, at any moment around the end of the move.
#[test]
fn a_reader_elsewhere_follows_a_move_without_an_error_and_reads_no_old_byte() {
    for redundancy in [PARITY, MIRROR] {
        play(async move {
            let (rig, writer) = Rig::written(redundancy, 3).await;
            let reader = Reader::open_following(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
            let writer = Arc::new(writer);
            let writing = async {
                for byte in 2..120 {
                    rig.write(&writer, byte).await.unwrap();
                    let read = reader.drive.read(ByteRange::new(0, rig.shape.size())).await.unwrap();
                    assert!(read.into_bytes().iter().all(|held| *held == byte), "a byte older than {byte}");
                    sleep(Duration::from_millis(10)).await;
                }
            };
            let moving = async {
                let left = moved(&rig, &writer, 1).await;
                rig.world.release(left);
            };
            tokio::join!(writing, moving);
            rig.check(&writer, 119).await;
        });
    }
}

#[test]
fn a_move_whose_new_node_is_lost_is_given_up_and_costs_no_redundancy() {
    for after_ms in (0..300).step_by(20) {
        play(async move {
            let (rig, writer) = Rig::written(PARITY, 3).await;
            let place = writer.begin_move(&rig.world, 1, FREE, Duration::ZERO).await.unwrap();
            sleep(Duration::from_millis(after_ms)).await;
            let is_member = writer.environment.places.lock()[1] == place;
            rig.world.kill(FREE);
            rig.write(&writer, 2).await.unwrap();
            if !is_member {
                assert!(writer.drive.members().moving().is_empty(), "the move was given up");
                assert_eq!(writer.map().members_in_sync(), 3);
                rig.check(&writer, 2).await;
            }
            let read = writer.drive.read(ByteRange::new(0, rig.shape.size())).await.unwrap();
            assert!(read.into_bytes().iter().all(|byte| *byte == 2));
        });
    }
}

#[test]
fn the_new_node_of_a_move_replaces_a_former_one_that_is_lost() {
    for redundancy in [PARITY, MIRROR] {
        play(async move {
            let (rig, writer) = Rig::written(redundancy, 3).await;
            let place = writer.begin_move(&rig.world, 1, FREE, Duration::ZERO).await.unwrap();
            rig.world.kill(1);
            rig.write(&writer, 2).await.unwrap();
            assert!(tokio::time::timeout(PATIENCE, writer.until_moved(1, place)).await.unwrap());
            assert!(writer.until_complete(PATIENCE).await);
            rig.check(&writer, 2).await;
        });
    }
}

#[test]
fn the_next_writer_continues_a_move_and_gives_it_up_if_the_new_node_is_gone() {
    for is_gone in [false, true] {
        play(async move {
            let (mut rig, writer) = Rig::written(PARITY, 3).await;
            writer.begin_move(&rig.world, 2, FREE, Duration::ZERO).await.unwrap();
            assert!(!writer.drive.members().moving().is_empty());
            writer.kill(&rig.world);
            if is_gone {
                rig.world.kill(FREE);
            }
            let next = rig.open().await;
            rig.write(&next, 2).await.unwrap();
            let ended = async {
                while !next.drive.members().moving().is_empty() || next.drive.members().is_leaving(2) {
                    sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(PATIENCE, ended).await.unwrap();
            let node = next.environment.places.lock()[2].node;
            assert_eq!(node, if is_gone { 2 } else { FREE });
            assert_eq!(next.map().members_in_sync(), 3);
            rig.check(&next, 2).await;
        });
    }
}

#[test]
fn a_writer_killed_at_any_moment_of_a_move_leaves_every_byte() {
    for kill_after_ms in (0..900).step_by(25) {
        play(async move {
            let (mut rig, writer) = Rig::written(PARITY, 3).await;
            let moving = async {
                if let Ok(place) = writer.begin_move(&rig.world, 0, FREE, Duration::from_millis(40)).await {
                    writer.until_moved(0, place).await;
                }
            };
            tokio::time::timeout(Duration::from_millis(kill_after_ms), moving).await.ok();
            writer.kill(&rig.world);
            let next = rig.open().await;
            rig.check(&next, 1).await;
            rig.write(&next, 2).await.unwrap();
            assert!(next.until_complete(PATIENCE).await);
            rig.check(&next, 2).await;
        });
    }
}

/// A writer dies while it records the end of a move, and a node stores no map just then. A reader that reaches only that
/// node and the one that the member left still has an older map.
#[test]
fn a_reader_that_reaches_only_the_former_node_and_one_that_stores_no_map_reads_no_old_byte() {
    play(async {
        let (mut rig, writer) = Rig::written(PARITY, 3).await;
        let reader = Reader::open_following(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
        let whole = ByteRange::new(0, rig.shape.size());
        reader.drive.read(whole).await.unwrap();
        let place = writer.begin_move(&rig.world, 0, FREE, Duration::ZERO).await.unwrap();
        while !writer.drive.members().is_leaving(0) {
            rig.world.state.lock().maps_held = true;
            sleep(Duration::from_millis(1)).await;
        }
        let mut stored = rig.world.with_node(2, |node| node.map.clone()).unwrap();
        stored.map = writer.map();
        stored.former[0] = Some(std::mem::replace(&mut stored.places[0], place));
        stored.incoming[0] = None;
        for node in [2, FREE] {
            rig.world.with_node(node, |node| node.map = Some(stored.clone()));
        }
        writer.kill(&rig.world);
        rig.world.with_node(1, |node| node.refuse_maps = u32::MAX);
        rig.world.state.lock().severed = [(2, 99), (FREE, 99)].into();
        rig.world.state.lock().maps_held = false;
        let next = rig.open().await;
        assert_eq!(next.environment.places.lock()[0], place);
        rig.write(&next, 2).await.unwrap();
        for page in whole.split_at_multiples(4096) {
            if let Ok(Ok(read)) = tokio::time::timeout(PATIENCE, reader.drive.read(page)).await {
                assert!(read.into_bytes().iter().all(|byte| *byte == 2), "an old byte at {page}");
            }
        }
        rig.world.state.lock().severed.clear();
        rig.check(&next, 2).await;
    });
}

/// A writer dies while a single node has stored the end of a move. The next writer finds it there; readers may not.
#[test]
fn a_write_after_a_move_that_the_former_writer_recorded_at_one_node_waits_for_readers_of_the_former_node() {
    play(async {
        let (mut rig, writer) = Rig::written(PARITY, 3).await;
        let place = writer.begin_move(&rig.world, 0, FREE, Duration::ZERO).await.unwrap();
        // The former node gets every write until here.
        while !writer.drive.members().is_leaving(0) {
            rig.world.state.lock().maps_held = true;
            sleep(Duration::from_millis(1)).await;
        }
        let mut stored = rig.world.with_node(1, |node| node.map.clone()).unwrap();
        stored.map = writer.map();
        stored.former[0] = Some(std::mem::replace(&mut stored.places[0], place));
        stored.incoming[0] = None;
        rig.world.with_node(1, |node| node.map = Some(stored));
        writer.kill(&rig.world);
        rig.world.state.lock().maps_held = false;
        let next = rig.open().await;
        assert_eq!(next.environment.places.lock()[0], place);
        let begun = tokio::time::Instant::now();
        rig.write(&next, 2).await.unwrap();
        assert!(begun.elapsed() >= READ_LEASE);
        assert_eq!(next.map().members[0].state, MemberState::InSync);
        rig.check(&next, 2).await;
    });
}
