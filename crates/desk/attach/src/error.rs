//! Errors of attaching a device.

use std::path::{Path, PathBuf};

use cheetah_device::os_error;
use cheetah_error::next::Attach;
use cheetah_error::{Kind, Next};

/// The result of attaching or detaching a device.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of attaching or detaching a device; each says what to do next, in its sentence or with [`Error::next`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is not valid as a file name.
    #[error("'{0}' cannot be a file name: take one without '/', from 1 to 200 bytes long")]
    BadName(String),
    /// The directory does not exist.
    #[error("{dir} does not exist; make the directory first: mkdir -p {dir}", dir = .0.display())]
    NoDirectory(PathBuf),
    /// The path is not a directory.
    #[error("{dir} is not a directory; a mount needs an empty one", dir = .0.display())]
    NotADirectory(PathBuf),
    /// The directory is not empty: a mount would hide its content.
    #[error("{dir} is not empty, and mounting over it would hide its content; name an empty directory", dir = .0.display())]
    NotEmpty(PathBuf),
    /// The process that served the mount there is gone.
    #[error("{dir} has a mount whose process is gone", dir = .0.display())]
    Stale(PathBuf),
    /// One of our mounts exists there.
    #[error("{dir} has {source_name} mounted already", dir = .dir.display())]
    Mounted {
        /// The directory.
        dir: PathBuf,
        /// The mounted drive or image.
        source_name: String,
    },
    /// There is no mount of ours.
    #[error("nothing is mounted on {dir} by Cheetah; `findmnt -t fuse.cheetah` lists its mounts", dir = .0.display())]
    NotMounted(PathBuf),
    /// Files on the mount are open.
    #[error("{dir} is in use", dir = .0.display())]
    Busy(PathBuf),
    /// The process behind a mount still runs after it was unmounted.
    #[error("{dir} is unmounted, but its process has not ended: written data may not be on stable storage yet", dir = .0.display())]
    Lingering(PathBuf),
    /// A mount can no longer be served.
    #[error("the mount on {dir} broke, and is unmounted: {why}; mount it again, and please report this", dir = .dir.display())]
    Broken {
        /// The directory.
        dir: PathBuf,
        /// The cause.
        why: String,
    },
    /// `/dev/fuse` is missing or not accessible.
    #[error("/dev/fuse cannot be opened ({}); load the module (modprobe fuse), or in a container pass the device in", os_error::describe(.0))]
    NoFuse(std::io::Error),
    /// This user may not let others use a mount.
    #[error("only root may let other users use a mount, unless /etc/fuse.conf has the line user_allow_other")]
    MayNotAllowOther,
    /// The kernel or fusermount refused to mount.
    #[error("mounting on {dir} was refused: {why}", dir = .dir.display())]
    Refused {
        /// The directory.
        dir: PathBuf,
        /// The error.
        why: String,
    },
    /// Unmounting failed.
    #[error("unmounting {dir} failed: {why}; try: fusermount3 -uz {dir}", dir = .dir.display())]
    Unmount {
        /// The directory.
        dir: PathBuf,
        /// The error.
        why: String,
    },
    /// Only root may make block devices.
    #[error("only root can attach a block device")]
    NotRoot,
    /// The kernel has no NBD client.
    #[error("the kernel has no nbd")]
    NoNbd,
    /// The kernel has no ublk.
    #[cfg(feature = "ublk")]
    #[error("the kernel has no ublk")]
    NoUblk,
    /// The kernel's ublk lacks something.
    #[cfg(feature = "ublk")]
    #[error("the kernel's ublk is too old, since it cannot copy with pread and pwrite (Linux 6.5 can)")]
    OldUblk,
    /// The path is not that of a device that we can serve.
    #[error("{path} is not a device that can be attached; name a whole one, such as /dev/nbd0", path = .0.display())]
    NotADevice(PathBuf),
    /// The device is connected to something already.
    #[error("{device} is taken", device = .0.display())]
    Taken(PathBuf),
    /// Every device is connected.
    #[error("every nbd device is taken")]
    NoneFree,
    /// The device is not attached by us.
    #[error("{device} is not attached by Cheetah; `ls /run/cheetah` shows which ones are", device = .0.display())]
    NotAttached(PathBuf),
    /// The device's process is alive.
    #[error("a process still serves {device}, so that another cannot take it over; stop that process first (its id is in /run/cheetah)", device = .0.display())]
    Served(PathBuf),
    /// The device to be resumed has another identifier.
    #[error("{device} is {found}, and this is {given}: name the source with which it was attached, or detach it", device = .device.display())]
    Other {
        /// The device.
        device: PathBuf,
        /// Its identifier.
        found: String,
        /// The identifier of the source that was named.
        given: String,
    },
    /// The kernel did not make the device as it was asked to.
    #[error(
        "the kernel made {device} {mode} and with {size} bytes, which is not what it was asked for, so it is detached again", device = .device.display(), mode = if *.read_only { "read-only" } else { "writable" }
    )]
    Unlike {
        /// The device.
        device: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// Whether it refuses writes.
        read_only: bool,
    },
    /// Writes are wanted, and the device refuses them.
    #[error("the kernel was told to refuse writes to {device}", device = .0.display())]
    StaysReadOnly(PathBuf),
    /// The sector size is not one that the kernel supports.
    #[error("the kernel's drivers have no sectors of {0} bytes")]
    SectorSize(u32),
    /// The device is in use.
    #[error("{device} is in use{}", by_whom(.by), device = .device.display())]
    InUse {
        /// The device.
        device: PathBuf,
        /// The mounts and programs that use it, a phrase each.
        by: Vec<String>,
    },
    /// The process behind a device still runs after it was detached.
    #[error("{device} is detached, but its process has not ended: written data may not be on stable storage yet", device = .0.display())]
    StillServed(PathBuf),
    /// Flushing failed: written data may not be on stable storage.
    #[error("written data may not have arrived: {0}")]
    Flush(cheetah_device::Error),
    /// This system is not Linux.
    #[error("a device can become files or a block device on Linux only")]
    NotOffered,
    /// The operating system reported an error.
    #[error("{context}: {}", os_error::describe(error))]
    Io {
        /// The operation and its object.
        context: String,
        /// The error.
        error: std::io::Error,
    },
}

impl Error {
    /// The next step, if the sentence does not say it.
    pub fn next(&self) -> Option<Next> {
        let shown = |path: &Path| path.display().to_string();
        let next = match self {
            Self::Stale(dir) => Attach::Unmount { dir: shown(dir) },
            Self::Mounted { dir, .. } => Attach::OtherDirOrUnmount { dir: shown(dir) },
            Self::Busy(dir) => Attach::CloseFiles { dir: shown(dir) },
            Self::NotRoot => Attach::RootOrMount,
            Self::NoNbd => Attach::LoadNbdOrMount,
            #[cfg(feature = "ublk")]
            Self::NoUblk => Attach::LoadUblkOrOther,
            #[cfg(feature = "ublk")]
            Self::OldUblk => Attach::UseNbd,
            Self::Taken(device) => Attach::FreeDevice { device: shown(device) },
            Self::NoneFree => Attach::DetachOne,
            Self::StaysReadOnly(device) => Attach::AllowWrites { device: shown(device) },
            Self::Unlike { .. } | Self::SectorSize(_) => Attach::UseMount,
            Self::InUse { .. } => Attach::CutOff,
            Self::NotOffered => Attach::ExportOrGoThere,
            _ => return None,
        };
        Some(next.into())
    }
}

impl From<Error> for cheetah_error::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::NotOffered => Kind::Unsupported,
            _ => Kind::Failed,
        };
        Self::new(kind, error.to_string()).advise(error.next()).because(error)
    }
}

/// The users of a device, in brackets.
fn by_whom(by: &[String]) -> String {
    if by.is_empty() { String::new() } else { format!(" ({})", by.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_system_without_drivers_is_unsupported_and_others_are_failures() {
        let kind = |error: Error| cheetah_error::Error::from(error).kind();
        assert_eq!((kind(Error::NotOffered), kind(Error::NotRoot)), (Kind::Unsupported, Kind::Failed));
    }
}
