//! A source that is open, and how to open one.

use std::time::Duration;

use cheetah_device::DynDevice;

use crate::identity::Identity;

/// How to open an image or a disk.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// How long `qemu-nbd`, which reads virtual disks, may be silent.
    pub timeout: Duration,
    /// Connections to it: 1 to 16.
    pub connections: usize,
    /// Whether what the coverage map beside a raw image or an E01 calls missing is unreadable, rather than the zeros in
    /// the file. A caller that reads the map itself says no.
    pub heed_map: bool,
}

impl OpenOptions {
    /// The number of connections, where a server allows several: enough to keep two of its cores busy.
    pub const CONNECTIONS: usize = 2;
}

impl Default for OpenOptions {
    /// 10 s, two connections, and maps heeded.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), connections: Self::CONNECTIONS, heed_map: true }
    }
}

/// An open source. Its files, connections or child process live as long as its device.
pub struct Source {
    /// Its bytes. Refuses writes.
    pub device: DynDevice,
    /// Its identity.
    pub identity: Identity,
    /// The name to show: the file's name without its extension, or the export's name.
    pub name: String,
}
