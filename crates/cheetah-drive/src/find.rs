//! Finding nodes: named on the command line, announced on the network, or foreign NBD servers.

use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};

/// A node as the user names it: `host`, `host:port` (its NBD port; control is on the port after it),
/// `nbd://host:port/export` or `nbd+unix:///export?socket=PATH` (any NBD server), or `auto` (those that announce
/// themselves on the local network).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeSpec {
    /// A node.
    Node {
        /// Name or address.
        host: String,
        /// Its NBD port.
        port: u16,
    },
    /// An export of any NBD server.
    Foreign(String),
    /// Whoever announces itself by mDNS.
    Auto,
}

impl FromStr for NodeSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let _ = text;
        Err(Error::failed("not built yet"))
    }
}

/// How to look for nodes.
#[derive(Debug, Clone)]
pub struct FindOptions {
    /// How long a node may take to answer.
    pub timeout: Duration,
    /// How long to listen for announcements (`auto`).
    pub browse: Duration,
}

/// A node that was found and may take part in a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What the user calls it.
    pub name: String,
    /// Bytes it can lend now.
    pub free_bytes: u64,
    /// Where it is.
    pub place: Place,
}

/// Where a node's bytes are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A node of ours: exports are made as needed.
    Node {
        /// `host:port` of its NBD server.
        nbd: String,
        /// `host:port` of its control API.
        http: String,
        /// Which start of it this is, 32 hexadecimal digits.
        instance: String,
    },
    /// An export that exists already.
    Foreign {
        /// Its NBD URI.
        uri: String,
    },
}

/// Asks the nodes what they have. All must answer; a node named twice is refused.
pub async fn find(specs: &[NodeSpec], options: &FindOptions) -> Result<Vec<Found>> {
    let _ = (specs, options);
    Err(Error::failed("not built yet"))
}
