//! How to attach a device, on every system.

use std::path::PathBuf;
use std::time::Duration;

use cheetah_device::DynDevice;
use cheetah_volume::partition::SectorSize;

/// The read-ahead of a mount in bytes: the size of the largest request.
const READ_AHEAD_BYTES: u32 = 1 << 20;

/// How to mount.
#[derive(Clone)]
pub struct MountOptions {
    /// The name of the files: `NAME.raw` and `NAME.pN.raw`.
    pub name: String,
    /// Further devices and their names, which follow that of the files: `NAME.` and theirs and `.raw`. They are read-only.
    pub besides: Vec<(String, DynDevice)>,
    /// Whether the files can be written; the device must be writable, too.
    pub writable: bool,
    /// Whether all users may use the files, which are evidence. Root may allow that, and other users if `user_allow_other`
    /// is in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// The size of the device's sectors: partition tables count in them.
    pub sectors: SectorSize,
    /// The number of threads that read the kernel's requests; 0 for one per processor, up to 4.
    pub threads: usize,
    /// The kernel's read-ahead in bytes; more than 128 KiB needs root. The kernel reads ahead even of reads that are only
    /// roughly sequential, and a reader waits for the whole request, of 1 MiB at most. That costs little if the device is
    /// local, and much if it is remote. More than 1 MiB becomes several requests at the same time.
    pub read_ahead_bytes: u32,
}

impl MountOptions {
    /// A read-only mount for this user alone.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            besides: Vec::new(),
            writable: false,
            allow_other: false,
            sectors: SectorSize::Unknown,
            threads: 0,
            read_ahead_bytes: READ_AHEAD_BYTES,
        }
    }
}

/// How to make a block device.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    /// Whether the kernel may write; the device must be writable, too.
    pub writable: bool,
    /// Bytes of a logical sector: 512 to 4096, a power of two. Partition tables count in them.
    pub sector_bytes: u32,
    /// The kernel's read-ahead in bytes.
    pub read_ahead_bytes: u32,
    /// The identifier of the content. A process that takes an nbd device over must give the same identifier. Up to 256
    /// bytes.
    pub identifier: String,
    /// After this time without an answer, the kernel's NBD client gives up a connection. It should be longer than the
    /// device takes to fail, so that errors come from the device. Whole seconds.
    pub timeout: Duration,
    /// How long requests to an nbd device wait for another process after this one has died. Whole seconds.
    pub grace: Duration,
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
