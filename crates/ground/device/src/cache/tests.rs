//! The layer over devices that fail, and against a naive model.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::{Error, Geometry};

const SIZE: u64 = 3 * (1 << 20) + 700;

fn content(range: ByteRange) -> Vec<u8> {
    (range.offset..range.end()).map(|at| (at / 512 * 7 + at % 251) as u8).collect()
}

/// A source with a latency of a millisecond, which records requests, and has unreadable ranges.
#[derive(Default)]
struct Source {
    asked: Mutex<Vec<ByteRange>>,
    bad: Mutex<Vec<ByteRange>>,
    stalled: AtomicBool,
    reads: AtomicU64,
}

impl Source {
    fn asked(&self) -> Vec<ByteRange> {
        std::mem::take(&mut self.asked.lock())
    }
}

impl Device for Source {
    fn geometry(&self) -> Geometry {
        Geometry { size: SIZE, writable: true, block_preferred: 1 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.asked.lock().push(range);
        self.reads.fetch_add(1, Ordering::Relaxed);
        Io::later(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            while self.stalled.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if self.bad.lock().iter().any(|bad| bad.intersection(range).is_some()) {
                return Err(Error::Unreadable { device: "test".into(), range, why: "a bad sector".into() });
            }
            Ok(content(range).into())
        })
    }
}

fn cached(budget: u64) -> (Arc<Source>, Arc<Cache>) {
    let source = Arc::new(Source::default());
    let config = CacheConfig { place: CachePlace::Memory, budget_bytes: budget };
    (source.clone(), Cache::new(source, config).unwrap())
}

fn in_file(budget: u64) -> (Arc<Source>, Arc<Cache>, tempfile::TempDir) {
    let (source, dir) = (Arc::new(Source::default()), tempfile::tempdir().unwrap());
    let config = CacheConfig { place: CachePlace::Directory(dir.path().into()), budget_bytes: budget };
    (source.clone(), Cache::new(source, config).unwrap(), dir)
}

async fn right(cache: &Cache, range: ByteRange) {
    assert_eq!(cache.read(range).await.unwrap().into_bytes(), content(range), "{range}");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_never_polled_blocks_no_other() {
    let (_source, cache) = cached(1 << 20);
    let range = ByteRange::new(100_000, 9000);
    drop(cache.read(range));
    let read = tokio::time::timeout(Duration::from_secs(9), cache.read(range)).await;
    assert!(read.unwrap().unwrap() == content(range)[..]);
}

#[tokio::test(start_paused = true)]
async fn data_that_has_crossed_is_not_requested_again() {
    let (source, cache) = cached(1 << 30);
    right(&cache, ByteRange::new(5000, 100)).await;
    assert_eq!(source.asked(), [ByteRange::new(4096, 4096)], "a whole grain, and no more");
    right(&cache, ByteRange::new(4096, 10_000)).await;
    assert_eq!(source.asked(), [ByteRange::new(8192, 8192)], "only what is missing");
    right(&cache, ByteRange::new(SIZE - 10, 10)).await;
    right(&cache, ByteRange::new(SIZE - 100, 100)).await;
    assert_eq!(source.asked(), [ByteRange::between(SIZE - SIZE % GRAIN, SIZE)]);
    assert!(cache.read(ByteRange::new(SIZE - 1, 2)).await.is_err());
    assert!(cache.write(0, Data::zeros(1), false).await.is_err());
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.crossed_bytes()), (1, 3, 3 * GRAIN + SIZE % GRAIN), "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn concurrent_reads_of_a_range_cause_one_fetch() {
    let (source, cache) = cached(1 << 30);
    let reads = (0..20).map(|nth| right(&cache, ByteRange::new(nth * 100, 60_000)));
    futures::future::join_all(reads).await;
    assert_eq!(source.asked().iter().map(|range| range.len).sum::<u64>(), 64 << 10);
}

#[tokio::test(start_paused = true)]
async fn a_bad_sector_fails_only_reads_of_it_and_is_not_remembered() {
    let (source, cache) = cached(1 << 30);
    let bad = ByteRange::new(100_000, 512);
    source.bad.lock().push(bad);
    let large = ByteRange::new(0, 500_000);
    let (large, small, other) = tokio::join!(
        async { cache.read(large).await },
        async { cache.read(ByteRange::new(90_000, 4096)).await },
        async { cache.read(ByteRange::new(99_000, 4096)).await }
    );
    assert!(large.is_err() && other.is_err());
    assert_eq!(small.unwrap().into_bytes(), content(ByteRange::new(90_000, 4096)));
    source.bad.lock().clear();
    right(&cache, bad).await;
}

#[tokio::test(start_paused = true)]
async fn a_hint_fetches_data_and_its_failure_is_not_reported() {
    let (source, cache) = cached(1 << 30);
    source.bad.lock().push(ByteRange::new(600_000, 1));
    cache.cache(ByteRange::new(0, 1 << 20)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Nothing is known of the link yet, so it is fetched in small requests in parallel.
    assert!(source.asked().iter().all(|range| range.len == FETCH_BYTES_FIRST));
    right(&cache, ByteRange::new(0, 300_000)).await;
    assert_eq!(source.asked(), []);
    right(&cache, ByteRange::new(620_000, 5)).await;
    let stats = cache.stats();
    assert_eq!(stats.hinted[Urgency::Next as usize].bytes, (1 << 20) - FETCH_BYTES_FIRST, "{stats:?}");
    assert!((300_000..310_000).contains(&stats.hinted[Urgency::Next as usize].used_bytes), "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn hints_leave_room_on_the_link_for_demand_reads() {
    let (source, cache) = cached(1 << 30);
    source.stalled.store(true, Ordering::Relaxed);
    cache.cache(ByteRange::new(0, 3 << 20)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(cache.stats().in_flight_bytes <= 1 << 20, "{:?}", cache.stats());
    // A read of a range that is still queued is not held up.
    let read = right(&cache, ByteRange::new(2 << 20, 4096));
    let go_on = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(source.asked().last(), Some(&ByteRange::new(2 << 20, 4096)));
        source.stalled.store(false, Ordering::Relaxed);
    };
    tokio::join!(read, go_on);
}

#[tokio::test(start_paused = true)]
async fn a_background_read_does_not_count_as_use() {
    let (_, cache) = cached(1 << 30);
    let data = cache.read_in_background(ByteRange::new(10, 200_000), Urgency::Soon).await.unwrap();
    assert_eq!(data.into_bytes(), content(ByteRange::new(10, 200_000)));
    assert_eq!(cache.stats().unused_bytes(), 200_704);
    right(&cache, ByteRange::new(0, 200_704)).await;
    assert_eq!(cache.stats().unused_bytes(), 0);
}

#[tokio::test]
async fn a_cache_in_a_file_keeps_data_and_leaves_no_name() {
    let (source, cache, dir) = in_file(1 << 30);
    right(&cache, ByteRange::new(0, 1 << 20)).await;
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(2)).await;
        right(&cache, ByteRange::new(70_001, 60_000)).await;
    }
    assert_eq!(source.reads.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_missing_directory_is_an_error_that_names_it() {
    let config = CacheConfig { place: CachePlace::Directory("/not/there".into()), budget_bytes: 1 };
    let error = Cache::new(Arc::new(Source::default()), config).err().unwrap();
    assert!(error.to_string().contains("/not/there"), "{error}");
}

#[test]
fn data_changed_in_the_file_is_detected() {
    let file = file::CacheFile::new(&std::env::temp_dir()).unwrap();
    let whole = ByteRange::new(8192, 10_000);
    let data = Data::from(content(whole));
    let digests = file.write(whole.offset, &data).unwrap();
    let part = ByteRange::new(13_000, 100);
    assert_eq!(file.read(whole, part, &digests).unwrap().into_bytes(), content(part));
    assert_eq!(file.read(whole, whole, &digests).unwrap().into_bytes(), content(whole));
    file.write(13_500, &Data::from(vec![0x5a])).unwrap();
    assert!(file.read(whole, part, &digests).is_none());
    let before = ByteRange::new(8192, 4096);
    assert!(file.read(whole, before, &digests).is_some());
    file.punch(whole).unwrap();
    assert!(file.read(whole, before, &digests).is_none());
}

#[derive(Debug, Clone)]
enum Event {
    Read(u64, u64),
    Aside(u64, u64),
    Hint(u64, u64, usize),
    Pause,
    /// The source cannot read this byte from now on.
    Spoil(u64),
    Heal,
}

fn event() -> impl Strategy<Value = Event> {
    let place = || 0..SIZE;
    prop_oneof![
        4 => (place(), 1u64..300_000).prop_map(|(at, len)| Event::Read(at, len)),
        1 => (place(), 1u64..300_000).prop_map(|(at, len)| Event::Aside(at, len)),
        3 => (place(), 1u64..2_000_000, 0..Urgency::COUNT).prop_map(|(at, len, urgency)| Event::Hint(at, len, urgency)),
        1 => Just(Event::Pause),
        1 => place().prop_map(Event::Spoil),
        1 => Just(Event::Heal),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For any hints, reads and bad bytes: a read returns the right data or an error of the source, and with room for
    /// everything no good byte is fetched twice.
    #[test]
    fn bytes_are_right_and_cross_the_link_once(events in prop::collection::vec(event(), 1..40), small in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let budget = if small { 200_000 } else { 1 << 30 };
            let (source, cache) = cached(budget);
            let mut hurt = false;
            for event in events {
                let clip = |at, len| ByteRange::new(at, len).intersection(ByteRange::new(0, SIZE)).unwrap();
                match event {
                    Event::Read(at, len) => check(&source, clip(at, len), cache.read(clip(at, len)).await),
                    Event::Aside(at, len) => {
                        check(&source, clip(at, len), cache.read_in_background(clip(at, len), Urgency::Soon).await);
                    }
                    Event::Hint(at, len, urgency) => cache.hint(clip(at, len), Urgency::ALL[urgency]),
                    Event::Pause => tokio::time::sleep(Duration::from_millis(3)).await,
                    Event::Spoil(at) => { source.bad.lock().push(ByteRange::new(at, 1)); hurt = true; }
                    Event::Heal => source.bad.lock().clear(),
                }
                let stats = cache.stats();
                assert!(stats.held_bytes <= budget, "{stats:?}");
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
            let stats = cache.stats();
            assert_eq!(stats.in_flight_bytes, 0);
            let grains: Vec<_> = source.asked().iter().flat_map(|range| range.split_at_multiples(GRAIN)).collect();
            if !small && !hurt {
                let once: BTreeSet<_> = grains.iter().collect();
                assert_eq!(once.len(), grains.len());
                assert_eq!(stats.crossed_bytes(), grains.iter().map(|grain| grain.len).sum::<u64>());
            }
        });
    }
}

fn check(source: &Source, range: ByteRange, outcome: Result<Data>) {
    match outcome {
        Ok(data) => assert!(data.into_bytes() == content(range), "{range}"),
        Err(_) => {
            let wide = range.aligned_to(GRAIN);
            assert!(source.bad.lock().iter().any(|bad| bad.intersection(wide).is_some()), "{range} is readable");
        }
    }
}
