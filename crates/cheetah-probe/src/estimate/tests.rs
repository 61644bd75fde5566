use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::available::{Search, Trend, trend};
use super::dispersion::{Sample, pairs, train};
use super::round_trip::{Answer, Probes};
use super::simulation::{Cross, Link, Random};
use super::*;
use crate::path::{Capacity, Method};
use crate::schedule::{Pattern, due};

/// How fast full-sized packets leave one after the other here: 10 Gbit/s.
const BACK_TO_BACK: Duration = Duration::from_nanos(1_211);
const IP_BYTES: u32 = 1500;

fn send(pattern: &Pattern, start: u64) -> Vec<Nanos> {
    due(Nanos(start), &pattern.offsets())
}

/// Measures a link as `cheetah probe` does: trains back to back, and the pairs among them.
fn measure(link: Link, trains: usize, packets: usize, seed: u64) -> Option<Capacity> {
    let mut random = Random::new(seed);
    let (mut of_pairs, mut of_trains) = (Vec::new(), Vec::new());
    for _ in 0..trains {
        let pattern = Pattern::Train { packets, gap: BACK_TO_BACK };
        let arrivals = link.carry(&send(&pattern, 1_000_000_000), IP_BYTES, &mut random);
        of_pairs.extend(pairs(&arrivals));
        of_trains.extend(train(&arrivals, packets));
    }
    for _ in 0..40 {
        let arrivals = link.carry(&send(&Pattern::Pair(BACK_TO_BACK), 1_000_000_000), IP_BYTES, &mut random);
        of_pairs.extend(pairs(&arrivals));
    }
    capacity::estimate(Method::Icmp, &of_pairs, &of_trains)
}

fn off(told: f64, right: f64) -> f64 {
    (told / right - 1.0).abs()
}

fn any_rate() -> impl Strategy<Value = f64> {
    prop_oneof![Just(10e6), Just(100e6), Just(1000e6), 2e6..1500e6]
}

fn any_cross() -> impl Strategy<Value = Cross> {
    prop_oneof![(100..1515_u32).prop_map(Cross::Even), Just(Cross::Mixed), (1..30_u32).prop_map(Cross::Bursts)]
}

proptest! {
    // What is random must be so the same way each time, or now and then a test would fail by chance.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(4), ..ProptestConfig::with_cases(96) })]

    #[test]
    fn capacity_of_an_idle_link(rate in any_rate(), seed: u64, noise_ns in 0.0..1000.0_f64) {
        let told = measure(Link { noise_ns, ..Link::idle(rate) }, 12, 32, seed).unwrap();
        prop_assert!(off(told.bits_per_s, rate) < 0.02, "{rate}: {told:?}");
        prop_assert!(!told.at_least);
        prop_assert!(told.low_bits_per_s <= told.bits_per_s && told.bits_per_s <= told.high_bits_per_s, "{told:?}");
    }

    #[test]
    fn capacity_of_a_link_that_is_half_taken(rate in any_rate(), cross in any_cross(), seed: u64, noise_ns in 0.0..1000.0_f64) {
        let told = measure(Link { cross: (0.5, cross), noise_ns, ..Link::idle(rate) }, 12, 32, seed).unwrap();
        prop_assert!(off(told.bits_per_s, rate) < 0.1, "{rate}: {told:?}");
    }

    #[test]
    fn a_link_faster_than_what_is_sent_is_at_least_that(seed: u64, rate in 20e9..200e9_f64) {
        let told = measure(Link { noise_ns: 50.0, ..Link::idle(rate) }, 12, 32, seed).unwrap();
        prop_assert!(told.at_least, "{told:?}");
        prop_assert!(off(told.bits_per_s, 10e9) < 0.2, "{told:?}");
    }

    #[test]
    fn what_is_left_of_a_link(rate in any_rate(), taken in 0.0..0.8_f64, cross in any_cross(), seed: u64) {
        // Bursts much shorter than a train; what longer ones leave is not the same for every train.
        let cross = if let Cross::Bursts(packets) = cross { Cross::Bursts(packets % 4 + 1) } else { cross };
        let link = Link { cross: (taken, cross), ..Link::idle(rate) };
        let mut random = Random::new(seed);
        let mut search = Search::new(rate, rate / 20.0);
        let mut fleets = 0;
        while let Some(at) = search.rate() {
            let pattern = Pattern::at_rate(100, IP_BYTES as usize + 14, at).unwrap();
            let trends = (0..available::FLEET_TRAINS).map(|_| trend(&link.carry(&send(&pattern, 1_000_000_000), IP_BYTES, &mut random), 100));
            search.note(at, &trends.collect::<Vec<_>>());
            fleets += 1;
            prop_assert!(fleets < 20);
        }
        let told = search.available();
        let left = rate * (1.0 - taken);
        prop_assert!(told.low_bits_per_s <= told.bits_per_s && told.bits_per_s <= told.high_bits_per_s);
        prop_assert!((told.bits_per_s - left).abs() < 0.2 * rate, "{left}: {told:?}");
    }
}

#[test]
fn pairs_that_came_as_they_were_sent_do_not_tell_of_the_link() {
    let pair = |bits_per_s, sent_bits_per_s| Sample { bits_per_s, sent_bits_per_s, packets: 2 };
    let slow = (0..40).map(|_| pair(400e6, 400e6));
    let fast = (0..60).map(|i| pair(1000e6 + f64::from(i % 3) * 1e6, 3000e6));
    let told = capacity::estimate(Method::Icmp, &slow.clone().chain(fast).collect::<Vec<_>>(), &[]).unwrap();
    assert!(off(told.bits_per_s, 1000e6) < 0.01 && told.confidence == 1.0, "{told:?}");
    let told = capacity::estimate(Method::Icmp, &slow.collect::<Vec<_>>(), &[]).unwrap();
    assert!(told.at_least && off(told.bits_per_s, 400e6) < 0.01, "{told:?}");
}

#[test]
fn too_few_pairs_say_nothing() {
    let sample = Sample { bits_per_s: 1e8, sent_bits_per_s: 1e10, packets: 2 };
    assert_eq!(capacity::estimate(Method::Icmp, &[], &[]), None);
    assert_eq!(capacity::estimate(Method::Icmp, &[sample; capacity::SAMPLES_MIN - 1], &[]), None);
    assert!(capacity::estimate(Method::Icmp, &[sample; capacity::SAMPLES_MIN], &[]).is_some());
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
fn one_packet_that_is_held_up_changes_nothing() {
    for held in [0, 7, 15] {
        let came = |i: u32| 500 + 100 * u64::from(i) + if i == held { 60 } else { 0 };
        let arrivals = (0..16).map(|i| arrival(i, u64::from(i), came(i))).collect::<Vec<_>>();
        assert!(off(train(&arrivals, 16).unwrap().bits_per_s, 100e6) < 1e-9, "{held}");
    }
}

#[test]
fn trains_that_lost_packets_or_whose_packets_overtook_each_other_say_nothing() {
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
fn delays_that_grow_do_so_whatever_the_clock_of_the_far_end() {
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
    let told = probes.round_trip(Method::Udp).unwrap();
    assert_eq!((told.sent, told.answered, told.min_us, told.max_us), (4, 2, 2000.0, 6000.0));
    assert_eq!((told.median_us, told.mean_us, told.jitter_us, told.loss), (4000.0, 4000.0, 4000.0, 0.5));
    assert_eq!((probes.late(), probes.duplicates()), (1, 1));
}

#[test]
fn of_a_host_that_never_answers_there_are_no_round_trips() {
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
            let told = probes.answered(u32::try_from(seq).unwrap(), Nanos(at));
            let Some(known) = first.get_mut(seq) else {
                prop_assert_eq!(told, Answer::Unknown);
                continue;
            };
            prop_assert_eq!(told == Answer::Duplicate, known.is_some());
            known.get_or_insert(at.saturating_sub(sent[seq]));
        }
        let in_time = first.iter().flatten().filter(|ns| **ns <= 100).collect::<Vec<_>>();
        let Some(told) = probes.round_trip(Method::Icmp) else {
            prop_assert!(in_time.is_empty());
            return Ok(());
        };
        prop_assert_eq!((told.sent as usize, told.answered as usize), (sent.len(), in_time.len()));
        prop_assert!((told.min_us - **in_time.iter().min().unwrap() as f64 / 1000.0).abs() < 1e-9);
        prop_assert!((told.max_us - **in_time.iter().max().unwrap() as f64 / 1000.0).abs() < 1e-9);
        let ordered = [told.min_us, told.median_us, told.p95_us, told.max_us];
        prop_assert!(ordered.is_sorted() && told.min_us <= told.mean_us + 1e-9 && told.mean_us <= told.max_us + 1e-9);
        prop_assert!(told.jitter_us <= told.max_us - told.min_us + 1e-9 && (0.0..1.0).contains(&told.loss));
    }
}

#[test]
fn probes_that_nobody_waited_for_are_not_lost() {
    let mut probes = Probes::new(Duration::from_millis(100));
    (0..4).for_each(|seq| probes.sent(seq, Nanos(u64::from(seq) * 50_000_000)));
    probes.answered(1, Nanos(70_000_000));
    probes.forget_pending(Nanos(160_000_000));
    let trip = probes.round_trip(Method::Icmp).unwrap();
    assert_eq!((trip.sent, trip.answered), (2, 1), "the first had its time");
}
