//! The answers of `mount`, `unmount`, `attach`, `detach`, `export` and `serve`.

use std::borrow::Cow;
use std::net::SocketAddr;

use cheetah_image::Identity;
use serde::{Deserialize, Serialize};

/// The answer of `mount`, once the files can be used.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Mount<'a> {
    /// The files can be used.
    Ready {
        /// The directory.
        dir: Cow<'a, str>,
        /// The first of the files: the whole drive or image.
        file: Option<Cow<'a, str>>,
        /// All files: the whole, then its partitions.
        files: Vec<Cow<'a, str>>,
        /// Whether the drive is being filled from its source.
        filling: bool,
        /// The process that serves the files.
        pid: u32,
        /// What is unusual about the partition table, a sentence each.
        remarks: Vec<Cow<'a, str>>,
        /// The size of the whole, in bytes.
        size_bytes: u64,
    },
}

/// The answer of `unmount`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Unmount<'a> {
    /// The directory is no longer mounted on.
    Unmounted {
        /// The directory.
        dir: Cow<'a, str>,
    },
    /// With `--lazy`: the mount ends when its files are closed.
    Detached {
        /// The directory.
        dir: Cow<'a, str>,
    },
}

/// The answer of `attach`, once the block device can be used.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Attach<'a> {
    /// The block device can be used.
    Ready {
        /// The block device.
        device: Cow<'a, str>,
        /// Whether the drive is being filled from its source.
        filling: bool,
        /// The block devices of its partitions.
        partitions: Vec<Cow<'a, str>>,
        /// The process that serves the device.
        pid: u32,
        /// The size of the device, in bytes.
        size_bytes: u64,
        /// Whether programs may write to it.
        writable: bool,
    },
}

/// The answer of `detach`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Detach<'a> {
    /// The block device is free.
    Detached {
        /// The block device.
        device: Cow<'a, str>,
    },
}

/// The protection of a server's connections.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Encrypted and authenticated, in a room.
    Tls,
    /// Neither encrypted nor authenticated.
    Clear,
}

impl Transport {
    /// The transport of a server that uses TLS, or not.
    pub fn of(has_tls: bool) -> Self {
        if has_tls { Self::Tls } else { Self::Clear }
    }
}

/// The answer of `export`, once clients can connect.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Export<'a> {
    /// Clients can connect.
    Ready {
        /// Whether the drive is being filled from its source.
        filling: bool,
        /// The name of the export.
        name: &'a str,
        /// Its size, in bytes.
        size_bytes: u64,
        /// The protection of the connections.
        transport: Transport,
        /// Where it is served: an NBD URI.
        uri: &'a str,
    },
}

/// Whether the kernel refuses writes to a disk.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReadOnly {
    /// It refused them before.
    Found,
    /// It refuses them from now on.
    Set,
    /// It does not refuse them.
    NotSet,
}

/// The answer of `serve --list`: the disks of this machine.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Disks {
    /// The disks, by their names.
    pub disks: Vec<ListedDisk>,
}

/// A disk of this machine.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListedDisk {
    /// How it is attached: `usb`, `nvme`, `ata`, `mmc`, `virtio` or `scsi`, if that is known.
    pub bus: Option<&'static str>,
    /// Maker and model.
    pub model: Option<String>,
    /// Its device.
    pub path: String,
    /// Why its volumes are not known, if so.
    pub problem: Option<String>,
    /// Bytes in a sector.
    pub sector_size_bytes: Option<u32>,
    /// Serial number.
    pub serial: Option<String>,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// What uses it, a clause each. Its content may change while it is read.
    pub users: Vec<String>,
    /// Its volumes in known formats.
    pub volumes: Vec<ListedVolume>,
    /// Whether the kernel refuses writes to it.
    pub write_protected: Option<bool>,
}

/// A volume of a disk.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListedVolume {
    /// What the partition table says of it.
    pub description: String,
    /// Its formats, with identifiers and protectors if it is encrypted.
    pub formats: Vec<String>,
    /// Whether it is encrypted: `--unlock` of other verbs opens some such formats.
    pub is_locked: bool,
    /// Its first byte.
    pub offset: u64,
    /// The number of its partition; none for the disk as a whole.
    pub partition: Option<u32>,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Why it could not be examined for known formats, if so.
    pub unread: Option<String>,
}

/// The answer of `serve`, once the disk can be read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Serve<'a> {
    /// The disk can be read.
    Ready {
        /// The examiner's machine to which this one connects, if it does.
        connect: Option<&'a str>,
        /// What is known of the disk.
        identity: &'a Identity,
        /// The name of the export.
        name: &'a str,
        /// The address at which it takes part in measurements of the path, if it does.
        probe: Option<SocketAddr>,
        /// Whether the kernel refuses writes to the disk.
        read_only: ReadOnly,
        /// Its size, in bytes.
        size_bytes: u64,
        /// Where it is served, if clients connect to it: an NBD URI.
        uri: Option<&'a str>,
    },
}
