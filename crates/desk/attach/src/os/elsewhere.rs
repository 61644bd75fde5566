//! The functions of this crate on systems that have no drivers for them: each fails, so there is no value of the types.

use std::convert::Infallible;
use std::path::Path;

use cheetah_device::DynDevice;
use cheetah_volume::partition::Remark;

use crate::{Error, MountOptions, Result};

/// A mounted device: there is none.
pub struct Mount(Infallible);

impl Mount {
    /// The directory.
    pub fn dir(&self) -> &Path {
        match self.0 {}
    }

    /// The names of the files.
    pub fn files(&self) -> &[String] {
        match self.0 {}
    }

    /// Remarks on the tables of partitions.
    pub fn remarks(&self) -> &[Remark] {
        match self.0 {}
    }

    /// Waits for its end.
    pub async fn wait(&self) -> Result<()> {
        match self.0 {}
    }

    /// Unmounts it.
    pub async fn unmount(self) -> Result<()> {
        match self.0 {}
    }
}

/// Fails with [`Error::NotOffered`].
pub async fn mount(_device: DynDevice, _dir: &Path, _options: MountOptions) -> Result<Mount> {
    Err(Error::NotOffered)
}

/// Fails with [`Error::NotOffered`].
pub async fn unmount(_dir: &Path, _lazily: bool) -> Result<()> {
    Err(Error::NotOffered)
}

/// Block devices of the kernel.
pub mod block {
    use std::convert::Infallible;
    use std::io;
    use std::path::{Path, PathBuf};

    pub use crate::options::AttachOptions;
    use crate::{Error, Result};

    /// An attached device: there is none.
    pub struct Attachment(Infallible);

    impl Attachment {
        /// The path of the device.
        pub fn path(&self) -> PathBuf {
            match self.0 {}
        }

        /// The paths of its partitions.
        pub fn partitions(&self) -> Vec<PathBuf> {
            match self.0 {}
        }

        /// Whether the kernel may write to it.
        pub fn is_writable(&self) -> bool {
            match self.0 {}
        }

        /// Waits for its end.
        pub async fn wait(&mut self) -> Result<()> {
            match self.0 {}
        }

        /// Its users.
        pub async fn users(&self) -> Result<Option<Vec<String>>> {
            match self.0 {}
        }

        /// Detaches it.
        pub async fn detach(self, _force: bool) -> Result<()> {
            match self.0 {}
        }

        /// Closes it.
        pub async fn close(self) -> Result<()> {
            match self.0 {}
        }
    }

    /// Prepares nothing.
    pub fn prepare_thread() -> io::Result<()> {
        Ok(())
    }

    /// Fails with [`Error::NotOffered`].
    pub async fn detach(_path: &Path, _force: bool) -> Result<()> {
        Err(Error::NotOffered)
    }
}

/// The kernel's client of NBD.
pub mod nbd {
    use cheetah_device::DynDevice;

    use super::block::{AttachOptions, Attachment};
    pub use crate::options::Start;
    use crate::{Error, Result};

    /// Fails with [`Error::NotOffered`].
    pub async fn check() -> Result<()> {
        Err(Error::NotOffered)
    }

    /// Fails with [`Error::NotOffered`].
    pub async fn attach(_device: DynDevice, _start: Start, _options: AttachOptions) -> Result<Attachment> {
        Err(Error::NotOffered)
    }
}
