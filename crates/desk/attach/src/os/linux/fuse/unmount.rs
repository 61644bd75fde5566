//! Unmounting by a process other than the one that serves the mount.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::kernel::{self, Unmounted};
use super::{BUSY_PAUSE, BUSY_RETRIES};
use crate::blocking::blocking;
use crate::{Error, Result, table};

/// How long the serving process may take to write back and to release its leases and connections.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// Unmounts the mount on `dir`, and waits until the process that serves it has ended: written data is then on
/// stable storage. `lazily` detaches it even if files on it are open; the process ends when they are closed.
///
/// # Errors
///
/// If there is no mount of ours on `dir`, if it is in use, or if the process has not ended after a minute.
pub async fn unmount(dir: &Path, lazily: bool) -> Result<()> {
    let shown = dir.to_owned();
    let (dir, number, server) = blocking(move || find(&shown)).await?;
    for _ in 0..BUSY_RETRIES {
        let at = dir.clone();
        match blocking(move || kernel::unmount(&at, number, lazily)).await? {
            Unmounted::Yes if lazily => return Ok(()),
            Unmounted::Yes => return ended(&dir, server).await,
            Unmounted::Busy => tokio::time::sleep(BUSY_PAUSE).await,
        }
    }
    Err(Error::Busy(dir))
}

/// The directory without symbolic links, the number of the file system on it, and the process that serves it.
fn find(dir: &Path) -> Result<(PathBuf, u64, Option<OwnedFd>)> {
    let failed = |error: io::Error| Error::Io { context: format!("looking at {}", dir.display()), error };
    let path = match dir.canonicalize() {
        Ok(path) => path,
        // The metadata of a mount cannot be read after its process is gone.
        Err(error) if is_stale(&error) => std::path::absolute(dir).map_err(failed)?,
        Err(error) => return Err(failed(error)),
    };
    let entry = table::ours_on(&path).map_err(failed)?.ok_or_else(|| Error::NotMounted(dir.to_owned()))?;
    let server = server(&path);
    Ok((path, entry.number, server))
}

fn is_stale(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// The process that serves the mount on `dir`, if it can be found: it may be gone, or in another container.
fn server(dir: &Path) -> Option<OwnedFd> {
    let mut text = [0; 16];
    let len = rustix::fs::getxattr(dir, table::PID_ATTRIBUTE, &mut text).ok()?;
    let pid = std::str::from_utf8(text.get(..len)?).ok()?.parse().ok()?;
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// Waits for the serving process to end.
async fn ended(dir: &Path, server: Option<OwnedFd>) -> Result<()> {
    let Some(server) = server else { return Ok(()) };
    let failed = |error| Error::Io { context: format!("waiting for the process behind {}", dir.display()), error };
    #[allow(deprecated, reason = "its replacement is unsafe; the file is owned and never closed early")]
    let server = AsyncFd::with_interest(server, Interest::READABLE).map_err(failed)?;
    match tokio::time::timeout(END_TIMEOUT, server.readable()).await {
        Ok(ended) => ended.map(drop).map_err(failed),
        Err(_) => Err(Error::Lingering(dir.to_owned())),
    }
}
