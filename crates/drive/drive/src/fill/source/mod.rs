//! A source that is reopened when it is lost, and used only if it is recognised as the same.
//!
//! One task reopens it on behalf of all waiting reads, since comparing a source with the data it sent before may take
//! long. A read waits for the source as long as the time-out of a node.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::error::EIO;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error as DeviceError, Geometry, Io, Size, try_io};
use cheetah_error::{Error, Result};
use cheetah_image::{Evidence, Identity};
use cheetah_kit::clock::now_s;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::event::{FillEvent, Found, Reporter};
use super::origin::{Change, changed, known_changes};
use super::record::FillRecord;
use crate::file::Fill;
use crate::recognise::{Cause, Comparing, Comparison, Equal, Opening};

/// Opens the source at a path or a URI.
pub type OpenSource = Arc<dyn Fn(String) -> BoxFuture<'static, Result<Evidence>> + Send + Sync>;

/// How long a failed attempt to reopen the source is reported to further reads, so that concurrent failures cause one
/// attempt.
const ATTEMPT_HOLDS: Duration = Duration::from_millis(500);
/// The pause between attempts to reopen a source that was lost just now.
const RETRY_EVERY: Duration = Duration::from_millis(250);

/// The source of a drive that is being filled, reopened whenever it is lost.
pub(super) struct ReopeningSource {
    inner: Arc<Inner>,
    /// The task that reopens it, if it is lost.
    tasks: Mutex<JoinSet<()>>,
}

struct Inner {
    open: OpenSource,
    /// The drive file, and the digests of the data that the source has sent so far.
    record: Arc<FillRecord>,
    name: Arc<str>,
    size: u64,
    reporter: Reporter,
    /// How long a read may wait for the source to come back.
    patience: Duration,
    state: Mutex<State>,
    /// Notified when the source is open, and when an attempt to open it has failed.
    changed: Notify,
}

#[derive(Default)]
struct State {
    open: Option<DynDevice>,
    /// When it was lost, if it was open before.
    lost_at: Option<Instant>,
    /// A task is reopening it.
    is_reopening: bool,
    /// The last failed attempt, and its error.
    failed: Option<(Instant, Arc<str>)>,
}

impl ReopeningSource {
    /// Returns the source of the drive that `record` belongs to, not open yet.
    pub(super) fn new(open: OpenSource, record: Arc<FillRecord>, reporter: Reporter, patience: Duration) -> Self {
        let fill = record.file().fill;
        let (name, size) = fill.map_or_else(|| ("the source".into(), 0), |fill| (fill.location.into(), fill.size));
        let (state, changed) = (Mutex::default(), Notify::new());
        let inner = Arc::new(Inner { open, record, name, size, reporter, patience, state, changed });
        Self { inner, tasks: Mutex::default() }
    }

    /// Opens and recognises the source. An evidence error (exit code 3) means that it has changed. If the drive may be
    /// used `without` the source, returns `None` for any other error, or if the comparison exceeds the time-out; a
    /// later read opens it then.
    pub(super) async fn connect(&self, without: bool) -> Result<Option<Found>> {
        let inner = &self.inner;
        let attempt = inner.attempt(Cause::Resumed);
        let result = match without {
            false => attempt.await,
            true => timeout(inner.patience, attempt).await.unwrap_or_else(|_| Err(inner.silent())),
        };
        match result {
            Ok((device, found)) => {
                inner.state.lock().open = Some(device);
                Ok(Some(found))
            }
            Err(error) if without && error.exit_code() != 3 => {
                tracing::warn!("{error}; filled ranges can still be read, and filling resumes when the source returns");
                Ok(None)
            }
            Err(error) => {
                inner.report_if_changed(&error).await;
                Err(error)
            }
        }
    }

    /// Returns the source; waits until it is open again.
    async fn device(&self) -> std::result::Result<DynDevice, Arc<str>> {
        let give_up_at = Instant::now() + self.inner.patience;
        loop {
            // Registered before the state is read, so that no change in between is missed.
            let mut changed = std::pin::pin!(self.inner.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.inner.state.lock();
                if let Some(device) = &state.open {
                    return Ok(device.clone());
                }
                if !state.is_reopening {
                    if let Some((at, why)) = &state.failed
                        && at.elapsed() < ATTEMPT_HOLDS
                    {
                        return Err(why.clone());
                    }
                    state.is_reopening = true;
                    self.spawn_reopening();
                }
            }
            if timeout_at(give_up_at, changed).await.is_err() {
                return Err(self.inner.silent().to_string().into());
            }
        }
    }

    fn spawn_reopening(&self) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(Reopening(self.inner.clone()).run());
    }

    async fn read_or_reopen(&self, range: ByteRange) -> cheetah_device::Result<Data> {
        let inner = &self.inner;
        let mut give_up_at = None;
        loop {
            let lost = |why| DeviceError::Lost { device: inner.name.clone(), range, why };
            let device = self.device().await.map_err(lost)?;
            let error = match device.read(range).await {
                Ok(data) if inner.accept(&device, range) => return Ok(data),
                // The source was lost, and perhaps replaced, while the read was in flight.
                Ok(_) => lost("the source was lost meanwhile".into()),
                Err(error) => inner.diagnose(range, error).await,
            };
            if error.is_bad_sector() {
                return Err(error);
            }
            inner.lose(&device, &error).await;
            let give_up_at = *give_up_at.get_or_insert_with(|| Instant::now() + inner.patience);
            if !matches!(error, DeviceError::Lost { .. }) || Instant::now() >= give_up_at {
                return Err(error);
            }
        }
    }
}

impl Inner {
    /// The drive file's record of the source.
    fn fill(&self) -> Result<Fill> {
        self.record.file().fill.ok_or_else(|| Error::failed(format!("{}: the drive is complete", self.name)))
    }

    fn silent(&self) -> Error {
        let why = match self.state.lock().failed.as_ref().filter(|(at, _)| at.elapsed() < self.patience) {
            Some((_, why)) => why.to_string(),
            None => format!("{}: no answer for {:?}, or still being compared", self.name, self.patience),
        };
        Error::failed(why)
    }

    async fn report_if_changed(&self, error: &Error) {
        if error.is_evidence() {
            self.reporter.report_or_warn(FillEvent::Changed { what: error.to_string() }).await;
        }
    }

    /// Opens the source, and compares its identity only.
    async fn open_alike(&self) -> Result<Evidence> {
        let fill = self.fill()?;
        let opening = timeout(self.patience, (self.open)(fill.location.clone()));
        let silent = |_| Error::failed(format!("{}: no answer for {:?}", self.name, self.patience));
        let evidence = opening.await.unwrap_or_else(|elapsed| Err(silent(elapsed)))?;
        known_changes(&fill, &evidence.source.identity)?;
        Ok(evidence)
    }

    /// Opens the source, recognises it, and records how.
    async fn attempt(&self, cause: Cause) -> Result<(DynDevice, Found)> {
        let evidence = self.open_alike().await?;
        let opening = self.recognise(&evidence, cause).await?;
        let (record, noted) = (self.record.clone(), opening.clone());
        blocking(move || record.opened(&noted)).await?;
        let Evidence { source, .. } = evidence;
        Ok((source.device, Found { identity: source.identity, opening }))
    }

    /// Compares a source, whose identity is the recorded one, with the data it sent before.
    async fn recognise(&self, evidence: &Evidence, cause: Cause) -> Result<Opening> {
        let record = self.record.clone();
        let sent = blocking(move || record.sent()).await?;
        let Identity { write_protected, .. } = evidence.source.identity;
        let instance = evidence.source.identity.instance();
        let served_by = self.fill()?.server.and_then(|server| server.instance);
        let comparison = if sent.bytes() == 0 {
            Comparison::Nothing
        } else if instance.is_some() && instance == served_by.as_ref() {
            Comparison::SameInstance
        } else {
            let client = evidence.digests_client().await?;
            if client.is_none() && served_by.is_some() {
                return Err(changed(&self.name, Change::OtherProcess));
            }
            tracing::info!("{}: comparing the source with {} that it sent before", self.name, Size(sent.bytes()));
            let grains = self.record.grains();
            let changed = |range: ByteRange| changed(&self.name, Change::Content(range));
            let mut comparing =
                Comparing { location: &self.name, changed: &changed, compared: &mut |_, _| {}, all: false };
            let source = &evidence.source.device;
            let is_grain = |grain: ByteRange, data: &Data| Ok(grains.known(grain)? == Some(grains.value(grain, data)));
            let is_chunk = |chunk: ByteRange, found: &_| Ok(grains.digest(chunk.offset)?.as_ref() == Some(found));
            let equal = match &client {
                Some(client) => {
                    let chunks = comparing.by_digests(client, &sent.chunks, is_chunk).await?;
                    // An agent makes digests of whole chunks; demand reads leave some chunks copied in part.
                    chunks.and(comparing.by_samples(source, &sent.rest, is_grain).await?)
                }
                None => comparing.by_samples(source, &sent.grains, is_grain).await?,
            };
            let differ_bytes_max = sent.incomparable_bytes;
            let unknown = Equal { differ_bytes_max, ..Equal::default() };
            comparing.conclude(equal.and(unknown), sent.bytes())?
        };
        let (at_s, at) = (now_s(), sent.bytes());
        Ok(Opening {
            at_s,
            at,
            cause,
            instance: instance.cloned(),
            write_protected,
            vouched: Vec::new(),
            comparison,
            disks: Vec::new(),
        })
    }

    /// Whether `device` is still the source, so that its answer is valid. If so, records the range as sent.
    fn accept(&self, device: &DynDevice, range: ByteRange) -> bool {
        let state = self.state.lock();
        let is_open = state.open.as_ref().is_some_and(|open| Arc::ptr_eq(open, device));
        if is_open {
            self.record.note_sent(range);
        }
        is_open
    }

    /// Marks the source lost, unless `device` was already replaced.
    async fn lose(&self, device: &DynDevice, error: &DeviceError) {
        {
            let mut state = self.state.lock();
            if !state.open.as_ref().is_some_and(|open| Arc::ptr_eq(open, device)) {
                return;
            }
            (state.open, state.lost_at, state.failed) = (None, Some(Instant::now()), None);
        }
        tracing::warn!("{}: the source failed, and is opened again: {error}", self.name);
        self.reporter.report_or_warn(FillEvent::Lost { why: error.to_string() }).await;
    }

    /// Distinguishes a bad sector from a disconnected disk, which fails every read with the same error, by opening the
    /// disk again: a loose cable must not mark a whole disk as unreadable.
    async fn diagnose(&self, range: ByteRange, error: DeviceError) -> DeviceError {
        match error {
            // An image with checksums of its own is corrupt there for good. Content that a server's link damages is not.
            DeviceError::Corrupt { device, .. } if self.fill().is_ok_and(|fill| fill.server.is_none()) => {
                let why = format!("corrupt in the image: {device}").into();
                return DeviceError::Unreadable { device: self.name.clone(), range, why };
            }
            DeviceError::Io { errno: EIO, .. } => {}
            error => return error,
        }
        match self.open_alike().await {
            Ok(_) => error,
            Err(why) => DeviceError::Lost { device: self.name.clone(), range, why: why.to_string().into() },
        }
    }
}

/// The task that reopens a source. After it has ended, by return or by panic, another may begin.
struct Reopening(Arc<Inner>);

impl Reopening {
    /// Repeats the attempt until the source is open, has changed, or has been lost for longer than reads wait.
    async fn run(self) {
        let inner = &self.0;
        let lost_at = inner.state.lock().lost_at;
        loop {
            let error = match self.attempt(lost_at.is_some()).await {
                Ok(device) => {
                    tracing::info!("{}: the source is back", inner.name);
                    inner.state.lock().open = Some(device);
                    return;
                }
                Err(error) => error,
            };
            let why: Arc<str> = error.to_string().into();
            let before = inner.state.lock().failed.replace((Instant::now(), why.clone()));
            if before.is_none_or(|(_, before)| before != why) {
                inner.report_if_changed(&error).await;
            }
            let is_over = lost_at.is_none_or(|at| at.elapsed() >= inner.patience);
            if is_over || error.is_evidence() {
                return;
            }
            sleep(RETRY_EVERY.min(inner.patience)).await;
        }
    }

    /// Reopens the source, and reports that it is back.
    async fn attempt(&self, was_open: bool) -> Result<DynDevice> {
        let cause = if was_open { Cause::Lost } else { Cause::Resumed };
        let (device, found) = self.0.attempt(cause).await?;
        self.0.reporter.report(FillEvent::Back { source: Box::new(found) }).await?;
        Ok(device)
    }
}

impl Drop for Reopening {
    fn drop(&mut self) {
        self.0.state.lock().is_reopening = false;
        self.0.changed.notify_waiters();
    }
}

/// Runs work that blocks.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|died| Error::failed(format!("updating the record of the fill: {died}")))?
}

impl Device for ReopeningSource {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.inner.size, writable: false, block_preferred: 4096 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        try_io!(self.check(range));
        Io::later(self.read_or_reopen(range))
    }
}

#[cfg(test)]
mod tests;
