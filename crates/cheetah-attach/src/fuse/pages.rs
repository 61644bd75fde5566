//! Putting what will be read next into the kernel's page cache.
//!
//! The kernel reads ahead of a reader that goes forward, not of one that goes backward or in strides: there, each record
//! of 4 KiB is a request of its own, two changes of thread for what the prefetcher has long had in memory. Storing a
//! few hundred KiB at once (`FUSE_NOTIFY_STORE`) saves nearly all of them.
//!
//! A page somebody else is waiting for is locked until that request is answered, and storing waits for the lock. So
//! only one thread stores at a time, and only where there is another to answer requests meanwhile.

use std::sync::OnceLock;

use cheetah_device::ByteRange;
use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;

use super::view::{View, in_one_piece};

/// The kernel's page cache, as far as it may be filled unasked.
pub(super) struct Pages {
    /// Unset before the mount is served, and for good where nothing may be stored.
    notifier: OnceLock<Notifier>,
    storing: Mutex<()>,
}

impl Pages {
    /// Nothing is stored until [`open`](Self::open).
    pub(super) fn new() -> Self {
        Self { notifier: OnceLock::new(), storing: Mutex::new(()) }
    }

    /// Allows storing: there are several threads, and nobody writes to the files.
    pub(super) fn open(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Stores what will be read after `read`, as far as it is at hand. To be called before that read is answered, while
    /// its reader cannot ask for more.
    pub(super) fn store_after(&self, read: ByteRange, ino: INodeNo, view: &View) {
        let (Some(notifier), Some(_storing)) = (self.notifier.get(), self.storing.try_lock()) else { return };
        // Its own pages are locked until it is answered, which is up to this very thread.
        let page = rustix::param::page_size() as u64;
        let locked = read.aligned_to(page);
        for (offset, data) in view.device.take_prefetched(read) {
            if ByteRange::new(offset, data.len()).aligned_to(page).intersection(locked).is_some() {
                continue;
            }
            let stored = in_one_piece(&data, |bytes| notifier.store(ino, offset, bytes));
            if let Err(error) = stored {
                // It will be asked for, then.
                return tracing::debug!("storing pages at {offset}: {error}");
            }
        }
    }
}
