//! Surveys of all file systems of a device, with many reads on their way at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cheetah_device::cache::{Cache, Urgency};
use cheetah_device::{ByteRange, Data, Device, Geometry, Io, Result};
use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::FuturesUnordered;

use super::shell::Shared;
use crate::partition::read_partitions;
use crate::survey::{Plan, Probes, START_BYTES, Surveyor, recognise, tried};

/// Bytes a survey has on their way, or waits for, at once; a bound on its memory, and on how long the first read of
/// another, on which much depends, waits for those of this one.
const READING_BYTES_MAX: u64 = 8 << 20;
const PROBING_BYTES_MAX: u64 = 4 << 20;
/// Ranges it wants near that are being seen to at once.
const FETCHING_MAX: usize = 256;
/// A survey that hears nothing for so long is given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// So is one of which so many reads in a row have failed.
const FAILURES_MAX: u32 = 16;

/// Finds the volumes of a device and surveys each.
pub(super) async fn survey_all(shared: Arc<Shared>) {
    let aside = Aside(Arc::clone(&shared.cache));
    let whole = ByteRange::new(0, aside.geometry().size);
    let mut volumes: Vec<_> = read_partitions(&aside).await.into_iter().map(|partition| partition.range).collect();
    // What tools try before they know of any of these.
    tried(whole).for_each(|range| shared.cache.hint(range, Urgency::Next));
    // Where there is no table the whole may be a volume; where there is one it is not, but looking costs nothing.
    volumes.push(whole);
    let left = AtomicU64::new(shared.metadata_bytes_max);
    let surveys = (0..).zip(volumes).map(|(number, volume)| survey(&shared, number, volume, &left));
    let probes = Survey { reading_max: PROBING_BYTES_MAX, ..Survey::new(&shared, u32::MAX, whole, &left) };
    // How the probes end is of no matter: they locate nothing.
    let _ = futures::join!(join_all(surveys), probes.run(Box::new(Probes::new(whole.len))));
    shared.surveyed();
    tracing::info!("foresight: {} files of all volumes are known", shared.files());
}

/// Surveys one volume, if its file system is known.
async fn survey(shared: &Arc<Shared>, number: u32, volume: ByteRange, left: &AtomicU64) {
    let start = ByteRange::new(volume.offset, volume.len.min(START_BYTES));
    let Ok(head) = shared.cache.read_aside(start, Urgency::Soon).await else { return };
    if let Some(surveyor) = recognise(&head.into_bytes()) {
        tried(volume).for_each(|range| shared.cache.hint(range, Urgency::Next));
        explore(shared, number, volume, left, surveyor).await;
    }
}

pub(super) async fn explore(
    shared: &Arc<Shared>,
    number: u32,
    volume: ByteRange,
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
    shared: &'a Arc<Shared>,
    number: u32,
    volume: ByteRange,
    /// Bytes that all surveys may still bring.
    left: &'a AtomicU64,
    /// Bytes it may be reading at once.
    reading_max: u64,
    plan: Plan,
    failures: u32,
}

enum Event {
    Read(ByteRange, Result<Data>),
    Near,
}

impl<'a> Survey<'a> {
    fn new(shared: &'a Arc<Shared>, number: u32, volume: ByteRange, left: &'a AtomicU64) -> Self {
        let (reading_max, plan) = (READING_BYTES_MAX, Plan::default());
        Self { shared, number, volume, left, reading_max, plan, failures: 0 }
    }

    /// To its end, or a reason to give up.
    async fn run(mut self, mut surveyor: Box<dyn Surveyor>) -> std::result::Result<(), &'static str> {
        surveyor = self.step(surveyor, |surveyor, plan| surveyor.start(plan)).await?;
        let mut under_way: FuturesUnordered<BoxFuture<'static, Event>> = FuturesUnordered::new();
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
                // What cannot be begun yet waits for what is under way.
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
                Some(Event::Near) => fetching -= 1,
                Some(Event::Read(range, outcome)) => {
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

    /// Lets the surveyor think, where that holds up nobody's read, and takes note of the files it has found.
    async fn step(
        &mut self,
        mut surveyor: Box<dyn Surveyor>,
        event: impl FnOnce(&mut dyn Surveyor, &mut Plan) + Send + 'static,
    ) -> std::result::Result<Box<dyn Surveyor>, &'static str> {
        let (mut plan, shared) = (std::mem::take(&mut self.plan), Arc::clone(self.shared));
        let (number, volume) = (self.number, self.volume);
        let thought = cheetah_device::supervise::spawn_blocking(move || {
            event(&mut *surveyor, &mut plan);
            if !plan.files.is_empty() {
                shared.note(number, volume, plan.files.drain(..));
            }
            (surveyor, plan)
        });
        let (surveyor, plan) = thought.await.map_err(|_| "the surveyor failed")?;
        self.plan = plan;
        Ok(surveyor)
    }

    fn read(&self, range: ByteRange) -> std::result::Result<BoxFuture<'static, Event>, &'static str> {
        let (cache, place) = (Arc::clone(&self.shared.cache), self.place(range)?);
        Ok(Box::pin(async move { Event::Read(range, cache.read_aside(place, Urgency::Soon).await) }))
    }

    fn fetch(&self, range: ByteRange) -> std::result::Result<BoxFuture<'static, Event>, &'static str> {
        let (cache, place) = (Arc::clone(&self.shared.cache), self.place(range)?);
        Ok(Box::pin(async move {
            cache.bring(place, Urgency::Later).await;
            Event::Near
        }))
    }

    /// Where a range of the volume lies on the device; fails if there has been enough.
    fn place(&self, range: ByteRange) -> std::result::Result<ByteRange, &'static str> {
        let place = ByteRange::new(self.volume.offset.saturating_add(range.offset), range.len);
        // What lies outside the volume is an expense too: a file system that lies about its size gets no more than others.
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(range.len));
        taken.map(|_| place).map_err(|_| "its metadata would not fit into the cache")
    }
}

/// The device, read by somebody nobody waits for.
struct Aside(Arc<Cache>);

impl Device for Aside {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        Io::later(self.0.read_aside(range, Urgency::Soon))
    }
}
