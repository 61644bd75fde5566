//! The state of a read that is answered in parts.

use std::sync::atomic::{AtomicU64, Ordering};

use cheetah_device::Error;
use parking_lot::Mutex;

/// The state that the parts of one read share.
pub(super) struct SplitReadState {
    /// Bytes not yet answered.
    left: AtomicU64,
    /// Why a part failed, and with it the read.
    pub(super) error: Mutex<Option<Error>>,
}

impl SplitReadState {
    /// Returns the state of a read of `len` bytes, before its parts are started.
    pub(super) fn new(len: u64) -> Self {
        Self { left: AtomicU64::new(len), error: Mutex::new(None) }
    }

    /// Takes note of `len` more bytes answered. True if they were the last.
    pub(super) fn answered(&self, len: u64) -> bool {
        self.left.fetch_sub(len, Ordering::Relaxed) == len
    }

    /// Whether a part has failed, so that the others need not be read.
    pub(super) fn has_failed(&self) -> bool {
        self.error.lock().is_some()
    }
}
