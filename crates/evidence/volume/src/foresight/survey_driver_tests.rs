//! Surveys over devices that are slow, fail or stall.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cheetah_device::cache::{Cache, CacheConfig, CachePlace};
use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io};
use smallvec::smallvec;
use tokio::time::Instant;

use super::shell::ForesightShared;
use super::survey_driver::{PATIENCE, explore, survey_all};
use crate::survey::{FileRuns, SurveyPlan, Surveyor};

const SIZE: u64 = 64 << 20;
const VOLUME: ByteRange = ByteRange::new(1 << 20, 32 << 20);
const NODE: u64 = 4096;

/// A source with a long round trip, which may fail or stop answering.
#[derive(Default)]
struct Far {
    fails: AtomicBool,
    silent: AtomicBool,
    under_way: AtomicU64,
    most: AtomicU64,
}

impl Device for Far {
    fn geometry(&self) -> Geometry {
        Geometry { size: SIZE, writable: false, block_preferred: 1 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(async move {
            let under_way = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
            self.most.fetch_max(under_way, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
            while self.silent.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            match self.fails.load(Ordering::Relaxed) {
                true => Err(Error::Unreadable { device: "far".into(), range, why: "gone".into() }),
                false => Ok(Data::from(vec![7; range.len as usize])),
            }
        })
    }
}

/// A tree of nodes, each of which refers to eight others, with files at the third level.
#[derive(Default)]
struct TreeSurveyor {
    delivered: Arc<AtomicU64>,
    fetches: u64,
}

impl Surveyor for TreeSurveyor {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn start(&mut self, plan: &mut SurveyPlan) {
        plan.read(ByteRange::new(0, NODE));
    }

    fn arrived(&mut self, range: ByteRange, bytes: &[u8], plan: &mut SurveyPlan) {
        assert!(bytes.len() as u64 == range.len && bytes.iter().all(|byte| *byte == 7));
        self.delivered.fetch_add(1, Ordering::Relaxed);
        let node = range.offset / NODE;
        for child in node * 8 + 1..=node * 8 + 8 {
            if child < 585 {
                plan.read(ByteRange::new(child * NODE, NODE));
            } else {
                let runs = smallvec![ByteRange::new((16 << 20) + child * NODE, NODE)];
                plan.file(FileRuns { id: child, directory: node, place: child as u32, runs });
            }
        }
        if node < self.fetches {
            plan.fetch(ByteRange::new((8 << 20) + node * NODE, NODE));
        }
    }

    fn failed(&mut self, _range: ByteRange, plan: &mut SurveyPlan) {
        // A surveyor that never stops.
        self.delivered.fetch_add(1, Ordering::Relaxed);
        plan.read(ByteRange::new(self.delivered.load(Ordering::Relaxed) * NODE, NODE));
    }
}

fn shared(metadata_bytes_max: u64) -> (Arc<Far>, Arc<ForesightShared>) {
    let far = Arc::new(Far::default());
    let config = CacheConfig { place: CachePlace::Memory, budget_bytes: 1 << 30 };
    let cache = Cache::new(far.clone(), config).unwrap();
    (far, ForesightShared::new(cache, metadata_bytes_max, None))
}

async fn survey(shared: &Arc<ForesightShared>, left: u64, tree: TreeSurveyor) -> Duration {
    let started = Instant::now();
    explore(shared, 1, &VOLUME.into(), &AtomicU64::new(left), Box::new(tree)).await;
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_survey_takes_a_round_trip_for_each_level_and_not_for_each_read() {
    let (far, shared) = shared(1 << 30);
    let delivered = Arc::<AtomicU64>::default();
    let took = survey(&shared, 1 << 30, TreeSurveyor { delivered: delivered.clone(), fetches: 500 }).await;
    assert_eq!((delivered.load(Ordering::Relaxed), shared.files()), (585, 4096));
    // Virtual time does not pass during computation, only on the link.
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(far.most.load(Ordering::Relaxed) > 16);
    let fetched = ByteRange::new(VOLUME.offset + (8 << 20), 500 * NODE);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(shared.cache.holds(fetched));
}

#[tokio::test(start_paused = true)]
async fn a_survey_whose_reads_fail_is_given_up() {
    let (far, shared) = shared(1 << 30);
    far.fails.store(true, Ordering::Relaxed);
    let delivered = Arc::<AtomicU64>::default();
    survey(&shared, 1 << 30, TreeSurveyor { delivered: delivered.clone(), fetches: 0 }).await;
    assert!(delivered.load(Ordering::Relaxed) < 40);
}

#[tokio::test(start_paused = true)]
async fn a_survey_without_answers_is_given_up_but_reads_are_not() {
    let (far, shared) = shared(1 << 30);
    far.silent.store(true, Ordering::Relaxed);
    let took = survey(&shared, 1 << 30, TreeSurveyor::default()).await;
    assert!(took >= PATIENCE && took < PATIENCE * 2, "{took:?}");
    far.silent.store(false, Ordering::Relaxed);
    assert_eq!(shared.cache.read(VOLUME).await.unwrap().len(), VOLUME.len);
}

#[tokio::test(start_paused = true)]
async fn surveys_fetch_no_more_than_their_limit() {
    let (_, shared) = shared(1 << 30);
    let delivered = Arc::<AtomicU64>::default();
    survey(&shared, 100 * NODE, TreeSurveyor { delivered: delivered.clone(), fetches: 0 }).await;
    assert!(delivered.load(Ordering::Relaxed) <= 100);
    assert!(shared.cache.stats().crossed_bytes() <= 100 * NODE);
}

#[tokio::test(start_paused = true)]
async fn a_device_without_known_file_systems_takes_few_reads() {
    let (_, shared) = shared(1 << 30);
    survey_all(shared.clone(), None, Vec::new()).await;
    assert_eq!(shared.files(), 0);
    assert!(shared.cache.stats().crossed_bytes() < 4 << 20);
}
