//! Storing prefetched data in the kernel's page cache.
//!
//! The kernel reads ahead of sequential readers, not of those that read backward or in strides. Each 4 KiB record is then a
//! request of its own, with two thread switches, for data that the prefetcher already holds. Storing a few hundred KiB at
//! once (`FUSE_NOTIFY_STORE`) saves nearly all of these requests.
//!
//! A page that another reader waits for is locked until its request is answered, and storing waits for the lock. So only
//! one thread stores at a time, and only if another one answers requests meanwhile.

use std::sync::OnceLock;

use cheetah_device::ByteRange;
use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;

use super::view::{FileView, in_one_piece};

/// The kernel's page cache, for storing pages that were not requested.
pub(super) struct Pages {
    /// Unset until the mount is served, and if nothing may be stored.
    notifier: OnceLock<Notifier>,
    storing: Mutex<()>,
}

impl Pages {
    /// Nothing is stored until [`open`](Self::open).
    pub(super) fn new() -> Self {
        Self { notifier: OnceLock::new(), storing: Mutex::new(()) }
    }

    /// Allows storing: there are several threads, and the files are read-only.
    pub(super) fn open(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Stores data predicted to be read after `read`, as far as it is in memory. Call it before that read is answered, while
    /// its reader cannot send further requests.
    pub(super) fn store_after(&self, read: ByteRange, ino: INodeNo, view: &FileView) {
        let (Some(notifier), Some(_storing)) = (self.notifier.get(), self.storing.try_lock()) else { return };
        // The pages of this read are locked until this thread answers it.
        let page = rustix::param::page_size() as u64;
        let locked = read.aligned_to(page);
        for (offset, data) in view.device.take_prefetched(read) {
            if ByteRange::new(offset, data.len()).aligned_to(page).intersection(locked).is_some() {
                continue;
            }
            let stored = in_one_piece(&data, |bytes| notifier.store(ino, offset, bytes));
            if let Err(error) = stored {
                // The kernel will request the data.
                return tracing::debug!("storing pages at {offset}: {error}");
            }
        }
    }
}
