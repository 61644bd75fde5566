//! The pass itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cheetah_device::data::Part;
use cheetah_device::fatal_reads::ranges_that_end_connections;
use cheetah_device::{ByteRange, Error as DeviceError};
use cheetah_drive::recognise::{Cause, Opening};
use cheetah_error::next::Acquisition;
use cheetah_error::{Error, Result};
use cheetah_image::hash::Hashing;
use cheetah_image::{BadRange, HashedFiles, Kind};
use cheetah_kit::clock::now_s;
use cheetah_source::{Evidence, LinkCounters};
use tokio::time::MissedTickBehavior;

use super::checkpoint::Checkpoints;
use super::readback::good_chunks;
use super::recognise::{Compared, recognise};
use super::unrecognised::Unrecognised;
use super::{EtaMeter, Look, SinkQueues};
use crate::journal::{self, AcquisitionState, JournalRecord};
use crate::order::{AcquireEvent, ErrorsMax, Opener};
use crate::reader::{Chunk, DiskPlaces, Liveness, Reader, Salvage};

/// The interval of progress events.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// The number of chunks read earlier by which a source is tested for being readable.
const GOOD_CHUNKS: u64 = 16;
/// Every 64th sample of a disk that was read at the start is read again, to test whether the disk is still readable.
const SAMPLES_APART: usize = 64;
/// The pause between attempts to reopen a lost source.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// A pass over a source.
pub struct Pass<'a> {
    /// The source.
    pub source: Opener,
    /// How to read around bad sectors.
    pub salvage: Salvage,
    /// The initial number of bytes in flight, if known.
    pub window_bytes: Option<u64>,
    /// The number of unreadable ranges to tolerate.
    pub errors_max: ErrorsMax,
    /// How long to try to reopen a lost source.
    pub retry_for: Duration,
    /// Whether the examiner vouches for a source whose identity has changed.
    pub same_source: bool,
    /// Whether all data acquired before is compared with a source that is opened again.
    pub compare_all: bool,
    /// The state of the acquisition, which the pass advances.
    pub state: AcquisitionState,
    /// The unreadable part of it.
    pub damage: Damage,
    /// The tasks of the sinks.
    pub queues: SinkQueues,
    /// The hashes of the whole source, fed with the data of earlier passes.
    pub hashing: Hashing,
    /// The hashes of the files that the source is read from, if they are made as it is read.
    pub hashed: Option<Arc<HashedFiles>>,
    /// The journal.
    pub checkpoints: Checkpoints,
    /// Receives events. An error it returns stops the pass.
    pub tell: EventSink<'a>,
    /// Meters rate and time left.
    pub pace: EtaMeter,
    /// When the pass began.
    pub begun: Instant,
    /// Counts for the report.
    pub tally: Tally,
    /// The look for doubts, if it is made while the source is read.
    pub look: Look,
    /// What is in doubt about the source, a sentence each.
    pub doubts: Vec<String>,
}

/// Receives events.
pub type EventSink<'a> = &'a mut (dyn FnMut(AcquireEvent) -> Result<()> + Send);

/// Resolves when the pass is to stop, to the name of the signal.
pub type StopSignal<'a> = &'a mut (dyn Future<Output = &'static str> + Send + Unpin);

/// The extent of unreadable ranges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Damage {
    /// The number of errors: ranges, adjacent ones joined, and each started MiB of a longer range. So a long run of
    /// unreadable sectors on a dying disk does not count as a single error.
    pub errors: u64,
    /// Bytes.
    pub bytes: u64,
    /// The last range.
    last: ByteRange,
}

/// Bytes of an unreadable range that count as one error.
const ERROR_LEN: u64 = 1 << 20;

impl Damage {
    /// Sums up ranges, which are in order.
    pub fn of<'a>(bad: impl IntoIterator<Item = &'a BadRange>) -> Self {
        bad.into_iter().fold(Self::default(), Self::and)
    }

    /// Adds a range behind all others.
    #[must_use]
    pub fn and(self, bad: &BadRange) -> Self {
        let touches = !self.last.is_empty() && self.last.end() == bad.offset;
        let before = if touches { self.last } else { ByteRange::new(bad.offset, 0) };
        let last = ByteRange::between(before.offset, bad.range().end());
        let more = last.len.div_ceil(ERROR_LEN) - before.len.div_ceil(ERROR_LEN);
        Self { errors: self.errors + more, bytes: self.bytes + bad.len, last }
    }
}

/// Counters of a pass.
#[derive(Clone, Default)]
pub struct Tally {
    /// Traffic of earlier links.
    pub wire_before: LinkCounters,
    /// Returns the traffic of the current link.
    pub wire: Option<Arc<dyn Fn() -> LinkCounters + Send + Sync>>,
    /// The number of its replaced connections that are on record.
    pub reconnects: u64,
}

/// How a pass ended.
#[derive(Debug, PartialEq, Eq)]
pub enum PassEnd {
    /// The end of the source was reached.
    Whole,
    /// A signal stopped it.
    Stopped(&'static str),
    /// The source was lost and did not come back.
    Lost(DeviceError),
}

impl Tally {
    /// Returns the traffic of all links, if there is a link now.
    pub fn wire(&self) -> Option<LinkCounters> {
        self.wire.as_ref().map(|wire| wire().plus(self.wire_before))
    }
}

/// Why a pass cannot go on.
enum Failed {
    /// A sink or the journal failed: no further checkpoint is possible.
    Hard(Error),
    /// Anything else.
    Soft(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Soft(error)
    }
}

impl Pass<'_> {
    /// Reads to the end of the source, or until stopped. Then, or after an error of the source, writes a last
    /// checkpoint.
    pub async fn run(&mut self, evidence: Evidence, stop: StopSignal<'_>) -> Result<PassEnd> {
        match self.go_on(evidence, stop).await {
            Err(Failed::Hard(error)) => Err(error),
            Err(Failed::Soft(error)) => self.make_safe().await.and(Err(error)),
            Ok(end) => self.make_safe().await.map(|()| end),
        }
    }

    async fn go_on(&mut self, mut evidence: Evidence, stop: StopSignal<'_>) -> std::result::Result<PassEnd, Failed> {
        // The offset of the last loss, and when it was first lost there: bounds retries of a source that reopens but
        // yields nothing.
        let mut stuck = ((u64::MAX, 0), Instant::now());
        loop {
            (self.tally.wire, self.tally.reconnects) = (evidence.wire.clone(), 0);
            self.look.begin(&evidence.source);
            let liveness = self.liveness(&evidence);
            let mut reader =
                Reader::new(evidence.source.device.clone(), self.state.at, self.salvage, liveness, self.window_bytes);
            let lost = match self.read(&mut reader, &evidence, stop).await? {
                PassEnd::Lost(error) => error,
                end => return Ok(end),
            };
            self.note_reconnects(&evidence)?;
            self.look.give_up();
            drop((reader, evidence));
            // A server that ends the connection at bad sectors is lost once for each range that is found to be one.
            let place = (self.state.at, ranges_that_end_connections());
            if stuck.0 != place {
                stuck = (place, Instant::now());
            }
            // The source may be unavailable for long.
            self.make_safe().await.map_err(Failed::Hard)?;
            evidence = tokio::select! {
                biased;
                why = &mut *stop => return Ok(PassEnd::Stopped(why)),
                back = self.reopen(&lost, stuck.1) => match back? {
                    Some(evidence) => evidence,
                    None => return Ok(PassEnd::Lost(lost)),
                },
            };
            if let (Some(now), Some(before)) = (&evidence.source.hashed, &self.hashed) {
                now.go_on_from(before);
            }
        }
    }

    /// Returns the test of whether the source is still readable.
    fn liveness(&self, evidence: &Evidence) -> Liveness {
        let identity = &evidence.source.identity;
        // A remote source is reopened when it is lost; reopening an image costs much and proves little.
        let is_here = evidence.wire.is_none() && matches!(identity.kind, Kind::Block | Kind::Raw);
        let coverage = self.state.coverage();
        let good = good_chunks(self.state.at, &coverage, GOOD_CHUNKS);
        Liveness::new(&identity.location, is_here.then(|| self.source.clone()), good).on(self.places_on(evidence))
    }

    /// The disks of a volume that lies on several, each with places that could be read when the acquisition began.
    fn places_on(&self, evidence: &Evidence) -> Vec<DiskPlaces> {
        if evidence.disks.len() < 2 {
            return Vec::new();
        }
        let good = |index: usize| {
            let samples = self.state.start.disks.get(index).into_iter().flat_map(|disk| &disk.samples);
            let readable = samples.filter(|sample| sample.blake3.is_some()).step_by(SAMPLES_APART);
            readable.map(|sample| ByteRange::new(sample.offset, sample.len)).collect()
        };
        let disks = evidence.disks.iter().enumerate();
        disks.map(|(index, disk)| DiskPlaces { device: disk.device.clone(), good: good(index) }).collect()
    }

    async fn read(
        &mut self,
        reader: &mut Reader,
        evidence: &Evidence,
        stop: StopSignal<'_>,
    ) -> std::result::Result<PassEnd, Failed> {
        let mut tick = tokio::time::interval(TELL_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.checkpoints.is_due(self.state.at) {
                self.checkpoint().await.map_err(Failed::Hard)?;
            }
            let full = self.checkpoints.must_wait(self.state.at);
            tokio::select! {
                biased;
                why = &mut *stop => return Ok(PassEnd::Stopped(why)),
                done = self.checkpoints.done() => done.map_err(Failed::Hard)?,
                _ = tick.tick() => {
                    self.note_reconnects(evidence)?;
                    self.tell_progress()?;
                }
                found = self.look.over() => self.note_doubts(found)?,
                next = reader.next(), if !full => match next {
                    None => {
                        if self.look.is_going_on() {
                            let found = self.look.over().await;
                            self.note_doubts(found)?;
                        }
                        self.note_reconnects(evidence)?;
                        self.tell_progress()?;
                        return Ok(PassEnd::Whole);
                    }
                    Some(Ok(chunk)) => self.take(chunk).await?,
                    Some(Err(error)) if is_lost(&error) => return Ok(PassEnd::Lost(error)),
                    Some(Err(error)) => return Err(Failed::Soft(unacquirable(&self.state.start.source.location, error))),
                },
            }
        }
    }

    /// Passes a chunk to the hashes and the sinks.
    async fn take(&mut self, chunk: Chunk) -> std::result::Result<(), Failed> {
        let damage = chunk.bad.iter().fold(self.damage, Damage::and);
        if let Some(bad) = chunk.bad.first().filter(|_| self.errors_max.exceeded_by(damage.errors)) {
            return Err(Failed::Soft(too_many(&self.state.start.source.location, bad, self.errors_max)));
        }
        let ByteRange { offset, len } = chunk.range;
        if chunk.retries > 0 {
            (self.tell)(AcquireEvent::Retried { offset, len, retries: chunk.retries })?;
        }
        for bad in &chunk.bad {
            (self.tell)(AcquireEvent::Unreadable(bad.clone()))?;
        }
        self.damage = damage;
        self.state.bad.extend(chunk.bad.iter().cloned());
        self.state.digests.set(offset, chunk.digest);
        self.state.retries += chunk.retries;
        self.checkpoints.note(&chunk);
        self.hashing.push(&chunk.data).await.map_err(Failed::Hard)?;
        let chunk = Arc::new(chunk);
        self.queues.push(&chunk).await.map_err(Failed::Hard)?;
        self.state.at = chunk.range.end();
        let zeros = chunk.data.parts().iter().map(|part| if let Part::Zeros(len) = part { *len } else { 0 }).sum();
        self.pace.step(len, zeros, self.begun.elapsed());
        Ok(())
    }

    /// Returns the time at work, without interruptions.
    pub fn active(&self) -> Duration {
        Duration::from_millis(self.state.active_ms) + self.begun.elapsed()
    }

    /// Starts a checkpoint.
    async fn checkpoint(&mut self) -> Result<()> {
        let marks = self.queues.checkpoint().await?;
        let (retries, links_lost) = (self.state.retries, self.state.links_lost);
        let files = self.hashed.as_ref().map_or_else(Vec::new, |hashed| hashed.advanced());
        self.checkpoints.begin(self.state.at, (retries, links_lost, self.active()), files, marks);
        Ok(())
    }

    /// Waits until everything read so far is durable and in the journal.
    async fn make_safe(&mut self) -> Result<()> {
        self.checkpoints.settle().await?;
        if self.checkpoints.asked_at() < self.state.at {
            self.checkpoint().await?;
            self.checkpoints.settle().await?;
        }
        Ok(())
    }

    /// Records what the look for doubts found.
    fn note_doubts(&mut self, doubts: Vec<String>) -> Result<()> {
        if !doubts.is_empty() {
            (self.tell)(AcquireEvent::Doubts { doubts: doubts.clone() })?;
        }
        // Beside those about the disks that it lies on.
        self.doubts.extend(doubts);
        Ok(())
    }

    /// Records every connection that was replaced without interrupting reads: the client does that itself if the server
    /// proves that it is the same process.
    fn note_reconnects(&mut self, evidence: &Evidence) -> Result<()> {
        let reconnects = evidence.wire.as_ref().map_or(0, |wire| wire().reconnects);
        while self.tally.reconnects < reconnects {
            self.tally.reconnects += 1;
            self.state.links_lost += 1;
            (self.tell)(AcquireEvent::Reconnected { source: Box::new(evidence.source.identity.clone()) })?;
        }
        Ok(())
    }

    /// Opens the source again, which was lost at `since`; `None` if it does not come back in time.
    async fn reopen(&mut self, lost: &DeviceError, since: Instant) -> std::result::Result<Option<Evidence>, Failed> {
        self.tally.wire_before = self.tally.wire().unwrap_or(self.tally.wire_before);
        self.tally.wire = None;
        self.state.links_lost += 1;
        self.checkpoints.append(JournalRecord::Lost { at_s: now_s() }).await.map_err(Failed::Hard)?;
        (self.tell)(AcquireEvent::Lost { why: lost.to_string(), retry_for_s: self.retry_for.as_secs() })?;
        let mut pause = Duration::ZERO;
        while since.elapsed() < self.retry_for {
            tokio::time::sleep(pause.min(self.retry_for)).await;
            pause = RETRY_EVERY;
            self.tell_progress()?;
            // An agent that connects to us may never do so again.
            let left = self.retry_for.saturating_sub(since.elapsed());
            let Ok(opened) = tokio::time::timeout(left, open(&self.source)).await else { break };
            let Some(evidence) = opened else { continue };
            let (total, begun) = (self.state.at, Instant::now());
            let (tell, mut pace, mut shown) = (&mut self.tell, EtaMeter::new(total, 0), Ok(()));
            let mut compared = |done, total| {
                pace.set(done, total, begun.elapsed());
                shown =
                    std::mem::replace(&mut shown, Ok(())).and_then(|()| tell(AcquireEvent::Checking(pace.progress())));
            };
            let known =
                known_again(&self.state, &evidence, (Cause::Lost, self.same_source, self.compare_all), &mut compared)
                    .await;
            shown?;
            if let Err(error) = &known
                && error.is_evidence()
            {
                (self.tell)(AcquireEvent::SourceChanged { what: error.to_string() })?;
            }
            let Some(opening) = known? else { continue };
            self.reopened(&evidence, opening).await?;
            return Ok(Some(evidence));
        }
        Ok(None)
    }

    /// Records that the source is available again.
    async fn reopened(&mut self, evidence: &Evidence, opening: Opening) -> std::result::Result<(), Failed> {
        let now = &evidence.source.identity;
        self.checkpoints.append(JournalRecord::Reopen(Box::new(opening.clone()))).await.map_err(Failed::Hard)?;
        let changed = journal::changes(&self.state.start.source, now);
        self.state.write_protected = journal::both(self.state.write_protected, now.write_protected);
        self.state.reopened(opening.clone());
        Ok((self.tell)(AcquireEvent::Back { source: Box::new(now.clone()), changed, opening: Box::new(opening) })?)
    }

    fn tell_progress(&mut self) -> Result<()> {
        self.pace.tick(self.begun.elapsed());
        let mut progress = self.pace.progress();
        progress.unreadable_bytes = self.damage.bytes;
        progress.retries = self.state.retries;
        progress.compression = self.tally.wire().and_then(|wire| wire.compression());
        (self.tell)(AcquireEvent::Progress(progress))
    }
}

/// The error for a source that failed in another way than by bad sectors.
pub fn unacquirable(source: &str, error: DeviceError) -> Error {
    match error {
        // The source's checksums do not match, or it was written to.
        DeviceError::Corrupt { .. } | DeviceError::Invalid(_) => {
            Error::evidence(format!("{source} cannot be acquired: {error}"))
        }
        error => Error::device(format!("reading {source}"))(error),
    }
}

/// The error for a source with more bad ranges than `max`, of which `bad` is the last.
pub fn too_many(source: &str, bad: &BadRange, max: ErrorsMax) -> Error {
    let (range, is, why) = (bad.range(), bad.is(), &bad.why);
    match max {
        ErrorsMax::Count(tolerated @ 1..) => Error::evidence(format!("{source}: {range} is {is}, too: {why}"))
            .next(Acquisition::SkipMoreErrors { tolerated }),
        _ => Error::evidence(format!("{source}: {range} is {is}: {why}")).next(Acquisition::SkipErrors),
    }
}

/// Returns whether the source may come back.
fn is_lost(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Lost { .. })
}

/// Opens the source; `None` if it is not available yet.
async fn open(source: &Opener) -> Option<Evidence> {
    source().await.inspect_err(|error| tracing::debug!("the source is not there yet: {error}")).ok()
}

/// Whether `evidence` is the source of which a part was acquired before; `None` if that cannot be decided now, so that
/// it must be opened once more.
async fn known_again(
    state: &AcquisitionState,
    evidence: &Evidence,
    how: (Cause, bool, bool),
    compared: Compared<'_>,
) -> Result<Option<Opening>> {
    match recognise(state, evidence, how, compared).await {
        Ok(opening) => Ok(Some(opening)),
        Err(Unrecognised::Failed(error)) if error.device_error().is_some_and(is_lost) => {
            tracing::debug!("the source was lost again: {error}");
            Ok(None)
        }
        // Any machine may connect: another disk proves nothing about the source.
        Err(Unrecognised::Another(error)) if evidence.inbound => {
            tracing::warn!("an agent that called is sent away: {error}");
            Ok(None)
        }
        Err(why) => Err(why.into_error()),
    }
}

/// Returns the source of which an earlier run of the command acquired a part: `evidence`, if it is that source. One that is
/// lost meanwhile is awaited for up to `retry_for`. If agents connect to us, those with another source are refused, and the right
/// one is awaited as long.
pub async fn recognise_first(
    source: &Opener,
    state: &AcquisitionState,
    evidence: Evidence,
    (same_source, compare_all, retry_for): (bool, bool, Duration),
    compared: Compared<'_>,
) -> Result<(Evidence, Opening)> {
    let how = (Cause::Resumed, same_source, compare_all);
    let why = match recognise(state, &evidence, how, compared).await {
        Ok(opening) => return Ok((evidence, opening)),
        Err(Unrecognised::Failed(error)) if error.device_error().is_some_and(is_lost) => {
            let error = error.device_error().map(ToString::to_string).unwrap_or_default();
            format!("the source was lost while it was compared with earlier reads: {error}")
        }
        Err(why) if !evidence.inbound => return Err(why.into_error()),
        Err(Unrecognised::Another(error)) => {
            tracing::warn!("an agent that called is sent away: {error}");
            format!("the source did not call, but another did: {error}")
        }
        Err(Unrecognised::Failed(error)) => return Err(error),
    };
    drop(evidence);
    let since = Instant::now();
    while since.elapsed() < retry_for {
        tokio::time::sleep(RETRY_EVERY.min(retry_for)).await;
        let left = retry_for.saturating_sub(since.elapsed());
        let Ok(opened) = tokio::time::timeout(left, open(source)).await else { break };
        let Some(evidence) = opened else { continue };
        if let Some(opening) = known_again(state, &evidence, how, compared).await? {
            return Ok((evidence, opening));
        }
    }
    Err(Error::failed(why).next(Acquisition::GoOn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_started_mib_of_a_range_is_an_error() {
        let bad = |offset, len| BadRange { offset, len, why: "bad".into(), corrupt: false };
        let errors = |list: &[BadRange]| Damage::of(list).errors;
        assert_eq!(errors(&[bad(0, 512), bad(512, 512), bad(2048, 512)]), 2);
        assert_eq!(errors(&[bad(0, 1 << 20)]), 1);
        // In chunks, as they are read.
        let chunks: Vec<_> = (0..100).map(|chunk| bad(chunk << 20, 1 << 20)).collect();
        assert_eq!(errors(&chunks), 100);
        assert_eq!(errors(&[bad((1 << 20) - 512, 512), bad(1 << 20, 1 << 20), bad(2 << 20, 512)]), 2);
    }
}
