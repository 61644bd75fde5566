//! The engine with traces over simulated links.

use std::time::Duration;

use proptest::prelude::*;

use super::simulation::{Reader, Wire, run, run_plain};
use super::{KIB, MIB, PrefetchConfig};
use crate::ByteRange;

/// The thesis's local network, with gigabit Ethernet.
const LAN: Wire = Wire::new(1000, 300);
/// A remote site.
const REMOTE: Wire = Wire::new(1000, 20_000);

fn forward(from: u64, len: u64, count: u64) -> Vec<ByteRange> {
    (0..count).map(|i| ByteRange::new(from + i * len, len)).collect()
}

fn backward(from: u64, len: u64, count: u64) -> Vec<ByteRange> {
    (0..count).map(|i| ByteRange::new(from - (i + 1) * len, len)).collect()
}

fn strided(from: u64, len: u64, step: i64, count: u32) -> Vec<ByteRange> {
    (0..count).map(|i| ByteRange::new(from.saturating_add_signed(step * i64::from(i)), len)).collect()
}

/// Eight forward streams that alternate.
fn interleaved(len: u64, count: u64) -> Vec<ByteRange> {
    (0..count / 8).flat_map(|i| (0..8).map(move |s| ByteRange::new((s << 30) + i * len, len))).collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 20) % n
    }

    fn reads(&mut self, len: u64, count: u64, size: u64) -> Vec<ByteRange> {
        (0..count).map(|_| ByteRange::new(self.below(size / len) * len, len)).collect()
    }
}

fn share(wire: Wire, trace: Vec<ByteRange>) -> f64 {
    run_plain(wire, vec![Reader::new(trace)]).share_of(wire)
}

fn trace(text: &str) -> Vec<ByteRange> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (offset, len) = line.split_once(' ').unwrap();
            ByteRange::new(offset.parse().unwrap(), len.parse().unwrap())
        })
        .collect()
}

#[test]
fn a_forward_reader_gets_the_bandwidth_of_the_link_at_any_read_size_and_depth() {
    for len in [4 * KIB, 64 * KIB, MIB] {
        for depth in [1, 16] {
            let reader = Reader::new(forward(0, len, 64 * MIB / len)).at_depth(depth);
            let got = run_plain(LAN, vec![reader]).share_of(LAN);
            assert!(got > 0.97, "{len} at depth {depth}: {got}");
        }
    }
    let far = share(REMOTE, forward(0, 64 * KIB, 8192));
    assert!(far > 0.9, "{far}");
}

#[test]
fn backward_interleaved_and_strided_are_as_fast_as_forward() {
    for wire in [LAN, Wire::new(100, 300)] {
        for len in [4 * KIB, 64 * KIB] {
            let reference = share(wire, forward(0, len, 64 * MIB / len));
            for (name, trace) in [
                ("backward", backward(1 << 30, len, 64 * MIB / len)),
                ("interleaved", interleaved(len, 64 * MIB / len)),
                ("strided up", strided(0, len, 200 * KIB as i64, 4000)),
                ("strided down", strided(1 << 39, len, -200 * KIB as i64, 4000)),
            ] {
                let got = share(wire, trace) / reference;
                assert!(got > 0.9, "{name} in {len}: {got} of forward");
            }
            let eight = (0..8).map(|s| Reader::new(forward(s << 30, len, 8 * MIB / len))).collect();
            let got = run_plain(wire, eight).share_of(wire) / reference;
            assert!(got > 0.9, "eight readers in {len}: {got} of forward");
        }
    }
}

#[test]
fn a_stride_with_small_gaps_is_fetched_in_long_runs_and_one_with_large_gaps_record_by_record() {
    let close = run_plain(LAN, vec![Reader::new(strided(0, 512, 1024, 20_000))]);
    assert!(close.requests < 1000, "{} requests", close.requests);
    let far = run_plain(LAN, vec![Reader::new(strided(0, 4096, 200 * KIB as i64, 1000))]);
    assert!(far.stats.prefetched_bytes < 1500 * 4096, "{:?}", far.stats);
}

#[test]
fn random_reads_fetch_nothing_ahead() {
    for len in [512, 4 * KIB, 64 * KIB] {
        let outcomes = run_plain(LAN, vec![Reader::new(Random(len).reads(len, 20_000, 1 << 40)).at_depth(4)]);
        assert_eq!(outcomes.stats.prefetched_bytes, 0);
        assert_eq!(outcomes.requests, 20_000);
    }
}

#[test]
fn random_reads_of_a_small_device_waste_little() {
    for size in [MIB, 16 * MIB, 64 * MIB] {
        let reader = Reader::new(Random(7).reads(4 * KIB, 20_000, size)).at_depth(8);
        let stats = run(LAN, PrefetchConfig::default(), size, vec![reader]).stats;
        assert!(stats.prefetched_bytes - stats.used_bytes < 4 * MIB, "{stats:?}");
    }
}

#[test]
fn streams_end_at_the_end_of_the_largest_device() {
    let size = u64::MAX;
    for trace in
        [forward(size - 4 * MIB, 64 * KIB, 63), backward(size, 64 * KIB, 64), strided(size - MIB, 4096, 8192, 127)]
    {
        let outcomes = run(LAN, PrefetchConfig::default(), size, vec![Reader::new(trace)]);
        assert!(outcomes.stats.misses <= 4, "{:?}", outcomes.stats);
    }
}

#[test]
fn random_reads_do_not_shrink_the_window_of_a_stream() {
    let stream = || Reader::new(forward(0, 64 * KIB, 2000)).thinking(Duration::from_millis(1));
    let window = |readers| run_plain(LAN, readers).stats.streams[0].window_bytes;
    let quiet = run_plain(LAN, vec![stream()]);
    let random = Reader::new(Random(1).reads(4 * KIB, 4000, 1 << 40)).thinking(Duration::from_micros(200));
    let busy = run_plain(LAN, vec![stream(), random]);
    assert!(busy.stats.prefetched_bytes <= quiet.stats.prefetched_bytes + MIB);
    assert!(busy.stats.hits >= quiet.stats.hits * 98 / 100, "{:?}", busy.stats);
    assert_eq!(window(vec![stream()]), quiet.stats.streams[0].window_bytes);
    assert!(busy.stats.streams[0].window_bytes >= quiet.stats.streams[0].window_bytes);
    assert_eq!(busy.stats.streams.len(), 1);
}

#[test]
fn a_random_read_never_waits_behind_a_long_queue() {
    let stream = Reader::new(forward(0, 64 * KIB, 4000));
    let lone = ByteRange::new(1 << 39, 4096);
    for (wire, longest_ms) in [(LAN, 4), (REMOTE, 45)] {
        let random = Reader::new(Random(2).reads(lone.len, 50, 1 << 40)).thinking(Duration::from_millis(10));
        let outcomes = run_plain(wire, vec![stream.clone(), random]);
        let slowest = outcomes.slowest.as_millis();
        assert!(slowest <= longest_ms, "{slowest} ms");
    }
}

#[test]
fn a_reader_slower_than_the_link_gets_no_larger_window() {
    let reader = Reader::new(forward(0, 64 * KIB, 1000)).thinking(Duration::from_millis(5));
    let outcomes = run_plain(Wire::new(10_000, 1000), vec![reader]);
    assert_eq!(outcomes.stats.waits + outcomes.stats.misses, 3);
    assert_eq!(outcomes.stats.streams[0].window_bytes, 128 * KIB);
}

#[test]
fn reads_out_of_order_are_followed_as_one_stream() {
    for batch in [4, 16] {
        let mut random = Random(3);
        let mut trace = forward(0, 64 * KIB, 2000);
        for chunk in trace.chunks_mut(batch) {
            (1..chunk.len()).for_each(|i| chunk.swap(i, random.below(i as u64 + 1) as usize));
        }
        let outcomes = run_plain(LAN, vec![Reader::new(trace).at_depth(batch)]);
        assert!(outcomes.share_of(LAN) > 0.95, "{}", outcomes.share_of(LAN));
        assert!(outcomes.stats.streams.len() <= 2, "{:?}", outcomes.stats.streams);
        let unread = outcomes.stats.prefetched_bytes - outcomes.stats.used_bytes;
        assert!(unread < MIB, "{unread}");
    }
}

#[test]
fn steps_back_within_a_file_waste_little() {
    // As The Sleuth Kit reads: 64 KiB at sector boundaries, in runs with steps back, and tables elsewhere in between.
    let mut random = Random(4);
    let mut trace = Vec::new();
    for file in 0..60 {
        let mut at = (file << 28) + 63 * 512;
        for _ in 0..10 + random.below(40) {
            trace.push(ByteRange::new(at, 64 * KIB));
            match random.below(10) {
                0 => at -= 64 * KIB * random.below(3).min(at / (64 * KIB)),
                1 => trace.push(ByteRange::new((1 << 41) + random.below(1 << 20) * 512, 64 * KIB)),
                _ => at += 64 * KIB,
            }
        }
    }
    let asked = trace.iter().map(|read| read.len).sum::<u64>();
    let plain = run(
        REMOTE,
        PrefetchConfig { budget_bytes: 0, ..PrefetchConfig::default() },
        1 << 42,
        vec![Reader::new(trace.clone())],
    );
    let ahead = run(REMOTE, PrefetchConfig::default(), 1 << 42, vec![Reader::new(trace)]);
    assert!(ahead.elapsed * 2 < plain.elapsed, "{:?}, was {:?}", ahead.elapsed, plain.elapsed);
    let unread = ahead.stats.prefetched_bytes - ahead.stats.used_bytes;
    assert!(unread < asked, "{unread} unread for {asked} read");
}

/// Reads as a kernel makes them of a file: first a little, then twice as much each time, up to 256 KiB.
fn file(from: u64, len: u64) -> Vec<ByteRange> {
    let (mut at, mut read, mut reads) = (from, 16 * KIB, Vec::new());
    while at < from + len {
        let here = read.min(from + len - at);
        reads.push(ByteRange::new(at, here));
        (at, read) = (at + here, (2 * read).min(256 * KIB));
    }
    reads
}

#[test]
fn files_that_were_read_to_their_ends_leave_the_memory_to_others() {
    // As tar reads a tree: the files lie side by side, and are read in another order.
    let mut random = Random(9);
    let mut at = 0;
    let mut files = Vec::new();
    for _ in 0..800 {
        let len = 256 * KIB + random.below(500) * 4 * KIB;
        files.push((random.below(1 << 30), file(at, len)));
        at += len;
    }
    files.sort_unstable_by_key(|(order, _)| *order);
    let trace = files.into_iter().flat_map(|(_, reads)| reads).collect();
    // Fast enough for many files within the two seconds after which a stream is idle.
    let outcomes = run_plain(Wire::new(10_000, 100), vec![Reader::new(trace)]);
    assert!(outcomes.stats.used_bytes * 3 > outcomes.read_bytes * 2, "{:?}", outcomes.stats);
}

#[test]
fn recorded_listings_get_faster_and_waste_little() {
    for text in [include_str!("../../tests/traces/ext4-fls.txt"), include_str!("../../tests/traces/ntfs-fls.txt")] {
        let asked = trace(text).iter().map(|read| read.len).sum::<u64>();
        for wire in [LAN, REMOTE, Wire::new(100, 40_000)] {
            let [plain, ahead] = [0, 64 * MIB].map(|budget_bytes| {
                let config = PrefetchConfig { budget_bytes, ..PrefetchConfig::default() };
                run(wire, config, 256 * MIB, vec![Reader::new(trace(text))])
            });
            assert!(ahead.elapsed * 5 < plain.elapsed * 4, "{:?}, was {:?}", ahead.elapsed, plain.elapsed);
            let unread = ahead.stats.prefetched_bytes - ahead.stats.used_bytes;
            assert!(unread < asked / 4, "{unread} unread for {asked} read");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The simulation asserts after each event that the budget holds and the counters agree.
    #[test]
    fn any_mix_of_readers_stays_within_the_budget(
        kinds in prop::collection::vec((0u32..5, 9u32..21, 1usize..20, any::<u32>()), 1..12),
        budget_kib in 0u64..8192,
        mbit in prop_oneof![Just(10u64), Just(1000), Just(40_000)],
        trip_us in 10u64..50_000,
    ) {
        let readers = kinds.into_iter().enumerate().map(|(i, (kind, len, depth, seed))| {
            let (from, len) = ((i as u64 + 1) << 32, 1u64 << len);
            let trace = match kind {
                0 => forward(from, len, 200),
                1 => backward(from, len, 200),
                2 => strided(from, len, i64::from(seed) % 1_000_000, 200),
                3 => Random(seed.into()).reads(len, 200, 1 << 30),
                _ => interleaved(len, 200),
            };
            Reader::new(trace).at_depth(depth)
        });
        let readers: Vec<_> = readers.collect();
        let asked = readers.iter().flat_map(|reader| &reader.trace).map(|read| read.len).sum::<u64>();
        let config = PrefetchConfig { budget_bytes: budget_kib * KIB, ..PrefetchConfig::default() };
        let outcomes = run(Wire::new(mbit, trip_us), config, 1 << 40, readers);
        prop_assert_eq!(outcomes.read_bytes, asked);
        prop_assert_eq!(outcomes.stats.in_flight_bytes, 0);
    }
}

#[test]
fn a_stream_that_earns_its_window_wastes_no_more_than_it_reads() {
    let config = PrefetchConfig { earned: true, ..PrefetchConfig::default() };
    // Short streams, far from each other: bytes fetched past their ends are wasted.
    let short: Vec<_> = (0..100).flat_map(|nth| forward(nth << 30, 64 * KIB, 6)).collect();
    let short = run(REMOTE, config, MIB << 20, vec![Reader::new(short)]);
    assert!(short.stats.prefetched_bytes - short.stats.used_bytes <= short.read_bytes, "{:?}", short.stats);
    // A stream that began without gaps does not read through gaps either.
    let gaps = strided(MIB, 64 * KIB, 132 * KIB as i64, 400);
    let gaps = [forward(0, 64 * KIB, 16), gaps].concat();
    let gaps = run(REMOTE, config, MIB << 20, vec![Reader::new(gaps)]);
    let in_vain = gaps.stats.prefetched_bytes - gaps.stats.used_bytes;
    assert!(in_vain * 8 < gaps.read_bytes, "{in_vain} of {:?}", gaps.stats);
    // A long stream still gets the whole link.
    let long = run(REMOTE, config, MIB << 20, vec![Reader::new(forward(0, 128 * KIB, 4000))]);
    assert!(long.share_of(REMOTE) > 0.8, "{} {:?}", long.share_of(REMOTE), long.stats);
}
