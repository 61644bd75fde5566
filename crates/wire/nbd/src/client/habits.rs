//! How servers of other programs treat reads that fail, learned while they are read.
//!
//! Some servers close the connection instead of answering with an error. qemu-nbd does so if the reply may have several
//! chunks, and not if the read has `NBD_CMD_FLAG_DF`. So after a connection was lost with a read in flight, reads carry that
//! flag, where the server knows it; before that they do not, since a reply in one chunk has no holes. Where that does not
//! help, the reads that end connections are found.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cheetah_device::fatal_reads::{ByAddress, FatalReads};

use crate::uri::{Address, NbdUri};

static KNOWN: ByAddress<Habits> = ByAddress::new();

/// The habits of a server.
#[derive(Default)]
pub(super) struct Habits {
    /// The reads that end connections.
    pub(super) fatal: FatalReads,
    /// Whether it refuses reads with the flag.
    refuses_df: AtomicBool,
}

impl Habits {
    /// Returns the habits of the server at an address.
    pub(super) fn of(uri: &NbdUri) -> Arc<Self> {
        if matches!(uri.address, Address::Inbound(_)) {
            return Arc::default();
        }
        KNOWN.of(uri.to_string())
    }

    /// Whether reads should be answered in one chunk.
    pub(super) fn wants_df(&self) -> bool {
        self.fatal.has_dropped() && !self.refuses_df.load(Ordering::Relaxed)
    }

    /// Notes that the server cannot answer a read in one chunk.
    pub(super) fn refuses_df(&self) {
        self.refuses_df.store(true, Ordering::Relaxed);
    }
}
