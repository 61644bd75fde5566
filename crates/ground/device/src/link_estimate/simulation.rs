//! The estimator over a link in virtual time, whose delay and bandwidth change, and which others use too.

use std::collections::VecDeque;
use std::time::Duration;

use super::{LinkEstimator, LinkModel, TrackedRequest};

const KIB: u64 = 1 << 10;
const REQUEST: u64 = 64 * KIB;
/// The window until something has been measured.
const WINDOW_FIRST: u64 = 256 * KIB;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn mbit(mbit_per_second: u64) -> u64 {
    mbit_per_second * 125_000
}

/// A link that answers in order, and a user that keeps its window full.
struct Simulation {
    estimate: LinkEstimator,
    bandwidth: u64,
    round_trip: Duration,
    now: Duration,
    free_at: Duration,
    in_flight: VecDeque<(Duration, TrackedRequest)>,
    /// Time for which `must_drain` held requests back.
    held: Duration,
}

impl Simulation {
    fn new(bandwidth: u64, round_trip: Duration) -> Self {
        Self {
            estimate: LinkEstimator::default(),
            bandwidth,
            round_trip,
            now: Duration::ZERO,
            free_at: Duration::ZERO,
            in_flight: VecDeque::new(),
            held: Duration::ZERO,
        }
    }

    fn model(&self) -> LinkModel {
        self.estimate.model().unwrap()
    }

    fn send(&mut self, bytes: u64) {
        let request = self.estimate.sent(bytes, self.now);
        let transfer = Duration::from_nanos(bytes * 1_000_000_000 / self.bandwidth);
        self.free_at = self.free_at.max(self.now + self.round_trip / 2) + transfer;
        self.in_flight.push_back((self.free_at + self.round_trip / 2, request));
    }

    /// Waits for the next answer, of the request that left first.
    fn receive(&mut self) {
        let (at, request) = self.in_flight.pop_front().unwrap();
        self.now = self.now.max(at);
        self.estimate.finished(request, true, self.now);
    }

    /// Keeps the link full for `time`; returns the bytes delivered a second.
    fn fill(&mut self, time: Duration) -> u64 {
        let (until, before) = (self.now + time, self.estimate.delivered());
        while self.now < until {
            let window = self.estimate.model().map_or(WINDOW_FIRST, LinkModel::window).max(WINDOW_FIRST);
            while !self.estimate.must_drain(self.now) && self.estimate.in_flight() + REQUEST <= window {
                self.send(REQUEST);
            }
            let (before, held) = (self.now, self.estimate.must_drain(self.now));
            self.receive();
            self.held += if held { self.now - before } else { Duration::ZERO };
        }
        (self.estimate.delivered() - before) * 1000 / time.as_millis() as u64
    }

    /// Sends requests together, and waits for all of them.
    fn burst(&mut self, requests: u64, bytes: u64) {
        (0..requests).for_each(|_| self.send(bytes));
        (0..requests).for_each(|_| self.receive());
    }
}

#[test]
fn a_full_link_is_measured_and_kept_busy_with_a_short_queue() {
    for (bandwidth, round_trip) in [(10, 40), (100, 20), (100, 40), (1000, 20), (1000, 40), (1000, 1)] {
        let case = format!("{bandwidth} Mbit/s, {round_trip} ms");
        let mut simulation = Simulation::new(mbit(bandwidth), ms(round_trip));
        simulation.fill(ms(2000));
        let delivered = simulation.fill(ms(20_000));
        assert!(delivered >= mbit(bandwidth) * 97 / 100, "{case}: {delivered}");
        let (model, product) = (simulation.model(), mbit(bandwidth) * round_trip / 1000);
        assert!(model.bandwidth.abs_diff(mbit(bandwidth)) <= mbit(bandwidth) / 20, "{case}: {model:?}");
        assert!(model.window() >= 2 * product && model.window() <= 3 * product + 4 * REQUEST, "{case}: {model:?}");
    }
}

#[test]
fn a_delay_that_rises_widens_the_window_until_the_link_is_full_again() {
    for round_trip in [40, 100, 300] {
        let mut simulation = Simulation::new(mbit(100), ms(20));
        simulation.fill(ms(5000));
        simulation.round_trip = ms(round_trip);
        simulation.fill(ms(45_000));
        let delivered = simulation.fill(ms(20_000));
        assert!(delivered >= mbit(100) * 90 / 100, "{round_trip} ms: {delivered}");
        assert!(simulation.model().round_trip >= ms(round_trip), "{:?}", simulation.model());
    }
}

#[test]
fn a_delay_that_falls_shortens_the_queue() {
    let mut simulation = Simulation::new(mbit(100), ms(200));
    simulation.fill(ms(30_000));
    simulation.round_trip = ms(20);
    simulation.fill(ms(15_000));
    assert!(simulation.model().round_trip <= ms(30), "{:?}", simulation.model());
    let delivered = simulation.fill(ms(20_000));
    assert!(delivered >= mbit(100) * 97 / 100, "{delivered}");
}

#[test]
fn a_bandwidth_that_rises_is_found_within_seconds() {
    let mut simulation = Simulation::new(mbit(10), ms(20));
    simulation.fill(ms(5000));
    simulation.bandwidth = mbit(1000);
    simulation.fill(ms(5000));
    let delivered = simulation.fill(ms(5000));
    assert!(delivered >= mbit(1000) * 97 / 100, "{delivered}");
}

#[test]
fn a_bandwidth_that_falls_is_found_once_the_link_is_filled() {
    let mut simulation = Simulation::new(mbit(100), ms(20));
    simulation.fill(ms(5000));
    simulation.bandwidth = mbit(10);
    simulation.fill(ms(20_000));
    let model = simulation.model();
    assert!(model.bandwidth <= mbit(10) * 105 / 100, "{model:?}");
    assert!(model.window() <= 4 * mbit(10) * 20 / 1000 + 4 * REQUEST, "{model:?}");
}

#[test]
fn an_unsaturated_link_does_not_look_slow() {
    let mut simulation = Simulation::new(mbit(1000), ms(20));
    simulation.burst(1, 4 * KIB);
    simulation.burst(32, 256 * KIB);
    let bandwidth = simulation.model().bandwidth;
    assert!(bandwidth >= mbit(1000) * 7 / 10, "{bandwidth}");
    for _ in 0..1000 {
        simulation.burst(1, 4 * KIB);
        simulation.burst(3, 64 * KIB);
    }
    assert_eq!(simulation.model().bandwidth, bandwidth);
}

#[test]
fn one_request_at_a_time_does_not_saturate_the_link() {
    let mut simulation = Simulation::new(mbit(1000), ms(20));
    (0..100).for_each(|_| simulation.burst(1, 64 * KIB));
    assert!(!simulation.estimate.has_been_saturated());
    simulation.burst(16, 256 * KIB);
    assert!(simulation.estimate.has_been_saturated());
}

#[test]
fn competing_traffic_that_comes_and_goes_does_not_lengthen_the_queue() {
    let mut simulation = Simulation::new(mbit(100), ms(40));
    simulation.fill(ms(5000));
    let mut delivered = 0;
    for second in 0..120 {
        // Others take three quarters of the link for three seconds of every six.
        simulation.bandwidth = if second % 6 < 3 { mbit(25) } else { mbit(100) };
        delivered += simulation.fill(ms(1000));
    }
    assert!(simulation.model().round_trip <= ms(60), "{:?}", simulation.model());
    assert!(delivered / 120 >= (mbit(25) + mbit(100)) / 2 * 90 / 100, "{}", delivered / 120);
}

#[test]
fn draining_costs_little_time() {
    let mut simulation = Simulation::new(mbit(100), ms(40));
    simulation.fill(ms(100_000));
    assert!(simulation.held >= ms(100) && simulation.held <= ms(2000), "{:?}", simulation.held);
}

#[test]
fn draining_gives_up_on_a_link_that_readers_keep_busy() {
    let mut simulation = Simulation::new(mbit(100), ms(40));
    simulation.fill(ms(1000));
    let (mut drains, mut checks) = (0, 0);
    while simulation.now < ms(100_000) {
        // Readers that do not pause for draining.
        while simulation.in_flight.len() < 16 {
            simulation.send(REQUEST);
        }
        checks += 1;
        drains += u32::from(simulation.estimate.must_drain(simulation.now));
        simulation.receive();
    }
    assert!(drains > 0 && drains < checks / 20, "{drains} of {checks}");
    assert!(simulation.model().round_trip <= ms(50), "{:?}", simulation.model());
}

#[test]
fn requests_that_fail_change_no_estimate() {
    let mut simulation = Simulation::new(mbit(100), ms(20));
    simulation.fill(ms(1000));
    while !simulation.in_flight.is_empty() {
        simulation.receive();
    }
    let before = simulation.model();
    for _ in 0..500 {
        let request = simulation.estimate.sent(REQUEST, simulation.now);
        simulation.now += Duration::from_micros(1);
        simulation.estimate.finished(request, false, simulation.now);
    }
    assert_eq!(simulation.model(), before);
    assert_eq!(simulation.estimate.in_flight(), 0);
}
