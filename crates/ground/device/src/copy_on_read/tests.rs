//! The engine with events and failures in any order.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::engine::{AnswerPart, CopyAction, CopyEngine, CopyReadPlan, ReadId};
use super::transfers::TransferId;
use super::{CopyOnReadConfig, GRAIN};
use crate::coverage::State;
use crate::{ByteRange, Coverage, Data, Error, Result};

const SECTOR: u64 = 512;
/// Neither whole grains nor whole sectors.
const SIZE: u64 = 9 * GRAIN + 3 * SECTOR + 100;

/// The next event. An index counts modulo the number of choices.
#[derive(Debug, Clone)]
enum Step {
    Read {
        offset: u64,
        len: u64,
    },
    Forget(usize),
    Fetched(usize, Outcome),
    Written(usize, bool),
    Flushed(bool),
    Recorded(bool),
    /// A grain on the drive is found to be wrong.
    Invalidate(u64),
    Sleep(u64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    /// The source's data, or an error if part of it is bad.
    Answered,
    /// The source is gone.
    Lost,
    /// The source answers with less than was requested.
    Short,
}

/// A source, a drive, and all requests between them.
struct World {
    engine: CopyEngine,
    now: Duration,
    bytes: Vec<u8>,
    bad: Vec<ByteRange>,
    /// The content of the drive; `None` where it has not been written.
    drive: Vec<Option<u8>>,
    /// How often the source returned each sector, less how often the drive refused it.
    given: Vec<i64>,
    fetches: Vec<(TransferId, ByteRange)>,
    writes: Vec<(TransferId, ByteRange, Data)>,
    reads: BTreeMap<ReadId, ByteRange>,
    /// The ranges the drive had when it was asked to flush.
    flush: Option<Vec<bool>>,
    flushed: Vec<bool>,
    record: Option<Coverage>,
    recorded: Coverage,
}

impl World {
    fn new(bad: Vec<u64>, recorded: Coverage) -> Self {
        let size = SIZE as usize;
        let bytes: Vec<u8> = (0..size).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] | 1).collect();
        let mut there = vec![false; size];
        // Not byte by byte, which takes most of the time of these tests.
        recorded.in_state(State::Read).for_each(|run| there[run.offset as usize..run.end() as usize].fill(true));
        let sector = |n: u64| ByteRange::new(n * SECTOR, SECTOR).intersection(ByteRange::new(0, SIZE));
        Self {
            engine: CopyEngine::new(CopyOnReadConfig::new("evidence"), recorded.clone()),
            now: Duration::ZERO,
            bad: bad.into_iter().filter_map(sector).collect(),
            drive: bytes.iter().zip(&there).map(|(byte, there)| there.then_some(*byte)).collect(),
            given: vec![0; SIZE.div_ceil(SECTOR) as usize],
            bytes,
            fetches: Vec::new(),
            writes: Vec::new(),
            reads: BTreeMap::new(),
            flush: None,
            flushed: there,
            record: None,
            recorded,
        }
    }

    fn step(&mut self, step: Step) {
        let mut actions = Vec::new();
        let (engine, now) = (&mut self.engine, self.now);
        match step {
            Step::Read { offset, len } => {
                let range = ByteRange::between(offset.min(SIZE - 1), (offset + len).min(SIZE));
                match engine.read(range, now, &mut actions) {
                    CopyReadPlan::Now(answer) => self.check(range, answer),
                    CopyReadPlan::Wait(id) => drop(self.reads.insert(id, range)),
                }
            }
            Step::Forget(index) if !self.reads.is_empty() => {
                let id = *self.reads.keys().nth(index % self.reads.len()).unwrap();
                self.reads.remove(&id);
                engine.forget(id);
            }
            Step::Fetched(index, outcome) if !self.fetches.is_empty() => {
                let (id, range) = self.fetches.swap_remove(index % self.fetches.len());
                let answer = self.ask(range, outcome);
                self.engine.fetched(id, answer, now, &mut actions);
            }
            Step::Written(index, ok) if !self.writes.is_empty() => {
                let (id, range, data) = self.writes.swap_remove(index % self.writes.len());
                let bytes = data.into_bytes();
                let slots = &mut self.drive[range.offset as usize..range.end() as usize];
                if ok {
                    slots.iter_mut().zip(&bytes).for_each(|(slot, byte)| *slot = Some(*byte));
                } else {
                    self.count(range, -1);
                }
                let outcome = if ok { Ok(()) } else { Err(Error::NoSpace("full".into())) };
                self.engine.written(id, outcome, now, &mut actions);
            }
            Step::Flushed(ok) => {
                let Some(then) = self.flush.take() else { return };
                if ok {
                    self.flushed = then;
                }
                let outcome = if ok { Ok(()) } else { Err(Error::NoSpace("full".into())) };
                engine.flushed(outcome, now, &mut actions);
            }
            Step::Recorded(ok) => {
                let Some(coverage) = self.record.take() else { return };
                if ok {
                    self.recorded = coverage;
                }
                engine.recorded(&if ok { Ok(()) } else { Err(Error::NoSpace("full".into())) }, now);
            }
            Step::Invalidate(grain) => {
                let grain = ByteRange::between(grain * GRAIN, ((grain + 1) * GRAIN).min(SIZE));
                let lost: Vec<_> = engine.coverage().runs(grain).filter(|(_, state)| *state == State::Read).collect();
                engine.invalidate(grain);
                for (run, _) in lost {
                    let bytes = run.offset as usize..run.end() as usize;
                    self.drive[bytes.clone()].fill(None);
                    self.flushed[bytes.clone()].fill(false);
                    self.flush.iter_mut().for_each(|flush| flush[bytes.clone()].fill(false));
                    self.count(run, -1);
                }
            }
            Step::Sleep(ms) => self.now += Duration::from_millis(ms),
            Step::Forget(_) | Step::Fetched(..) | Step::Written(..) => {}
        }
        self.engine.pump(self.now, &mut actions);
        actions.into_iter().for_each(|action| self.perform(action));
    }

    fn perform(&mut self, action: CopyAction) {
        match action {
            CopyAction::Fetch(id, range) => {
                let another = self.fetches.iter().map(|(_, range)| range).chain(self.writes.iter().map(|(_, r, _)| r));
                let overlaps = another.filter(|other| other.intersection(range).is_some()).count();
                assert_eq!(overlaps, 0, "{range} is requested while in transit");
                assert!(range.fits(SIZE) && !range.is_empty());
                self.fetches.push((id, range));
            }
            CopyAction::Write(id, range, data) => {
                assert!(data == self.bytes[range.offset as usize..range.end() as usize]);
                self.writes.push((id, range, data));
            }
            CopyAction::Answer(id, answer) => {
                let range = self.reads.remove(&id).expect("only waiting reads are answered");
                self.check(range, answer);
            }
            CopyAction::Flush => {
                assert!(self.flush.is_none() && self.record.is_none(), "one record at a time");
                self.flush = Some(self.drive.iter().map(Option::is_some).collect());
            }
            CopyAction::Record(coverage) => {
                for run in coverage.in_state(State::Read) {
                    let there = &self.flushed[run.offset as usize..run.end() as usize];
                    assert!(there.iter().all(|there| *there), "{run} is recorded and was never flushed");
                }
                assert!(self.record.replace(coverage).is_none());
            }
        }
    }

    fn ask(&mut self, range: ByteRange, outcome: Outcome) -> Result<Data> {
        match outcome {
            Outcome::Lost => return Err(Error::Lost { device: "evidence".into(), range, why: "gone".into() }),
            Outcome::Short => return Ok(Data::zeros(range.len - 1)),
            Outcome::Answered => {}
        }
        if self.bad.iter().any(|bad| bad.intersection(range).is_some()) {
            return Err(Error::Io { context: "evidence".into(), why: "bad sector".into(), errno: crate::error::EIO });
        }
        self.count(range, 1);
        Ok(self.bytes[range.offset as usize..range.end() as usize].to_vec().into())
    }

    fn count(&mut self, range: ByteRange, change: i64) {
        let sectors = range.offset / SECTOR..range.end().div_ceil(SECTOR);
        sectors.for_each(|sector| self.given[sector as usize] += change);
        assert!(self.given.iter().all(|given| *given <= 1), "{range} was read twice");
    }

    /// An answer is the source's bytes, or an error with a reason.
    fn check(&self, range: ByteRange, answer: Result<Vec<AnswerPart>>) {
        let pieces = match answer {
            Ok(pieces) => pieces,
            Err(Error::Unreadable { range: bad, .. }) => {
                assert!(
                    self.bad
                        .iter()
                        .any(|sector| sector.intersection(bad).is_some() && sector.intersection(range).is_some())
                );
                return;
            }
            Err(Error::Lost { .. } | Error::Invalid(_)) => return,
            Err(error) => panic!("{error}"),
        };
        let mut at = range.offset as usize;
        for piece in pieces {
            let bytes = match piece {
                AnswerPart::InMemory(data) => data.into_bytes().to_vec(),
                AnswerPart::OnDrive(run) => {
                    let slots = &self.drive[run.offset as usize..run.end() as usize];
                    slots.iter().map(|slot| slot.expect("nothing is read that was not written")).collect()
                }
            };
            assert!(bytes == self.bytes[at..at + bytes.len()], "wrong bytes at {at}");
            at += bytes.len();
        }
        assert_eq!(at as u64, range.end());
    }

    /// Lets everything succeed until there is nothing left to do.
    fn finish(&mut self) {
        for round in 0.. {
            assert!(round < 200_000, "it never ends: {:?}", self.engine.progress());
            let step = match () {
                () if !self.fetches.is_empty() => Step::Fetched(0, Outcome::Answered),
                () if !self.writes.is_empty() => Step::Written(0, true),
                () if self.flush.is_some() => Step::Flushed(true),
                () if self.record.is_some() => Step::Recorded(true),
                () => match self.engine.wakes_at(self.now) {
                    Some(at) => Step::Sleep((at - self.now).as_millis() as u64 + 1),
                    None => break,
                },
            };
            self.step(step);
        }
        assert!(self.reads.is_empty(), "no read waits for ever");
        assert!(self.engine.progress().is_done(), "{:?}", self.engine.progress());
        let unreadable: u64 = self.bad.iter().map(|bad| bad.len).sum();
        assert_eq!(self.recorded.bytes(State::Unreadable), unreadable, "exactly the bad sectors");
        assert!(self.bad.iter().all(|bad| self.recorded.at(bad.offset) == Some(State::Unreadable)));
        assert_eq!(self.recorded.bytes(State::Read), SIZE - unreadable);
    }
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![8 => Just(Outcome::Answered), 1 => Just(Outcome::Lost), 1 => Just(Outcome::Short)];
    prop_oneof![
        3 => (0..SIZE, prop_oneof![1u64..600, 1u64..3 * GRAIN]).prop_map(|(offset, len)| Step::Read { offset, len }),
        1 => any::<usize>().prop_map(Step::Forget),
        6 => (any::<usize>(), outcome).prop_map(|(index, outcome)| Step::Fetched(index, outcome)),
        5 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(index, ok)| Step::Written(index, ok)),
        1 => prop::bool::weighted(0.8).prop_map(Step::Flushed),
        1 => prop::bool::weighted(0.8).prop_map(Step::Recorded),
        1 => (0..SIZE.div_ceil(GRAIN)).prop_map(Step::Invalidate),
        1 => (1u64..4000).prop_map(Step::Sleep),
    ]
}

fn bad_sectors() -> impl Strategy<Value = Vec<u64>> {
    let count = SIZE.div_ceil(SECTOR);
    prop::collection::btree_set(prop_oneof![0..count, 200u64..203, Just(count - 1)], 0..5)
        .prop_map(|set| set.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]
    #[test]
    fn each_byte_is_copied_once_and_read_right_in_any_order_of_events(
        bad in bad_sectors(),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut world = World::new(bad, Coverage::new(SIZE));
        world.step(Step::Sleep(1));
        steps.into_iter().for_each(|step| world.step(step));
        world.finish();
    }

    #[test]
    fn a_copy_killed_at_any_moment_resumes_from_the_record(
        bad in bad_sectors(),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut before = World::new(bad.clone(), Coverage::new(SIZE));
        steps.into_iter().for_each(|step| before.step(step));
        let mut after = World::new(bad, before.recorded.clone());
        after.step(Step::Read { offset: 0, len: SIZE });
        after.finish();
        for run in before.recorded.in_state(State::Read) {
            let given = &after.given[run.offset as usize / SECTOR as usize..(run.end() / SECTOR) as usize];
            prop_assert!(given.iter().all(|given| *given == 0), "{run} was recorded, and read again");
        }
    }
}

#[test]
fn a_reader_is_answered_as_soon_as_the_source_has_answered() {
    let mut world = World::new(vec![], Coverage::new(SIZE));
    world.step(Step::Read { offset: 5 * GRAIN + 3, len: 10 });
    assert_eq!(world.fetches.first().map(|(_, range)| *range), Some(ByteRange::new(5 * GRAIN, GRAIN)));
    world.step(Step::Fetched(0, Outcome::Answered));
    assert!(world.reads.is_empty() && world.writes.len() == 1, "before the drive has it");
}

#[test]
fn a_reader_near_a_bad_sector_does_not_wait_for_the_rest_of_the_copy() {
    let mut world = World::new(vec![5 * GRAIN / SECTOR], Coverage::new(SIZE));
    world.step(Step::Read { offset: 5 * GRAIN + 5000, len: 10 });
    world.step(Step::Fetched(0, Outcome::Answered));
    let asked = world.fetches.iter().position(|(_, range)| *range == ByteRange::new(5 * GRAIN + 4096, 4096));
    world.step(Step::Fetched(
        asked.expect("its part is asked for again at once, in a smaller piece"),
        Outcome::Answered,
    ));
    assert!(world.reads.is_empty());
}

#[test]
fn an_invalidated_range_is_fetched_again_before_it_is_read() {
    let mut world = World::new(vec![7 * GRAIN / SECTOR], Coverage::new(SIZE));
    world.step(Step::Sleep(1));
    world.finish();
    let unreadable = world.engine.progress().unreadable;
    world.step(Step::Invalidate(7));
    world.step(Step::Invalidate(2));
    assert!(!world.engine.progress().is_settled() && world.engine.progress().unreadable == unreadable);
    world.step(Step::Read { offset: 2 * GRAIN, len: 10 });
    assert_eq!(world.reads.len(), 1, "it waits for the source");
    world.finish();
}

#[test]
fn a_lost_lease_ends_the_copy_but_not_reads_of_copied_ranges() {
    let mut world = World::new(vec![], Coverage::new(SIZE));
    world.step(Step::Read { offset: 0, len: GRAIN });
    world.step(Step::Fetched(0, Outcome::Answered));
    world.step(Step::Written(0, true));
    world.step(Step::Read { offset: 8 * GRAIN, len: 1 });
    let (id, _) = world.fetches.remove(0);
    world.engine.fetched(id, Ok(Data::zeros(GRAIN)), world.now, &mut Vec::new());
    let mut actions = Vec::new();
    world.engine.written(id, Err(Error::Fenced("taken over".into())), world.now, &mut actions);
    world.engine.pump(world.now, &mut actions);
    assert!(!actions.iter().any(|action| matches!(action, CopyAction::Fetch(..))));
    let mut read = |offset| match world.engine.read(ByteRange::new(offset, 1), world.now, &mut Vec::new()) {
        CopyReadPlan::Now(answer) => answer.is_ok(),
        CopyReadPlan::Wait(_) => panic!("there is nothing to wait for"),
    };
    assert!(read(0) && !read(4 * GRAIN));
}
