//! A device as a block device of the kernel's driver ublk, `/dev/ublkbN`, with its partitions.
//!
//! The kernel puts requests in memory that it shares with this process ([`descriptors`]), and announces them through an
//! io_uring ([`queue`]). Content is copied with `pread` and `pwrite` on `/dev/ublkcN` (`UBLK_F_USER_COPY`), so no memory is
//! kept for it. If the process dies, the kernel fails all requests and removes the device; its number stays taken until
//! the next [`attach`] or `detach`.

mod descriptors;
mod queue;
mod requests;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_device::{Device, DynDevice};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use self::queue::Queue;
use self::requests::Requests;
use crate::block::claim::Claim;
use crate::block::node::{Driver, Node};
use crate::block::{AttachOptions, Attachment};
use crate::blocking::blocking;
use crate::kernel::uapi::Settings;
use crate::kernel::ublk::Control;
use crate::{Error, Result};

/// The most requests in flight.
const DEPTH: u16 = 64;
/// The longest request, in bytes, to a device that is read, and to one that is written: when memory runs out, the kernel frees
/// some by writing, for which this process must not need much.
const READ_BYTES_MAX: u32 = 1 << 20;
const WRITE_BYTES_MAX: u32 = 128 << 10;

/// Fails if the kernel cannot attach anything for this user.
///
/// # Errors
///
/// [`Error::NotRoot`], [`Error::NoUblk`] or [`Error::OldUblk`].
pub async fn check() -> Result<()> {
    blocking(|| Control::open()?.check()).await
}

/// Attaches `device`, as `at` (`/dev/ublkbN`) or as the first free device. Requests are served on a thread of their own, and on
/// the current runtime.
///
/// # Errors
///
/// If the kernel refuses, or if `at` is taken.
pub async fn attach(device: DynDevice, at: Option<PathBuf>, options: AttachOptions) -> Result<Attachment> {
    options.check()?;
    let device = options.restrict(device);
    let index = at.as_deref().map(index_of).transpose()?;
    let (served, sector_bytes, runtime) = (Arc::clone(&device), options.sector_bytes, Handle::current());
    let (node, claim, ended) = blocking(move || start(served, index, sector_bytes, runtime)).await?;
    let serving = tokio::spawn(async move {
        let ended = ended.await.unwrap_or_else(|_| Err(io::Error::other("its thread has ended")));
        let deleted = blocking(move || delete(node)).await;
        ended.map_err(|error| Error::Io { context: format!("serving {node}"), error }).and(deleted)
    });
    Attachment { node, claim, device, serving }.verified(&options).await
}

fn index_of(path: &Path) -> Result<u32> {
    let node = Node::named(path)?;
    if node.driver() == Driver::Ublk { Ok(node.index()) } else { Err(Error::NotADevice(path.to_owned())) }
}

type Ended = oneshot::Receiver<io::Result<()>>;

/// Makes the device. Blocks.
fn start(device: DynDevice, index: Option<u32>, sector_bytes: u32, runtime: Handle) -> Result<(Node, Claim, Ended)> {
    let mut control = Control::open()?;
    control.check()?;
    for left in Claim::left(Driver::Ublk) {
        delete(left.node())?;
        left.remove();
    }
    let writable = device.geometry().writable;
    let settings = Settings {
        depth: DEPTH,
        request_bytes_max: if writable { WRITE_BYTES_MAX } else { READ_BYTES_MAX },
        size: device.geometry().size,
        sector_bytes,
        writable,
    };
    let index = control.add(index, &settings).map_err(|error| match (error.kind(), index) {
        (io::ErrorKind::AlreadyExists, Some(index)) => Error::Taken(Node::new(Driver::Ublk, index).path()),
        _ => Error::Io { context: "making a device of ublk".to_owned(), error },
    })?;
    let node = Node::new(Driver::Ublk, index);
    let started = run(&mut control, node, device, &settings, runtime);
    if started.is_err() {
        // It also ends the thread that serves the device.
        let _ = control.delete(index);
    }
    started
}

/// Starts a device that was made, and the thread that serves it.
fn run(
    control: &mut Control,
    node: Node,
    device: DynDevice,
    settings: &Settings,
    runtime: Handle,
) -> Result<(Node, Claim, Ended)> {
    let failed = |error| Error::Io { context: format!("attaching to {node}"), error };
    // The file is there before the kernel announces the device, for the udev rule.
    let claim = Claim::take(node).map_err(failed)?.ok_or_else(|| Error::Served(node.path()))?;
    let started = control.set(node.index(), settings).and_then(|()| {
        let file = open_channel(node.index())?;
        let (report, ended) = oneshot::channel();
        let requests = Requests::new(device, file, runtime)?;
        std::thread::Builder::new().name("ublk".to_owned()).spawn(move || {
            let served = Queue::start(requests, DEPTH).and_then(Queue::run);
            // The receiver may be gone.
            let _ = report.send(served);
        })?;
        // Reads the partition table, so the thread serves requests already.
        control.start(node.index())?;
        Ok(ended)
    });
    match started {
        Ok(ended) => Ok((node, claim, ended)),
        Err(error) => {
            claim.remove();
            Err(failed(error))
        }
    }
}

/// Opens the file through which the requests of a device arrive.
fn open_channel(index: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/dev/ublkc{index}"))
}

/// Frees the number of a device that is no longer served.
fn delete(node: Node) -> Result<()> {
    match Control::open()?.delete(node.index()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::Io { context: format!("removing {node}"), error })
        }
        _ => Ok(()),
    }
}
