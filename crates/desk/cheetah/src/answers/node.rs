//! The answers of `node`.

use std::net::SocketAddr;

use cheetah_control::api::NodeReceipt;
use serde::Serialize;

use super::access::Transport;

/// The events of `node`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Node<'a> {
    /// The memory can be used.
    Ready {
        /// The address of the control API.
        http: SocketAddr,
        /// 32 hex digits, new at each start.
        instance: &'a str,
        /// The memory lent, in bytes.
        lent_bytes: u64,
        /// Whether the memory is locked, so that none of it can be swapped out.
        locked: bool,
        /// The node's name.
        name: &'a str,
        /// The address of the NBD server.
        nbd: SocketAddr,
        /// The protection of the connections.
        transport: Transport,
        /// Bytes of content that fit in the memory.
        usable_bytes: u64,
    },
    /// The node has stopped, and wiped the memory.
    Wiped {
        /// What was wiped.
        #[serde(flatten)]
        wiped: &'a NodeReceipt,
        /// The same in words.
        receipt: &'a str,
    },
}
