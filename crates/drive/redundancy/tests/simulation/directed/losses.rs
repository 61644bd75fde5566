//! Members that are lost, and writers that die or are deposed.

use std::time::Duration;

use cheetah_device::{ByteRange, Device as _};
use cheetah_redundancy::{MemberState, Redundancy};
use tokio::time::sleep;

use super::{MIRROR, PARITY, PATIENCE, Rig, play};

#[test]
fn a_write_that_meets_silent_members_takes_less_than_a_second() {
    for (redundancy, silent) in [(MIRROR, 1), (PARITY, 1), (Redundancy::Parity { parities: 2 }, 2)] {
        for (is_recorded, stagger_ms) in [(false, 0), (true, 0), (false, 90), (true, 90)] {
            play(async move {
                let mut rig = Rig::new(redundancy, if silent == 1 { 3 } else { 5 });
                let writer = rig.open().await;
                // Otherwise its regions are recorded first, in a map that the silent members do not store, either.
                if is_recorded {
                    rig.write(&writer, 1).await.unwrap();
                }
                let begun = tokio::time::Instant::now();
                let freeze = async {
                    for node in 0..silent {
                        rig.world.freeze(node, true);
                        sleep(Duration::from_millis(stagger_ms)).await;
                    }
                };
                let (written, ()) = tokio::join!(rig.write(&writer, 2), freeze);
                written.unwrap();
                let allowed = Duration::from_millis(850 + stagger_ms * (silent as u64 - 1));
                assert!(begun.elapsed() < allowed, "{redundancy:?} {is_recorded} {stagger_ms}: {:?}", begun.elapsed());
                assert_eq!(writer.map().members[0].state, MemberState::Stale);
            });
        }
    }
}

/// A writer dies after one node has stored that another is stale. The next writer must store that at the others before
/// it acknowledges anything: the one node may be lost next.
#[test]
fn a_loss_that_a_former_writer_recorded_at_one_node_is_recorded_at_the_others_before_a_write_is_acknowledged() {
    play(async {
        let (mut rig, writer) = Rig::written(Redundancy::Parity { parities: 2 }, 5).await;
        let mut stored = rig.world.with_node(0, |node| node.map.clone()).unwrap();
        stored.map.epoch += 1;
        stored.map.members[4].state = MemberState::Stale;
        stored.map.members[4].missed = stored.map.unsettled.clone();
        rig.world.with_node(0, |node| node.map = Some(stored));
        writer.kill(&rig.world);
        let next = rig.open().await;
        assert_eq!(next.map().members[4].state, MemberState::Stale);
        rig.write(&next, 2).await.unwrap();
        for node in 1..4 {
            let state = rig.world.with_node(node, |node| node.map.as_ref().map(|stored| stored.map.members[4].state));
            assert_ne!(state, Some(MemberState::InSync), "node {node}");
        }
    });
}

#[test]
fn three_copies_on_three_members_survive_the_loss_of_two() {
    play(async {
        for redundancy in [Redundancy::Mirror { copies: 3 }, Redundancy::Parity { parities: 2 }] {
            let (rig, writer) = Rig::written(redundancy, 3).await;
            rig.world.kill(0);
            rig.write(&writer, 2).await.unwrap();
            rig.world.kill(2);
            rig.write(&writer, 3).await.unwrap();
            let read = writer.drive.read(ByteRange::new(0, rig.shape.size())).await.unwrap();
            assert!(read.into_bytes().iter().all(|byte| *byte == 3));
        }
    });
}

#[test]
fn a_write_that_skips_a_lost_member_waits_until_the_loss_is_stored() {
    play(async {
        let (rig, writer) = Rig::written(PARITY, 3).await;
        rig.world.state.lock().maps_held = true;
        rig.world.kill(1);
        // The second write is admitted, and waits for a read from member 0.
        rig.world.isolate(0, true);
        let mut second = writer.drive.write(8192, vec![3; 4096].into(), false);
        sleep(Duration::from_millis(1)).await;
        // The first write reads nothing, and finds member 1 lost.
        let mut first = writer.drive.write(0, vec![2; 8192].into(), false);
        writer.until_stale(1, true).await;
        rig.world.isolate(0, false);
        // The second write never reaches member 1, which is in sync in every stored map.
        let second_alone = tokio::time::timeout(Duration::from_secs(2), &mut second).await;
        assert!(second_alone.is_err(), "acknowledged before the loss is stored");
        assert!(tokio::time::timeout(Duration::from_secs(2), &mut first).await.is_err());
        rig.world.state.lock().maps_held = false;
        first.await.unwrap();
        second.await.unwrap();
        let stored = rig.world.state.lock().drive_file.clone().unwrap();
        assert_eq!(stored.map.members[1].state, MemberState::Stale);
    });
}

#[test]
fn a_mirror_of_two_takes_writes_after_one_was_lost_while_idle() {
    play(async {
        let mut rig = Rig::new(MIRROR, 2);
        let writer = rig.open().await;
        // No map was stored yet, and this one cannot be stored at both.
        rig.world.kill(1);
        rig.write(&writer, 1).await.unwrap();
        assert_eq!(writer.map().members[1].state, MemberState::Stale);
    });
}

#[test]
fn a_member_that_takes_no_map_costs_nothing_while_enough_others_do() {
    play(async {
        let mut rig = Rig::new(PARITY, 3);
        let writer = rig.open().await;
        rig.world.with_node(0, |node| node.refuse_maps = u32::MAX);
        rig.write(&writer, 1).await.unwrap();
        assert_eq!(writer.map().members_in_sync(), 3);
        writer.kill(&rig.world);
        rig.world.kill(2);
        rig.world.with_node(0, |node| node.refuse_maps = 0);
        let next = rig.open().await;
        rig.write(&next, 2).await.unwrap();
        next.until_stale(2, true).await;
        next.replace(&rig.world, 2, 3).await.unwrap();
        assert!(next.until_complete(PATIENCE).await);
        rig.check(&next, 2).await;
    });
}

#[test]
fn a_member_lost_while_idle_is_noticed() {
    play(async {
        let (rig, writer) = Rig::written(PARITY, 3).await;
        rig.world.kill(2);
        tokio::time::timeout(Duration::from_secs(5), writer.until_stale(2, true)).await.unwrap();
        rig.world.restart(3);
        writer.replace(&rig.world, 2, 3).await.unwrap();
        assert!(writer.until_complete(PATIENCE).await);
        rig.check(&writer, 1).await;
    });
}

/// The comparison after a run leaves out as many members as the layout survives, so none may be lost besides.
#[test]
fn a_drive_whose_member_was_lost_with_its_writer_is_not_complete_before_the_loss_is_noticed() {
    play(async {
        let (mut rig, writer) = Rig::written(PARITY, 3).await;
        writer.drive.close().await.unwrap();
        writer.kill(&rig.world);
        rig.world.kill(2);
        rig.world.restart(2);
        let next = rig.open().await;
        assert_eq!((next.map().members_in_sync(), next.drive.members().to_settle()), (3, 0));
        assert!(!next.is_complete());
        next.until_stale(2, true).await;
        next.replace(&rig.world, 2, 3).await.unwrap();
        assert!(next.until_complete(PATIENCE).await);
        rig.check(&next, 1).await;
    });
}

#[test]
fn a_writer_that_dies_between_the_map_and_the_write_leaves_what_was_there() {
    play(async {
        let (mut rig, writer) = Rig::written(PARITY, 3).await;
        rig.world.state.lock().writes_left = Some(0);
        let stalled = tokio::time::timeout(Duration::from_millis(100), rig.write(&writer, 2)).await;
        assert!(stalled.is_err());
        assert!(rig.world.state.lock().drive_file.as_ref().unwrap().map.open);
        writer.kill(&rig.world);
        rig.world.state.lock().writes_left = None;
        let next = rig.open().await;
        assert!(next.drive.members().to_settle() > 0, "redundancy is recomputed");
        assert!(next.until_complete(PATIENCE).await);
        rig.check(&next, 1).await;
    });
}

#[test]
fn a_deposed_writer_acknowledges_nothing() {
    play(async {
        let mut rig = Rig::new(PARITY, 3);
        let first = rig.open().await;
        rig.write(&first, 1).await.unwrap();
        let second = rig.open().await;
        rig.write(&second, 2).await.unwrap();
        assert!(rig.write(&first, 3).await.is_err());
        rig.check(&second, 2).await;
    });
}

#[test]
fn a_member_of_two_that_is_indispensable_is_waited_for() {
    play(async {
        let (rig, writer) = Rig::written(MIRROR, 2).await;
        rig.world.kill(1);
        writer.until_stale(1, true).await;
        rig.world.freeze(0, true);
        let thaw = async {
            sleep(Duration::from_secs(4)).await;
            rig.world.freeze(0, false);
        };
        let (written, ()) = tokio::join!(rig.write(&writer, 2), thaw);
        written.unwrap();
        rig.world.freeze(0, true);
        assert!(rig.write(&writer, 3).await.is_err(), "a write fails in the end rather than wait for ever");
    });
}

/// The writer's process is stopped in mid-write for longer than it repeats a write. When it goes on, all its
/// connections have timed out.
#[test]
fn a_write_of_a_process_that_was_stopped_is_repeated_after_its_connections_have_timed_out() {
    for redundancy in [PARITY, MIRROR] {
        play(async move {
            let (rig, writer) = Rig::written(redundancy, 3).await;
            (0..3).for_each(|node| rig.world.isolate(node, true));
            let stopped = async {
                sleep(Duration::from_millis(10)).await;
                tokio::time::advance(Duration::from_secs(35)).await;
                rig.world.break_connections(|connection| connection.process == writer.process.id);
                sleep(Duration::from_secs(2)).await;
                (0..3).for_each(|node| rig.world.isolate(node, false));
            };
            let (written, ()) = tokio::join!(rig.write(&writer, 2), stopped);
            written.unwrap();
            assert!(writer.until_complete(PATIENCE).await);
            rig.check(&writer, 2).await;
        });
    }
}
