//! A device as files, through FUSE.
//!
//! The kernel's requests are read by a few threads of fuser's, started as far as they go on that thread
//! (`task`), and finished on the runtime the mount was made on, which must have threads of its own: work on the
//! files from a thread of that runtime's would otherwise wait for itself.

mod filesystem;
mod kernel;
mod pages;
mod table;
mod task;
mod unmount;
mod view;

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::readonly::ReadOnly;
use cheetah_device::window::Window;
use cheetah_device::{Device, DynDevice};
use cheetah_volume::partition::read_partitions;
use fuser::{Config, Session, SessionACL};
use tokio::runtime::Handle;
use tokio::sync::watch;

use self::filesystem::{Files, REQUEST_BYTES_MAX};
use self::kernel::{Unmounted, Wish};
use self::task::Alarm;
pub use self::unmount::unmount;
use self::view::View;
use crate::{Error, Result};

/// How long to wait for whoever has a file open before the mount is detached under them.
const BUSY_RETRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How long the kernel may take to end a connection nobody uses any more. If it does not, somebody has a copy of
/// the mount: namespaces made while it was mounted have one.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// A file name may have 255 bytes, and `.p256.raw` and the like come after the name.
const NAME_BYTES_MAX: usize = 200;
/// Requests are read by no more threads than this; they do not wait, so a few go a long way.
const THREADS_MAX: usize = 4;

/// How to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The files are called `NAME.raw` and `NAME.pN.raw`.
    pub name: String,
    /// Whether the files can be written; also needs a device that can be.
    pub writable: bool,
    /// Whether other users may use the files, where this one may decide that: root may, and others if
    /// `user_allow_other` is in `/etc/fuse.conf`. Where not, only this user can, which is logged.
    pub allow_other: bool,
    /// Threads that read the kernel's requests; 0: as many as there are processors, up to 4.
    pub threads: usize,
    /// How far the kernel is to read ahead of readers, in bytes, up to 1 MiB. More than its 128 KiB takes root. It does so
    /// of everything that looks a little like a sequence, and a reader waits for what comes in one request with his own:
    /// little is lost by that where the device is near, and much where it is far.
    pub read_ahead_bytes: u32,
}

impl MountOptions {
    /// A mount to read, for all users.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), writable: false, allow_other: true, threads: 0, read_ahead_bytes: REQUEST_BYTES_MAX }
    }
}

/// A device that is mounted. Dropping it unmounts, but only [`unmount`](Mount::unmount) waits and tells.
pub struct Mount {
    dir: PathBuf,
    number: u64,
    files: Vec<String>,
    device: DynDevice,
    writable: bool,
    ended: watch::Receiver<bool>,
    alarm: Alarm,
}

/// Shows `device` as files in `dir`, an empty directory: all of it as `NAME.raw`, and each partition as
/// `NAME.pN.raw`. The partition table is read now, once.
///
/// Requests are carried out on the runtime this is called on, which must be one with threads of its own.
pub async fn mount(device: DynDevice, dir: &Path, options: MountOptions) -> Result<Mount> {
    check_name(&options.name)?;
    let dir = dir.to_owned();
    let dir = blocking(move || kernel::check_directory(&dir)).await?;
    let writable = options.writable && device.geometry().writable;
    let device: DynDevice = if writable { device } else { Arc::new(ReadOnly::new(device)) };
    let views = views(&device, &options.name).await?;
    let files = views.iter().map(|view| view.name.clone()).collect();
    let alarm = Alarm::default();
    let filesystem = Files::new(views, writable, options.read_ahead_bytes, Handle::current(), alarm.clone());
    let (number, ended) = {
        let dir = dir.clone();
        blocking(move || start(filesystem, &dir, &options, writable)).await?
    };
    tracing::info!(dir = %dir.display(), writable, "mounted");
    Ok(Mount { dir, number, files, device, writable, ended, alarm })
}

fn check_name(name: &str) -> Result<()> {
    let good = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(['/', '\0']);
    if good { Ok(()) } else { Err(Error::BadName(name.to_owned())) }
}

async fn views(device: &DynDevice, name: &str) -> Result<Vec<View>> {
    let mut views = vec![View::new(format!("{name}.raw"), Arc::clone(device))];
    for partition in read_partitions(device).await {
        match Window::new(Arc::clone(device), partition.range) {
            Ok(window) => views.push(View::new(format!("{name}.p{}.raw", partition.number), Arc::new(window))),
            Err(error) => tracing::warn!("partition {} is left out: {error}", partition.number),
        }
    }
    Ok(views)
}

/// Mounts and starts to serve. Blocks.
fn start(
    filesystem: Files,
    dir: &Path,
    options: &MountOptions,
    writable: bool,
) -> Result<(u64, watch::Receiver<bool>)> {
    let allow_other = options.allow_other && kernel::may_allow_other();
    if options.allow_other && !allow_other {
        tracing::info!("only this user can use the mount; 'user_allow_other' in /etc/fuse.conf would change that");
    }
    let wish = Wish { source: &options.name, writable, allow_other };
    let connection = kernel::mount(dir, &wish)?;
    let served = serve(filesystem, connection, threads(options.threads)).and_then(|ended| {
        // Asks our own threads, which are up by now.
        Ok((kernel::number(dir)?, ended))
    });
    let (number, ended) = served.map_err(|error| {
        // Nothing answers there any more, or will soon: what is mounted is surely ours.
        let _ = rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH);
        Error::Io { context: format!("serving {}", dir.display()), error }
    })?;
    if options.read_ahead_bytes > kernel::READ_AHEAD_BYTES {
        kernel::raise_read_ahead(number, options.read_ahead_bytes);
    }
    Ok((number, ended))
}

fn threads(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX),
        wanted => wanted,
    }
}

/// Answers the kernel's requests in threads of their own. The receiver is told when the mount has ended.
fn serve(filesystem: Files, connection: OwnedFd, threads: usize) -> std::io::Result<watch::Receiver<bool>> {
    let mut config = Config::default();
    config.n_threads = Some(threads);
    // A queue of replies for each thread.
    config.clone_fd = threads > 1;
    // The kernel lets in whom it was told to.
    let (pages, alarm) = (filesystem.pages(), filesystem.alarm().clone());
    let session = Session::from_fd(filesystem, connection, SessionACL::All, config)?;
    if let Some(pages) = pages.filter(|_| threads > 1) {
        pages.open(session.notifier());
    }
    let (sender, ended) = watch::channel(false);
    std::thread::Builder::new().name("cheetah-fuse".to_owned()).spawn(move || {
        // The mount must be told in any case, or it would wait for ever.
        match catch_unwind(AssertUnwindSafe(|| session.run())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => alarm.raise(&format!("the connection to the kernel broke: {error}")),
            Err(panic) => alarm.raise_panic(&*panic),
        }
        sender.send_replace(true);
    })?;
    Ok(ended)
}

impl Mount {
    /// The directory it is mounted on, without symbolic links.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The names of the files; the first is the whole device.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// Waits until the mount has ended, by [`unmount`](Self::unmount) or from outside (`umount`, `fusermount3 -u`).
    ///
    /// # Errors
    ///
    /// If it cannot be served any longer because of a panic or a broken connection to the kernel. It should be
    /// unmounted then.
    pub async fn wait(&self) -> Result<()> {
        tokio::select! {
            biased;
            why = self.alarm.raised() => Err(Error::Broken { dir: self.dir.clone(), why: why.to_string() }),
            () = self.ended() => Ok(()),
        }
    }

    /// Waits until the kernel's requests are no longer served.
    async fn ended(&self) {
        // An error means that the serving thread is gone, and so is the mount.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    /// Unmounts, and finishes when what was written is on stable storage.
    ///
    /// If files are still open after two seconds, the mount vanishes from the tree but goes on serving them,
    /// until they are closed or this process ends; a warning says so.
    pub async fn unmount(self) -> Result<()> {
        self.detach().await?;
        if self.writable {
            self.device.flush().await.map_err(Error::Flush)?;
        }
        Ok(())
    }

    async fn detach(&self) -> Result<()> {
        for _ in 0..BUSY_RETRIES {
            match self.try_unmount(false).await? {
                Unmounted::Yes => {
                    if tokio::time::timeout(END_TIMEOUT, self.ended()).await.is_err() {
                        tracing::warn!("{} is still mounted in another mount namespace", self.dir.display());
                    }
                    return Ok(());
                }
                Unmounted::Busy => tokio::time::sleep(BUSY_PAUSE).await,
            }
        }
        tracing::warn!("{} is in use; it is detached, and ends when its files are closed", self.dir.display());
        self.try_unmount(true).await.map(drop)
    }

    async fn try_unmount(&self, lazily: bool) -> Result<Unmounted> {
        let (dir, number) = (self.dir.clone(), self.number);
        blocking(move || kernel::unmount(&dir, number, lazily)).await
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A mount that broke is still in the tree, although nobody serves it.
        if *self.ended.borrow() && !self.alarm.is_raised() {
            return;
        }
        let result = match kernel::unmount(&self.dir, self.number, false) {
            Ok(Unmounted::Busy) => kernel::unmount(&self.dir, self.number, true),
            result => result,
        };
        if let Err(error) = result {
            tracing::warn!("{error}");
        }
    }
}

/// Runs what may block where it may.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        let error = std::io::Error::other("cut short by the end of the runtime");
        Err(Error::Io { context: "mounting or unmounting".to_owned(), error })
    })
}
