//! Opening a drive: connecting its nodes and stacking the layers over them.

use std::time::Duration;

use cheetah_device::DynDevice;

use crate::error::{Error, Result};
use crate::file::DriveFile;

/// How to open a drive.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Open for writing: takes the write lease, and marks a loaded image as modified.
    pub writable: bool,
    /// Take the write lease from whoever holds it.
    pub force_lease: bool,
    /// Open although nodes are lost; their ranges fail to read. Not together with `writable`.
    pub allow_lost: bool,
    /// How long a node may be silent before its bytes count as lost.
    pub timeout: Duration,
    /// Bytes of memory for read-ahead; 0 for none.
    pub prefetch_budget: u64,
    /// NBD connections to each node.
    pub connections: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            writable: false,
            force_lease: false,
            allow_lost: false,
            timeout: Duration::from_secs(10),
            prefetch_budget: 64 << 20,
            connections: 2,
        }
    }
}

/// An open drive. [`Drive::close`] it: dropping leaves its lease to expire.
pub struct Drive {
    device: DynDevice,
}

impl Drive {
    /// Connects to the drive's nodes, takes the write lease if asked to, and assembles the device.
    pub async fn open(file: &DriveFile, options: OpenOptions) -> Result<Self> {
        let _ = (file, options);
        Err(Error::failed("not built yet"))
    }

    /// The drive as a device.
    pub fn device(&self) -> DynDevice {
        self.device.clone()
    }

    /// What is lost, a sentence for each node; empty unless opened with `allow_lost`.
    pub fn lost(&self) -> &[String] {
        &[]
    }

    /// Flushes, and releases the lease.
    pub async fn close(self) -> Result<()> {
        self.device.flush().await.map_err(Error::device("flushing the drive"))
    }
}
