//! How a drive is: what each of its nodes says.

use std::time::Duration;

use serde::Serialize;

use crate::error::Result;
use crate::file::DriveFile;

/// How a drive is.
#[derive(Debug, Clone, Serialize)]
pub struct DriveStatus {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Bytes in it.
    pub size_bytes: u64,
    /// Whether every node is there with the bytes it was given.
    pub healthy: bool,
    /// For each node entry, in file order.
    pub nodes: Vec<NodeStatus>,
}

/// How one node's part of a drive is.
#[derive(Debug, Clone, Serialize)]
pub struct NodeStatus {
    /// The node, as the user knows it.
    pub node: String,
    /// Index of its set.
    pub set: usize,
    /// NBD URI of its export.
    pub nbd: String,
    /// Bytes of the drive it holds.
    pub size_bytes: u64,
    /// How it is.
    pub state: NodeState,
    /// What is wrong, in a sentence; `None` if nothing is.
    pub problem: Option<String>,
    /// Bytes of the export that hold data; `None` if unknown.
    pub used_bytes: Option<u64>,
    /// Whether its memory is reserved; `None` if unknown.
    pub reserved: Option<bool>,
    /// NBD connections to the export; `None` if unknown.
    pub connections: Option<u64>,
    /// Who holds the write lease, if anyone.
    pub writer: Option<String>,
}

/// How a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// There, with its bytes.
    Ok,
    /// There, but restarted since, or without the export: the bytes are gone.
    Empty,
    /// Does not answer.
    Unreachable,
    /// A foreign server that answers; whether it restarted cannot be told.
    Foreign,
}

/// Asks every node, waiting at most `timeout`. Nodes that do not answer are part of the answer.
pub async fn status(file: &DriveFile, timeout: Duration) -> Result<DriveStatus> {
    let _ = (file, timeout);
    Err(crate::error::Error::failed("not built yet"))
}
