//! A device as a block device of the kernel, `/dev/nbdN`, with its partitions.
//!
//! The kernel's NBD client gets one end of a pair of sockets, and our NBD server has the other. The kernel learns by
//! [`netlink`](crate::kernel::netlink) the settings that NBD's handshake negotiates between a client and a server. The server runs in this
//! process; if the process dies, the kernel keeps the device for a while, and another process can continue
//! ([`Start::Resume`]).

use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cheetah_device::{Device, DynDevice};
use cheetah_nbd::proto::TransmissionFlags;
use cheetah_nbd::server::agreed::{Ending, flags, serve};
use cheetah_nbd::server::{MEMORY_BYTES_LEAST, MEMORY_BYTES_USUAL};
use rustix::io::Errno;

use crate::block::claim::Claim;
use crate::block::node::{Driver, Node};
use crate::block::{AttachOptions, Attachment};
use crate::blocking::blocking;
use crate::kernel::nbd::Kernel;
use crate::kernel::netlink::{Connect, Serving};
pub use crate::options::Start;
use crate::{Error, Result};

/// The kernel's buffer for what the server sends, in bytes: several large replies.
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// Connections between the kernel and this process.
const CONNECTIONS: usize = 1;
/// How often, and at which interval, to offer the kernel new connections while it regards the old ones as alive.
const RESUME_RETRIES: u32 = 20;
const RESUME_PAUSE: Duration = Duration::from_millis(100);
/// How many connections in a row may be lost soon after they began.
const FAILURES_MAX: u32 = 5;

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
    let device = options.restrict(device);
    let flags = flags(&*device);
    let (size, session) =
        (device.geometry().size, Session { device: Arc::clone(&device), flags, options: options.clone() });
    let starting = session.clone();
    let (node, claim, streams) = blocking(move || starting.start(size, start)).await?;
    let serving = tokio::spawn(session.serve(node, streams));
    Attachment { node, claim, device, serving }.verified(&options).await
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
                let node = nbd_at(&path)?;
                let claim = claim(node)?.ok_or(Error::Served(path))?;
                let streams = self.resume(&kernel, node)?;
                Ok((node, claim, streams))
            }
            Start::At(path) => {
                let node = nbd_at(&path)?;
                let made = self.make(&kernel, node, size)?;
                made.map(|(claim, streams)| (node, claim, streams)).ok_or(Error::Taken(path))
            }
            Start::Free => {
                for node in Node::all_nbd().filter(|node| !node.is_connected()) {
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
        let pairs: io::Result<Vec<_>> = (0..CONNECTIONS).map(|_| pair()).collect();
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
}

/// The nbd device at this path.
fn nbd_at(path: &Path) -> Result<Node> {
    let node = Node::named(path)?;
    if node.driver() == Driver::Nbd { Ok(node) } else { Err(Error::NotADevice(path.to_owned())) }
}

fn claim(node: Node) -> Result<Option<Claim>> {
    Claim::take(node).map_err(|error| Error::Io { context: format!("claiming {node} in /run/cheetah"), error })
}
