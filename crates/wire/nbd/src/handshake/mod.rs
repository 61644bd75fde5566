//! The handshake (fixed newstyle), both sides. No I/O.
//!
//! Each side is a state machine: it gets the bytes received so far and a buffer for bytes to send, and returns what to do
//! next. The caller does the I/O; see [`server::ServerHandshake::advance`] and
//! [`client::ClientHandshake::advance`].

pub mod client;
mod meta;
pub mod server;

use crate::proto::PAYLOAD_LEN_MAX;

/// The sizes of requests that an export accepts (`NBD_INFO_BLOCK_SIZE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths must be multiples of this: a power of two, at most 64 KiB.
    pub min: u32,
    /// Below this size or alignment requests are inefficient: a power of two, at least 512.
    pub preferred: u32,
    /// The most data in one read or write, in bytes.
    pub payload_max: u32,
}

impl Default for BlockSizes {
    /// The specification's defaults.
    fn default() -> Self {
        Self { min: 1, preferred: 4096, payload_max: PAYLOAD_LEN_MAX }
    }
}

impl BlockSizes {
    /// Whether the specification allows them.
    pub fn are_valid(&self) -> bool {
        self.min.is_power_of_two()
            && self.min <= 1 << 16
            && self.preferred.is_power_of_two()
            && self.preferred >= self.min.max(512)
            && self.payload_max >= self.preferred
    }
}

/// A metadata context selected for a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// Its number in replies to block status requests.
    pub id: u32,
    /// Its name, such as `base:allocation`.
    pub name: String,
}
