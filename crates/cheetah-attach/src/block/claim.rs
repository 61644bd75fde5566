//! Which process serves a device: the one that holds the lock on `/run/cheetah/nbdN`.
//!
//! The file is there before the kernel announces the device, so that our udev rule recognises the device from its first
//! event on. It stays behind a process that was killed, as long as the kernel has the device.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::node::Node;

/// Where the files are; also named in the udev rule.
const DIRECTORY: &str = "/run/cheetah";
/// The pause between checks whether another process has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// The right to serve a device, until it is dropped.
pub(super) struct Claim {
    path: PathBuf,
    file: File,
}

impl Claim {
    /// Takes the right to serve a device; `None` if another process has it.
    pub(super) fn take(node: Node) -> io::Result<Option<Self>> {
        Self::take_in(Path::new(DIRECTORY), node)
    }

    fn take_in(directory: &Path, node: Node) -> io::Result<Option<Self>> {
        fs::create_dir_all(directory)?;
        let path = directory.join(node.name());
        loop {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Ok(None),
                locked => locked?,
            }
            // Its former holder may have removed the file in between.
            if file.metadata()?.nlink() > 0 {
                let mut claim = Self { path, file };
                claim.file.set_len(0)?;
                writeln!(claim.file, "{}", std::process::id())?;
                return Ok(Some(claim));
            }
        }
    }

    /// Takes the right once its holder's process has ended; `None` if it has not within this time.
    pub(super) async fn wait(node: Node, patience: Duration) -> io::Result<Option<Self>> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            match Self::take(node)? {
                None if tokio::time::Instant::now() < until => tokio::time::sleep(PAUSE).await,
                taken => return Ok(taken),
            }
        }
    }

    /// Removes the file: the kernel has no such device any more.
    pub(super) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!("{} stays: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_has_the_claim() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::named(Path::new("nbd7")).unwrap();
        let take = || Claim::take_in(dir.path(), node).unwrap();
        let first = take().expect("free");
        assert!(take().is_none());
        drop(first);
        let second = take().expect("the file of an ended process is taken over");
        second.remove();
        assert!(!dir.path().join("nbd7").exists());
        assert!(take().is_some());
    }
}
