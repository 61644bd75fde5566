//! A source that may go away and come back: it is reopened after a failure, and used only if it is still the same.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::error::EIO;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error as DeviceError, Geometry, Io};
use cheetah_error::{Error, Result};
use cheetah_image::{Identity, Source};
use futures::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::event::{FillEvent, Reporter};
use super::origin::recognise;
use super::record::FillRecord;
use super::samples;
use crate::file::Fill;

/// Opens the source at a path or a URI.
pub type OpenSource = Arc<dyn Fn(String) -> BoxFuture<'static, Result<Source>> + Send + Sync>;

/// How long the result of reopening the source holds, so that requests that fail together cause one attempt.
const ATTEMPT_HOLDS: Duration = Duration::from_millis(500);

/// The source of a drive that is being filled; reopened as often as necessary.
pub(super) struct ReopeningSource {
    open: OpenSource,
    fill: Fill,
    /// The digests of what it has sent so far.
    record: Arc<FillRecord>,
    name: Arc<str>,
    reporter: Reporter,
    /// How long a read may wait for the source to come back.
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<DynDevice>,
    /// The last failed attempt, and its error.
    failed: Option<(Instant, Arc<str>)>,
}

impl ReopeningSource {
    /// The source that `fill` describes, not open yet.
    pub(super) fn new(
        open: OpenSource,
        fill: Fill,
        record: Arc<FillRecord>,
        reporter: Reporter,
        patience: Duration,
    ) -> Self {
        let name = fill.location.as_str().into();
        Self { open, fill, record, name, reporter, patience, state: Mutex::default() }
    }

    /// Opens the source, and returns its identity. An evidence error (exit code 3) means that the source has changed.
    pub(super) async fn connect(&self) -> Result<Identity> {
        let mut state = self.state.lock().await;
        match self.open_again().await {
            Ok(source) => {
                state.open = Some(source.device);
                Ok(source.identity)
            }
            Err(error) => {
                self.report_if_changed(&error).await;
                Err(error)
            }
        }
    }

    async fn report_if_changed(&self, error: &Error) {
        if matches!(error, Error::Evidence(_)) {
            self.reporter.report_or_warn(FillEvent::Changed { what: error.to_string() }).await;
        }
    }

    /// Opens the source, and compares its identity and samples of its content.
    async fn open_again(&self) -> Result<Source> {
        let source = self.open_alike().await?;
        // Half, so that a waiting read still has time to read.
        samples::compare(&self.record, &source.device, &self.name, self.patience / 2).await?;
        Ok(source)
    }

    /// Opens the source, and compares its identity only.
    async fn open_alike(&self) -> Result<Source> {
        let opening = timeout(self.patience, (self.open)(self.fill.location.clone()));
        let silent = |_| Error::failed(format!("{}: no answer for {:?}", self.name, self.patience));
        let source = opening.await.unwrap_or_else(|elapsed| Err(silent(elapsed)))?;
        recognise(&self.fill, &source.identity)?;
        Ok(source)
    }

    /// The open source; reopens it if necessary.
    async fn device(&self) -> std::result::Result<DynDevice, Arc<str>> {
        let mut state = self.state.lock().await;
        if let Some(device) = &state.open {
            return Ok(device.clone());
        }
        if let Some((at, why)) = &state.failed
            && at.elapsed() < ATTEMPT_HOLDS
        {
            return Err(why.clone());
        }
        match self.come_back().await {
            Ok(device) => {
                tracing::info!("{}: the source is back", self.name);
                state.open = Some(device.clone());
                Ok(device)
            }
            Err(error) => {
                let why: Arc<str> = error.to_string().into();
                if state.failed.as_ref().is_none_or(|(_, before)| *before != why) {
                    self.report_if_changed(&error).await;
                }
                state.failed = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// Reopens the source, and reports that it is back.
    async fn come_back(&self) -> Result<DynDevice> {
        let Source { device, identity, .. } = self.open_again().await?;
        self.reporter.report(FillEvent::Back { source: identity }).await?;
        Ok(device)
    }

    async fn read_or_reopen(&self, range: ByteRange) -> cheetah_device::Result<Data> {
        let lost = |why| DeviceError::Lost { device: self.name.clone(), range, why };
        let device = match timeout(self.patience, self.device()).await {
            Ok(device) => device.map_err(lost)?,
            Err(_) => return Err(lost(format!("no answer for {:?}", self.patience).into())),
        };
        let error = match device.read(range).await {
            Ok(data) => return Ok(data),
            Err(error) => self.diagnose(range, error).await,
        };
        if !error.is_bad_sector() {
            let mut state = self.state.lock().await;
            // Another request may have reopened it already.
            if state.open.as_ref().is_some_and(|open| Arc::ptr_eq(open, &device)) {
                tracing::warn!("{}: the source failed, and is opened anew: {error}", self.name);
                state.open = None;
                self.reporter.report_or_warn(FillEvent::Lost { why: error.to_string() }).await;
            }
        }
        Err(error)
    }

    /// Distinguishes a bad sector from a disk that was disconnected, which fails every read in the same way, by opening the
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

impl Device for ReopeningSource {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.fill.size, writable: false, block_preferred: 4096 }
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
    use cheetah_device::Coverage;
    use cheetah_device::copy_on_read::Ledger as _;
    use cheetah_device::memory::Memory;
    use cheetah_image::{HashChoice, Identity, Kind};
    use futures::FutureExt as _;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    /// Fails every read from the second on.
    struct Once(Memory, AtomicUsize);

    impl Device for Once {
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            match self.1.fetch_add(1, Ordering::Relaxed) {
                0 => self.0.read(range),
                _ => Io::fail(DeviceError::Lost { device: "disk".into(), range, why: "pulled".into() }),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_source_is_reopened_only_if_it_is_the_same() {
        let (opened, size) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(100)));
        let open: OpenSource = {
            let (opened, size) = (opened.clone(), size.clone());
            Arc::new(move |spec| {
                opened.fetch_add(1, Ordering::Relaxed);
                let identity = Identity::new(Kind::Nbd, spec, size.load(Ordering::Relaxed));
                let device = Arc::new(Once(Memory::new(vec![7; 100]), AtomicUsize::new(0)));
                async move { Ok(Source { device, identity, name: "disk".into() }) }.boxed()
            })
        };
        let identity = Identity::new(Kind::Nbd, "nbd://h", 100);
        let fill = super::super::origin::remember("nbd://h", &identity, HashChoice::NONE).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = DriveFile { path: dir.path().join("case.drive"), ..example() };
        let record = Arc::new(FillRecord::open(&file, Coverage::new(100)).unwrap());
        let source = ReopeningSource::new(open, fill, record, Reporter::default(), Duration::from_secs(1));
        let read = || source.read(ByteRange::new(0, 10));
        assert!(read().await.unwrap() == [7; 10][..]);
        assert!(read().await.unwrap_err().to_string().contains("pulled"));
        assert!(read().await.is_ok(), "opened again");
        assert_eq!(opened.load(Ordering::Relaxed), 2);

        size.store(200, Ordering::Relaxed);
        assert!(read().await.is_err());
        let refusal = read().await.unwrap_err().to_string();
        assert!(refusal.contains("its size was 100B and is 200B"), "{refusal}");
        assert_eq!(read().await.unwrap_err().to_string(), refusal);
        assert_eq!(opened.load(Ordering::Relaxed), 3, "an attempt that failed just now is not repeated");
        size.store(100, Ordering::Relaxed);
        tokio::time::advance(ATTEMPT_HOLDS).await;
        assert!(read().await.is_ok());
    }

    #[tokio::test]
    async fn another_disk_of_the_same_size_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = DriveFile { path: dir.path().join("case.drive"), ..example() };
        let record = Arc::new(FillRecord::open(&file, Coverage::new(100)).unwrap());
        let whole = ByteRange::new(0, 100);
        let mut coverage = Coverage::new(100);
        coverage.set(whole, cheetah_device::coverage::State::Read);
        record.passed(whole, &vec![7; 100].into());
        record.record(coverage).await.unwrap();
        let of = |byte| -> OpenSource {
            Arc::new(move |spec| {
                let identity = Identity::new(Kind::Nbd, spec, 100);
                let device = Arc::new(Memory::new(vec![byte; 100]));
                async move { Ok(Source { device, identity, name: "disk".into() }) }.boxed()
            })
        };
        let identity = Identity::new(Kind::Nbd, "nbd://h", 100);
        let fill = super::super::origin::remember("nbd://h", &identity, HashChoice::NONE).unwrap();
        let source = |byte| {
            ReopeningSource::new(of(byte), fill.clone(), record.clone(), Reporter::default(), Duration::from_secs(60))
        };
        source(7).connect().await.unwrap();
        let refusal = source(8).connect().await.unwrap_err();
        assert!(refusal.exit_code() == 3 && refusal.to_string().contains("is different now"), "{refusal}");
        assert!(source(8).read(whole).await.is_err(), "nor when it comes back");
    }
}
