//! What the kernel tells of writes to a file that is read as evidence.
//!
//! A file's size and its times (`mtime`, and `ctime`, which no program can set) are compared with each read. That misses writes
//! through a memory mapping whose pages were written to before, and which the kernel did not write back since. Two more
//! sources are therefore used where they can be had:
//!
//! * **A read lease** (`fcntl(2)`, `F_SETLEASE`) is granted only if no program has the file open for writing, or mapped so. It is
//!   taken when the file is opened, and released at once, since it would hold up other programs. Only the file's owner and
//!   root may ask.
//! * **inotify(7)** reports each write and truncation. A file that it reports has changed, whatever its times are.

#![allow(unsafe_code, reason = "fcntl's leases and sync_file_range have no safe wrappers")]

use std::collections::HashMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// The inotify instance of the process, of which the kernel grants few; and who watches what.
static NOTICES: LazyLock<Option<Notices>> = LazyLock::new(|| {
    let instance = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    Some(Notices { instance, watched: Mutex::default() })
});

struct Notices {
    instance: OwnedFd,
    watched: Mutex<HashMap<i32, Vec<Weak<AtomicBool>>>>,
}

/// A file that is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    written: Option<Arc<AtomicBool>>,
    lease: Lease,
}

/// Whether a program had the file open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lease {
    /// None had.
    Granted,
    /// At least one had.
    Writer,
    /// The kernel does not say.
    Unknown,
}

impl Watch {
    /// Watches an open regular file.
    pub(crate) fn start(file: &File) -> Self {
        Self { written: NOTICES.as_ref().and_then(|notices| notices.add(file)), lease: probe(file) }
    }

    /// Whether the file was written to since this was started, as far as the kernel has reported it.
    pub(crate) fn is_written(&self) -> bool {
        let Some(written) = &self.written else { return false };
        if let Some(notices) = NOTICES.as_ref() {
            notices.take();
        }
        written.load(Ordering::Relaxed)
    }

    /// Whether a program may have had the file open for writing, and mapped, when this was started.
    pub(crate) fn may_have_writer(&self) -> bool {
        self.lease != Lease::Granted
    }

    /// The same as of the last question, without asking the kernel.
    pub(crate) fn was_written(&self) -> bool {
        self.written.as_ref().is_some_and(|written| written.load(Ordering::Relaxed))
    }

    /// Says what is watched, and what is not, in sentences.
    pub(crate) fn describe(&self) -> String {
        let notices = if self.written.is_some() {
            "; the kernel was asked to report each write to it (inotify)"
        } else {
            "; the kernel could not be asked to report writes to it"
        };
        let lease = match self.lease {
            Lease::Granted => "; when it was opened, no program had it open for writing",
            Lease::Writer => {
                "; when it was opened, a program had it open for writing: what that writes through a memory mapping may not \
                 be noticed"
            }
            Lease::Unknown => {
                "; whether a program had it open for writing when it was opened could not be found out, and what such a \
                 program writes through a memory mapping may not be noticed"
            }
        };
        format!("{TIMES}{notices}{lease}")
    }
}

/// What is compared of every file.
pub(crate) const TIMES: &str = "its size, its time of modification and its time of change were compared with each read and at the \
                                end of an acquisition (fanotify was not used)";

impl Notices {
    fn add(&self, file: &File) -> Option<Arc<AtomicBool>> {
        let events = WatchFlags::MODIFY;
        // The file itself, whatever its name is now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // What was written before is none of the new watch's: the kernel numbers watches of one file alike.
        self.take();
        let mut watched = self.watched.lock();
        let number = inotify::add_watch(&self.instance, path, events).ok()?;
        let written = Arc::new(AtomicBool::new(false));
        let list = watched.entry(number).or_default();
        list.retain(|one| one.strong_count() > 0);
        list.push(Arc::downgrade(&written));
        Some(written)
    }

    /// Takes what the kernel has reported.
    fn take(&self) {
        let mut watched = self.watched.lock();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.instance, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::MODIFY) {
                let list = watched.get(&event.wd()).into_iter().flatten().filter_map(Weak::upgrade);
                list.for_each(|written| written.store(true, Ordering::Relaxed));
            }
        }
        let unused: Vec<_> = watched
            .iter()
            .filter(|(_, list)| list.iter().all(|one| one.strong_count() == 0))
            .map(|(number, _)| *number)
            .collect();
        for number in unused {
            watched.remove(&number);
            let _ = inotify::remove_watch(&self.instance, number);
        }
    }
}

/// Asks whether a program has the file open for writing.
fn probe(file: &File) -> Lease {
    let set = |kind: i32| {
        // SAFETY: F_SETLEASE takes a number, and accesses no memory of this process.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    match set(libc::F_RDLCK) {
        Ok(()) => {
            // Closing the file would release it, too.
            let _ = set(libc::F_UNLCK);
            Lease::Granted
        }
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Lease::Writer,
        Err(_) => Lease::Unknown,
    }
}

/// Waits until the kernel has stored what was written to the file. Changes neither its content nor its times.
pub(crate) fn store_pages(file: &File) {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: it takes numbers, and accesses no memory of this process.
    let done = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, all) };
    if done != 0 {
        tracing::debug!("the pages of a source stay as they are: {}", std::io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn a_write_is_reported_and_a_writer_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let own = File::open(file.path()).unwrap();
        let beside = Watch::start(&own);
        assert!(beside.describe().contains("a program had it open for writing"), "{}", beside.describe());
        let writer = file.reopen().unwrap();
        let (file, path) = file.into_parts();
        drop((file, writer));
        let watch = Watch::start(&own);
        // Reading is no write.
        assert!(!watch.is_written());
        if watch.lease == Lease::Granted {
            assert!(watch.describe().contains("no program had it open"), "{}", watch.describe());
        }
        File::options().write(true).open(&path).unwrap().write_all_at(b"x", 0).unwrap();
        assert!(watch.is_written() || watch.written.is_none());
    }
}
