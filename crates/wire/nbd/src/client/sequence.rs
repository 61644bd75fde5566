//! Numbering connections, so that a node fences the ones that are replaced.
//!
//! When a connection is given up, the server may not have received everything sent over it. If it carried out such a write
//! after a newer one to the same range, the old content would be back. A Cheetah node prevents that: a metadata context of
//! each connection says which earlier ones it replaces, and the node cuts those before it accepts it. Until then, the
//! client holds back all its writes.
//!
//! Other servers do not fence. There, the old copy of a repeated write may overtake a newer write, as with any NBD client
//! that reconnects.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use cheetah_kit::random;

use crate::handshake::client::ExportRequest;

/// Prefixes of contexts that only Cheetah nodes grant.
const NODE_CONTEXTS: [&str; 2] = ["x-cheetah:lease/", "x-cheetah:instance/"];

/// The successive connections of one handle.
#[derive(Debug)]
pub(super) struct ConnectionSequence {
    /// 128 random bits.
    name: u128,
    /// Connections attempted so far.
    count: AtomicU64,
}

impl ConnectionSequence {
    /// Whether connections must be numbered: for writers, on Cheetah nodes.
    pub fn is_needed(wanted: &ExportRequest, writable: bool) -> bool {
        writable && wanted.contexts.iter().any(|context| NODE_CONTEXTS.iter().any(|prefix| context.starts_with(prefix)))
    }

    /// A new sequence, without connections.
    pub fn new() -> io::Result<Self> {
        Ok(Self { name: random::bits_128()?, count: AtomicU64::new(0) })
    }

    /// The request for the next connection, which replaces those before.
    pub fn next(&self, wanted: &ExportRequest) -> ExportRequest {
        // Attempts are counted: what a failed one sent may arrive after the one that succeeds.
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut wanted = wanted.clone();
        wanted.contexts.push(format!("x-cheetah:connection/{:032x}/{count}", self.name));
        wanted
    }
}
