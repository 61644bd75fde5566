//! Tests of the engine, among them random schedules against a naive model.

use super::*;
use crate::map::REGION_BYTES_MIN;
use proptest::prelude::*;

const SIZE: u64 = 8 * REGION_BYTES_MIN;

fn engine(members: usize) -> Engine {
    engine_that_survives(1, members)
}

fn engine_that_survives(losses_max: usize, members: usize) -> Engine {
    Engine::new(Map::new(members, SIZE), SIZE, losses_max)
}

fn store(engine: &mut Engine) -> Option<Map> {
    let map = engine.next_store();
    engine.store_finished(true);
    map
}

#[test]
fn a_region_is_recorded_once_before_its_first_write() {
    let mut engine = engine(2);
    let first = engine.admit(0..1);
    assert!(first > engine.stored());
    let stored = store(&mut engine).unwrap();
    assert!(stored.open && stored.unsettled.contains(0) && stored.epoch == first);
    assert_eq!(engine.admit(0..1), first, "recorded already");
    assert_eq!(engine.next_store(), None);
    assert!(engine.admit(1..2) > first);
}

#[test]
fn a_region_written_for_a_move_that_was_given_up_is_written_again_for_the_next_move() {
    let mut engine = engine(2);
    engine.begin_move(0).unwrap();
    store(&mut engine).unwrap();
    assert!(engine.attach(0));
    engine.begin_resync();
    let Resync::Region(region) = engine.next_resync() else { panic!("nothing to do") };
    let filled = engine.attached().to_vec();

    let given_up = engine.abandon_move(0);
    store(&mut engine).unwrap();
    engine.unread(given_up);
    engine.begin_move(0).unwrap();
    engine.resynced(region, &ALL[..2], &filled, true);
    let missed = engine.map().members[0].incoming.as_ref().unwrap();
    assert!(missed.contains(region), "the next node was not written");
}

#[test]
fn a_map_that_excludes_a_member_is_settled_once_readers_have_ceased_to_read_it_and_the_next_is_stored_before() {
    let mut engine = engine_that_survives(2, 5);
    let admitted = engine.admit(0..1);
    store(&mut engine).unwrap();
    assert_eq!(engine.settled(), admitted);
    let first = engine.mark_stale(1).unwrap();
    engine.next_store().unwrap();
    assert_eq!(engine.store_finished(true), Some(Exclusion { epoch: first, members: vec![1], has_left: false }));
    let second = engine.mark_stale(2).unwrap();
    engine.next_store().unwrap();
    assert_eq!(engine.store_finished(true), Some(Exclusion { epoch: second, members: vec![2], has_left: false }));
    assert_eq!(engine.stored(), second);
    assert!(engine.settled() < first);
    engine.unread(second);
    assert!(engine.settled() < first, "readers may read by a map that is older than both");
    engine.unread(first);
    assert_eq!(engine.settled(), second);
    engine.admit(3..4);
    engine.next_store().unwrap();
    assert_eq!(engine.store_finished(true), None, "nobody is newly excluded");
    assert_eq!(engine.settled(), engine.stored());
}

#[test]
fn a_loss_whose_map_could_not_be_stored_at_first_is_not_settled_before_readers_have_ceased_to_read_the_member() {
    let mut engine = engine(3);
    engine.admit(0..1);
    store(&mut engine).unwrap();
    let lost = engine.mark_stale(1).unwrap();
    for stored in [false, false, true] {
        engine.next_store().unwrap();
        let exclusion = engine.store_finished(stored);
        assert_eq!(exclusion.is_some(), stored);
        assert!(engine.settled() < lost, "readers still read the member");
        exclusion.into_iter().for_each(|exclusion| engine.unread(exclusion.epoch));
    }
    assert!(engine.settled() >= lost);
}

const ALL: [bool; 3] = [true; 3];

#[test]
fn a_stale_member_returns_only_after_everything_it_missed_was_resynchronized() {
    let mut engine = engine(3);
    engine.admit(2..3);
    engine.mark_stale(1).unwrap();
    engine.admit(5..6);
    engine.finish(2..3, true);
    engine.finish(5..6, true);
    assert_eq!(engine.next_resync(), Resync::Done, "nothing can be resynchronized without the member");
    engine.rejoin(1);
    assert_eq!(engine.map().members[1].state, MemberState::Syncing);
    for region in [2, 5] {
        assert_eq!(engine.next_resync(), Resync::Region(region));
        engine.resynced(region, &ALL, &[], true);
    }
    assert_eq!(engine.next_resync(), Resync::Done);
    engine.close();
    assert!(engine.map().is_clean());
}

#[test]
fn what_a_stale_member_missed_outlives_the_next_writers_resynchronization() {
    let mut first = engine(3);
    first.admit(5..6);
    first.mark_stale(1).unwrap();
    let crashed = store(&mut first).unwrap();
    let mut second = Engine::new(crashed, SIZE, 1);
    assert_eq!(second.next_resync(), Resync::Region(5));
    second.resynced(5, &[true, false, true], &[], true);
    assert_eq!(second.next_resync(), Resync::Done);
    second.close();
    assert!(second.map().unsettled.is_empty());
    assert_eq!(second.map().members[1].missed.to_string(), "5");
    second.rejoin(1);
    assert_eq!(second.next_resync(), Resync::Region(5));
}

#[test]
fn the_next_writer_continues_where_the_former_one_recorded_that_it_was() {
    let mut first = engine(3);
    first.mark_stale(1).unwrap();
    first.replace(1).unwrap();
    store(&mut first).unwrap();
    assert_eq!(first.record_progress(), None, "nothing was done yet");
    for region in 0..5 {
        assert_eq!(first.next_resync(), Resync::Region(region));
        first.resynced(region, &ALL, &[], true);
    }
    let epoch = first.record_progress().unwrap();
    assert_eq!(first.record_progress(), None);
    let crashed = store(&mut first).unwrap();
    assert_eq!((crashed.epoch, crashed.members[1].missed.to_string()), (epoch, "5-7".into()));
    assert_eq!(Engine::new(crashed, SIZE, 1).next_resync(), Resync::Region(5));
}

#[test]
fn a_member_that_no_byte_can_be_read_without_is_never_stale() {
    let mut engine = engine(3);
    engine.mark_stale(0).unwrap();
    assert_eq!(engine.mark_stale(2), Err(Indispensable));
    assert_eq!(engine.map().members[2].state, MemberState::InSync);
    engine.replace(0).unwrap();
    assert_eq!(engine.mark_stale(2), Err(Indispensable), "a member that is being synchronized cannot be read");
    assert!(engine.mark_stale(0).is_ok());
}

#[test]
fn a_member_that_takes_part_is_not_replaced() {
    let mut engine = engine(3);
    assert_eq!(engine.replace(1), Err(NotReplaced::NotStale));
    engine.mark_stale(1).unwrap();
    engine.rejoin(1);
    assert_eq!(engine.replace(1), Err(NotReplaced::NotStale));
}

#[test]
fn a_region_stays_unsettled_while_a_write_is_in_flight() {
    let mut engine = engine(2);
    engine.mark_stale(0).unwrap();
    engine.replace(0).unwrap();
    engine.admit(0..1);
    for region in 0..8 {
        assert_eq!(engine.next_resync(), Resync::Region(region));
        engine.resynced(region, &ALL[..2], &[], true);
    }
    assert_eq!(engine.next_resync(), Resync::Done);
    assert_eq!(engine.map().members[0].state, MemberState::InSync, "writes in flight reach it");
    assert_eq!(engine.map().unsettled.to_string(), "0");
    engine.finish(0..1, true);
    engine.close();
    assert!(engine.map().is_clean() && !engine.map().open);
}

#[test]
fn after_a_crash_regions_stay_unsettled_until_they_were_resynchronized() {
    let mut crashed = engine(2);
    crashed.admit(3..5);
    let map = store(&mut crashed).unwrap();
    let mut engine = Engine::new(map, SIZE, 1);
    engine.close();
    assert_eq!(engine.map().unsettled.to_string(), "3-4", "closing alone settles nothing");
    assert_eq!(engine.next_resync(), Resync::Region(3));
    engine.resynced(3, &ALL[..2], &[], true);
    assert_eq!(engine.next_resync(), Resync::Region(4));
    engine.resynced(4, &ALL[..2], &[], false);
    assert_eq!(engine.next_resync(), Resync::Incomplete);
    engine.close();
    assert_eq!(engine.map().unsettled.to_string(), "4");
}

#[test]
fn the_next_writer_uses_no_epoch_that_the_former_one_may_have_stored_in_part() {
    let mut first = engine(2);
    first.admit(0..1);
    let stored = store(&mut first).unwrap();
    let mut second = Engine::new(stored, SIZE, 1);
    (0..100).for_each(|_| {
        first.mark_stale(0).unwrap();
        first.rejoin(0);
    });
    assert!(second.admit(1..2) > first.map().epoch);
}

#[test]
fn an_epoch_that_may_have_been_stored_in_part_is_never_used_again() {
    let mut engine = engine(2);
    let first = engine.admit(0..1);
    assert_eq!(engine.next_store().unwrap().epoch, first);
    engine.store_finished(false);
    assert!(engine.next_store().unwrap().epoch > first);
}

#[test]
fn a_region_found_unsettled_is_stored_before_a_write_to_it_begins() {
    let mut engine = engine(2);
    engine.admit(0..1);
    store(&mut engine);
    engine.unsettle(1);
    let epoch = engine.admit(1..2);
    assert!(epoch > engine.stored(), "the region is in no stored map yet");
    assert!(store(&mut engine).unwrap().unsettled.contains(1));
}

#[test]
fn a_pass_begins_only_when_no_region_of_the_former_is_in_progress() {
    let mut engine = engine(3);
    engine.unsettle(1);
    engine.unsettle(4);
    assert_eq!((engine.next_resync(), engine.next_resync()), (Resync::Region(1), Resync::Region(4)));
    assert_eq!(engine.next_resync(), Resync::Busy);
    engine.mark_stale(0).unwrap();
    engine.rejoin(0);
    assert_eq!(engine.next_resync(), Resync::Busy);
    engine.resynced(1, &[false, true, true], &[], true);
    engine.resynced(4, &[false, true, true], &[], true);
    assert_eq!(engine.next_resync(), Resync::Region(1), "the member that is back was not written then");
    engine.begin_resync();
    assert_eq!(engine.next_resync(), Resync::Region(1), "the former attempt was given up");
}

#[test]
fn bad_pages_are_stored_before_the_region_is_settled_and_outlive_the_writer() {
    let mut first = engine(2);
    let bad = ByteRange::new(3 * REGION_BYTES_MIN + 4096, 8192);
    let epoch = first.declare_bad(&[bad]).unwrap();
    assert!(epoch > first.stored());
    assert_eq!(first.next_resync(), Resync::Region(3), "redundancy is recomputed without them");
    first.resynced(3, &ALL[..2], &[], true);
    first.next_resync();
    first.close();
    let mut second = Engine::new(store(&mut first).unwrap(), SIZE, 1);
    assert!(second.map().bad.touch(bad));
    let healed = second.heal(ByteRange::new(bad.offset, 4096)).unwrap();
    assert!(healed > second.stored());
    assert_eq!(second.map().bad.bytes(), 4096);
}

#[test]
fn a_page_that_stays_damaged_does_not_restart_resynchronization() {
    let mut engine = engine(2);
    engine.damaged(3);
    assert_eq!(engine.next_resync(), Resync::Region(3));
    engine.damaged(3);
    engine.resynced(3, &ALL[..2], &[], true);
    assert_eq!(engine.next_resync(), Resync::Done);
}

#[derive(Debug, Clone)]
enum Step {
    Admit(u64),
    Finish(usize, bool),
    Stale(usize),
    Rejoin(usize),
    Replace(usize),
    Take,
    Resynced(usize, bool),
    Store(bool),
    Unread,
    BeginMove(usize),
    Attach(usize),
    AbandonMove(usize),
    FinishMove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..8).prop_map(Step::Admit),
        4 => (0usize..8, any::<bool>()).prop_map(|(write, ok)| Step::Finish(write, ok)),
        1 => (0usize..3).prop_map(Step::Stale),
        1 => (0usize..3).prop_map(Step::Rejoin),
        1 => (0usize..3).prop_map(Step::Replace),
        4 => Just(Step::Take),
        4 => (0usize..8, any::<bool>()).prop_map(|(taken, complete)| Step::Resynced(taken, complete)),
        2 => any::<bool>().prop_map(Step::Store),
        1 => Just(Step::Unread),
        1 => (0usize..3).prop_map(Step::BeginMove),
        2 => (0usize..3).prop_map(Step::Attach),
        1 => (0usize..3).prop_map(Step::AbandonMove),
        2 => (0usize..3).prop_map(Step::FinishMove),
    ]
}

proptest! {
    /// A member in sync has seen every write, or the region was resynchronized with it since.
    #[test]
    fn no_member_is_in_sync_that_missed_a_write(steps in prop::collection::vec(step(), 1..120)) {
        let mut engine = engine(3);
        // Versions of each region: the newest, and those that the members hold.
        let mut newest = [0u32; 8];
        let mut held = [[0u32; 8]; 3];
        let mut incoming = [[0u32; 8]; 3];
        // Regions that are being resynchronized, with the members that were written when that began.
        let mut taken = Vec::new();
        // How often each member, and then each incoming node, was left out or became another node.
        let mut changes = [0u32; 6];
        let mut writes: Vec<u64> = Vec::new();
        let mut epoch = 0;
        let mut excluding = BTreeSet::new();
        for step in steps {
            match step {
                Step::Admit(region) => {
                    engine.admit(region..region + 1);
                    writes.push(region);
                    newest[region as usize] += 1;
                    for (member, held) in held.iter_mut().enumerate() {
                        if engine.map().members[member].state.is_written() {
                            held[region as usize] = newest[region as usize];
                        }
                    }
                    for (incoming, attached) in incoming.iter_mut().zip(engine.attached()) {
                        if *attached {
                            incoming[region as usize] = newest[region as usize];
                        }
                    }
                }
                Step::Finish(write, ok) if !writes.is_empty() => {
                    let region = writes.swap_remove(write % writes.len());
                    engine.finish(region..region + 1, ok);
                }
                Step::Finish(..) => {}
                Step::Stale(member) => {
                    if engine.mark_stale(member).is_ok() {
                        changes[member] += 1;
                    }
                }
                Step::Rejoin(member) => { engine.rejoin(member); }
                Step::Replace(member) => {
                    if engine.map().members[member].state != MemberState::Stale {
                        continue;
                    }
                    if engine.replace(member).is_ok() {
                        held[member] = [0; 8];
                        changes[member] += 1;
                    }
                }
                Step::BeginMove(member) => {
                    if engine.begin_move(member).is_ok() {
                        incoming[member] = [0; 8];
                        changes[3 + member] += 1;
                    }
                }
                Step::Attach(member) => { engine.attach(member); }
                Step::AbandonMove(member) => {
                    let epoch = engine.abandon_move(member);
                    prop_assert!(epoch <= engine.map().epoch);
                }
                // No write may be in flight.
                Step::FinishMove(member) if writes.is_empty() => {
                    if engine.finish_move(member).is_some() {
                        held[member] = incoming[member];
                        changes[member] += 1;
                        changes[3 + member] += 1;
                    }
                }
                Step::FinishMove(_) => {}
                Step::Take => {
                    if let Resync::Region(region) = engine.next_resync() {
                        let written = engine.map().members.iter().map(|member| member.state.is_written()).collect();
                        taken.push((region, written, engine.attached().to_vec(), changes));
                    }
                }
                Step::Resynced(which, complete) if !taken.is_empty() => {
                    let (region, written, attached, then): (u64, Vec<bool>, Vec<bool>, _) =
                        taken.swap_remove(which % taken.len());
                    // A node that was left out, or took another's place, meanwhile is not known to have been written.
                    let is_same = |node: usize| then[node] == changes[node];
                    if complete {
                        for member in (0..3).filter(|member| written[*member] && is_same(*member)) {
                            held[member][region as usize] = newest[region as usize];
                        }
                        for member in (0..3).filter(|member| attached[*member] && is_same(3 + *member)) {
                            incoming[member][region as usize] = newest[region as usize];
                        }
                    }
                    engine.resynced(region, &written, &attached, complete);
                }
                Step::Resynced(..) => {}
                Step::Store(ok) => {
                    if let Some(map) = engine.next_store() {
                        prop_assert!(map.epoch > epoch);
                        if let Some(exclusion) = engine.store_finished(ok) {
                            prop_assert!(ok && exclusion.epoch <= map.epoch);
                            excluding.insert(exclusion.epoch);
                        }
                        if ok { epoch = map.epoch; }
                    }
                }
                Step::Unread => {
                    if let Some(epoch) = excluding.pop_last() {
                        engine.unread(epoch);
                    }
                }
            }
            prop_assert!(engine.stored() == epoch.max(1));
            prop_assert_eq!(engine.settled(), excluding.first().map_or(engine.stored(), |epoch| epoch - 1));
            for (index, member) in engine.map().members.iter().enumerate().filter(|(index, _)| engine.attached()[*index]) {
                let missed = member.incoming.as_ref().unwrap();
                for region in 0..8 {
                    prop_assert!(incoming[index][region] == newest[region] || missed.contains(region as u64));
                }
            }
            for (member, held) in engine.map().members.iter().zip(&held) {
                prop_assert!(member.state != MemberState::InSync || held == &newest);
                for region in 0..8 {
                    prop_assert!(held[region] == newest[region] || member.missed.contains(region as u64));
                }
            }
            prop_assert!(writes.iter().all(|region| engine.map().unsettled.contains(*region)));
        }
    }
}
