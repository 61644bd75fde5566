//! A client's counters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the client was connected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Requests sent, retries included.
    pub requests: u64,
    /// In-flight requests.
    pub in_flight: u64,
    /// Bytes received, headers included.
    pub received_bytes: u64,
    /// Bytes of content read, holes included.
    pub content_bytes: u64,
    /// Bytes sent, headers included.
    pub sent_bytes: u64,
    /// How often a lost connection was replaced.
    pub reconnects: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    received_bytes: AtomicU64,
    content_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    reconnects: AtomicU64,
}

impl Counters {
    pub fn requested(&self, bytes: u64) {
        self.requests.fetch_add(1, Relaxed);
        self.sent_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub fn read(&self, bytes: u64) {
        self.content_bytes.fetch_add(bytes, Relaxed);
    }

    /// The number of bytes received so far.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Relaxed)
    }

    /// Counts a connection that is up, if it replaces an earlier one.
    pub fn reconnected(&self, was_up: bool) {
        self.reconnects.fetch_add(was_up.into(), Relaxed);
    }

    pub fn stats(&self, in_flight: u64) -> ClientStats {
        ClientStats {
            requests: self.requests.load(Relaxed),
            in_flight,
            received_bytes: self.received_bytes.load(Relaxed),
            content_bytes: self.content_bytes.load(Relaxed),
            sent_bytes: self.sent_bytes.load(Relaxed),
            reconnects: self.reconnects.load(Relaxed),
        }
    }
}
