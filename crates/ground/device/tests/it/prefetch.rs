//! The prefetch layer against plain memory: with any concurrent reads, writes, delays and failures, every byte a read
//! returns was there at some moment during the read.
//!

//! Time is virtual, so nothing here waits, and every run of a case is the same.

use std::sync::Arc;

use crate::support::{SECTOR, Slow, Step, WriteHistory, run_virtual, steps};
use cheetah_device::prefetch::{Direction, Pattern, Prefetch, PrefetchConfig};
use cheetah_device::{ByteRange, Data, Device, Io};
use proptest::prelude::*;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

fn pattern(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

fn budget(bytes: u64) -> PrefetchConfig {
    PrefetchConfig { budget_bytes: bytes, ..PrefetchConfig::default() }
}

#[test]
fn a_sequential_reader_is_served_from_memory() {
    run_virtual(async {
        let content = pattern(8 * MIB);
        let device = Prefetch::new(Arc::new(Slow::new(content.clone(), 7)), budget(16 * MIB));
        for offset in (0..8 * MIB).step_by(4096) {
            let data = device.read(ByteRange::new(offset, 4096)).await.unwrap();
            assert!(data == content[offset as usize..][..4096], "at {offset}");
        }
        let stats = device.stats();
        assert!(stats.misses <= 3, "{stats:?}");
        assert!(stats.hits > 1900, "{stats:?}");
        assert_eq!(stats.unused_bytes, 0);
        assert_eq!(stats.used_bytes, stats.prefetched_bytes);
        assert_eq!(stats.streams[0].pattern, Pattern::Sequential(Direction::Up));
    });
}

/// Reads records as the trace says, and takes the prefetched data after each, as a mount does. Returns how many records
/// had to be read.
#[allow(clippy::unwrap_used, reason = "a test may panic")]
async fn read_taking_prefetched(device: &Prefetch, content: &[u8], trace: &[ByteRange]) -> usize {
    let mut taken = std::collections::BTreeMap::new();
    let mut reads = 0;
    for record in trace {
        let held = taken
            .range(..=record.offset)
            .next_back()
            .filter(|(at, data): &(&u64, &Data)| record.end() <= **at + data.len());
        if held.is_none() {
            reads += 1;
            let data = device.read(*record).await.unwrap();
            assert!(data == content[record.offset as usize..record.end() as usize], "at {record}");
            for (offset, data) in device.take_prefetched(*record) {
                assert!(data == content[offset as usize..][..data.len() as usize], "{offset} and {}", data.len());
                taken.insert(offset, data);
            }
        }
    }
    reads
}

#[test]
fn backward_and_strided_readers_get_prefetched_data_and_forward_ones_do_not() {
    run_virtual(async {
        let content = pattern(8 * MIB);
        let device = || Prefetch::new(Arc::new(Slow::new(content.clone(), 7)), budget(16 * MIB));
        let record = |offset| ByteRange::new(offset, 4096);
        let forward: Vec<_> = (0..8 * MIB).step_by(4096).map(record).collect();
        let backward: Vec<_> = forward.iter().rev().copied().collect();
        let strided: Vec<_> = (0..8 * MIB - 4096).step_by(65_536).map(record).collect();
        let strided_back: Vec<_> = strided.iter().rev().copied().collect();
        assert_eq!(read_taking_prefetched(&device(), &content, &forward).await, forward.len());
        for trace in [backward, strided, strided_back] {
            let reads = read_taking_prefetched(&device(), &content, &trace).await;
            assert!(reads * 4 < trace.len(), "{reads} of {}", trace.len());
        }
        let device = device();
        for nth in 0..500 {
            let range = record((nth * nth * 31 % 2039) * 4096);
            device.read(range).await.unwrap();
            assert!(device.take_prefetched(range).is_empty(), "nothing is predicted to follow a random read");
        }
    });
}

#[test]
fn a_read_of_held_data_is_answered_at_once() {
    run_virtual(async {
        let device = Prefetch::new(Arc::new(Slow::new(pattern(MIB), 7)), budget(16 * MIB));
        device.cache(ByteRange::new(0, MIB)).await.unwrap();
        assert!(matches!(device.read(ByteRange::new(0, 10)), Io::Later(_)));
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert!(matches!(device.read(ByteRange::new(MIB - 10, 10)), Io::Done(Some(Ok(_)))));
        assert_eq!(device.stats().held_bytes, MIB);
    });
}

#[test]
fn a_read_that_overlaps_an_in_flight_fetch_requests_only_the_rest() {
    run_virtual(async {
        let content = pattern(4 * MIB);
        let slow = Arc::new(Slow::new(content.clone(), 7));
        let device = Prefetch::new(slow.clone(), budget(16 * MIB));
        device.cache(ByteRange::new(0, MIB)).await.unwrap();
        let data = device.read(ByteRange::new(MIB / 2, MIB)).await.unwrap();
        assert!(data == content[MIB as usize / 2..][..MIB as usize]);
        let mut asked = slow.log();
        asked.sort_unstable();
        assert_eq!(asked, [(0, MIB), (MIB, MIB / 2)]);
    });
}

#[test]
fn random_reads_pass_unchanged() {
    run_virtual(async {
        let slow = Arc::new(Slow::new(pattern(64 * MIB), 7));
        let device = Prefetch::new(slow.clone(), budget(16 * MIB));
        let reads: Vec<_> = (0..2000u64).map(|i| (i * 7_919_513 % (64 * MIB - 5000), 1 + i % 4999)).collect();
        for (offset, len) in &reads {
            device.read(ByteRange::new(*offset, *len)).await.unwrap();
        }
        assert_eq!(slow.log(), reads);
        assert_eq!(device.stats().prefetched_bytes + device.stats().in_flight_bytes, 0);
    });
}

#[test]
fn a_failed_fetch_fails_no_read_but_that_of_the_bad_sector() {
    run_virtual(async {
        let content = pattern(4 * MIB);
        let slow = Arc::new(Slow::new(content.clone(), 7));
        slow.break_sector(MIB + 3 * SECTOR);
        let device = Prefetch::new(slow, budget(16 * MIB));
        for offset in (0..4 * MIB).step_by(4096) {
            let read = device.read(ByteRange::new(offset, 4096)).await;
            if offset == MIB {
                assert_eq!(read.unwrap_err().errno(), 5);
            } else {
                assert!(read.unwrap() == content[offset as usize..][..4096], "at {offset}");
            }
        }
        let stats = device.stats();
        assert_eq!(stats.failures, 1, "{stats:?}");
        // The reader passed the place by itself, and then got prefetched data again.
        assert!(stats.hits > 600, "{stats:?}");
    });
}

#[test]
fn a_write_is_seen_at_once_and_drops_prefetched_data() {
    run_virtual(async {
        let device = Prefetch::new(Arc::new(Slow::new(pattern(4 * MIB), 7)), budget(16 * MIB));
        device.cache(ByteRange::new(0, 2 * MIB)).await.unwrap();
        // When the write ends, one fetch has arrived and another is in flight.
        device.write(MIB - 5, vec![9; 10].into(), false).await.unwrap();
        let data = device.read(ByteRange::new(MIB - 6, 12)).await.unwrap().into_bytes();
        assert_eq!(data[1..11], [9; 10]);
        device.zero(ByteRange::new(MIB - 5, 10), Default::default()).await.unwrap();
        let data = device.read(ByteRange::new(MIB - 5, 10)).await.unwrap();
        assert!(data.is_zero());
    });
}

#[test]
fn a_change_below_is_seen_after_forget() {
    run_virtual(async {
        let slow = Arc::new(Slow::new(pattern(4 * MIB), 7));
        let device = Prefetch::new(slow.clone(), budget(16 * MIB));
        device.cache(ByteRange::new(0, 2 * MIB)).await.unwrap();
        device.read(ByteRange::new(0, 10)).await.unwrap();
        slow.write(MIB, vec![9; 10].into(), false).await.unwrap();
        device.forget(ByteRange::new(MIB, 10));
        assert!(device.read(ByteRange::new(MIB, 10)).await.unwrap() == [9; 10][..]);
    });
}

#[test]
fn dropping_the_layer_cancels_its_fetches() {
    run_virtual(async {
        let slow = Arc::new(Slow::new(pattern(4 * MIB), 7));
        let device = Prefetch::new(slow.clone(), budget(16 * MIB));
        device.cache(ByteRange::new(0, 4 * MIB)).await.unwrap();
        drop(device);
        while Arc::strong_count(&slow) > 1 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn bounds_are_checked_and_empty_ranges_succeed() {
    run_virtual(async {
        let device = Prefetch::new(Arc::new(Slow::new(pattern(4096), 7)), PrefetchConfig::default());
        assert_eq!(device.read(ByteRange::new(4096, 0)).await.unwrap().len(), 0);
        for range in [ByteRange::new(4096, 1), ByteRange::new(u64::MAX, 2), ByteRange::new(0, 4097)] {
            assert_eq!(device.read(range).await.unwrap_err().errno(), 22);
            assert_eq!(device.cache(range).await.unwrap_err().errno(), 22);
        }
        assert_eq!(device.write(4096, Data::zeros(1), false).await.unwrap_err().errno(), 22);
    });
}

/// Small, so that operations overlap.
const SIZE: u64 = MIB;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_byte_read_was_there_during_the_read(
        workers in prop::collection::vec(steps(SIZE), 1..8),
        seed in any::<u64>(),
        budget_kib in prop_oneof![Just(0u64), 64..2048u64],
        failing in prop::bool::ANY,
    ) {
        run_virtual(async move {
            let history = Arc::new(WriteHistory::new(SIZE));
            let slow = Slow::new(history.initial(), seed);
            if failing {
                slow.fail_one_in(20);
            }
            let device = Prefetch::new(Arc::new(slow), budget(budget_kib * KIB));
            let work = workers.into_iter().map(|steps| {
                let (device, history) = (device.clone(), history.clone());
                tokio::spawn(async move {
                    for step in steps {
                        history.perform(&*device, step).await;
                        let stats = device.stats();
                        assert!(stats.held_bytes + stats.in_flight_bytes <= budget_kib * KIB, "{stats:?}");
                    }
                })
            });
            for result in futures::future::join_all(work).await {
                result.unwrap();
            }
            // Nothing stale is left.
            history.perform(&*device, Step::Read(ByteRange::new(0, SIZE))).await;
            let stats = device.stats();
            assert!(stats.used_bytes + stats.unused_bytes <= stats.prefetched_bytes, "{stats:?}");
        });
    }
}
