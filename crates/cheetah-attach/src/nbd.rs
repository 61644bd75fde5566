//! A device as a block device of the kernel, `/dev/nbdN`, with its partitions.
//!
//! The kernel's NBD client gets one end of a pair of sockets, and our NBD server has the other. The kernel learns by
//! [`netlink`] the settings that NBD's handshake negotiates between a client and a server. The server runs in this
//! process; if the process dies, the kernel keeps the device for a while, and another process can continue
//! ([`Start::Resume`]).

mod claim;
mod detach;
mod kernel;
mod netlink;
mod node;
mod rescan;
mod users;

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cheetah_device::readonly::ReadOnly;
use cheetah_device::{Device, DynDevice};
use cheetah_nbd::proto::TransmissionFlags;
use cheetah_nbd::server::agreed::{Ending, flags, serve};
use cheetah_nbd::server::{MEMORY_BYTES_LEAST, MEMORY_BYTES_USUAL};
use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use tokio::task::JoinHandle;

use self::claim::Claim;
pub use self::detach::detach;
use self::kernel::Kernel;
use self::netlink::{Connect, Serving};
use self::node::Node;
use crate::blocking::blocking;
use crate::{Error, Result};

/// The longest identifier: the kernel shows it in sysfs, in a page of 4 KiB.
const IDENTIFIER_BYTES_MAX: usize = 256;
/// The kernel's buffer for what the server sends, in bytes: several large replies.
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// The largest logical sector that the kernel's NBD client supports.
const SECTOR_BYTES_MAX: u32 = 4096;
/// How often, and at which interval, to offer the kernel new connections while it regards the old ones as alive.
const RESUME_RETRIES: u32 = 20;
const RESUME_PAUSE: Duration = Duration::from_millis(100);
/// How many connections in a row may be lost soon after they began.
const FAILURES_MAX: u32 = 5;

/// How to attach.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    /// Whether the kernel may write; the device must be writable, too.
    pub writable: bool,
    /// Bytes of a logical sector: 512 to 4096, a power of two. Partition tables count in them.
    pub sector_bytes: u32,
    /// The identifier of the content. A process that takes the device over must give the same identifier. Up to 256
    /// bytes.
    pub identifier: String,
    /// After this time without an answer, the kernel gives up a connection. It should be longer than the device takes to
    /// fail, so that errors come from the device. Whole seconds.
    pub timeout: Duration,
    /// How long requests wait for another process after this one has died. Whole seconds.
    pub grace: Duration,
    /// The kernel's read-ahead in bytes.
    pub read_ahead_bytes: u32,
    /// The number of connections between the kernel and this process, at least 1.
    pub connections: usize,
}

/// Which device to make.
#[derive(Debug, Clone)]
pub enum Start {
    /// The first free one.
    Free,
    /// This one: `/dev/nbdN`.
    At(PathBuf),
    /// Continue to serve this one, whose process has died.
    Resume(PathBuf),
}

/// An attached device. [`detach`](Attachment::detach) it: if it is dropped, requests wait for another process, and then fail.
pub struct Attachment {
    node: Node,
    claim: Claim,
    device: DynDevice,
    writable: bool,
    serving: JoinHandle<Result<()>>,
}

/// Prepares the current thread, and the threads that it starts, to serve a block device: their memory is not swapped
/// out, and their allocations do not wait for the device to write. Call it before the runtime starts.
///
/// # Errors
///
/// The system's, without root's rights. The device can still be served, but may hang when memory runs out.
pub fn prepare_thread() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?;
    rustix::process::configure_io_flusher_behavior(true)?;
    // Without this process, programs and file systems that use the device get errors.
    std::fs::write("/proc/self/oom_score_adj", "-1000")
}

/// Fails if the kernel cannot attach anything for this user.
///
/// # Errors
///
/// [`Error::NotRoot`] or [`Error::NoNbd`].
pub async fn check() -> Result<()> {
    blocking(|| Kernel::open().map(drop)).await
}

/// Attaches `device`. Requests are served on the current runtime, which must be multi-threaded.
///
/// # Errors
///
/// If the kernel refuses, if the device is connected already, or if the device to resume is served by another process
/// or has another identifier.
pub async fn attach(device: DynDevice, start: Start, options: AttachOptions) -> Result<Attachment> {
    options.check()?;
    let writable = options.writable && device.geometry().writable;
    let device: DynDevice = if writable { device } else { Arc::new(ReadOnly::new(device)) };
    let flags = flags(&*device);
    let (size, session) = (device.geometry().size, Session { device: Arc::clone(&device), flags, options });
    let starting = session.clone();
    let (node, claim, streams) = blocking(move || starting.start(size, start)).await?;
    let serving = tokio::spawn(session.clone().serve(node, streams));
    let attachment = Attachment { node, claim, device, writable, serving };
    if let Err(error) = session.verify(node).await {
        attachment.detach(true).await?;
        return Err(error);
    }
    tracing::info!(%node, writable, "attached");
    Ok(attachment)
}

impl AttachOptions {
    fn check(&self) -> Result<()> {
        let sector = self.sector_bytes;
        if !(512..=SECTOR_BYTES_MAX).contains(&sector) || !sector.is_power_of_two() {
            return Err(Error::SectorSize(sector));
        }
        debug_assert!(self.identifier.len() <= IDENTIFIER_BYTES_MAX && self.connections > 0);
        Ok(())
    }
}

/// What a process needs to serve a device, and to serve it again after the kernel has given up a connection.
#[derive(Clone)]
struct Session {
    device: DynDevice,
    flags: TransmissionFlags,
    options: AttachOptions,
}

impl Session {
    /// Makes the device, or takes it over. Blocks.
    fn start(&self, size: u64, start: Start) -> Result<(Node, Claim, Vec<UnixStream>)> {
        let kernel = Kernel::open()?;
        match start {
            Start::Resume(path) => {
                let node = Node::named(&path)?;
                let claim = claim(node)?.ok_or(Error::Served(path))?;
                let streams = self.resume(&kernel, node)?;
                Ok((node, claim, streams))
            }
            Start::At(path) => {
                let node = Node::named(&path)?;
                let made = self.make(&kernel, node, size)?;
                made.map(|(claim, streams)| (node, claim, streams)).ok_or(Error::Taken(path))
            }
            Start::Free => {
                for node in Node::all().filter(|node| !node.is_connected()) {
                    if let Some((claim, streams)) = self.make(&kernel, node, size)? {
                        return Ok((node, claim, streams));
                    }
                }
                Err(Error::NoneFree)
            }
        }
    }

    /// Makes the device; `None` if it is taken.
    fn make(&self, kernel: &Kernel, node: Node, size: u64) -> Result<Option<(Claim, Vec<UnixStream>)>> {
        let Some(claim) = claim(node)? else { return Ok(None) };
        let (ours, theirs) = self.pairs()?;
        let sockets: Vec<_> = theirs.iter().map(|stream| stream.as_raw_fd()).collect();
        let settings = Connect {
            index: node.index(),
            size,
            sector_bytes: u64::from(self.options.sector_bytes),
            flags: self.flags.0,
            serving: self.serving(&sockets),
        };
        match kernel.connect(&settings) {
            Ok(()) => Ok(Some((claim, ours))),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(None),
            Err(error) => {
                claim.remove();
                Err(Error::Io { context: format!("attaching to {node}"), error })
            }
        }
    }

    /// Gives the kernel new connections for the device. Blocks.
    fn resume(&self, kernel: &Kernel, node: Node) -> Result<Vec<UnixStream>> {
        let attached = node.identifier().filter(|_| node.is_connected());
        match attached {
            None => return Err(Error::NotAttached(node.path())),
            Some(found) if found != self.options.identifier => {
                return Err(Error::Other { device: node.path(), found, given: self.options.identifier.clone() });
            }
            Some(_) => {}
        }
        let (ours, theirs) = self.pairs()?;
        let sockets: Vec<_> = theirs.iter().map(|stream| stream.as_raw_fd()).collect();
        let mut tries = RESUME_RETRIES;
        while let Err(error) = kernel.reconfigure(node.index(), &self.serving(&sockets)) {
            match Errno::from_io_error(&error) {
                // The kernel has not noticed yet that the former process died.
                Some(Errno::NOSPC) if tries > 0 => tries -= 1,
                Some(Errno::NOSPC) => return Err(Error::Served(node.path())),
                _ => return Err(Error::Io { context: format!("resuming {node}"), error }),
            }
            std::thread::sleep(RESUME_PAUSE);
        }
        Ok(ours)
    }

    fn pairs(&self) -> Result<(Vec<UnixStream>, Vec<UnixStream>)> {
        let pair = || {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            // Only root may exceed the system's limit; a smaller buffer costs some speed.
            for end in [&ours, &theirs] {
                let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(end, SEND_BUFFER_BYTES);
            }
            Ok((ours, theirs))
        };
        let pairs: io::Result<Vec<_>> = (0..self.options.connections).map(|_| pair()).collect();
        let failed = |error| Error::Io { context: "making a pair of sockets".to_owned(), error };
        Ok(pairs.map_err(failed)?.into_iter().unzip())
    }

    fn serving<'a>(&'a self, sockets: &'a [i32]) -> Serving<'a> {
        let AttachOptions { timeout, grace, identifier, .. } = &self.options;
        Serving { sockets, timeout: *timeout, grace: *grace, identifier }
    }

    /// Serves the kernel until it has ended the device. The kernel gives up connections when an answer takes too long;
    /// it then gets new ones.
    async fn serve(self, node: Node, mut streams: Vec<UnixStream>) -> Result<()> {
        // When memory runs out, the kernel frees some by writing, for which this process must not need much: about 10 MiB of
        // content, and as much again for redundancy and buffers.
        let memory_bytes = if self.device.geometry().writable { MEMORY_BYTES_LEAST } else { MEMORY_BYTES_USUAL };
        let mut failures = 0;
        loop {
            let since = Instant::now();
            let ended = serve(streams, Arc::clone(&self.device), self.flags, memory_bytes).await;
            if matches!(ended, Ok(Ending::Asked)) {
                return Ok(());
            }
            // A connection that lasted shows that requests can be served.
            failures = if since.elapsed() < self.options.timeout { failures + 1 } else { 1 };
            if failures > FAILURES_MAX {
                let error =
                    ended.err().unwrap_or_else(|| io::Error::other("the kernel gives up each connection at once"));
                return Err(Error::Io { context: format!("serving {node}"), error });
            }
            tracing::warn!("the connection to the kernel for {node} was lost, and is replaced");
            let again = self.clone();
            streams = blocking(move || again.resume(&Kernel::open()?, node)).await?;
        }
    }

    /// Checks that the kernel made the device as it was asked to, and makes it look for partitions.
    async fn verify(&self, node: Node) -> Result<()> {
        let (writable, size) = (self.device.geometry().writable, self.device.geometry().size);
        node.tune("read_ahead_kb", &(self.options.read_ahead_bytes / 1024).to_string());
        // Reordering requests gains nothing, and costs processor time.
        node.tune("scheduler", "none");
        blocking(move || {
            let size = size / 512 * 512;
            if node.is_read_only() && writable {
                return Err(Error::StaysReadOnly(node.path()));
            }
            if node.is_read_only() == writable || node.size() != size {
                return Err(Error::Unlike { device: node.path(), size: node.size(), read_only: node.is_read_only() });
            }
            // The kernel reads the partition table when the device is opened.
            let opened = std::fs::File::open(node.path());
            opened.map(drop).map_err(|error| Error::Io { context: format!("opening {node}"), error })
        })
        .await
    }
}

fn claim(node: Node) -> Result<Option<Claim>> {
    Claim::take(node).map_err(|error| Error::Io { context: format!("claiming {node} in /run/cheetah"), error })
}

impl Attachment {
    /// The path of the block device.
    pub fn path(&self) -> PathBuf {
        self.node.path()
    }

    /// The paths of the block devices of its partitions, in order.
    pub fn partitions(&self) -> Vec<PathBuf> {
        self.node.partitions()
    }

    /// Whether the kernel may write to it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Waits until the device was detached from outside.
    ///
    /// # Errors
    ///
    /// If it can no longer be served.
    pub async fn wait(&mut self) -> Result<()> {
        (&mut self.serving).await.unwrap_or_else(|error| {
            let error = io::Error::other(error.to_string());
            Err(Error::Io { context: format!("serving {}", self.node), error })
        })
    }

    /// Returns the mounts and programs that use it, a phrase each, if it is in use.
    pub async fn users(&self) -> Result<Option<Vec<String>>> {
        detach::users(self.node).await
    }

    /// Detaches it, and returns when all written data is on stable storage.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] if it is in use, unless `force` is given, or if written data may not have arrived.
    pub async fn detach(mut self, force: bool) -> Result<()> {
        if !self.serving.is_finished() {
            detach::disconnect(self.node, force).await?;
            self.wait().await?;
        }
        self.close().await
    }

    /// Flushes what was written, after the device was detached.
    pub async fn close(self) -> Result<()> {
        let flushed = if self.writable { self.device.flush().await.map_err(Error::Flush) } else { Ok(()) };
        // `cheetah detach` waits for the claim, and what it reports is true only after the flush.
        if !self.node.is_connected() {
            self.claim.remove();
        }
        flushed
    }
}
