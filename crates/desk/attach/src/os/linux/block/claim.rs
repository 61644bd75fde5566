//! Which process serves a device: the one that holds the lock on `/run/cheetah/nbdN` or `/run/cheetah/ublkbN`.
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
use rustix::process::{Pid, Signal, kill_process};

#[cfg(feature = "ublk")]
use super::node::Driver;
use super::node::Node;

/// Where the files are; also named in the udev rule.
const DIRECTORY: &str = "/run/cheetah";
/// The pause between checks whether another process has ended.
const PAUSE: Duration = Duration::from_millis(50);

/// The right to serve a device, until it is dropped.
pub(crate) struct Claim {
    node: Node,
    path: PathBuf,
    file: File,
}

impl Claim {
    /// Takes the right to serve a device; `None` if another process has it.
    pub(crate) fn take(node: Node) -> io::Result<Option<Self>> {
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
                let mut claim = Self { node, path, file };
                claim.file.set_len(0)?;
                writeln!(claim.file, "{}", std::process::id())?;
                return Ok(Some(claim));
            }
        }
    }

    /// The claims of processes that were killed, for devices of a driver.
    #[cfg(feature = "ublk")]
    pub(crate) fn left(driver: Driver) -> Vec<Self> {
        let entries = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
        let nodes = entries.filter_map(|entry| Node::named(&Path::new("/dev").join(entry.file_name())).ok());
        nodes.filter(|node| node.driver() == driver).filter_map(|node| Self::take(node).ok()?).collect()
    }

    /// The device.
    #[cfg(feature = "ublk")]
    pub(crate) fn node(&self) -> Node {
        self.node
    }

    /// Whether a device is served, or was served by a process that was killed.
    #[cfg(feature = "ublk")]
    pub(crate) fn exists(node: Node) -> bool {
        Path::new(DIRECTORY).join(node.name()).exists()
    }

    /// Continues the process that serves a device, if it was stopped (SIGSTOP): it could not end.
    pub(crate) fn wake_holder(node: Node) -> io::Result<()> {
        Self::wake_holder_in(Path::new(DIRECTORY), node)
    }

    fn wake_holder_in(directory: &Path, node: Node) -> io::Result<()> {
        let path = directory.join(node.name());
        let id = fs::read_to_string(&path)?.trim().parse().ok().and_then(Pid::from_raw);
        let Some(id) = id else { return Ok(()) };
        // The id of a process that was killed may be another process's by now; that one does not have the file.
        let files = fs::read_dir(format!("/proc/{}/fd", id.as_raw_nonzero()))?.flatten();
        if files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == path) {
            kill_process(id, Signal::CONT)?;
        }
        Ok(())
    }

    /// Takes the right once its holder's process has ended; `None` if it has not within this time.
    pub(crate) async fn wait(node: Node, patience: Duration) -> io::Result<Option<Self>> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            match Self::take(node)? {
                None if tokio::time::Instant::now() < until => tokio::time::sleep(PAUSE).await,
                taken => return Ok(taken),
            }
        }
    }

    /// Removes the file: the kernel has no such device any more.
    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!("{} of {} stays: {error}", self.path.display(), self.node);
        }
    }
}

impl Drop for Claim {
    /// Releases the lock at once. Closing the file would not: a child process has a copy of it until the child executes its
    /// own program.
    fn drop(&mut self) {
        if let Err(errno) = flock(&self.file, FlockOperation::Unlock) {
            tracing::debug!("{} stays locked until its file is closed: {errno}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn one_process_at_a_time_has_the_claim() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::named(Path::new("nbd7")).unwrap();
        let take = || Claim::take_in(dir.path(), node).unwrap();
        let first = take().expect("free");
        assert!(take().is_none());
        // As a child process has one until it executes its program.
        let _copy = first.file.try_clone().unwrap();
        drop(first);
        let second = take().expect("the file of an ended process is taken over");
        second.remove();
        assert!(!dir.path().join("nbd7").exists());
        assert!(take().is_some());
    }

    #[test]
    fn only_a_process_that_has_the_claim_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::named(Path::new("nbd7")).unwrap();
        let path = dir.path().join("nbd7");
        let stopped = |program: &mut std::process::Command| {
            let child = program.spawn().unwrap();
            let id = Pid::from_child(&child);
            kill_process(id, Signal::STOP).unwrap();
            let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(id), options).unwrap();
            fs::write(&path, format!("{}\n", child.id())).unwrap();
            child
        };
        let continues = |mut child: std::process::Child| {
            Claim::wake_holder_in(dir.path(), node).unwrap();
            let options = WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
            let continued = waitid(WaitId::Pid(Pid::from_child(&child)), options).unwrap().is_some();
            child.kill().unwrap();
            child.wait().unwrap();
            continued
        };
        let mut sleep = std::process::Command::new("sleep");
        sleep.arg("1000");
        assert!(!continues(stopped(&mut sleep)));
        assert!(continues(stopped(sleep.stdin(File::open(&path).unwrap()))));
        fs::write(&path, "no number").unwrap();
        Claim::wake_holder_in(dir.path(), node).unwrap();
    }
}
