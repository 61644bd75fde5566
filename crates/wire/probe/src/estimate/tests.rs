use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::available::{FLEET_TRAINS, NotKnown, Search, Trend, growth, trend};
use super::capacity::{Observations, TRAINS_MIN, Unknown, estimate};
use super::dispersion::{pairs, train};
use super::plan::Plan;
use super::round_trip::{Answer, Probes};
use super::simulation::{Batching, Cross, Random, SimulatedPath};
use super::*;
use crate::path::{Capacity, Method};
use crate::schedule::{Pattern, due};

/// The time between full-sized packets sent back to back here: 10 Gbit/s.
const BACK_TO_BACK: Duration = Duration::from_nanos(1_211);
const IP_BYTES: u32 = 1500;

fn send(pattern: &Pattern, start: u64) -> Vec<Nanos> {
    due(Nanos(start), &pattern.offsets())
}

/// Measures a path as the command line does.
fn measure(path: SimulatedPath, seed: u64) -> Result<Capacity, Unknown> {
    let mut random = Random::new(seed);
    let mut plan = Plan::default();
    while let Some(step) = plan.next_step() {
        // No packet leaves sooner after the one before it than this machine can send it.
        let paced = step.offsets().into_iter().scan(None, |last: &mut Option<Duration>, offset| {
            *last = Some(last.map_or(offset, |last| offset.max(last + BACK_TO_BACK)));
            *last
        });
        let sent = send(&Pattern::At(paced.collect()), 1_000_000_000);
        plan.note(step, path.train(&sent, IP_BYTES, &mut random));
    }
    plan.capacity(Method::Icmp)
}

/// Searches for the available bandwidth of a path whose capacity is known.
fn available(path: SimulatedPath, seed: u64) -> Result<crate::path::Available, NotKnown> {
    const PACKETS: usize = 48;
    let (mut random, mut search) = (Random::new(seed), Search::new(path.bits_per_s));
    while let Some(rate) = search.rate() {
        let pattern = Pattern::at_rate(PACKETS, IP_BYTES as usize + 14, rate).unwrap();
        let sent = send(&pattern, 1_000_000_000);
        let trains: Vec<_> = (0..FLEET_TRAINS).map(|_| path.carry(&sent, IP_BYTES, &mut random)).collect();
        let trends: Vec<_> = trains.iter().map(|train| trend(train, PACKETS)).collect();
        let growths: Vec<_> = trains.iter().filter_map(|train| growth(train, PACKETS)).collect();
        search.note(rate, &trends, &growths);
    }
    search.available()
}

fn off(estimated: f64, right: f64) -> f64 {
    (estimated / right - 1.0).abs()
}

fn any_rate() -> impl Strategy<Value = f64> {
    prop_oneof![Just(10e6), Just(100e6), Just(1000e6), 2e6..1500e6]
}

fn any_cross() -> impl Strategy<Value = Cross> {
    prop_oneof![(100..1515_u32).prop_map(Cross::Even), Just(Cross::Mixed), (1..30_u32).prop_map(Cross::Bursts)]
}

/// Rates at which packets are delivered in batches, and at which the batcher is never the narrowest link.
fn any_batched_rate() -> impl Strategy<Value = f64> {
    prop_oneof![
        prop::sample::select(vec![10e6, 30e6, 100e6, 300e6, 500e6, 1000e6, 2.5e9, 10e9]),
        (10e6_f64.ln()..10e9_f64.ln()).prop_map(f64::exp),
    ]
}

/// Where batchers are: on the way there, on the way back, or on both.
fn any_batchers() -> impl Strategy<Value = [Option<Batching>; 2]> {
    prop_oneof![
        any_batching().prop_map(|there| [Some(there), None]),
        any_batching().prop_map(|back| [None, Some(back)]),
        (any_batching(), any_batching()).prop_map(|(there, back)| [Some(there), Some(back)]),
    ]
}

/// Batching by 50 µs to 3 ms.
fn any_batching() -> impl Strategy<Value = Batching> {
    let time = || prop_oneof![Just(50e3), Just(3e6), (50e3_f64.ln()..3e6_f64.ln()).prop_map(f64::exp)];
    prop_oneof![
        time().prop_map(Batching::Clock),
        time().prop_map(Batching::HoldOff),
        time().prop_map(Batching::Throttle),
        (0.02..0.7_f64).prop_map(|share| Batching::Late(share, (0.3e6, 3e6))),
    ]
}

/// Whether an answer is within `error` of the capacity, or there is none.
fn is_right(estimated: &Result<Capacity, Unknown>, rate: f64, error: f64) -> bool {
    estimated.as_ref().is_ok_and(|estimated| off(estimated.bits_per_s, rate) <= error) || estimated.is_err()
}

proptest! {
    // A fixed seed: the same cases every time.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(4), ..ProptestConfig::with_cases(96) })]

    #[test]
    fn idle_link_has_its_capacity(rate in any_rate(), seed: u64, noise_ns in 0.0..1000.0_f64) {
        let estimated = measure(SimulatedPath { noise_ns, ..SimulatedPath::idle(rate) }, seed).unwrap();
        prop_assert!(off(estimated.bits_per_s, rate) < 0.02, "{rate}: {estimated:?}");
        prop_assert!(!estimated.at_least);
        prop_assert!(estimated.low_bits_per_s <= estimated.bits_per_s && estimated.bits_per_s <= estimated.high_bits_per_s, "{estimated:?}");
    }

    #[test]
    fn half_loaded_link_has_its_capacity(rate in any_rate(), cross in any_cross(), seed: u64, noise_ns in 0.0..1000.0_f64) {
        match measure(SimulatedPath { cross: (0.5, cross), noise_ns, ..SimulatedPath::idle(rate) }, seed) {
            Ok(estimated) => prop_assert!(off(estimated.bits_per_s, rate) < 0.1, "{rate}: {estimated:?}"),
            // Long bursts make delays vary by as much as trains take.
            Err(why) => prop_assert!(matches!(cross, Cross::Bursts(10..)), "{rate}: {why:?}"),
        }
    }

    #[test]
    fn link_faster_than_the_sender_is_at_least_as_fast(seed: u64, rate in 20e9..200e9_f64) {
        let estimated = measure(SimulatedPath { noise_ns: 50.0, ..SimulatedPath::idle(rate) }, seed).unwrap();
        prop_assert!(estimated.at_least, "{estimated:?}");
        prop_assert!(estimated.bits_per_s <= 10.01e9 && estimated.bits_per_s > 8e9, "{estimated:?}");
    }

    #[test]
    fn batches_before_the_narrow_link_change_nothing(rate in any_rate(), batching in any_batching(), seed: u64) {
        let estimated = measure(SimulatedPath { before: Some(batching), ..SimulatedPath::idle(rate) }, seed);
        prop_assert!(is_right(&estimated, rate, 0.02), "{rate}: {estimated:?}");
    }

    #[test]
    fn available_bandwidth_is_the_capacity_without_the_cross_traffic_or_not_known(rate in any_rate(), taken in 0.0..0.95_f64, cross in any_cross(), seed: u64) {
        let left = rate * (1.0 - taken);
        let estimated = available(SimulatedPath { cross: (taken, cross), ..SimulatedPath::idle(rate) }, seed);
        if let Ok(estimated) = estimated {
            prop_assert!(estimated.low_bits_per_s <= estimated.bits_per_s && estimated.bits_per_s <= estimated.high_bits_per_s);
            prop_assert!(off(estimated.bits_per_s, left) < 0.25, "{left}: {estimated:?}");
        }
    }

    #[test]
    fn available_bandwidth_beside_even_cross_traffic_is_known(rate in any_rate(), taken in 0.0..0.8_f64, bytes in 100..1515_u32, seed: u64) {
        let left = rate * (1.0 - taken);
        let estimated = available(SimulatedPath { cross: (taken, Cross::Even(bytes)), ..SimulatedPath::idle(rate) }, seed).unwrap();
        prop_assert!(off(estimated.bits_per_s, left) < 0.02, "{left}: {estimated:?}");
    }
}

#[test]
fn available_bandwidth_beside_bursts_is_known_where_trains_suffice_and_seldom_wrong() {
    for (taken, cross, known) in [
        (0.1, Cross::Bursts(32), 190),
        (0.25, Cross::Bursts(8), 190),
        (0.5, Cross::Mixed, 190),
        (0.75, Cross::Mixed, 140),
        (0.25, Cross::Bursts(32), 20),
        (0.75, Cross::Bursts(32), 0),
    ] {
        let path = SimulatedPath { cross: (taken, cross), ..SimulatedPath::idle(100e6) };
        let found: Vec<_> = (1..=200).filter_map(|seed| available(path, seed).ok()).collect();
        let wrong = found.iter().filter(|found| off(found.bits_per_s, 100e6 * (1.0 - taken)) > 0.15).count();
        assert!(found.len() >= known && wrong <= 2, "{taken}, {cross:?}: {} known, {wrong} wrong", found.len());
    }
}

/// The link with the least left is behind the narrowest one: the search finds it, and the growth of delays does not.
#[test]
fn available_bandwidth_of_another_link_than_the_narrowest_is_not_known() {
    let (capacity, wide, left) = (100e6, 200e6, 40e6);
    let mut search = Search::new(capacity);
    while let Some(rate) = search.rate() {
        let growth = f64::max(0.0, (rate - left) / wide);
        let trend = if growth > 0.0 { Trend::Increasing } else { Trend::Flat };
        search.note(rate, &[trend; FLEET_TRAINS as usize], &[growth; FLEET_TRAINS as usize]);
    }
    assert!(
        matches!(search.available(), Err(NotKnown::Uneven(rate)) if off(rate, left) < 0.05),
        "{:?}",
        search.available()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(5), ..ProptestConfig::with_cases(400) })]

    #[test]
    fn idle_path_that_delivers_in_batches_has_its_capacity_or_none(
        rate in any_batched_rate(), after in any_batchers(), seed: u64, noise in 0.0..1.0_f64, release in 0.1..1.0_f64,
    ) {
        let estimated = measure(batched(rate, after, noise, release), seed);
        prop_assert!(is_right_batched(&estimated, rate), "{rate}: {estimated:?}");
    }

    #[test]
    fn loaded_path_that_delivers_in_batches_has_its_capacity_or_none(
        rate in any_batched_rate(), after in any_batchers(), cross in any_cross(), taken in 0.0..0.5_f64, seed: u64,
        noise in 0.0..1.0_f64, release in 0.1..1.0_f64,
    ) {
        let path = SimulatedPath { cross: (taken, cross), ..batched(rate, after, noise, release) };
        let estimated = measure(path, seed);
        prop_assert!(is_right_batched(&estimated, rate), "{rate}: {estimated:?}");
    }
}

/// A path whose batchers release a packet in a share of `release` of the longest time, with a share of `noise` of the
/// greatest noise.
fn batched(bits_per_s: f64, after: [Option<Batching>; 2], noise: f64, release: f64) -> SimulatedPath {
    let idle = SimulatedPath::idle(bits_per_s);
    // Noise as long as the time of a packet would act as another batcher.
    let noise_ns = noise * f64::min(1000.0, 0.05 * 1514.0 * 8e9 / bits_per_s);
    SimulatedPath { after, noise_ns, release_ns: release * idle.release_ns, ..idle }
}

/// The largest error of a capacity where packets arrive in batches.
const BATCHED_ERROR: f64 = 0.02;

/// Whether an answer is within 2 % of the capacity or a lower bound of it, or there is none.
fn is_right_batched(estimated: &Result<Capacity, Unknown>, rate: f64) -> bool {
    match estimated {
        Ok(estimated) if estimated.at_least => estimated.bits_per_s <= rate * (1.0 + BATCHED_ERROR),
        estimated => is_right(estimated, rate, BATCHED_ERROR),
    }
}

#[test]
fn gigabit_paths_that_deliver_in_short_batches_have_their_capacity() {
    for batching in [50e3, 100e3].into_iter().flat_map(|ns| [Batching::Clock(ns), Batching::HoldOff(ns)]) {
        for (rate, after) in [(940e6, [Some(batching), None]), (1e9, [None, Some(batching)])] {
            let path = SimulatedPath { release_ns: 2_000.0, after, ..SimulatedPath::idle(rate) };
            let estimated = (0..10).map(|seed| measure(path, seed)).collect::<Vec<_>>();
            let known =
                estimated.iter().flatten().filter(|estimated| off(estimated.bits_per_s, rate) < BATCHED_ERROR).count();
            assert!(known >= 7, "{rate}, {batching:?}: {estimated:?}");
        }
    }
}

#[test]
fn steady_cross_traffic_on_a_path_that_delivers_in_batches_is_not_taken_for_a_slower_link() {
    for (rate, taken) in [(300e6, 0.5), (1e9, 0.2), (1e9, 0.5), (2.5e9, 0.3), (10e9, 0.3)] {
        let after = [Some(Batching::Clock(50e3)), None];
        let cross = (taken, Cross::Even(500));
        let estimated = measure(SimulatedPath { cross, after, ..batched(rate, after, 0.2, 0.5) }, 1);
        assert!(estimated.is_err(), "{rate}, {taken}: {estimated:?}");
    }
}

/// The batcher delivers almost every packet by itself, so that it looks like a link.
#[test]
fn loaded_path_with_a_batchers_interval_close_to_a_packets_time_has_its_capacity_or_none() {
    for interval_ns in [50e3, 63e3, 3e6] {
        for batching in [Batching::Clock(interval_ns), Batching::HoldOff(interval_ns), Batching::Throttle(interval_ns)]
        {
            for packets in [0.9, 0.957, 0.975, 1.03] {
                let rate = packets * 1514.0 * 8e9 / interval_ns;
                for (seed, cross) in [Cross::Even(750), Cross::Mixed, Cross::Bursts(15)].into_iter().enumerate() {
                    let after = [Some(batching), None];
                    let path = SimulatedPath { cross: (0.46, cross), ..batched(rate, after, 0.3, 0.5) };
                    let estimated = measure(path, seed as u64);
                    assert!(
                        is_right(&estimated, rate, BATCHED_ERROR),
                        "{rate}, {batching:?}, {cross:?}: {estimated:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn slow_links_have_their_capacity_within_ten_seconds() {
    for rate in [1e6, 3e6] {
        let mut random = Random::new(7);
        let (mut plan, path) = (Plan::default(), SimulatedPath::idle(rate));
        let mut took_ns = 0;
        while let Some(step) = plan.next_step() {
            let train = path.train(&send(&Pattern::At(step.offsets()), 1_000_000_000), IP_BYTES, &mut random);
            took_ns += train.arrivals.last().unwrap().came.0 - 1_000_000_000;
            plan.note(step, train);
        }
        assert!(off(plan.capacity(Method::Icmp).unwrap().bits_per_s, rate) < 0.02, "{rate}");
        assert!(took_ns < 10_000_000_000, "{rate}: {took_ns} ns");
    }
}

/// The everyday cases, each of which must have an answer.
#[test]
fn slow_paths_that_deliver_in_batches_have_their_capacity() {
    let clock = Batching::Clock;
    let late = |share| Batching::Late(share, (0.3e6, 3e6));
    let mut cases = Vec::new();
    for us in [50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 3000.0] {
        for rate in [10e6, 100e6] {
            let ns = us * 1e3;
            cases.extend([clock(ns), Batching::HoldOff(ns), Batching::Throttle(ns)].map(|batching| (rate, batching)));
        }
    }
    cases.extend([0.02, 0.1, 0.3].map(|share| (100e6, late(share))));
    cases.extend([50e3, 100e3].map(|ns| (300e6, clock(ns))));
    for (rate, batching) in cases {
        for (seed, after) in [(1, [Some(batching), None]), (2, [None, Some(batching)])] {
            let estimated = measure(SimulatedPath { after, ..SimulatedPath::idle(rate) }, seed).unwrap();
            assert!(off(estimated.bits_per_s, rate) < 0.02, "{rate}, {batching:?}: {estimated:?}");
        }
    }
}

#[test]
fn trains_that_fit_into_one_batch_give_no_capacity() {
    for batching in [Batching::HoldOff(3e6), Batching::Clock(3e6)] {
        for rate in [1e9, 1.5e9] {
            let path = SimulatedPath { after: [Some(batching), None], ..SimulatedPath::idle(rate) };
            assert_eq!(measure(path, 3), Err(Unknown::TooShort), "{rate}, {batching:?}");
        }
    }
}

#[test]
fn pairs_faster_than_every_long_train_are_rejected() {
    let train = |packets: u32, gap_us: u64| {
        let arrivals = (0..packets).map(|i| arrival(i, u64::from(i), 500 + gap_us * u64::from(i))).collect();
        TrainArrivals { packets: packets as usize, arrivals }
    };
    let pairs = std::iter::repeat_n(train(2, 4), 600);
    let trains = pairs.chain(std::iter::repeat_n(train(64, 100), 12)).collect();
    let estimated = estimate(Method::Icmp, &Observations { trains, ..Observations::default() }).unwrap();
    assert!(off(estimated.bits_per_s, 100e6) < 0.01, "{estimated:?}");
}

#[test]
fn pairs_that_had_a_link_alone_whose_trains_took_turns_give_no_capacity() {
    let train = |packets: u32, gap_us: u64| {
        let arrivals = (0..packets).map(|i| arrival(i, u64::from(i), 500 + gap_us * u64::from(i))).collect();
        TrainArrivals { packets: packets as usize, arrivals }
    };
    // A link of 100 Mbit/s, of which another flow took half at times.
    let of = |alone: usize| {
        let pairs = std::iter::repeat_n(train(2, 100), alone).chain(std::iter::repeat_n(train(2, 200), 40 - alone));
        let trains = pairs.chain(std::iter::repeat_n(train(64, 200), 12)).collect();
        estimate(Method::Icmp, &Observations { trains, ..Observations::default() })
    };
    assert!([of(2), of(20), of(40)].iter().all(|found| *found == Err(Unknown::InTurn)));
    // One timestamp may be wrong, and a link of half the rate looks the same.
    assert!([of(0), of(1)].iter().all(|found| found.as_ref().is_ok_and(|found| off(found.bits_per_s, 50e6) < 0.01)));
}

#[test]
fn too_few_trains_give_no_capacity() {
    let train = |packets: u32| TrainArrivals {
        packets: packets as usize,
        arrivals: (0..packets).map(|i| arrival(i, u64::from(i), 100 * u64::from(i))).collect(),
    };
    let of = |trains: Vec<_>| estimate(Method::Icmp, &Observations { trains, ..Observations::default() });
    assert_eq!(of(Vec::new()), Err(Unknown::TooFew));
    assert_eq!(of(vec![train(2); 40]), Err(Unknown::TooFew), "pairs alone");
    assert_eq!(of(vec![train(64); TRAINS_MIN - 1]), Err(Unknown::TooFew));
    assert!(of(vec![train(64); TRAINS_MIN]).is_ok());
}

fn arrival(seq: u32, sent_us: u64, came_us: u64) -> Arrival {
    Arrival { seq, sent: Nanos(sent_us * 1000), came: Nanos(came_us * 1000), ip_bytes: 1236 }
}

#[test]
fn dispersion_is_the_time_all_but_the_first_take() {
    let arrivals = [arrival(0, 0, 500), arrival(1, 1, 600), arrival(2, 2, 700)];
    let sample = train(&arrivals, 3).unwrap();
    assert!(off(sample.bits_per_s, 100e6) < 1e-9 && off(sample.sent_bits_per_s, 10e9) < 1e-9, "{sample:?}");
    assert_eq!(pairs(&arrivals).len(), 2);
}

#[test]
fn one_delayed_packet_does_not_change_the_dispersion() {
    for held in [0, 7, 15] {
        let came = |i: u32| 500 + 100 * u64::from(i) + if i == held { 60 } else { 0 };
        let arrivals = (0..16).map(|i| arrival(i, u64::from(i), came(i))).collect::<Vec<_>>();
        assert!(off(train(&arrivals, 16).unwrap().bits_per_s, 100e6) < 1e-9, "{held}");
    }
}

#[test]
fn trains_with_lost_or_reordered_packets_have_no_dispersion() {
    let [a, b, c] = [arrival(0, 0, 500), arrival(1, 1, 600), arrival(2, 2, 700)];
    assert_eq!(train(&[a, c], 3), None, "lost");
    assert_eq!(train(&[a, c, b], 3), None, "overtaken");
    assert_eq!(train(&[a, b, b], 3), None, "twice");
    assert_eq!(train(&[a, b, b, c], 3), None, "one too many");
    assert_eq!(train(&[a], 1), None);
    assert_eq!(train(&[], 0), None);
    assert_eq!(train(&[a, Arrival { came: a.came, ..b }], 2), None, "at once");
    assert_eq!(pairs(&[a, c]), [], "no neighbours");
    assert_eq!(pairs(&[b, a, c]), []);
}

#[test]
fn growing_delays_are_detected_whatever_the_far_clock() {
    for offset in [0, u64::MAX / 2, u64::MAX - 1000] {
        let train = |growth: u64| {
            let came = move |i: u64| Nanos(offset.wrapping_add(i * (10_000 + growth) + i * 7919 % 1000));
            let arrival = move |i: u32| Arrival {
                seq: i,
                sent: Nanos(u64::from(i) * 10_000),
                came: came(u64::from(i)),
                ip_bytes: 1500,
            };
            trend(&(0..100).map(arrival).collect::<Vec<_>>(), 100)
        };
        assert_eq!(train(500), Trend::Increasing);
        assert_ne!(train(0), Trend::Increasing);
    }
    let even = (0..100).map(|i| arrival(i, u64::from(i) * 10, u64::from(i) * 10 + 50)).collect::<Vec<_>>();
    assert_eq!(trend(&even, 100), Trend::Flat);
    assert_eq!(trend(&even[..80], 100), Trend::Increasing, "a fifth was lost");
    assert_eq!(trend(&even[..10], 10), Trend::Ambiguous, "too few");
}

#[test]
fn answers_are_counted_once() {
    let mut probes = Probes::new(Duration::from_millis(10));
    let ms = |ms: u64| Nanos(ms * 1_000_000);
    for seq in 0..4 {
        probes.sent(seq, ms(u64::from(seq) * 100));
    }
    assert_eq!(probes.answered(9, ms(1)), Answer::Unknown);
    assert_eq!(probes.answered(0, ms(2)), Answer::Took(Duration::from_millis(2)));
    assert_eq!(probes.answered(0, ms(3)), Answer::Duplicate);
    assert_eq!(probes.answered(1, ms(111)), Answer::Late(Duration::from_millis(11)));
    assert_eq!(probes.answered(2, ms(206)), Answer::Took(Duration::from_millis(6)));
    assert!(!probes.all_answered());
    let estimated = probes.round_trip(Method::Udp).unwrap();
    assert_eq!((estimated.sent, estimated.answered, estimated.min_us, estimated.max_us), (4, 2, 2000.0, 6000.0));
    assert_eq!(
        (estimated.median_us, estimated.mean_us, estimated.jitter_us, estimated.loss),
        (4000.0, 4000.0, 4000.0, 0.5)
    );
    assert_eq!((probes.late(), probes.duplicates()), (1, 1));
}

#[test]
fn a_host_that_never_answers_has_no_round_trips() {
    let mut probes = Probes::new(Duration::from_millis(10));
    assert_eq!(probes.round_trip(Method::Icmp), None);
    probes.sent(1, Nanos(5));
    assert_eq!(probes.round_trip(Method::Icmp), None);
}

proptest! {
    #[test]
    fn round_trips_are_those_of_the_first_answers(
        sent in prop::collection::vec(0..200_u64, 1..30), answers in prop::collection::vec((0..40_usize, 0..400_u64), 0..60),
    ) {
        let timeout = Duration::from_nanos(100);
        let mut probes = Probes::new(timeout);
        for (seq, at) in (0..).zip(&sent) {
            probes.sent(seq, Nanos(*at));
        }
        let mut first = vec![None; sent.len()];
        for (seq, at) in answers {
            let estimated = probes.answered(u32::try_from(seq).unwrap(), Nanos(at));
            let Some(known) = first.get_mut(seq) else {
                prop_assert_eq!(estimated, Answer::Unknown);
                continue;
            };
            prop_assert_eq!(estimated == Answer::Duplicate, known.is_some());
            known.get_or_insert(at.saturating_sub(sent[seq]));
        }
        let in_time = first.iter().flatten().filter(|ns| **ns <= 100).collect::<Vec<_>>();
        let Some(estimated) = probes.round_trip(Method::Icmp) else {
            prop_assert!(in_time.is_empty());
            return Ok(());
        };
        prop_assert_eq!((estimated.sent as usize, estimated.answered as usize), (sent.len(), in_time.len()));
        prop_assert!((estimated.min_us - **in_time.iter().min().unwrap() as f64 / 1000.0).abs() < 1e-9);
        prop_assert!((estimated.max_us - **in_time.iter().max().unwrap() as f64 / 1000.0).abs() < 1e-9);
        let ordered = [estimated.min_us, estimated.median_us, estimated.p95_us, estimated.max_us];
        prop_assert!(ordered.is_sorted() && estimated.min_us <= estimated.mean_us + 1e-9 && estimated.mean_us <= estimated.max_us + 1e-9);
        prop_assert!(estimated.jitter_us <= estimated.max_us - estimated.min_us + 1e-9 && (0.0..1.0).contains(&estimated.loss));
    }
}

#[test]
fn forgotten_pending_probes_do_not_count_as_lost() {
    let mut probes = Probes::new(Duration::from_millis(100));
    (0..4).for_each(|seq| probes.sent(seq, Nanos(u64::from(seq) * 50_000_000)));
    probes.answered(1, Nanos(70_000_000));
    probes.forget_pending(Nanos(160_000_000));
    let trip = probes.round_trip(Method::Icmp).unwrap();
    assert_eq!((trip.sent, trip.answered), (2, 1), "the first had its time");
}

#[test]
fn available_bandwidth_beside_varying_cross_traffic_is_seldom_wrong() {
    const SEEDS: u64 = 60;
    // Of each kind, how much it takes, and how often the result must be known at least.
    let kinds = [
        (Cross::Mixed, 0.25, 50),
        (Cross::Mixed, 0.5, 25),
        (Cross::Mixed, 0.9, 0),
        (Cross::Bursts(4), 0.1, 50),
        (Cross::Bursts(4), 0.5, 0),
        (Cross::Bursts(32), 0.25, 0),
        (Cross::Bursts(32), 0.75, 0),
    ];
    for (cross, taken, known_min) in kinds {
        let path = SimulatedPath { cross: (taken, cross), ..SimulatedPath::idle(100e6) };
        let found: Vec<_> = (0..SEEDS).filter_map(|seed| available(path, seed * 7 + 1).ok()).collect();
        let wrong = found.iter().filter(|found| off(found.bits_per_s, 100e6 * (1.0 - taken)) > 0.15).count();
        assert!(wrong <= 6 && found.len() >= known_min, "{cross:?}, {taken}: {wrong} of {} are wrong", found.len());
    }
}
