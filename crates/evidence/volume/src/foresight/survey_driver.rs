//! Surveys of all file systems of a device, with many reads in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cheetah_device::cache::Urgency;
use cheetah_device::{ByteRange, Data, Device as _, Result};
use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::FuturesUnordered;
use smallvec::SmallVec;

use super::pieces::{self, Pieces};
use super::shell::ForesightShared;
use crate::partition::read_partitions;
use crate::recognise::{START_BYTES, recognise};
use crate::survey::{ProbeSurveyor, SurveyPlan, Surveyor, probed_ranges};

/// The maximum number of bytes a survey reads at once. Limits its memory, and the time that the first read of another
/// survey, on which all its later reads depend, waits for the reads of this one.
const READING_BYTES_MAX: u64 = 8 << 20;
const PROBING_BYTES_MAX: u64 = 4 << 20;
/// The maximum number of ranges it fetches at once.
const FETCHING_MAX: usize = 256;
/// The numbers of the survey of the whole device, and of the one that predicts how tools look for file systems. Those of
/// volumes are counted from 0.
const WHOLE: u32 = u32::MAX - 1;
const PROBES: u32 = u32::MAX;
/// A survey is given up if nothing arrives for this long.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// A survey is given up after this many failed reads in succession.
const FAILURES_MAX: u32 = 16;

/// Surveys the volumes of a device, and those that were `opened`.
pub(super) async fn survey_all(shared: Arc<ForesightShared>, sector_bytes: Option<u32>, opened: Vec<Pieces>) {
    let whole = ByteRange::new(0, shared.background.geometry().size);
    let left = AtomicU64::new(shared.metadata_bytes_max);
    // Without a partition table the whole device may be a volume, and its survey need not wait for the end of the device,
    // where a table may be. With a table it is not, but the check costs nothing.
    let alone = async {
        if !opened.contains(&whole.into()) {
            survey(&shared, WHOLE, &whole.into(), &left).await;
        }
    };
    let in_tables = async {
        let tables = read_partitions(&shared.background, sector_bytes).await;
        let partitions = tables.into_iter().map(|partition| partition.range);
        let named = partitions.filter(|range| *range != whole).map(Pieces::from);
        let volumes: Vec<_> = named.filter(|place| !opened.contains(place)).chain(opened.iter().cloned()).collect();
        // The ranges that tools read before they have found a volume.
        probed_ranges(whole).for_each(|range| shared.cache.hint(range, Urgency::Next));
        let surveys = (0..).zip(&volumes).map(|(number, volume)| survey(&shared, number, volume, &left));
        let probes = Survey { reading_max: PROBING_BYTES_MAX, ..Survey::new(&shared, PROBES, &whole.into(), &left) };
        // The outcome of the probes does not matter: they locate nothing.
        let _ = futures::join!(join_all(surveys), probes.run(Box::new(ProbeSurveyor::new(whole.len))));
    };
    futures::join!(alone, in_tables);
    shared.surveyed();
    tracing::info!("foresight: {} files of all volumes are known", shared.files());
}

/// Surveys one volume, if its file system is known.
async fn survey(shared: &Arc<ForesightShared>, number: u32, volume: &Pieces, left: &AtomicU64) {
    let all = ByteRange::new(0, volume.len());
    let start = ByteRange::new(0, all.len.min(START_BYTES));
    let Ok(head) = pieces::read(&*shared.background, &volume.of(start), start.len).await else { return };
    if let Some(surveyor) = recognise(&head.into_bytes()) {
        let probed = probed_ranges(all).flat_map(|range| volume.of(range));
        probed.for_each(|range| shared.cache.hint(range, Urgency::Next));
        explore(shared, number, volume, left, surveyor).await;
    }
}

pub(super) async fn explore(
    shared: &Arc<ForesightShared>,
    number: u32,
    volume: &Pieces,
    left: &AtomicU64,
    surveyor: Box<dyn Surveyor>,
) {
    let name = surveyor.name();
    tracing::debug!("foresight: {name} at {volume}");
    let outcome = Survey::new(shared, number, volume, left).run(surveyor).await;
    let settled = Arc::clone(shared);
    let _ = cheetah_device::supervise::spawn_blocking(move || settled.settle()).await;
    match outcome {
        Ok(()) => tracing::debug!("foresight: all of {name} at {volume} is known"),
        Err(why) => tracing::info!("foresight: the survey of {name} at {volume} is given up: {why}"),
    }
}

/// The survey of one volume.
struct Survey<'a> {
    shared: &'a Arc<ForesightShared>,
    number: u32,
    volume: Pieces,
    /// The number of bytes all surveys may still fetch.
    left: &'a AtomicU64,
    /// The maximum number of bytes read at once.
    reading_max: u64,
    plan: SurveyPlan,
    failures: u32,
}

enum SurveyEvent {
    Read(ByteRange, Result<Data>),
    Near,
}

impl<'a> Survey<'a> {
    fn new(shared: &'a Arc<ForesightShared>, number: u32, volume: &Pieces, left: &'a AtomicU64) -> Self {
        let (reading_max, plan, volume) = (READING_BYTES_MAX, SurveyPlan::default(), volume.clone());
        Self { shared, number, volume, left, reading_max, plan, failures: 0 }
    }

    /// Runs the survey to its end; fails with a reason to give it up.
    async fn run(mut self, mut surveyor: Box<dyn Surveyor>) -> std::result::Result<(), &'static str> {
        surveyor = self.step(surveyor, |surveyor, plan| surveyor.start(plan)).await?;
        let mut under_way: FuturesUnordered<BoxFuture<'static, SurveyEvent>> = FuturesUnordered::new();
        let (mut reading, mut fetching) = (0u64, 0usize);
        loop {
            while reading < self.reading_max
                && let Some(range) = self.plan.reads.pop_front()
            {
                reading += range.len;
                under_way.push(self.read(range)?);
            }
            while fetching < FETCHING_MAX
                && let Some(range) = self.plan.fetches.pop_front()
            {
                fetching += 1;
                under_way.push(self.fetch(range)?);
            }
            if reading == 0 {
                surveyor = self.step(surveyor, |surveyor, plan| surveyor.idle(plan)).await?;
                // Requests beyond the limits wait for those in flight.
                if !self.plan.reads.is_empty() || (fetching < FETCHING_MAX && !self.plan.fetches.is_empty()) {
                    continue;
                }
                if fetching == 0 {
                    return Ok(());
                }
            }
            let event = tokio::time::timeout(PATIENCE, under_way.next()).await;
            match event.map_err(|_| "nothing has arrived for a minute")? {
                None => {}
                Some(SurveyEvent::Near) => fetching -= 1,
                Some(SurveyEvent::Read(range, outcome)) => {
                    reading -= range.len;
                    surveyor = self.arrived(surveyor, range, outcome).await?;
                }
            }
        }
    }

    async fn arrived(
        &mut self,
        surveyor: Box<dyn Surveyor>,
        range: ByteRange,
        outcome: Result<Data>,
    ) -> std::result::Result<Box<dyn Surveyor>, &'static str> {
        match outcome {
            Ok(data) => {
                self.failures = 0;
                let bytes = data.into_bytes();
                self.step(surveyor, move |surveyor, plan| surveyor.arrived(range, &bytes, plan)).await
            }
            Err(_) if self.failures >= FAILURES_MAX => Err("its source fails"),
            Err(_) => {
                self.failures += 1;
                self.step(surveyor, move |surveyor, plan| surveyor.failed(range, plan)).await
            }
        }
    }

    /// Passes an event to the surveyor on a thread for blocking work, so that no read is delayed, and adds the files it
    /// has found.
    async fn step(
        &mut self,
        mut surveyor: Box<dyn Surveyor>,
        event: impl FnOnce(&mut dyn Surveyor, &mut SurveyPlan) + Send + 'static,
    ) -> std::result::Result<Box<dyn Surveyor>, &'static str> {
        let (mut plan, shared) = (std::mem::take(&mut self.plan), Arc::clone(self.shared));
        let (number, volume) = (self.number, self.volume.clone());
        let thought = cheetah_device::supervise::spawn_blocking(move || {
            event(&mut *surveyor, &mut plan);
            if !plan.files.is_empty() {
                shared.note(number, &volume, plan.files.drain(..));
            }
            (surveyor, plan)
        });
        let (surveyor, plan) = thought.await.map_err(|_| "the surveyor failed")?;
        self.plan = plan;
        Ok(surveyor)
    }

    fn read(&self, range: ByteRange) -> std::result::Result<BoxFuture<'static, SurveyEvent>, &'static str> {
        let (background, places) = (Arc::clone(&self.shared.background), self.places(range)?);
        Ok(Box::pin(async move { SurveyEvent::Read(range, pieces::read(&*background, &places, range.len).await) }))
    }

    fn fetch(&self, range: ByteRange) -> std::result::Result<BoxFuture<'static, SurveyEvent>, &'static str> {
        let (cache, places) = (Arc::clone(&self.shared.cache), self.places(range)?);
        Ok(Box::pin(async move {
            join_all(places.iter().map(|place| cache.fetch_ahead(*place, Urgency::Later))).await;
            SurveyEvent::Near
        }))
    }

    /// Returns the places of a range of the volume on the device; fails if too much has been fetched.
    fn places(&self, range: ByteRange) -> std::result::Result<SmallVec<[ByteRange; 2]>, &'static str> {
        let places = self.volume.of(range);
        // Ranges outside the volume count too: a file system that claims a wrong size gets no more than others.
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(range.len));
        taken.map(|_| places).map_err(|_| "its metadata would not fit into the cache")
    }
}
