//! How a connection takes the place of a lost one, so that nothing left over from that one is written any more.
//!
//! When a connection is given up, the server may not have received yet what was sent over it. Were it to carry out
//! such a write after a newer one to the same bytes, the old bytes would be back. A node of ours prevents that: it is
//! told with each connection, by a context, which earlier ones it replaces, and cuts them before it lets it in. Until
//! then, the client holds back all its writes.
//!
//! Other servers know nothing of this. There, a write that was repeated on a new connection may be overtaken by its
//! old copy, as with any NBD client that connects again.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::handshake::client::Wish;

/// Contexts that only nodes of ours grant.
const OURS: [&str; 2] = ["x-cheetah:lease/", "x-cheetah:instance/"];

/// One after the other, the connections in one place: those of one link.
#[derive(Debug)]
pub(super) struct Turns {
    /// 128 random bits.
    name: u128,
    /// Connections tried so far.
    count: AtomicU64,
}

impl Turns {
    /// Whether the server is to be told, which takes a node of ours, and makes sense for a writer only.
    pub fn matter(wish: &Wish, writable: bool) -> bool {
        writable && wish.contexts.iter().any(|context| OURS.iter().any(|prefix| context.starts_with(prefix)))
    }

    /// A place without connections.
    pub fn new() -> io::Result<Self> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(io::Error::other)?;
        Ok(Self { name: u128::from_ne_bytes(bits), count: AtomicU64::new(0) })
    }

    /// What to wish for with the next connection: that it replaces those before.
    pub fn next(&self, wish: &Wish) -> Wish {
        // Counted by attempts: what was sent in one that failed may arrive after the one that succeeds.
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut wish = wish.clone();
        wish.contexts.push(format!("x-cheetah:connection/{:032x}/{count}", self.name));
        wish
    }
}
