//! Why a device could not be attached.

use std::path::PathBuf;

/// The result of attaching something.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a device could not be attached, or be detached again; each says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name cannot be a file's.
    #[error("'{0}' cannot be a file name: take one without '/', from 1 to 200 bytes long")]
    BadName(String),
    /// There is nothing to mount on.
    #[error("{dir} does not exist; make the directory first: mkdir -p {dir}", dir = .0.display())]
    NoDirectory(PathBuf),
    /// Something else is there.
    #[error("{dir} is not a directory; a mount needs an empty one", dir = .0.display())]
    NotADirectory(PathBuf),
    /// A mount would hide what is in it.
    #[error("{dir} is not empty, and mounting over it would hide what it holds; take an empty directory", dir = .0.display())]
    NotEmpty(PathBuf),
    /// What served it is gone.
    #[error("{dir} is what is left of a mount whose process is gone; remove it first: fusermount3 -u {dir}", dir = .0.display())]
    Stale(PathBuf),
    /// The kernel's side of FUSE is missing or not for us.
    #[error("/dev/fuse cannot be opened ({0}); load the module (modprobe fuse), or in a container pass the device in")]
    NoFuse(std::io::Error),
    /// The kernel or fusermount said no.
    #[error("mounting on {dir} was refused: {why}", dir = .dir.display())]
    Refused {
        /// The directory.
        dir: PathBuf,
        /// What was said.
        why: String,
    },
    /// Unmounting failed.
    #[error("unmounting {dir} failed: {why}; try: fusermount3 -uz {dir}", dir = .dir.display())]
    Unmount {
        /// The directory.
        dir: PathBuf,
        /// What was said.
        why: String,
    },
    /// What was written could not be brought to stable storage.
    #[error("what was written may not have arrived: {0}")]
    Flush(cheetah_device::Error),
    /// The operating system reported an error.
    #[error("{context}: {error}")]
    Io {
        /// What was being done, to what.
        context: String,
        /// The error.
        error: std::io::Error,
    },
}
