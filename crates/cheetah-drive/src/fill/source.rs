//! A source that is reopened when it is lost, and used only if it is recognised as the same.
//!
//! One task reopens it on behalf of all waiting reads, since comparing a source with the data it sent before may take
//! long. A read waits for the source as long as [`FillOptions::timeout`](super::FillOptions::timeout) allows.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::error::EIO;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error as DeviceError, Geometry, Io, Size};
use cheetah_error::{Error, Result};
use cheetah_image::{Evidence, Identity};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::event::{FillEvent, Found, Reporter};
use super::origin::{changed, known_changes};
use super::record::FillRecord;
use crate::file::Fill;
use crate::recognise::{Cause, Comparing, Comparison, Equal, Opening, now_s};

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
        if matches!(error, Error::Evidence(_)) {
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
                let how = "it is served by another process, which makes no digests to compare";
                return Err(changed(&self.name, how));
            }
            tracing::info!("{}: comparing the source with {} that it sent before", self.name, Size(sent.bytes()));
            let grains = self.record.grains();
            let changed = |range: ByteRange| changed(&self.name, format_args!("{range} has another content now"));
            let mut comparing = Comparing { location: &self.name, changed: &changed, compared: &mut |_, _| {} };
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
        Ok(Opening { at_s, at, cause, instance: instance.cloned(), write_protected, vouched: Vec::new(), comparison })
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
        if !matches!(error, DeviceError::Io { errno: EIO, .. }) {
            return error;
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
            if is_over || matches!(error, Error::Evidence(_)) {
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
        match self.check(range) {
            Ok(()) => Io::later(self.read_or_reopen(range)),
            Err(error) => Io::fail(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::DriveFile;
    use crate::file::tests::example;
    use crate::fill::FillObserver;
    use cheetah_device::Coverage;
    use cheetah_device::copy_on_read::{CopyRecord as _, GRAIN};
    use cheetah_device::coverage::State as Covered;
    use cheetah_device::memory::Memory;
    use cheetah_image::{HashChoice, Kind, ServedBy, Source};
    use futures::FutureExt as _;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    const URI: &str = "nbd://h";
    const PATIENCE: Duration = Duration::from_secs(10);

    /// A source and its server.
    struct Server {
        identity: Mutex<Identity>,
        content: Mutex<Vec<u8>>,
        /// How often it was opened.
        opened: AtomicUsize,
        /// The number of further attempts to open it that fail.
        refuses: AtomicUsize,
        /// The number of reads, each time it is opened, after which the link is lost.
        reads: AtomicU64,
        events: Mutex<Vec<FillEvent>>,
    }

    impl Server {
        fn new(content: Vec<u8>) -> Arc<Self> {
            Arc::new(Self {
                identity: Mutex::new(Identity::new(Kind::Nbd, URI, content.len() as u64)),
                content: Mutex::new(content),
                opened: AtomicUsize::new(0),
                refuses: AtomicUsize::new(0),
                reads: AtomicU64::new(u64::MAX),
                events: Mutex::default(),
            })
        }

        /// Changes the instance of the agent that serves it.
        fn instance(&self, instance: &str) {
            let (path, instance) = (Some("/dev/sda".to_owned()), Some(instance.to_owned()));
            self.identity.lock().server = Some(ServedBy { path, instance, ..ServedBy::default() });
        }

        fn opener(self: &Arc<Self>) -> OpenSource {
            let server = self.clone();
            Arc::new(move |_| {
                server.opened.fetch_add(1, Ordering::Relaxed);
                let refuses = server.refuses.load(Ordering::Relaxed);
                server.refuses.store(refuses.saturating_sub(1), Ordering::Relaxed);
                let memory = Memory::new(server.content.lock().clone());
                let device =
                    Arc::new(Link { memory, reads_left: AtomicU64::new(server.reads.load(Ordering::Relaxed)) });
                let source = Source { device, identity: server.identity.lock().clone(), name: "disk".into() };
                async move { if refuses > 0 { Err(Error::failed("connection refused")) } else { Ok(source.into()) } }
                    .boxed()
            })
        }

        /// The record of a drive that is filled from it, with the first `read` grains already copied.
        async fn record(&self, dir: &tempfile::TempDir, read: u64) -> Arc<FillRecord> {
            let identity = self.identity.lock().clone();
            let mut file = DriveFile { path: dir.path().join("case.drive"), size: identity.size, ..example() };
            file.sets.truncate(1);
            file.sets[0].nodes.truncate(1);
            (file.sets[0].size, file.sets[0].nodes[0].size) = (identity.size, identity.size);
            crate::fill::begin(&mut file, URI, &identity, HashChoice::NONE).unwrap();
            let record = Arc::new(FillRecord::open(&file, Coverage::new(identity.size)).unwrap());
            let range = ByteRange::new(0, (read * GRAIN).min(identity.size));
            let mut coverage = Coverage::new(identity.size);
            coverage.set(range, Covered::Read);
            record.note_sent(range);
            record.passed(range, &Data::from(self.content.lock().clone()).slice(0, range.len));
            record.record(coverage).await.unwrap();
            record
        }

        fn source(self: &Arc<Self>, record: &Arc<FillRecord>) -> ReopeningSource {
            let reporter = Reporter::new(Some(Arc::new(Events(self.clone()))));
            ReopeningSource::new(self.opener(), record.clone(), reporter, PATIENCE)
        }

        fn opened(&self) -> usize {
            self.opened.load(Ordering::Relaxed)
        }

        /// How the source was recognised each time it came back.
        fn comparisons(&self) -> Vec<Comparison> {
            let events = self.events.lock();
            let back = events.iter().filter_map(|event| match event {
                FillEvent::Back { source } => Some(source.opening.comparison.clone()),
                _ => None,
            });
            back.collect()
        }
    }

    struct Events(Arc<Server>);

    impl FillObserver for Events {
        fn observe(&self, event: FillEvent) -> Result<()> {
            self.0.events.lock().push(event);
            Ok(())
        }
    }

    struct Link {
        memory: Memory,
        reads_left: AtomicU64,
    }

    impl Device for Link {
        fn geometry(&self) -> Geometry {
            self.memory.geometry()
        }
        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            let left = self.reads_left.load(Ordering::Relaxed);
            self.reads_left.store(left.saturating_sub(1), Ordering::Relaxed);
            if left > 0 {
                return self.memory.read(range);
            }
            Io::fail(DeviceError::Lost { device: "disk".into(), range, why: "pulled".into() })
        }
    }

    fn content(grains: u64) -> Vec<u8> {
        (0..grains * GRAIN).map(|at| (at / 64 % 251) as u8).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_until_a_lost_source_is_back() {
        let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(4)));
        let record = server.record(&dir, 2).await;
        let source = server.source(&record);
        source.connect(false).await.unwrap();
        // The link is lost at once, and is refused three times.
        source.inner.state.lock().open = Some(Arc::new(Link { memory: Memory::new(vec![]), reads_left: 0.into() }));
        server.refuses.store(3, Ordering::Relaxed);
        let read = source.read(ByteRange::new(3 * GRAIN, 10)).await.unwrap();
        assert!(read == content(4)[3 * GRAIN as usize..][..10]);
        assert_eq!(server.opened(), 5);
        let expected = Comparison::Samples { compared_bytes: 2 * GRAIN, of_bytes: 2 * GRAIN, differ_bytes_max: 0 };
        assert_eq!(server.comparisons(), [expected]);
    }

    #[tokio::test(start_paused = true)]
    async fn reads_of_a_source_that_stays_away_fail_after_the_timeout_and_then_at_once() {
        let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(4)));
        let record = server.record(&dir, 2).await;
        let source = server.source(&record);
        server.reads.store(2, Ordering::Relaxed);
        source.connect(false).await.unwrap();
        server.refuses.store(usize::MAX, Ordering::Relaxed);
        let (begun, range) = (Instant::now(), ByteRange::new(3 * GRAIN, 10));
        let error = source.read(range).await.unwrap_err();
        assert!(matches!(error, DeviceError::Lost { .. }) && error.to_string().contains("refused"), "{error}");
        assert!(begun.elapsed() >= PATIENCE && begun.elapsed() < PATIENCE * 2, "{:?}", begun.elapsed());
        let (again, opened) = (Instant::now(), server.opened());
        assert!(source.read(range).await.is_err() && source.read(range).await.is_err());
        assert_eq!(again.elapsed(), Duration::ZERO);
        assert!(server.opened() <= opened + 1, "an attempt that failed just now is not repeated");
        server.refuses.store(0, Ordering::Relaxed);
        server.reads.store(100, Ordering::Relaxed);
        tokio::time::advance(ATTEMPT_HOLDS).await;
        assert!(source.read(range).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_is_another_one_fails_reads_at_once() {
        let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(4)));
        let record = server.record(&dir, 2).await;
        let source = server.source(&record);
        server.reads.store(2, Ordering::Relaxed);
        source.connect(false).await.unwrap();
        server.reads.store(100, Ordering::Relaxed);
        server.identity.lock().size += 512;
        let (begun, range) = (Instant::now(), ByteRange::new(3 * GRAIN, 10));
        let refusal = source.read(range).await.unwrap_err().to_string();
        assert!(refusal.contains("its size was 262144 and is now 262656"), "{refusal}");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(server.events.lock().iter().any(|event| matches!(event, FillEvent::Changed { .. })));

        // Equal in all known properties, but not in content.
        server.identity.lock().size -= 512;
        server.content.lock()[4711] ^= 1;
        tokio::time::advance(ATTEMPT_HOLDS).await;
        let refusal = source.read(range).await.unwrap_err().to_string();
        assert!(refusal.contains("0+65536 has another content now"), "{refusal}");
        assert_eq!(server.source(&record).connect(true).await.unwrap_err().exit_code(), 3);
        server.content.lock()[4711] ^= 1;
        tokio::time::advance(ATTEMPT_HOLDS).await;
        assert!(source.read(range).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sample_of_a_large_part_leaves_a_bound_in_the_drive_file() {
        let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(300)));
        let record = server.record(&dir, 256).await;
        server.source(&record).connect(false).await.unwrap();
        let saved = DriveFile::load(&dir.path().join("case.drive")).unwrap();
        let image = saved.image.clone().unwrap();
        // 64 of 256 grains, and 99.9 %.
        assert!((15..30).contains(&(image.differ_bytes_max / GRAIN)), "{image:?}");
        assert!(image.note().unwrap().contains("99.9 %"), "{image:?}");
        assert_eq!(record.file(), saved);

        // If everything in a source is compared, no byte may differ.
        let opening = Opening {
            at_s: 0,
            at: 0,
            cause: Cause::Lost,
            instance: None,
            write_protected: None,
            vouched: vec![],
            comparison: Comparison::Digests { compared_bytes: 256 * GRAIN, unreadable_bytes: 0 },
        };
        record.opened(&Opening { comparison: Comparison::SameInstance, ..opening.clone() }).unwrap();
        assert_eq!(record.file(), saved);
        record.opened(&opening).unwrap();
        assert_eq!(DriveFile::load(&saved.path).unwrap().image.unwrap().note(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_is_recognised_by_its_process_and_another_only_by_digests() {
        let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(4)));
        server.instance("1");
        let record = server.record(&dir, 2).await;
        // A new comparison would fail: nothing can be read.
        server.reads.store(0, Ordering::Relaxed);
        let found = server.source(&record).connect(false).await.unwrap().unwrap();
        assert_eq!(found.opening.comparison, Comparison::SameInstance);
        server.reads.store(100, Ordering::Relaxed);
        server.instance("2");
        let refusal = server.source(&record).connect(true).await.unwrap_err();
        assert!(refusal.exit_code() == 3 && refusal.to_string().contains("another process"), "{refusal}");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_came_without_a_digest_count_as_different() {
        let (dir, server) = (tempfile::tempdir().unwrap(), Server::new(content(4)));
        let record = server.record(&dir, 2).await;
        record.note_sent(ByteRange::new(3 * GRAIN, 512));
        let found = server.source(&record).connect(false).await.unwrap().unwrap();
        let (compared_bytes, of_bytes) = (2 * GRAIN, 2 * GRAIN + 512);
        let expected = Comparison::Samples { compared_bytes, of_bytes, differ_bytes_max: 512 };
        assert_eq!(found.opening.comparison, expected);
    }
}
