//! Block devices of the kernel that a process of ours serves: `/dev/nbdN` and `/dev/ublkbN`.

pub(crate) mod claim;
mod detach;
pub(crate) mod node;
mod rescan;
mod users;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use cheetah_device::readonly::ReadOnly;
use cheetah_device::{Device, DynDevice};
use rustix::mm::{MlockAllFlags, mlockall};
use tokio::task::JoinHandle;

use self::claim::Claim;
pub use self::detach::detach;
use self::node::Node;
use crate::blocking::blocking;
pub use crate::options::AttachOptions;
use crate::{Error, Result};

/// The longest identifier: the kernel shows it in sysfs, in a page of 4 KiB.
const IDENTIFIER_BYTES_MAX: usize = 256;
/// The largest range that the kernel asks to discard at once, in bytes.
const DISCARD_BYTES_MAX: u64 = 16 << 20;
/// The largest logical sector that the kernel's drivers support.
const SECTOR_BYTES_MAX: u32 = 4096;

impl AttachOptions {
    /// Fails unless the kernel supports the options.
    pub(crate) fn check(&self) -> Result<()> {
        let sector = self.sector_bytes;
        if !(512..=SECTOR_BYTES_MAX).contains(&sector) || !sector.is_power_of_two() {
            return Err(Error::SectorSize(sector));
        }
        debug_assert!(self.identifier.len() <= IDENTIFIER_BYTES_MAX);
        Ok(())
    }

    /// The device, read-only unless the options and the device allow writes.
    pub(crate) fn restrict(&self, device: DynDevice) -> DynDevice {
        if self.writable && device.geometry().writable { device } else { Arc::new(ReadOnly::new(device)) }
    }
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

/// An attached device. [`detach`](Attachment::detach) it: if it is dropped, its requests fail, those of an nbd device after they
/// have waited for another process.
pub struct Attachment {
    pub(crate) node: Node,
    pub(crate) claim: Claim,
    pub(crate) device: DynDevice,
    pub(crate) serving: JoinHandle<Result<()>>,
}

impl Attachment {
    /// Checks that the kernel made the device as it was asked to, or detaches it.
    pub(crate) async fn verified(self, options: &AttachOptions) -> Result<Self> {
        let (node, geometry) = (self.node, self.device.geometry());
        node.tune("read_ahead_kb", &(options.read_ahead_bytes / 1024).to_string());
        // Reordering requests gains nothing, and costs processor time.
        node.tune("scheduler", "none");
        // Discarding a large range is one request for the kernel, and takes long on a drive with parity: in parts, each ends
        // before the kernel's time limit.
        node.tune("discard_max_bytes", &DISCARD_BYTES_MAX.to_string());
        let verified = blocking(move || {
            let (size, writable) = (geometry.size / 512 * 512, geometry.writable);
            if node.is_read_only() && writable {
                return Err(Error::StaysReadOnly(node.path()));
            }
            if node.is_read_only() == writable || node.size() != size {
                return Err(Error::Unlike { device: node.path(), size: node.size(), read_only: node.is_read_only() });
            }
            // The kernel reads the partition table when the device is opened.
            let opened = std::fs::File::open(node.path());
            node.keep_from_others();
            opened.map(drop).map_err(|error| Error::Io { context: format!("opening {node}"), error })
        })
        .await;
        if let Err(error) = verified {
            self.detach(true).await?;
            return Err(error);
        }
        tracing::info!(%node, writable = geometry.writable, "attached");
        Ok(self)
    }

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
        self.device.geometry().writable
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
        let flushed = if self.is_writable() { self.device.flush().await.map_err(Error::Flush) } else { Ok(()) };
        // Another process that detaches the device waits for the claim, and what it reports is true only after the flush.
        if !self.node.is_connected() {
            self.claim.remove();
        }
        flushed
    }
}
