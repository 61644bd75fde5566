//! Schedules in which one message is held up, or one party dies, in a state that matters.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Data, Device, Result};
use cheetah_redundancy::read_lease::READ_LEASE;
use cheetah_redundancy::{MemberState, Redundancy};
use tokio::time::sleep;

use crate::network::{Process, Weather, World};
use crate::process::{Reader, Shape, Writer, open};

const PATIENCE: Duration = Duration::from_secs(60);
const PARITY: Redundancy = Redundancy::Parity { parities: 1 };
const MIRROR: Redundancy = Redundancy::Mirror { copies: 2 };

struct Rig {
    world: Arc<World>,
    shape: Shape,
    processes: u64,
}

impl Rig {
    fn new(redundancy: Redundancy, members: usize) -> Self {
        let shape = Shape { redundancy, members, unit: 4096, cycles: 4, region_bytes: 16384 };
        let world = World::new(1, members + 1, shape.geometry().member_bytes(), Weather::default());
        world.state.lock().drive_file = Some(shape.created(&world));
        Self { world, shape, processes: 0 }
    }

    async fn open(&mut self) -> Writer {
        self.processes += 1;
        open(&self.world, &Process::new(self.processes), &self.shape).await.unwrap()
    }

    async fn write(&self, writer: &Writer, byte: u8) -> Result<()> {
        let content = vec![byte; self.shape.size() as usize];
        writer.drive.write(0, content.into(), false).await
    }

    /// The bytes are all `byte`, also without any one member.
    async fn check(&self, writer: &Writer, byte: u8) {
        self.check_pages(writer, |_| byte).await;
    }

    /// The bytes are those expected at each offset, also without any one member.
    async fn check_pages(&self, writer: &Writer, expected: impl Fn(u64) -> u8) {
        let whole = ByteRange::new(0, self.shape.size());
        let is_right = |data: Data| data.into_bytes().iter().enumerate().all(|(at, held)| *held == expected(at as u64));
        assert!(is_right(writer.drive.read(whole).await.unwrap()));
        for without in 0..self.shape.members {
            let reader = Reader::open(&self.world, &Process::new(99), &self.shape).await.unwrap();
            reader.drive.members().follow(&writer.map(), vec![(without, None)]);
            assert!(is_right(reader.drive.read(whole).await.unwrap()), "without member {without}");
        }
    }
}

/// Runs in virtual time.
fn play(schedule: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let schedule = async { tokio::time::timeout(Duration::from_secs(3600), schedule).await };
    assert!(runtime.block_on(schedule).is_ok(), "nothing takes an hour");
}

#[test]
fn a_silent_member_that_wakes_up_after_others_went_on_is_resynchronized() {
    play(async {
        let mut rig = Rig::new(PARITY, 3);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        rig.world.freeze(1, true);
        rig.write(&writer, 2).await.unwrap();
        assert_eq!(writer.map().members[1].state, MemberState::Stale);
        rig.write(&writer, 3).await.unwrap();
        // What was sent to it before takes effect now, if at all.
        rig.world.freeze(1, false);
        assert!(writer.until_complete(PATIENCE).await);
        rig.check(&writer, 3).await;
    });
}

#[test]
fn a_write_that_meets_silent_members_takes_less_than_a_second() {
    for (redundancy, silent) in [(MIRROR, 1), (PARITY, 1), (Redundancy::Parity { parities: 2 }, 2)] {
        for (is_recorded, stagger_ms) in [(false, 0), (true, 0), (false, 90), (true, 90)] {
            play(async move {
                let mut rig = Rig::new(redundancy, if silent == 1 { 3 } else { 5 });
                let writer = rig.open().await;
                // Otherwise its regions are recorded first, in a map that the silent members do not take, either.
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

/// Of three members, a member and a reader are cut off together, at every moment relative to a write that the member misses. What
/// the reader reads once the write was acknowledged is new, or an error.
#[test]
fn a_reader_that_is_cut_off_with_a_stale_member_does_not_read_it() {
    let mut refused = 0;
    for redundancy in [PARITY, MIRROR] {
        for cut_after_ms in (0..1500).step_by(60) {
            let refused = &mut refused;
            play(async move {
                let mut rig = Rig::new(redundancy, 3);
                let writer = rig.open().await;
                rig.write(&writer, 1).await.unwrap();
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
            let mut rig = Rig::new(PARITY, 3);
            let writer = rig.open().await;
            rig.write(&writer, 1).await.unwrap();
            let begun = tokio::time::Instant::now();
            rig.write(&writer, 2).await.unwrap();
            assert!(begun.elapsed() < READ_LEASE);
            let begun = tokio::time::Instant::now();
            match is_killed {
                true => rig.world.kill(1),
                // It is reached again, and has missed the write.
                false => rig.world.with_node(1, |node| node.refuses_writes = true),
            }
            rig.write(&writer, 3).await.unwrap();
            assert_eq!(begun.elapsed() >= READ_LEASE, waits);
        }
    });
}

/// A writer dies after one node has heard that another is stale. The next writer must tell the others before it acknowledges
/// anything: that one node may be lost next.
#[test]
fn a_loss_that_a_former_writer_recorded_at_one_node_is_recorded_at_the_others_before_a_write_is_acknowledged() {
    play(async {
        let mut rig = Rig::new(Redundancy::Parity { parities: 2 }, 5);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
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
            let mut rig = Rig::new(redundancy, 3);
            let writer = rig.open().await;
            rig.write(&writer, 1).await.unwrap();
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
        let mut rig = Rig::new(PARITY, 3);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        rig.world.state.lock().maps_held = true;
        rig.world.kill(1);
        // The second write is admitted, and waits for what it has to read from member 0.
        rig.world.isolate(0, true);
        let mut second = writer.drive.write(8192, vec![3; 4096].into(), false);
        sleep(Duration::from_millis(1)).await;
        // The first reads nothing, and finds member 1 lost.
        let mut first = writer.drive.write(0, vec![2; 8192].into(), false);
        writer.until_stale(1, true).await;
        rig.world.isolate(0, false);
        // The second never reaches member 1, which is in sync by every map that is stored.
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
        // No map was stored yet, and this one cannot be at both.
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
        let mut rig = Rig::new(PARITY, 3);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        rig.world.kill(2);
        tokio::time::timeout(Duration::from_secs(5), writer.until_stale(2, true)).await.unwrap();
        rig.world.restart(3);
        writer.replace(&rig.world, 2, 3).await.unwrap();
        assert!(writer.until_complete(PATIENCE).await);
        rig.check(&writer, 1).await;
    });
}

#[test]
fn a_writer_that_dies_between_the_map_and_the_write_leaves_what_was_there() {
    play(async {
        let mut rig = Rig::new(PARITY, 3);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        rig.world.state.lock().writes_left = Some(0);
        let stalled = tokio::time::timeout(Duration::from_millis(100), rig.write(&writer, 2)).await;
        assert!(stalled.is_err());
        assert!(rig.world.state.lock().drive_file.as_ref().unwrap().map.open);
        writer.kill(&rig.world);
        rig.world.state.lock().writes_left = None;
        let next = rig.open().await;
        assert!(next.drive.members().to_settle() > 0, "redundancy is computed anew");
        assert!(next.until_complete(PATIENCE).await);
        rig.check(&next, 1).await;
    });
}

#[test]
fn a_member_lost_during_its_own_resynchronization_returns_in_the_end() {
    play(async {
        let mut rig = Rig::new(PARITY, 3);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        rig.world.isolate(0, true);
        rig.write(&writer, 2).await.unwrap();
        // It takes a few writes of its resynchronization, then its connection breaks and it is silent again.
        rig.world.isolate(0, false);
        writer.until_stale(0, false).await;
        rig.world.isolate(0, true);
        rig.world.break_connections(|connection| connection.node == 0);
        rig.write(&writer, 3).await.unwrap();
        assert_eq!(writer.map().members[0].state, MemberState::Stale);
        rig.world.isolate(0, false);
        assert!(writer.until_complete(PATIENCE).await);
        rig.check(&writer, 3).await;
    });
}

#[test]
fn a_spare_that_dies_while_it_is_filled_is_replaced_by_the_next() {
    play(async {
        let mut rig = Rig::new(PARITY, 3);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        rig.world.kill(1);
        writer.until_stale(1, true).await;
        rig.world.with_node(3, |node| node.dies_after_writes = Some(2));
        writer.replace(&rig.world, 1, 3).await.unwrap();
        writer.until_stale(1, true).await;
        assert!(!rig.world.with_node(3, |node| node.up));
        rig.world.restart(1);
        writer.replace(&rig.world, 1, 1).await.unwrap();
        assert!(writer.until_complete(PATIENCE).await);
        rig.check(&writer, 1).await;
    });
}

#[test]
fn the_connection_to_a_spare_is_not_cut_off_by_the_search_for_the_former_member() {
    play(async {
        let mut rig = Rig::new(PARITY, 3);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        rig.world.kill(1);
        writer.until_stale(1, true).await;
        writer.replace(&rig.world, 1, 3).await.unwrap();
        assert!(writer.until_complete(PATIENCE).await);
        sleep(Duration::from_secs(20)).await;
        rig.write(&writer, 2).await.unwrap();
        assert_eq!(writer.map().members[1].state, MemberState::InSync);
        assert_eq!(writer.drive.members().stats().members_lost, 1);
    });
}

#[test]
fn damaged_pages_of_data_redundancy_and_digests_are_written_anew() {
    play(async {
        for page in 0..Rig::new(PARITY, 3).shape.geometry().member_bytes() / crate::node::PAGE {
            let mut rig = Rig::new(PARITY, 3);
            let writer = rig.open().await;
            rig.write(&writer, 1).await.unwrap();
            rig.world.with_node(1, |node| node.damaged.insert(page));
            // Whatever the page holds, these meet it.
            writer.drive.read(ByteRange::new(0, rig.shape.size())).await.unwrap();
            for at in (50..rig.shape.size()).step_by(4096) {
                writer.drive.write(at, vec![1; 100].into(), false).await.unwrap();
            }
            assert!(writer.until_complete(PATIENCE).await);
            assert!(rig.world.with_node(1, |node| node.damaged.is_empty()), "page {page}");
            rig.check(&writer, 1).await;
        }
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
        let mut rig = Rig::new(MIRROR, 2);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
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

#[test]
fn digests_that_were_remembered_do_not_outlive_a_write() {
    play(async {
        let mut rig = Rig::new(PARITY, 3);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        let whole = ByteRange::new(0, rig.shape.size());
        let reader = Reader::open(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
        reader.drive.members().follow(&writer.map(), vec![(0, None)]);
        rig.world.kill(0);
        writer.until_stale(0, true).await;
        for byte in 1..5 {
            rig.write(&writer, byte).await.unwrap();
            for drive in [&reader.drive, &writer.drive] {
                let data = drive.read(whole).await.unwrap();
                assert!(data.into_bytes().iter().all(|held| *held == byte));
            }
        }
    });
}

/// The requests that the nodes have answered since the last time.
fn requests(rig: &Rig) -> (u64, u64) {
    let mut state = rig.world.state.lock();
    let sum = state.nodes.iter().fold((0, 0), |sum, node| (sum.0 + node.reads, sum.1 + node.writes));
    state.nodes.iter_mut().for_each(|node| (node.reads, node.writes) = (0, 0));
    sum
}

#[test]
fn small_requests_take_no_more_requests_to_nodes_than_budgeted() {
    // Members, parities, reads of a page of the lost member, reads and writes of an overwrite.
    for (members, parities, degraded, overwrite) in [(3, 1, 2, (1, 3)), (5, 1, 4, (2, 3)), (7, 2, 5, (3, 5))] {
        play(async move {
            let mut rig = Rig::new(Redundancy::Parity { parities }, members);
            let writer = rig.open().await;
            rig.write(&writer, 1).await.unwrap();
            let page = ByteRange::new(0, 4096);
            requests(&rig);
            writer.drive.read(page).await.unwrap();
            assert_eq!(requests(&rig), (1, 0), "healthy");
            writer.drive.write(0, vec![2; 4096].into(), false).await.unwrap();
            assert_eq!(requests(&rig), overwrite, "overwrite");
            rig.check_pages(&writer, |at| if page.contains(ByteRange::new(at, 1)) { 2 } else { 1 }).await;
            rig.world.kill(0);
            writer.until_stale(0, true).await;
            writer.drive.read(page).await.unwrap();
            requests(&rig);
            writer.drive.read(page).await.unwrap();
            assert_eq!(requests(&rig), (degraded, 0), "a member is lost");
            writer.drive.read(ByteRange::new(4096, 4096)).await.unwrap();
            assert_eq!(requests(&rig), (1, 0), "of another member");
        });
    }
}

/// The bytes are `old` or `new` but where they are bad, and exactly bad ranges cannot be read, with all members and without any
/// one of them.
async fn check_but_bad(rig: &Rig, writer: &Writer, old: u8, new: u8) {
    let bad = writer.map().bad;
    let mut readers = Vec::new();
    for without in 0..rig.shape.members {
        let reader = Reader::open(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
        reader.drive.members().follow(&writer.map(), vec![(without, None)]);
        readers.push(reader);
    }
    for at in (0..rig.shape.size()).step_by(512) {
        let block = ByteRange::new(at, 512);
        for drive in readers.iter().map(|reader| &reader.drive).chain([&writer.drive]) {
            match drive.read(block).await {
                Ok(data) => {
                    assert!(!bad.touch(block));
                    assert!(data.into_bytes().iter().all(|byte| [old, new].contains(byte)), "made-up bytes at {at}");
                }
                Err(error) => assert!(bad.touch(block), "{error}"),
            }
        }
    }
}

#[test]
fn a_writer_and_a_member_lost_in_mid_write_cost_at_most_the_pages_of_the_write_and_redundancy_returns() {
    let mut met = 0;
    for (lost, writes) in (0..3).flat_map(|lost| (0..9).map(move |writes| (lost, writes))) {
        for empty in [false, true] {
            let met = &mut met;
            play(async move {
                let mut rig = Rig::new(PARITY, 3);
                let writer = rig.open().await;
                rig.write(&writer, 1).await.unwrap();
                rig.world.state.lock().writes_left = Some(writes);
                let write = writer.drive.write(8192, vec![2; 12288].into(), false);
                tokio::time::timeout(Duration::from_millis(100), write).await.ok();
                writer.kill(&rig.world);
                rig.world.state.lock().writes_left = None;
                match empty {
                    true => rig.world.kill(lost),
                    false => rig.world.isolate(lost, true),
                }
                let writer = rig.open().await;
                writer.until_stale(lost, true).await;
                assert!(writer.map().bad.is_empty(), "the member may still return with what is missing");
                match empty {
                    true => writer.replace(&rig.world, lost, 3).await.unwrap(),
                    false => rig.world.isolate(lost, false),
                }
                assert!(writer.until_complete(PATIENCE).await, "{:?}", writer.map());
                let bad = writer.drive.members().bad_ranges();
                // Groups that the write changed: the other unit of such a group is lost as well.
                let groups = ByteRange::new(8192, 16384);
                assert!(bad.iter().all(|bad| groups.contains(*bad)), "{bad:?}");
                assert_eq!(writer.drive.members().stats().bad_bytes, bad.iter().map(|bad| bad.len).sum::<u64>());
                check_but_bad(&rig, &writer, 1, 2).await;
                *met += bad.len();
                if !bad.is_empty() {
                    let inside = writer.drive.write(bad[0].offset + 512, vec![9; 512].into(), false).await;
                    assert!(inside.is_err(), "the rest of the page is not known");
                    // The next writer knows them, too.
                    writer.kill(&rig.world);
                    let writer = rig.open().await;
                    assert_eq!(writer.drive.members().bad_ranges(), bad);
                    check_but_bad(&rig, &writer, 1, 2).await;
                    for bad in bad {
                        writer.drive.write(bad.offset, vec![2; bad.len as usize].into(), false).await.unwrap();
                    }
                    assert!(writer.drive.members().bad_ranges().is_empty());
                    assert!(rig.world.state.lock().drive_file.as_ref().unwrap().map.bad.is_empty(), "stored");
                    check_but_bad(&rig, &writer, 1, 2).await;
                }
            });
        }
    }
    assert!(met > 0, "no page was lost, so nothing was tested");
}

#[test]
fn a_page_that_two_members_of_a_mirror_have_damaged_is_bad_until_it_is_written() {
    play(async {
        let mut rig = Rig::new(MIRROR, 2);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        rig.world.kill(1);
        writer.until_stale(1, true).await;
        rig.world.with_node(0, |node| node.damaged.insert(0));
        writer.replace(&rig.world, 1, 2).await.unwrap();
        assert!(writer.until_complete(PATIENCE).await);
        let page = ByteRange::new(0, 4096);
        assert_eq!(writer.drive.members().bad_ranges(), [page]);
        check_but_bad(&rig, &writer, 1, 1).await;
        rig.write(&writer, 2).await.unwrap();
        rig.check(&writer, 2).await;
    });
}

#[test]
fn a_reader_with_an_older_map_finds_no_zeros_in_a_page_that_became_bad() {
    play(async {
        let mut rig = Rig::new(MIRROR, 2);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        let reader = Reader::open(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
        // Member 1 misses a write near the page, and returns when the other copy of the page is damaged.
        rig.world.freeze(1, true);
        writer.drive.write(4096, vec![2; 4096].into(), false).await.unwrap();
        rig.world.with_node(0, |node| node.damaged.insert(0));
        rig.world.freeze(1, false);
        assert!(writer.until_complete(PATIENCE).await);
        let page = ByteRange::new(0, 4096);
        assert!(writer.map().bad.touch(page));
        if let Ok(held) = reader.drive.read(page).await {
            assert!(held.into_bytes().iter().all(|byte| *byte == 1));
        }
    });
}

#[test]
fn a_page_that_becomes_bad_while_it_is_read_is_an_error() {
    play(async {
        let mut rig = Rig::new(MIRROR, 2);
        let writer = rig.open().await;
        rig.write(&writer, 1).await.unwrap();
        let reader = Reader::open(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
        let page = ByteRange::new(0, 4096);
        // One copy is damaged, so that the page is read from the other.
        rig.world.with_node(0, |node| node.damaged.insert(0));
        let mut map = writer.map();
        let mut follow = |bad: bool| {
            map.epoch += 1;
            if bad {
                map.bad.insert(&[page]).unwrap()
            } else {
                map.bad.remove(page).unwrap()
            }
            reader.drive.members().follow(&map, Vec::new());
        };
        for written_anew in [false, true] {
            rig.world.isolate(1, true);
            let mut read = reader.drive.read(page);
            assert!(tokio::time::timeout(Duration::from_millis(100), &mut read).await.is_err());
            follow(true);
            if written_anew {
                follow(false);
            }
            let reads = rig.world.with_node(1, |node| node.reads);
            rig.world.isolate(1, false);
            assert_eq!(read.await.is_ok(), written_anew);
            if written_anew {
                assert!(rig.world.with_node(1, |node| node.reads) > reads + 1, "not read again");
            }
            follow(false);
        }
    });
}

#[test]
fn a_check_finds_and_repairs_what_nobody_has_read() {
    play(async {
        for page in 0..Rig::new(PARITY, 3).shape.geometry().member_bytes() / crate::node::PAGE {
            for silent in [false, true] {
                let mut rig = Rig::new(PARITY, 3);
                let writer = rig.open().await;
                rig.write(&writer, 1).await.unwrap();
                rig.world.with_node(2, |node| match silent {
                    true => node.content[(page * crate::node::PAGE) as usize] ^= 4,
                    false => drop(node.damaged.insert(page)),
                });
                let checked = writer.drive.check(&mut |_, _| {}).await.unwrap();
                assert!(checked.has_found() && checked.is_sound(), "page {page}, silent {silent}: {checked:?}");
                assert_eq!(silent, checked.damaged_units == 0);
                assert_eq!(writer.drive.members().stats().damage_healed > 0, !silent);
                let again = writer.drive.check(&mut |_, _| {}).await.unwrap();
                assert!(!again.has_found() && again.compared_bytes == rig.shape.size(), "{again:?}");
                rig.check(&writer, 1).await;
            }
        }
    });
}
