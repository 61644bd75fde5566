//! The crate `cheetah-attach`, as far as verbs use it, without a value of any of its types: nothing can be mounted or attached where
//! the system has no drivers for that. Verbs ask [`offers`](super::offers) first.

#![allow(dead_code, reason = "nothing reads the options of a mount that is never made")]

use std::convert::Infallible;
use std::fmt;
use std::path::Path;

use cheetah_device::DynDevice;
use cheetah_volume::partition::{Remark, SectorSize};

use super::{Feature, offers};

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why nothing is mounted or attached.
#[derive(Debug)]
pub struct Error(cheetah_error::Error);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<Error> for cheetah_error::Error {
    fn from(error: Error) -> Self {
        error.0
    }
}

/// How to mount.
#[derive(Clone)]
pub struct MountOptions {
    /// The name of the files.
    pub name: String,
    /// Further devices and their names.
    pub besides: Vec<(String, DynDevice)>,
    /// Whether the files can be written.
    pub writable: bool,
    /// Whether all users may use the files.
    pub allow_other: bool,
    /// The size of the device's sectors.
    pub sectors: SectorSize,
    /// The kernel's read-ahead in bytes.
    pub read_ahead_bytes: u32,
}

impl MountOptions {
    /// A read-only mount for this user alone.
    pub fn new(name: impl Into<String>) -> Self {
        let (name, sectors, besides) = (name.into(), SectorSize::Unknown, Vec::new());
        Self { name, besides, writable: false, allow_other: false, sectors, read_ahead_bytes: 0 }
    }
}

/// A mounted device: there is none.
pub struct Mount(Infallible);

impl Mount {
    /// The files.
    pub fn files(&self) -> &[String] {
        match self.0 {}
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        match self.0 {}
    }

    /// Remarks on the table of partitions.
    pub fn remarks(&self) -> &[Remark] {
        match self.0 {}
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// None.
    pub async fn wait(&self) -> Result<()> {
        match self.0 {}
    }

    /// Unmounts it.
    ///
    /// # Errors
    ///
    /// None.
    pub async fn unmount(self) -> Result<()> {
        match self.0 {}
    }
}

/// Fails.
///
/// # Errors
///
/// Always.
pub async fn mount(_device: DynDevice, _dir: &Path, _options: MountOptions) -> Result<Mount> {
    Err(lacking(Feature::Mounts))
}

/// Fails.
///
/// # Errors
///
/// Always.
pub async fn unmount(_dir: &Path, _lazily: bool) -> Result<()> {
    Err(lacking(Feature::Mounts))
}

fn lacking(feature: Feature) -> Error {
    Error(offers(feature).err().unwrap_or_else(|| cheetah_error::Error::failed(feature.to_string())))
}

/// Block devices of the kernel.
pub mod block {
    use std::convert::Infallible;
    use std::io;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::{Feature, Result, lacking};

    /// How to attach.
    #[derive(Debug, Clone)]
    pub struct AttachOptions {
        /// Whether programs may write.
        pub writable: bool,
        /// The size of a sector.
        pub sector_bytes: u32,
        /// The kernel's read-ahead in bytes.
        pub read_ahead_bytes: u32,
        /// What the device is made of.
        pub identifier: String,
        /// The kernel's time-out.
        pub timeout: Duration,
        /// How long programs wait if this process dies.
        pub grace: Duration,
    }

    /// An attached device: there is none.
    pub struct Attachment(Infallible);

    impl Attachment {
        /// The device.
        pub fn path(&self) -> PathBuf {
            match self.0 {}
        }

        /// Its partitions.
        pub fn partitions(&self) -> Vec<PathBuf> {
            match self.0 {}
        }

        /// Whether programs may write.
        pub fn is_writable(&self) -> bool {
            match self.0 {}
        }

        /// Waits for its end.
        ///
        /// # Errors
        ///
        /// None.
        pub async fn wait(&mut self) -> Result<()> {
            match self.0 {}
        }

        /// Its users.
        ///
        /// # Errors
        ///
        /// None.
        pub async fn users(&self) -> Result<Option<Vec<String>>> {
            match self.0 {}
        }

        /// Detaches it.
        ///
        /// # Errors
        ///
        /// None.
        pub async fn detach(self, _force: bool) -> Result<()> {
            match self.0 {}
        }

        /// Closes it.
        ///
        /// # Errors
        ///
        /// None.
        pub async fn close(self) -> Result<()> {
            match self.0 {}
        }
    }

    /// Prepares nothing.
    ///
    /// # Errors
    ///
    /// None.
    pub fn prepare_thread() -> io::Result<()> {
        Ok(())
    }

    /// Fails.
    ///
    /// # Errors
    ///
    /// Always.
    pub async fn detach(_path: &Path, _force: bool) -> Result<()> {
        Err(lacking(Feature::BlockDevices))
    }
}

/// The kernel's client of NBD.
pub mod nbd {
    use std::path::PathBuf;

    use cheetah_device::DynDevice;

    use super::block::{AttachOptions, Attachment};
    use super::{Feature, Result, lacking};

    /// Where to attach.
    #[derive(Debug, Clone)]
    pub enum Start {
        /// At a free device.
        Free,
        /// At this one.
        At(PathBuf),
        /// At this one again.
        Resume(PathBuf),
    }

    /// Fails.
    ///
    /// # Errors
    ///
    /// Always.
    pub async fn check() -> Result<()> {
        Err(lacking(Feature::BlockDevices))
    }

    /// Fails.
    ///
    /// # Errors
    ///
    /// Always.
    pub async fn attach(_device: DynDevice, _start: Start, _options: AttachOptions) -> Result<Attachment> {
        Err(lacking(Feature::BlockDevices))
    }
}
