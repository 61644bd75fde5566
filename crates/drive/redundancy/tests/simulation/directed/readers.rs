//! Readers in other processes, which may be cut off together with a stale member.

use std::time::Duration;

use cheetah_device::{ByteRange, Device as _};
use cheetah_redundancy::timing::READ_LEASE;
use tokio::time::sleep;

use super::{MIRROR, PARITY, Rig, play};
use crate::network::{Process, SimulatedLink};
use crate::process::Reader;

/// Of three members, a member and a reader are cut off together, at every moment relative to a write that the member
/// misses. Once the write is acknowledged, the reader gets new bytes or an error.
#[test]
fn a_reader_that_is_cut_off_with_a_stale_member_does_not_read_it() {
    let mut refused = 0;
    for redundancy in [PARITY, MIRROR] {
        for cut_after_ms in (0..1500).step_by(60) {
            let refused = &mut refused;
            play(async move {
                let (rig, writer) = Rig::written(redundancy, 3).await;
                let process = Process::new(99);
                let reader = Reader::open_following(&rig.world, &process, &rig.shape).await.unwrap();
                let whole = ByteRange::new(0, rig.shape.size());
                assert!(reader.drive.read(whole).await.unwrap().into_bytes().iter().all(|byte| *byte == 1));
                rig.world.isolate(1, true);
                let cut = async {
                    sleep(Duration::from_millis(cut_after_ms)).await;
                    rig.world.cut_off(Some((1, 99)));
                    rig.world.isolate(1, false);
                };
                let written = async {
                    rig.write(&writer, 2).await.unwrap();
                    for page in 0..rig.shape.size() / 4096 {
                        match reader.drive.read(ByteRange::new(page * 4096, 4096)).await {
                            Ok(data) => {
                                assert!(data.into_bytes().iter().all(|byte| *byte == 2), "page {page} is stale")
                            }
                            Err(_) => *refused += 1,
                        }
                    }
                };
                tokio::join!(cut, written);
                rig.world.cut_off(None);
                // A read goes on once a look succeeds.
                sleep(Duration::from_secs(3)).await;
                assert!(reader.drive.read(whole).await.unwrap().into_bytes().iter().all(|byte| *byte == 2));
            });
        }
    }
    assert!(refused > 0, "the reader was never cut off");
}

#[test]
fn a_write_waits_for_readers_only_after_a_loss_and_not_for_a_member_that_has_ended() {
    play(async {
        for (is_killed, waits) in [(false, true), (true, false)] {
            let (rig, writer) = Rig::written(PARITY, 3).await;
            let begun = tokio::time::Instant::now();
            rig.write(&writer, 2).await.unwrap();
            assert!(begun.elapsed() < READ_LEASE);
            let begun = tokio::time::Instant::now();
            match is_killed {
                true => rig.world.kill(1),
                // The member is reached again, and has missed the write.
                false => rig.world.with_node(1, |node| node.refuses_writes = true),
            }
            rig.write(&writer, 3).await.unwrap();
            assert_eq!(begun.elapsed() >= READ_LEASE, waits);
        }
    });
}

/// A member that was cut off for a moment is in sync, but this reader has not reached it yet when another member is
/// lost.
#[test]
fn a_read_waits_for_a_member_that_returns_while_another_is_lost() {
    for redundancy in [PARITY, MIRROR] {
        play(async move {
            let (rig, writer) = Rig::written(redundancy, 3).await;
            let process = Process::new(99);
            let reader = Reader::open(&rig.world, &process, &rig.shape).await.unwrap();
            let members = reader.drive.members();
            members.follow(&writer.map(), vec![(1, None)]);
            rig.world.kill(2);
            let returned = async {
                sleep(Duration::from_secs(2)).await;
                let place = writer.environment.places.lock()[1];
                let link = SimulatedLink::connect(&rig.world, &process, place, None).await.unwrap();
                members.connect(1, link);
            };
            let whole = ByteRange::new(0, rig.shape.size());
            let (read, ()) = tokio::join!(reader.drive.read(whole), returned);
            assert!(read.unwrap().into_bytes().iter().all(|byte| *byte == 1));

            // A member that stays lost makes the read fail at once.
            members.follow(&writer.map(), vec![(1, None)]);
            sleep(Duration::from_secs(10)).await;
            let begun = tokio::time::Instant::now();
            assert!(reader.drive.read(whole).await.is_err());
            assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        });
    }
}

/// Nodes that have ended say nothing of newer maps. A reader that was away while its nodes were replaced one by one must
/// not take them for a majority together with the one that is left.
#[test]
fn a_reader_whose_other_nodes_have_ended_asks_those_that_took_their_places() {
    for redundancy in [PARITY, MIRROR] {
        play(async move {
            let (rig, writer) = Rig::written(redundancy, 3).await;
            let reader = Reader::open_following(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
            let whole = ByteRange::new(0, rig.shape.size());
            reader.drive.read(whole).await.unwrap();
            // The reader reaches no node meanwhile.
            rig.world.cut_off(Some((usize::MAX, 99)));
            for (member, node) in [(1, 3), (2, 1)] {
                rig.world.kill(member);
                writer.until_stale(member, true).await;
                rig.world.restart(member);
                writer.replace(&rig.world, member, node).await.unwrap();
                assert!(writer.until_complete(super::PATIENCE).await);
            }
            rig.write(&writer, 2).await.unwrap();
            rig.world.cut_off(None);
            // Then member 0 moves, and its former node gets no more writes.
            let place = writer.begin_move(&rig.world, 0, 2, Duration::ZERO).await.unwrap();
            assert!(writer.until_moved(0, place).await);
            rig.write(&writer, 3).await.unwrap();
            let read = reader.drive.read(whole).await.unwrap();
            assert!(read.into_bytes().iter().all(|byte| *byte == 3));
        });
    }
}

/// A reader has an old copy of the drive file. A node that a member left still answers, and the others that the copy names
/// have ended. They do not count as votes: the newer maps that they had stored are the ones that this node lacks.
#[test]
fn a_reader_that_reaches_one_former_node_and_finds_the_others_ended_reads_nothing_old() {
    for redundancy in [PARITY, MIRROR] {
        play(async move {
            let (rig, writer) = Rig::written(redundancy, 3).await;
            let old_copy = rig.world.state.lock().drive_file.clone();
            // Member 0 moves, and the node that it leaves stores no map any more.
            rig.world.with_node(0, |node| node.refuse_maps = u32::MAX);
            let place = writer.begin_move(&rig.world, 0, 3, Duration::ZERO).await.unwrap();
            assert!(writer.until_moved(0, place).await);
            for member in [1, 2] {
                rig.world.kill(member);
                writer.until_stale(member, true).await;
                rig.world.restart(member);
                let joined = rig.world.join();
                writer.replace(&rig.world, member, joined).await.unwrap();
                assert!(writer.until_complete(super::PATIENCE).await);
            }
            rig.write(&writer, 2).await.unwrap();

            let newest = std::mem::replace(&mut rig.world.state.lock().drive_file, old_copy);
            let reader = Reader::open_following(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
            let whole = ByteRange::new(0, rig.shape.size());
            for page in whole.split_at_multiples(4096) {
                assert!(reader.drive.read(page).await.is_err(), "{page} is read from the node that the member left");
            }
            rig.world.state.lock().drive_file = newest;
            sleep(Duration::from_secs(3)).await;
            let read = reader.drive.read(whole).await.unwrap();
            assert!(read.into_bytes().iter().all(|byte| *byte == 2));
        });
    }
}
