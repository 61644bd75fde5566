//! Giving the nodes their memory back.

use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::file::DriveFile;

/// How to destroy a drive.
#[derive(Debug, Clone)]
pub struct DestroyOptions {
    /// Even while someone else uses it.
    pub force: bool,
    /// How long a node may take to answer.
    pub timeout: Duration,
}

/// What became of a drive's memory.
#[derive(Debug, Clone, Serialize)]
pub struct Destroyed {
    /// For each node entry, in file order.
    pub nodes: Vec<NodeOutcome>,
}

/// What became of the memory on one node.
#[derive(Debug, Clone, Serialize)]
pub struct NodeOutcome {
    /// The node, as the user knows it.
    pub node: String,
    /// What happened there.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What became of one export.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// Freed and wiped; the node's receipt.
    Wiped {
        /// Bytes overwritten.
        wiped_bytes: u64,
        /// Whether the node read them back as zeros.
        verified_zero: bool,
    },
    /// The node restarted since, and so wiped it, or freed it before.
    Gone,
    /// The node did not answer or refused; its memory may still hold the bytes.
    Failed {
        /// Why.
        why: String,
    },
    /// A foreign server: what it does with its bytes is its own affair.
    Foreign,
}

/// Frees the drive's exports and removes its file and digests. Nodes that cannot be reached are reported, not fatal.
/// Refused while others hold its lease or are connected, unless forced.
pub async fn destroy(file: &DriveFile, options: DestroyOptions) -> Result<Destroyed> {
    let _ = (file, options);
    Err(Error::failed("not built yet"))
}
