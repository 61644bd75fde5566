use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;
use crate::path::{Available, Capacity, FarEnd, Method, Mtu, RoundTrip, Trains};

fn report() -> PathReport {
    PathReport::new("suspect", IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn trips(median_us: f64, lost: u32) -> RoundTrip {
    let (sent, loss) = (20, f64::from(lost) / 20.0);
    RoundTrip {
        method: Method::Icmp,
        sent,
        answered: sent - lost,
        min_us: median_us,
        median_us,
        mean_us: median_us,
        p95_us: median_us,
        max_us: median_us,
        jitter_us: 0.0,
        loss,
    }
}

fn capacity(bits_per_s: f64, at_least: bool) -> Capacity {
    Capacity {
        method: Method::Icmp,
        bits_per_s,
        low_bits_per_s: bits_per_s,
        high_bits_per_s: bits_per_s,
        confidence: 1.0,
        at_least,
        batched: false,
        samples: 40,
    }
}

fn far(from: Option<f64>, tcp_from: Option<f64>) -> FarEnd {
    FarEnd { name: "cheetah".into(), from_bits_per_s: from, tcp_from_bits_per_s: tcp_from, ..FarEnd::default() }
}

fn flow(report: &PathReport) -> Flow {
    Tuning::of(report).flow.unwrap()
}

#[test]
fn a_disk_over_a_slow_link_takes_as_long_as_its_bits_and_headers() {
    let report = PathReport {
        round_trip: Some(trips(20_000.0, 0)),
        capacity: Some(capacity(100e6, false)),
        mtu: Some(Mtu { bytes: 1500, reported: false }),
        ..report()
    };
    let advice = advise(&report, 500 << 30).unwrap();
    // 1448 of 1514 bytes are content.
    let content = 100e6 * 1448.0 / 1514.0;
    assert!((advice.raw_s - (500u64 << 30) as f64 * 8.0 / content).abs() < 1.0, "{advice:?}");
    assert!(advice.compress && advice.method == "zstd" && advice.compressed_s < 0.6 * advice.raw_s, "{advice:?}");
    assert_eq!(advice.connections, 1);
    // The bandwidth-delay product is 240 KiB.
    assert!(advice.window_bytes >= 480 << 10 && advice.window_bytes <= 1 << 20, "{advice:?}");
}

#[test]
fn a_link_faster_than_a_processor_compresses_is_not_compressed() {
    let report = PathReport { round_trip: Some(trips(100.0, 0)), capacity: Some(capacity(10e9, false)), ..report() };
    let (advice, why) = decide(&report, 1 << 40).unwrap();
    assert!(!advice.compress && advice.method == "none", "{advice:?}");
    assert!(why.iter().any(|reason| matches!(reason, Reason::Disk { .. })), "{why:?}");
}

#[test]
fn lower_bound_of_the_capacity_is_reported_as_a_lower_bound() {
    let report = PathReport { capacity: Some(capacity(1e9, true)), ..report() };
    let (_, why) = decide(&report, 1 << 30).unwrap();
    assert_eq!(why[..2], [Reason::Link { bits_per_s: 1e9, at_least: true }, Reason::MayBeFaster]);
}

#[test]
fn link_faster_than_any_disk_takes_as_long_as_the_fastest_disk() {
    for at_least in [false, true] {
        let report = PathReport { capacity: Some(capacity(126e9, at_least)), ..report() };
        let (advice, why) = decide(&report, 1 << 40).unwrap();
        assert!((advice.raw_s / 157.0 - 1.0).abs() < 0.01 && advice.compressed_s >= advice.raw_s, "{advice:?}");
        assert!(why.iter().any(|reason| matches!(reason, Reason::Disk { is_slower: true, .. })), "{why:?}");
        let is_outrun =
            |reason: &Reason| matches!(reason, Reason::Compression(choice) if !choice.compress && choice.outrun);
        assert!(why.iter().any(is_outrun), "{why:?}");
    }
}

#[test]
fn low_confidence_gives_no_advice() {
    let unsure = Capacity { confidence: 0.22, ..capacity(2.7e9, false) };
    let left = Available { bits_per_s: 2e9, low_bits_per_s: 1e9, high_bits_per_s: 2.7e9 };
    for available in [None, Some(left)] {
        let report = PathReport { capacity: Some(unsure.clone()), available, ..report() };
        assert_eq!(advise(&report, 1 << 40), None);
        assert_eq!(Tuning::of(&report).flow, None);
        // The other measurements still count.
        let known = PathReport { far: Some(far(Some(100e6), None)), ..report };
        assert!(Tuning::of(&known).rate_bits_per_s.is_some_and(|rate| rate < 100e6));
    }
}

#[test]
fn trains_that_were_mostly_discarded_give_no_advice() {
    let trains = Trains { sent: 200, spoiled: 180, packets: 2000 };
    let report = PathReport { capacity: Some(capacity(126e9, true)), trains, ..report() };
    assert_eq!(advise(&report, 1 << 40), None);
    assert_eq!(Tuning::of(&report).flow, None);
}

#[test]
fn without_a_rate_there_is_a_tuning_but_no_time() {
    let near = PathReport { round_trip: Some(trips(200.0, 0)), ..report() };
    let distant = PathReport { round_trip: Some(trips(40_000.0, 0)), ..report() };
    assert_eq!(advise(&near, 1 << 30), None);
    for report in [near, distant, report()] {
        let tuning = Tuning::of(&report);
        assert_eq!((tuning.rate_bits_per_s, tuning.flow, tuning.compress), (None, None, true), "as usual");
    }
}

#[test]
fn only_measured_tcp_throughput_keeps_an_agent_from_compressing() {
    let fast = PathReport { round_trip: Some(trips(100.0, 0)), capacity: Some(capacity(10e9, false)), ..report() };
    assert!(Tuning::of(&fast).compress, "the agent may be held to less than its links carry");
    let fast_tcp = PathReport { far: Some(far(None, Some(9e9))), ..fast };
    assert!(!Tuning::of(&fast_tcp).compress);
}

#[test]
fn long_fat_links_and_lossy_links_get_several_connections() {
    let fat = PathReport { round_trip: Some(trips(100_000.0, 0)), capacity: Some(capacity(1e9, false)), ..report() };
    let lossy = PathReport { round_trip: Some(trips(20_000.0, 2)), capacity: Some(capacity(100e6, false)), ..report() };
    let chance = PathReport { round_trip: Some(trips(20_000.0, 1)), ..lossy.clone() };
    assert!(flow(&fat).connections > 1 && flow(&lossy).connections > 1);
    assert_eq!(flow(&chance).connections, 1, "one lost probe may be chance");
}

#[test]
fn measured_tcp_throughput_overrides_the_capacity_by_pairs() {
    let known = PathReport {
        round_trip: Some(trips(1_000.0, 5)),
        capacity: Some(capacity(1e9, false)),
        available: Some(Available { bits_per_s: 700e6, low_bits_per_s: 600e6, high_bits_per_s: 800e6 }),
        far: Some(far(Some(900e6), Some(850e6))),
        ..report()
    };
    let tuning = Tuning::of(&known);
    assert_eq!((tuning.rate_bits_per_s, flow(&known).connections), (Some(850e6), 1));
    let held_back = PathReport { far: Some(far(Some(900e6), Some(300e6))), ..known.clone() };
    let tuning = Tuning::of(&held_back);
    assert_eq!((tuning.rate_bits_per_s, flow(&held_back).connections), (Some(300e6), 3));
    let without = PathReport { far: None, ..known };
    assert!(Tuning::of(&without).rate_bits_per_s.unwrap() < 700e6);
}

#[test]
fn advice_round_trips_through_json() {
    let report = PathReport { capacity: Some(capacity(94e6, false)), ..report() };
    let advice = advise(&report, 1 << 40).unwrap();
    let text = serde_json::to_string(&PathReport { advice: Some(advice.clone()), ..report }).unwrap();
    assert_eq!(serde_json::from_str::<PathReport>(&text).unwrap().advice, Some(advice));
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), 0.0..1e12f64, Just(0.0), Just(f64::INFINITY), Just(f64::NAN)]
}

proptest! {
    /// A report may come from a file with any content: the advice stays within limits.
    #[test]
    fn the_tuning_of_any_report_is_within_limits(
        median_us in any_number(), loss in any_number(), lost in 0u32..20, bits in any_number(), bulk in any_number(),
        mtu in any::<u32>(), disk_bytes in any::<u64>(),
    ) {
        let report = PathReport {
            round_trip: Some(RoundTrip { loss, ..trips(median_us, lost) }),
            capacity: Some(capacity(bits, false)),
            mtu: Some(Mtu { bytes: mtu, reported: true }),
            far: Some(far(Some(bits), Some(bulk))),
            ..report()
        };
        let tuning = Tuning::of(&report);
        if let Some(flow) = tuning.flow {
            prop_assert!((1..=CONNECTIONS_MAX).contains(&flow.connections));
            prop_assert!((WINDOW_BYTES_MIN..=WINDOW_BYTES_MAX).contains(&flow.window_bytes));
            prop_assert!((flow.window_bytes..=PREFETCH_BYTES_MAX).contains(&flow.prefetch_bytes));
        }
        prop_assert!(tuning.rate_bits_per_s.is_none_or(|rate| rate.is_finite() && rate > 0.0));
        if let Some(advice) = advise(&report, disk_bytes) {
            prop_assert!(advice.raw_s >= 0.0 && advice.compressed_s >= 0.0);
        }
    }
}
