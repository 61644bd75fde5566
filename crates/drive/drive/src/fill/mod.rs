//! Lazy drives: created from a source at once, readable at once, and filled in the background.
//!
//! ```text
//!  prefetch                      if it has a budget
//!  copy-on-read ─── source       for ranges not copied yet; reopened when it comes back
//!  sparse writes                 zeros are not stored
//!  fence …                       as for any drive, see `open`
//! ```
//!
//! [`begin`] marks a new drive as filling, and records how to recognise the source (`origin`). Whenever the source is
//! opened again, it is compared with the data that it sent before (`source`). [`Filling::open`] takes the write lease,
//! so only one process fills a drive; the errors of others name it. No other process may open the drive meanwhile,
//! since ranges not copied yet read as zeros at the nodes. A coverage map and digests of the data that the source sent
//! (`grains`) are kept beside the drive file, so that a fill can be resumed, also after a power cut. At the end, the
//! drive is read back, compared with those digests, and recorded as a load does (`finish`).

mod event;
pub(crate) mod files;
mod finish;
mod following;
mod grains;
mod origin;
mod record;
mod source;
mod sparse_writes;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::copy_on_read::{self, CopyOnRead, CopyOnReadConfig};
use cheetah_device::coverage::State;
use cheetah_device::prefetch::{Prefetch, PrefetchConfig, PrefetchStats};
use cheetah_device::{Coverage, DynDevice};
use cheetah_error::{Error, Result};
use cheetah_image::{HashChoice, Hashes, Identity};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use self::event::Reporter;
pub use self::event::{FillEvent, FillObserver, FillObservers, Found};
use self::files::remove_files;
use self::following::Following;
use self::record::FillRecord;
pub use self::source::OpenSource;
use self::source::ReopeningSource;
use self::sparse_writes::SparseWrites;
use crate::copy::CopyProgress;
use crate::file::coverage;
use crate::file::{DriveFile, Fill, Image, ImageState};
use crate::node::health::node_statuses;
use crate::open::{Drive, being_filled};
use crate::options::OpenOptions;
use crate::session::Session;

/// How to open a drive that is being filled.
#[derive(Clone)]
pub struct FillOptions {
    /// Take the right to fill from the process that holds it.
    pub force_lease: bool,
    /// Open even if the source cannot be reached now; ranges that were copied can be read.
    pub without_source: bool,
    /// [`OpenOptions::replace_after`].
    pub replace_after: Option<Duration>,
    /// What the drive is opened with. The source may take as long to answer as a node.
    pub session: Session,
    /// Bytes of memory for read-ahead; 0 for none.
    pub prefetch_budget: u64,
    /// Records the events of the fill.
    pub observer: Option<Arc<dyn FillObserver>>,
}

/// The stage of a fill.
#[derive(Debug, Clone)]
pub enum FillStage {
    /// The source is being copied.
    Copying(copy_on_read::Progress),
    /// Everything is copied; it is being read back and compared.
    Checking(CopyProgress),
    /// The drive holds everything that could be read, and is recorded as a load would record it.
    Complete(Image),
    /// The fill has ended in this process.
    Failed(Error),
}

/// Marks a new drive as filling from the source that was opened as `spec`. Nothing is read yet.
pub fn begin(file: &mut DriveFile, spec: &str, identity: &Identity, hashes: HashChoice) -> Result<()> {
    let mut filling = file.clone();
    filling.fill = Some(origin::remember(spec, identity, hashes)?);
    filling.image = Some(Image {
        source: spec.to_owned(),
        size: identity.size,
        sector_size: identity.sector_size,
        state: ImageState::Filling,
        digests: None,
        hashes: Hashes::default(),
        differ_bytes_max: 0,
    });
    // Files that another drive of this name may have left.
    remove_files(&filling)?;
    let DriveFile { fill, image, .. } = filling;
    file.update(|file| (file.fill, file.image) = (fill, image))
}

/// An open drive that is being filled. Call [`Filling::close`]: dropping it stops the fill without recording it.
pub struct Filling {
    device: DynDevice,
    prefetch: Option<Arc<Prefetch>>,
    copy: Arc<CopyOnRead>,
    drive: Drive,
    stage: watch::Receiver<FillStage>,
    follower: JoinHandle<()>,
    /// Dropped to stop the follower.
    follow: oneshot::Sender<Infallible>,
    reporter: Reporter,
}

impl Filling {
    /// Takes the write lease of the drive that `file` describes, and fills the drive. `None` if another process has
    /// finished the fill meanwhile: read the drive file again, and open the drive as any other.
    pub async fn open(file: &DriveFile, open: OpenSource, options: FillOptions) -> Result<Option<Self>> {
        let drive = match Drive::open_unmarked(file, drive_options(&options)).await {
            Ok(drive) => drive,
            Err(error) => return Err(taken(file, error, &options.session).await),
        };
        match Parts::find(file, open, &options).await {
            Ok(Some(parts)) => parts.start(drive, &options).map(Some),
            other => {
                drive.close().await?;
                other.map(|_| None)
            }
        }
    }

    /// The drive as a read-only device; ranges not copied yet come from the source.
    pub fn device(&self) -> DynDevice {
        self.device.clone()
    }

    /// The stage of the fill, and its changes.
    pub fn stage(&self) -> watch::Receiver<FillStage> {
        self.stage.clone()
    }

    /// The ranges that the drive has now.
    pub fn coverage(&self) -> Coverage {
        self.copy.coverage()
    }

    /// Statistics of the read-ahead, if there is one.
    pub fn prefetch_stats(&self) -> Option<PrefetchStats> {
        self.prefetch.as_ref().map(|prefetch| prefetch.stats())
    }

    /// Stops the fill: waits for writes in flight, records the coverage, and releases the lease.
    pub async fn close(self) -> Result<()> {
        drop(self.follow);
        // An image that is being recorded is recorded in log and drive file.
        let _ = self.follower.await;
        let recorded = self.copy.close().await.map_err(Error::device("recording what has been copied"));
        if matches!(&*self.stage.borrow(), FillStage::Complete(_)) {
            // Everything was read back.
            if let Some(sealed) = self.drive.sealed() {
                sealed.end_other_epochs().await;
            }
        } else {
            let read = self.copy.progress().borrow().read;
            self.reporter.report_or_warn(FillEvent::Stopped { read }).await;
        }
        drop((self.device, self.prefetch, self.copy));
        let closed = self.drive.close().await;
        recorded.and(closed)
    }
}

fn drive_options(options: &FillOptions) -> OpenOptions {
    OpenOptions {
        writable: true,
        force_lease: options.force_lease,
        replace_after: options.replace_after,
        prefetch_budget: 0,
        ..OpenOptions::new(options.session.clone())
    }
}

/// Replaces the error by one that names the process filling the drive, if there is one.
async fn taken(file: &DriveFile, error: Error, session: &Session) -> Error {
    let nodes = node_statuses(file, session).await;
    match nodes.into_iter().find_map(|node| node.writer) {
        Some(writer) => being_filled(&file.name, Some(&writer)),
        None => error,
    }
}

/// The parts of a fill, besides the drive.
struct Parts {
    file: DriveFile,
    fill: Fill,
    source: ReopeningSource,
    record: Arc<FillRecord>,
    coverage: Coverage,
    reporter: Reporter,
}

impl Parts {
    /// Reads the drive file and the coverage map again, since another process may have changed them before the lease
    /// was taken.
    async fn find(file: &DriveFile, open: OpenSource, options: &FillOptions) -> Result<Option<Self>> {
        let file = DriveFile::load(&file.path)?;
        let Some((fill, image)) = file.fill.clone().zip(file.image.as_ref()) else { return Ok(None) };
        let mut coverage = coverage::load(&file, image.size)?;
        let reporter = Reporter::new(options.observer.clone());
        let record = Arc::new(FillRecord::open(&file, coverage.clone(), reporter.clone())?);
        let checked = record.clone();
        let checking = tokio::task::spawn_blocking(move || checked.is_vouched()).await;
        if !checking.map_err(|died| Error::failed(format!("checking the record of the fill: {died}")))?? {
            reporter.report(FillEvent::Distrusted { read: coverage.bytes(State::Read) }).await?;
            tracing::warn!(
                "{}: its custody log does not vouch for the record of what was filled, so all of it is fetched again",
                file.name
            );
            record.distrust();
            coverage = Coverage::new(image.size);
        }
        let source = ReopeningSource::new(open, record.clone(), reporter.clone(), options.session.timeout);
        let found = source.connect(options.without_source).await?.map(Box::new);
        let read = coverage.in_state(State::Read).map(|range| range.len).sum();
        reporter.report(FillEvent::Opened { source: found, read }).await?;
        Ok(Some(Self { file, fill, source, record, coverage, reporter }))
    }

    fn start(self, drive: Drive, options: &FillOptions) -> Result<Filling> {
        let Self { file, fill, source, record, coverage, reporter } = self;
        let config = CopyOnReadConfig {
            sector_bytes: fill.sector_size.map_or(512, u64::from).min(copy_on_read::GRAIN),
            ..CopyOnReadConfig::new(fill.location.as_str())
        };
        let target = Arc::new(SparseWrites::new(drive.device()));
        let started = CopyOnRead::start(Arc::new(source), target, coverage, record.clone(), config);
        let copy = started.map_err(Error::device(format!("filling {}", file.name)))?;
        let (device, prefetch): (DynDevice, _) = match options.prefetch_budget {
            0 => (copy.clone(), None),
            budget_bytes => {
                let config = PrefetchConfig { budget_bytes, ..PrefetchConfig::default() };
                let prefetch = Prefetch::new(copy.clone(), config);
                (prefetch.clone(), Some(prefetch))
            }
        };
        let (stages, stage) = watch::channel(FillStage::Copying(copy.progress().borrow().clone()));
        let ahead = prefetch.as_ref().map(Arc::downgrade);
        let (follow, stop) = oneshot::channel();
        let following = Following { copy: copy.clone(), ahead, drive: drive.device(), record, stages };
        let follower = tokio::spawn(following.run(reporter.clone(), stop));
        Ok(Filling { device, prefetch, copy, drive, stage, follower, follow, reporter })
    }
}
