//! The engine over a slow link in virtual time: how long reads wait during the background copy.

use std::collections::VecDeque;
use std::time::Duration;

use super::engine::{CopyAction, CopyEngine, CopyReadPlan, ReadId};
use super::transfers::TransferId;
use super::{CopyOnReadConfig, GRAIN};
use crate::{ByteRange, Coverage, Data};

const MIB: u64 = 1 << 20;
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// 100 Mbit/s, in bytes a second.
const BANDWIDTH: u64 = 12_500_000;

fn carrying(bytes: u64) -> Duration {
    Duration::from_nanos(bytes * 1_000_000_000 / BANDWIDTH)
}

/// A link that answers in order, and a drive that takes no time.
struct Simulation {
    engine: CopyEngine,
    now: Duration,
    round_trip: Duration,
    /// The answers in flight, and when they arrive.
    wire: VecDeque<(Duration, TransferId, ByteRange)>,
    free_at: Duration,
    answered: Vec<ReadId>,
}

impl Simulation {
    fn new(size: u64) -> Self {
        let mut new = Self {
            engine: CopyEngine::new(CopyOnReadConfig::new("evidence"), Coverage::new(size)),
            now: Duration::ZERO,
            round_trip: ROUND_TRIP,
            wire: VecDeque::new(),
            free_at: Duration::ZERO,
            answered: Vec::new(),
        };
        new.pump(Vec::new());
        new
    }

    fn pump(&mut self, mut actions: Vec<CopyAction>) {
        self.engine.pump(self.now, &mut actions);
        while !actions.is_empty() {
            let mut more = Vec::new();
            for action in std::mem::take(&mut actions) {
                match action {
                    CopyAction::Fetch(id, range) => {
                        // Half a round trip there, its turn on the link, and half a round trip back.
                        self.free_at = self.free_at.max(self.now + self.round_trip / 2) + carrying(range.len + 100);
                        self.wire.push_back((self.free_at + self.round_trip / 2, id, range));
                    }
                    CopyAction::Write(id, ..) => self.engine.written(id, Ok(()), self.now, &mut more),
                    CopyAction::Flush => self.engine.flushed(Ok(()), self.now, &mut more),
                    CopyAction::Record(_) => self.engine.recorded(&Ok(()), self.now),
                    CopyAction::Answer(id, answer) => {
                        answer.unwrap();
                        self.answered.push(id);
                    }
                }
            }
            self.engine.pump(self.now, &mut more);
            actions = more;
        }
    }

    /// Delivers the next answer, unless it arrives after `until`.
    fn arrive(&mut self, until: Duration) -> bool {
        let Some((at, id, range)) = self.wire.front().copied().filter(|(at, ..)| *at <= until) else {
            self.now = until;
            return false;
        };
        self.wire.pop_front();
        self.now = at;
        let mut actions = Vec::new();
        self.engine.fetched(id, Ok(Data::zeros(range.len)), at, &mut actions);
        self.pump(actions);
        true
    }

    fn sleep(&mut self, time: Duration) {
        let until = self.now + time;
        while self.arrive(until) {}
    }

    /// The rate of the copy in bytes a second, measured over the next `seconds`.
    fn copied_per_second(&mut self, seconds: u64) -> u64 {
        let before = self.engine.progress().read;
        self.sleep(Duration::from_secs(seconds));
        (self.engine.progress().read - before) / seconds
    }

    /// Returns the latency of a read.
    fn read(&mut self, offset: u64) -> Duration {
        let asked = self.now;
        let mut actions = Vec::new();
        let plan = self.engine.read(ByteRange::new(offset, 4096), asked, &mut actions);
        self.pump(actions);
        if let CopyReadPlan::Wait(id) = plan {
            while !self.answered.contains(&id) {
                assert!(self.arrive(Duration::MAX), "no answer is in flight");
            }
        }
        self.now - asked
    }
}

/// Returns the latency of a read of one grain on an idle link.
fn direct() -> Duration {
    ROUND_TRIP + carrying(GRAIN)
}

#[test]
fn the_first_byte_of_a_file_comes_within_five_round_trips_of_a_direct_read() {
    for (warm_up_s, think_ms) in [(0, 0), (1, 0), (5, 0), (5, 3), (5, 30)] {
        let mut simulation = Simulation::new(4096 * MIB);
        simulation.sleep(Duration::from_secs(warm_up_s));
        // Finding a file takes several reads, each of which depends on the last.
        let reads = 6;
        let mut waited = Duration::ZERO;
        for n in 0..reads {
            waited += simulation.read((4000 - 300 * n) * MIB + 4096);
            simulation.sleep(Duration::from_millis(think_ms));
        }
        let more = waited.saturating_sub(direct() * u32::try_from(reads).unwrap());
        assert!(more <= 5 * ROUND_TRIP, "{more:?} more than directly, after {warm_up_s} s, thinking {think_ms} ms");
    }
}

#[test]
fn a_read_waits_only_for_the_background_requests_in_flight() {
    let mut simulation = Simulation::new(4096 * MIB);
    simulation.sleep(Duration::from_secs(5));
    let first = simulation.read(4000 * MIB);
    assert!(first <= direct() + 2 * ROUND_TRIP + carrying(256 << 10), "{first:?}");
    for n in 1..50 {
        let wait = simulation.read((4000 - 7 * n) * MIB);
        assert!(wait <= direct() + carrying(2 * GRAIN), "{wait:?}");
    }
}

#[test]
fn an_idle_link_is_filled() {
    let mut simulation = Simulation::new(4096 * MIB);
    simulation.sleep(Duration::from_secs(2));
    let rate = simulation.copied_per_second(10);
    assert!(rate >= BANDWIDTH * 97 / 100, "{rate} bytes a second");
}

#[test]
fn an_idle_link_is_filled_again_after_its_delay_has_risen() {
    for round_trip_ms in [60, 200] {
        let mut simulation = Simulation::new(65_536 * MIB);
        simulation.sleep(Duration::from_secs(5));
        simulation.round_trip = Duration::from_millis(round_trip_ms);
        simulation.sleep(Duration::from_secs(45));
        let rate = simulation.copied_per_second(40);
        assert!(rate >= BANDWIDTH * 90 / 100, "{round_trip_ms} ms: {rate} bytes a second");
    }
}

#[test]
fn a_reader_waits_no_longer_for_the_queue_once_the_delay_has_fallen_again() {
    let mut simulation = Simulation::new(65_536 * MIB);
    simulation.round_trip = Duration::from_millis(200);
    simulation.sleep(Duration::from_secs(45));
    simulation.round_trip = ROUND_TRIP;
    simulation.sleep(Duration::from_secs(45));
    let first = simulation.read(60_000 * MIB);
    assert!(first <= direct() + 2 * ROUND_TRIP + carrying(256 << 10), "{first:?}");
}

#[test]
fn a_busy_reader_does_not_stop_the_background() {
    let mut simulation = Simulation::new(4096 * MIB);
    for n in 0..100 {
        simulation.read((4000 - 7 * n) * MIB);
    }
    assert!(simulation.engine.progress().read > 150 * GRAIN, "{:?}", simulation.engine.progress());
}
