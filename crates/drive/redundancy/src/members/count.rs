//! Counts that every request changes.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count in a cache line of its own, with the line that processors fetch along: else each request would take its
/// neighbours, which all requests read, out of the other processors' caches.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Count(AtomicU64);

impl Count {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn take_back(&self, added: u64) {
        self.0.fetch_sub(added, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
