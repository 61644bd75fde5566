//! A device as files, through FUSE.
//!
//! A few threads of fuser's read the kernel's requests. A request runs on that thread until it has to wait (`crate::task`),
//! and is then finished on the runtime on which the mount was made. That runtime must be multi-threaded: on a runtime
//! of one thread, a task that uses the files would wait for itself.
//!
//! Requests cross `/dev/fuse`, two system calls each. Linux 6.14 and newer can pass them through io_uring instead, if root sets
//! `/sys/module/fuse/parameters/enable_uring`. fuser has no part of that but the flag: it parses requests only from the bytes it
//! has read from that file, and sends replies only to it. The kernel copies the data of a reply in both cases, so that small
//! requests would gain most, which was not measured.

mod filesystem;
mod kernel;
mod pages;
mod unmount;
mod view;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::readonly::ReadOnly;
use cheetah_device::window::Window;
use cheetah_device::{Device, DynDevice};
use cheetah_volume::partition::{Remark, SectorSize, read_tables};
use fuser::{Config, Session, SessionACL};
use tokio::runtime::Handle;
use tokio::sync::watch;

use self::filesystem::{FileAccess, ViewFiles};
use self::kernel::{MountRequest, Unmounted};
pub use self::unmount::unmount;
use self::view::FileView;
use crate::blocking::blocking;
use crate::{Error, MountOptions, Result};

/// How often, and at which interval, to try unmounting while files are open.
const BUSY_RETRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How long the kernel may take to end the connection after unmounting. If it does not, another mount namespace has a copy
/// of the mount: those created while it was mounted have one.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum length of a name: a file name has at most 255 bytes, and suffixes such as `.p256.raw` are added.
const NAME_BYTES_MAX: usize = 200;
/// The maximum number of threads that read requests; they do not wait, so a few suffice.
const THREADS_MAX: usize = 4;

/// Whether the kernel's requests are served: `None` while they are, then how serving ended. If the serving thread
/// panicked, the sender is dropped without a value.
type Ended = watch::Receiver<Option<End>>;
/// How serving ended: by unmounting, or for this reason.
type End = std::result::Result<(), Arc<str>>;

/// A mounted device. Dropping it unmounts; only [`unmount`](Mount::unmount) waits and reports errors.
pub struct Mount {
    dir: PathBuf,
    number: u64,
    files: Vec<String>,
    remarks: Vec<Remark>,
    device: DynDevice,
    writable: bool,
    ended: Ended,
}

/// Mounts `device` on `dir`, an empty directory: the whole device is `NAME.raw`, and each partition `NAME.pN.raw`. The
/// partition table is read once, now.
///
/// Requests run on the current runtime, which must be multi-threaded.
pub async fn mount(device: DynDevice, dir: &Path, options: MountOptions) -> Result<Mount> {
    check_name(&options.name)?;
    let dir = dir.to_owned();
    let dir = blocking(move || kernel::check_directory(&dir)).await?;
    let writable = options.writable && device.geometry().writable;
    let device: DynDevice = if writable { device } else { Arc::new(ReadOnly::new(device)) };
    let (mut views, remarks) = views(&device, &options.name, options.sectors).await?;
    views.extend(options.besides.iter().map(|(name, device)| {
        FileView::new(format!("{}.{name}.raw", options.name), Arc::new(ReadOnly::new(Arc::clone(device))))
    }));
    let files = views.iter().map(|view| view.name.clone()).collect();
    let access = FileAccess { writable, allow_other: options.allow_other };
    let filesystem = ViewFiles::new(views, access, options.read_ahead_bytes, Handle::current());
    let (number, ended) = {
        let dir = dir.clone();
        blocking(move || start(filesystem, &dir, &options, writable)).await?
    };
    tracing::info!(dir = %dir.display(), writable, "mounted");
    Ok(Mount { dir, number, files, remarks, device, writable, ended })
}

fn check_name(name: &str) -> Result<()> {
    let good = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(['/', '\0']);
    if good { Ok(()) } else { Err(Error::BadName(name.to_owned())) }
}

async fn views(device: &DynDevice, name: &str, sectors: SectorSize) -> Result<(Vec<FileView>, Vec<Remark>)> {
    let mut views = vec![FileView::new(format!("{name}.raw"), Arc::clone(device))];
    let tables = read_tables(device, sectors).await;
    for partition in tables.partitions {
        match Window::new(Arc::clone(device), partition.range) {
            Ok(window) => views.push(FileView::new(format!("{name}.p{}.raw", partition.number), Arc::new(window))),
            Err(error) => tracing::warn!("partition {} is left out: {error}", partition.number),
        }
    }
    Ok((views, tables.remarks))
}

/// Mounts, and starts serving requests. Blocks.
fn start(filesystem: ViewFiles, dir: &Path, options: &MountOptions, writable: bool) -> Result<(u64, Ended)> {
    let allow_other = options.allow_other;
    if allow_other && !kernel::may_allow_other() {
        return Err(Error::MayNotAllowOther);
    }
    let request = MountRequest { source: &options.name, writable, allow_other };
    let connection = kernel::mount(dir, &request)?;
    let served = serve(filesystem, connection, threads(options.threads)).and_then(|ended| {
        // Our own threads answer this; they are running by now.
        Ok((kernel::number(dir)?, ended))
    });
    let (number, ended) = served.map_err(|error| {
        // The mount is ours, and nothing serves it.
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

/// Starts threads that serve the kernel's requests. The receiver is set when the mount has ended.
fn serve(filesystem: ViewFiles, connection: OwnedFd, threads: usize) -> std::io::Result<Ended> {
    let mut config = Config::default();
    config.n_threads = Some(threads);
    // One queue of replies per thread.
    config.clone_fd = threads > 1;
    // The kernel checks access, according to the mount options.
    let pages = filesystem.pages();
    let session = Session::from_fd(filesystem, connection, SessionACL::All, config)?;
    if let Some(pages) = pages.filter(|_| threads > 1) {
        pages.open(session.notifier());
    }
    let (sender, ended) = watch::channel(None);
    std::thread::Builder::new().name("cheetah-fuse".to_owned()).spawn(move || {
        let result = session.run().map_err(|error| format!("the connection to the kernel broke: {error}").into());
        sender.send_replace(Some(result));
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

    /// Defects and ambiguities of the partition tables.
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// Waits until the mount has ended, by [`unmount`](Self::unmount) or from outside (`umount`, `fusermount3 -u`).
    ///
    /// # Errors
    ///
    /// If it can no longer be served because of a broken connection to the kernel. Unmount it then.
    pub async fn wait(&self) -> Result<()> {
        self.ended().await.map_err(|why| Error::Broken { dir: self.dir.clone(), why: why.to_string() })
    }

    /// Waits until the kernel's requests are no longer served; returns how that ended.
    async fn ended(&self) -> End {
        let ended = self.ended.clone().wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        ended.unwrap_or_else(|| Err("the thread that serves it panicked".into()))
    }

    /// Unmounts, and returns when all written data is on stable storage.
    ///
    /// If files are still open after two seconds, the mount is detached from the tree, with a warning. It serves these files
    /// until they are closed or this process ends.
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
        // A broken mount is still in the tree, although nothing serves it.
        if matches!(*self.ended.borrow(), Some(Ok(()))) {
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
