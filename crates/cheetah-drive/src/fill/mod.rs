//! Drives that can be used before they are full: created from a source in a second, read at once, filled meanwhile.
//!
//! ```text
//!  prefetch                      if it has a budget
//!  copy-on-read ─── source       what is not there yet; opened again when it comes back
//!  sparse                        zeros are not stored
//!  fence … as any drive's        see `open`
//! ```
//!
//! [`begin`] marks a new drive as filling, with what is needed to know the source again. Whoever opens it then with
//! [`Filling::open`] takes the write lease, and so is the only one who fills it: another is told who it is. Nobody else
//! may open such a drive, since what is not there yet reads as zeros at the nodes. What has been copied is kept beside
//! the drive file, in a map (`map`), with digests of what the source sent (`grains`), so that whoever is next goes on
//! from there, also after a power cut. When everything is there, the drive is read back, compared with those digests,
//! and recorded (`finish`) as any loaded image.

mod account;
mod finish;
mod grains;
pub(crate) mod map;
mod origin;

mod samples;
mod source;
mod sparse;
mod witness;

use std::io::ErrorKind;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cheetah_device::copy_on_read::{self, CopyOnRead, CopyOnReadConfig};
use cheetah_device::coverage::State;
use cheetah_device::prefetch::{Prefetch, PrefetchConfig, PrefetchStats};
use cheetah_device::{Coverage, DynDevice};
use cheetah_image::{Error, HashChoice, Hashes, Identity, Result};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::account::Account;
use self::finish::Finish;
pub use self::source::OpenSource;
use self::source::Returning;
use self::sparse::Sparse;
use self::witness::Told;
pub use self::witness::{Happened, Witness};
use crate::copy::Progress;
use crate::file::{DriveFile, Fill, Image, ImageState};
use crate::open::{Drive, OpenOptions};
use crate::status::node_statuses;

/// How to open a drive that is being filled.
#[derive(Clone)]
pub struct FillOptions {
    /// Take the right to fill from whoever has it.
    pub force_lease: bool,
    /// Open although the source cannot be reached just now: what is there can be read.
    pub without_source: bool,
    /// How long the source, or a node, may be silent.
    pub timeout: Duration,
    /// Bytes of memory for read-ahead; 0 for none.
    pub prefetch_budget: u64,
    /// Puts on record what happens to the evidence.
    pub witness: Option<Arc<dyn Witness>>,
}

/// How far a fill has come.
#[derive(Debug, Clone)]
pub enum Stage {
    /// The source is being copied.
    Copying(copy_on_read::Progress),
    /// Everything is there; it is being read back and compared.
    Checking(Progress),
    /// It is as if it had been loaded plainly, but for ranges that could not be read.
    Complete(Image),
    /// It will not get any further in this process.
    Failed(Error),
}

/// What is known of a fill without taking part in it.
#[derive(Debug, Clone)]
pub struct Covered {
    /// Where the image comes from.
    pub source: String,
    /// What the drive has, as last recorded.
    pub coverage: Coverage,
}

/// Marks a new drive as filling from what was opened as `spec`. Nothing is read yet.
pub fn begin(file: &mut DriveFile, spec: &str, identity: &Identity, hashes: HashChoice) -> Result<()> {
    let mut filling = file.clone();
    filling.fill = Some(origin::remember(spec, identity, hashes)?);
    filling.image = Some(Image {
        source: spec.to_owned(),
        size: identity.size,
        state: ImageState::Filling,
        digests: None,
        hashes: Hashes::default(),
    });
    // What another drive of this name may have left.
    remove_files(&filling)?;
    filling.save()?;
    *file = filling;
    Ok(())
}

/// What the drive has of its image; `None` unless it is being filled, or was and is incomplete.
pub fn covered(file: &DriveFile) -> Result<Option<Covered>> {
    let Some(image) = &file.image else { return Ok(None) };
    let coverage = match (&file.fill, &file.map) {
        (Some(_), _) => map::load(file, image.size)?,
        (None, Some(recorded)) => map::load_recorded(file, recorded, image.size)?,
        (None, None) => return Ok(None),
    };
    Ok(Some(Covered { source: image.source.clone(), coverage }))
}

/// Removes what a fill keeps beside the drive file, and the drive file does not record.
pub(crate) fn remove_files(file: &DriveFile) -> Result<()> {
    let map = file.map.is_none().then(|| map::path(file));
    for path in map.into_iter().chain([grains::path(file)]) {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io(format_args!("removing {}", path.display()), &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes everything that is kept beside the drive file of how its image came: the drive is no more.
pub(crate) fn remove_all(file: &DriveFile) -> Result<()> {
    remove_files(&DriveFile { map: None, ..file.clone() })
}

/// A drive that is being filled, open. [`Filling::close`] it: dropped, it stops, and records nothing more.
pub struct Filling {
    device: DynDevice,
    prefetch: Option<Arc<Prefetch>>,
    copy: Arc<CopyOnRead>,
    drive: Drive,
    stage: watch::Receiver<Stage>,
    follower: JoinHandle<()>,
    told: Told,
}

impl Filling {
    /// Takes the write lease of the drive that `file` describes, and fills it. `None` if it is not being filled any
    /// more once the lease is there: then its file has changed, and it is opened as any other.
    pub async fn open(file: &DriveFile, open: OpenSource, options: FillOptions) -> Result<Option<Self>> {
        let drive = match Drive::open_unmarked(file, drive_options(&options)).await {
            Ok(drive) => drive,
            Err(error) => return Err(taken(file, error, options.timeout).await),
        };
        match Parts::find(file, open, &options).await {
            Ok(Some(parts)) => parts.start(drive, &options).map(Some),
            other => {
                drive.close().await?;
                other.map(|_| None)
            }
        }
    }

    /// The drive as a device, read-only: what is not there yet comes from the source.
    pub fn device(&self) -> DynDevice {
        self.device.clone()
    }

    /// How far it has come, now and as it goes on.
    pub fn stage(&self) -> watch::Receiver<Stage> {
        self.stage.clone()
    }

    /// What the drive has now.
    pub fn coverage(&self) -> Coverage {
        self.copy.coverage()
    }

    /// What read-ahead has done; `None` if there is none.
    pub fn prefetch_stats(&self) -> Option<PrefetchStats> {
        self.prefetch.as_ref().map(|prefetch| prefetch.stats())
    }

    /// Stops, waits for what is being written, records how far it came, and gives the lease back.
    pub async fn close(self) -> Result<()> {
        self.follower.abort();
        let recorded = self.copy.close().await.map_err(Error::device("recording what has been copied"));
        if !matches!(&*self.stage.borrow(), Stage::Complete(_)) {
            let read = self.copy.progress().borrow().read;
            self.told.tell_the_end(Happened::Stopped { read }).await;
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
        timeout: options.timeout,
        prefetch_budget: 0,
        ..OpenOptions::default()
    }
}

/// Says who fills the drive, if it is because of that that it could not be opened.
async fn taken(file: &DriveFile, error: Error, timeout: Duration) -> Error {
    let nodes = node_statuses(file, timeout).await;
    match nodes.into_iter().find_map(|node| node.writer) {
        Some(writer) => Error::failed(being_filled(&file.name, Some(&writer))),
        None => error,
    }
}

/// Why a drive that is being filled cannot be opened as others are.
pub(crate) fn being_filled(name: &str, by: Option<&str>) -> String {
    match by {
        Some(who) => format!(
            "{name} is being filled by {who}, and what is not there yet can be read there only: share it from there \
             with `cheetah export`, or take the filling over with --force-lease"
        ),
        None => format!(
            "{name} is not full yet, and what is not there can be read by whoever fills it only: mount or export it, \
             which fills it, or finish it with `cheetah load {name}.drive`"
        ),
    }
}

/// What a fill is made of, besides the drive.
struct Parts {
    file: DriveFile,
    fill: Fill,
    source: Returning,
    account: Arc<Account>,
    coverage: Coverage,
    told: Told,
}

impl Parts {
    /// Reads the drive file and the map again: the lease is ours, and nobody changes them from now on.
    async fn find(file: &DriveFile, open: OpenSource, options: &FillOptions) -> Result<Option<Self>> {
        let file = DriveFile::load(&file.path)?;
        let Some((fill, image)) = file.fill.clone().zip(file.image.as_ref()) else { return Ok(None) };
        let coverage = map::load(&file, image.size)?;
        let account = Arc::new(Account::open(&file, coverage.clone())?);
        let told = Told::new(options.witness.clone());
        let source = Returning::new(open, fill.clone(), account.clone(), told.clone(), options.timeout);
        let found = match source.connect().await {
            Err(error) if options.without_source && error.exit_code() != 3 => {
                tracing::warn!("{error}; what is there can be read, and filling goes on once the source is back");
                None
            }
            connected => Some(connected?),
        };
        let read = coverage.in_state(State::Read).map(|range| range.len).sum();
        told.tell(Happened::Opened { source: found, read }).await?;
        Ok(Some(Self { file, fill, source, account, coverage, told }))
    }

    fn start(self, drive: Drive, options: &FillOptions) -> Result<Filling> {
        let Self { file, fill, source, account, coverage, told } = self;
        let config = CopyOnReadConfig {
            sector_bytes: fill.sector_size.map_or(512, u64::from).min(copy_on_read::GRAIN),
            ..CopyOnReadConfig::new(fill.location.as_str())
        };
        let target = Arc::new(Sparse::new(drive.device()));
        let started = CopyOnRead::start(Arc::new(source), target, coverage, account.clone(), config);
        let copy = started.map_err(Error::device(format!("filling {}", file.name)))?;
        let (device, prefetch): (DynDevice, _) = match options.prefetch_budget {
            0 => (copy.clone(), None),
            budget_bytes => {
                let config = PrefetchConfig { budget_bytes, ..PrefetchConfig::default() };
                let prefetch = Prefetch::new(copy.clone(), config);
                (prefetch.clone(), Some(prefetch))
            }
        };
        let (stages, stage) = watch::channel(Stage::Copying(copy.progress().borrow().clone()));
        let ahead = prefetch.as_ref().map(Arc::downgrade);
        let follower = tokio::spawn(follow(file, copy.clone(), ahead, drive.device(), account, told.clone(), stages));
        Ok(Filling { device, prefetch, copy, drive, stage, follower, told })
    }
}

/// Waits for the copy to end, then finishes; tells how far it is meanwhile.
async fn follow(
    file: DriveFile,
    copy: Arc<CopyOnRead>,
    ahead: Option<Weak<Prefetch>>,
    drive: DynDevice,
    account: Arc<Account>,
    told: Told,
    stages: watch::Sender<Stage>,
) {
    let mut progress = copy.progress();
    loop {
        let now = progress.borrow_and_update().clone();
        let done = now.is_done();
        stages.send_replace(Stage::Copying(now));
        if done {
            break;
        }
        if progress.changed().await.is_err() {
            return;
        }
    }
    let forget = |range| {
        copy.forget(&[range]);
        // After what it is read from.
        if let Some(ahead) = ahead.as_ref().and_then(Weak::upgrade) {
            ahead.forget(range);
        }
    };
    let coverage = copy.coverage();
    let unreadable = coverage.in_state(State::Unreadable).collect();
    let finish = Finish { file, drive, account: &account, coverage, forget: &forget };
    let finished = finish.run(|progress| drop(stages.send_replace(Stage::Checking(progress)))).await;
    told.tell_the_end(match &finished {
        Ok(DriveFile { image: Some(image), .. }) => Happened::Complete { image: image.clone(), unreadable },
        Ok(_) => Happened::Failed { why: "a drive was finished without its image; this is a bug".into() },
        Err(error) => Happened::Failed { why: error.to_string() },
    })
    .await;
    stages.send_replace(match finished.map(|file| file.image) {
        Ok(Some(image)) => Stage::Complete(image),
        Ok(None) => Stage::Failed(Error::failed("a drive was finished without its image; this is a bug")),
        Err(error) => Stage::Failed(error),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::example;
    use cheetah_device::memory::Memory;
    use cheetah_device::{ByteRange, Data, Device, Error as DeviceError, Geometry, Io};
    use cheetah_image::Kind;
    use std::sync::atomic::{AtomicBool, Ordering};

    const SIZE: u64 = 3 << 20;

    /// A source that can be pulled out.
    struct Pulled(Memory, AtomicBool);

    impl Device for Pulled {
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            match self.1.load(Ordering::Relaxed) {
                false => self.0.read(range),
                true => Io::fail(DeviceError::Lost { device: "disk".into(), range, why: "pulled".into() }),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_found_to_be_wrong_in_the_end_is_not_served_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = DriveFile { path: dir.path().join("case.drive"), ..example() };
        begin(&mut file, "nbd://h", &Identity::new(Kind::Nbd, "nbd://h", SIZE), HashChoice::NONE).unwrap();
        let content: Vec<u8> = (0..SIZE).map(|at| (at * 31 % 251) as u8).collect();
        let source = Arc::new(Pulled(Memory::new(content.clone()), AtomicBool::new(false)));
        let drive = Arc::new(Memory::new(vec![0; SIZE as usize]));
        let account = Arc::new(Account::open(&file, Coverage::new(SIZE)).unwrap());
        let config = CopyOnReadConfig::new("disk");
        let copy =
            CopyOnRead::start(source.clone(), drive.clone(), Coverage::new(SIZE), account.clone(), config).unwrap();
        copy.progress().wait_for(copy_on_read::Progress::is_done).await.unwrap();
        let ahead = Prefetch::new(copy.clone(), PrefetchConfig::default());

        source.1.store(true, Ordering::Relaxed);
        let wrong = ByteRange::new(1 << 20, 1 << 20);
        drive.write(wrong.offset + 5, vec![0xff; 9].into(), false).await.unwrap();
        let (stages, stage) = watch::channel(Stage::Copying(copy.progress().borrow().clone()));
        follow(file.clone(), copy.clone(), Some(Arc::downgrade(&ahead)), drive, account, Told::default(), stages).await;
        let Stage::Failed(error) = stage.borrow().clone() else { panic!("{:?}", stage.borrow()) };
        assert!(error.exit_code() == 3 && error.to_string().contains("not what the source sent"), "{error}");
        let recorded = map::load(&file, SIZE).unwrap();
        assert!(recorded.in_state(State::Unread).eq([wrong]));

        assert!(ahead.read(ByteRange::new(wrong.end() - 1, 1)).await.is_err(), "the source is not there");
        assert!(ahead.read(ByteRange::new(wrong.end(), 1)).await.is_ok());
        source.1.store(false, Ordering::Relaxed);
        let read = ahead.read(wrong).await.unwrap();
        assert!(read == content[wrong.offset as usize..wrong.end() as usize], "it comes from the source again");
        copy.close().await.unwrap();
    }
}
