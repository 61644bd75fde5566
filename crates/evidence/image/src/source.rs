//! An open source, and the options of opening one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::DynDevice;

use crate::hashed::HashedFiles;
use crate::identity::Identity;

/// The options of opening an image or a disk.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// How long `qemu-nbd`, which reads virtual disks, may be silent.
    pub timeout: Duration,
    /// Connections to it: 1 to 16.
    pub connections: usize,
    /// Whether reads fail in ranges that the coverage map beside a raw image or an E01 calls missing; otherwise they
    /// return the zeros in the file. False for a caller that reads the map itself.
    pub apply_map: bool,
    /// Whether the image will be read from start to end. Otherwise a compressed image that can only be read so is refused.
    pub in_order: bool,
    /// Whether the buffer of each read is its reader's alone, which alters it in place, where the image allows that: to decrypt it. Otherwise
    /// buffers are reused.
    pub exclusive: bool,
}

impl OpenOptions {
    /// The number of connections, where a server allows several: enough to keep two of its cores busy.
    pub const CONNECTIONS: usize = 2;
}

impl Default for OpenOptions {
    /// 10 s, two connections, maps applied, read at random, and buffers reused.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            connections: Self::CONNECTIONS,
            apply_map: true,
            in_order: false,
            exclusive: false,
        }
    }
}

/// An open source. Its files, connections or child process live as long as its device.
#[derive(Clone)]
pub struct Source {
    /// Its bytes. Refuses writes.
    pub device: DynDevice,
    /// Its identity.
    pub identity: Identity,
    /// The name to show: the file's name without its extension, or the export's name.
    pub name: String,
    /// The files that it is read from, in order; none for a disk or an export.
    pub files: Vec<SourceFile>,
    /// Their hashes, if they are made as its content is read.
    pub hashed: Option<Arc<HashedFiles>>,
    /// What is in doubt about it although it can be read, a sentence each.
    pub notes: Vec<String>,
}

/// A file that a source is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path, or its URI.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
}

impl SourceFile {
    /// Whether it is behind a link: its path is a URI.
    pub fn is_remote(&self) -> bool {
        crate::spec::is_uri(&self.path.to_string_lossy())
    }
}

impl Source {
    /// Returns a source that is read from no file.
    pub const fn new(device: DynDevice, identity: Identity, name: String) -> Self {
        Self { device, identity, name, files: Vec::new(), hashed: None, notes: Vec::new() }
    }

    /// Returns it with the files that it is read from.
    #[must_use]
    pub fn with_files(self, files: Vec<SourceFile>) -> Self {
        Self { files, ..self }
    }
}
