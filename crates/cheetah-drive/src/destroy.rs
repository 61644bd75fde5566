//! Giving the nodes their memory back.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use cheetah_node::control::ControlError;
use futures::future::join_all;
use serde::Serialize;

use crate::export::Export;
use crate::file::{DriveFile, SetNode, WipeReceipt};
use crate::fill;
use crate::lease::Leases;
use crate::status::{NodeState, NodeStatus, node_statuses};
use crate::usage::unused;
use cheetah_image::error::{Error, Result};

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
    /// Whether the drive file and its digests were removed. They are kept for another try if a node refused or,
    /// unless forced, could not be reached. The file then holds the receipts of the nodes that were wiped.
    pub file_removed: bool,
}

/// What became of the memory on one node.
#[derive(Debug, Clone, Serialize)]
pub struct NodeOutcome {
    /// The node, as the user knows it.
    pub node: String,
    /// Bytes of the drive it held.
    pub size_bytes: u64,
    /// What happened there.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What became of one export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// Freed and wiped; from the node's receipt.
    Wiped {
        /// Bytes overwritten.
        wiped_bytes: u64,
        /// Whether the node read them back as zeros.
        verified_zero: bool,
    },
    /// The node restarted since, and its memory went back to the system without a receipt; or it was freed before.
    Gone,
    /// The node did not answer; its memory may still hold the bytes.
    Unreachable {
        /// What was tried.
        why: String,
    },
    /// The node answered, and did not free it.
    Refused {
        /// Its words.
        why: String,
    },
    /// A foreign server: its bytes are as they were.
    Foreign,
}

impl Destroyed {
    /// Whether no node may still hold any of the drive, foreign servers aside.
    pub fn is_clean(&self) -> bool {
        self.nodes.iter().all(|node| match &node.outcome {
            Outcome::Wiped { verified_zero, .. } => *verified_zero,
            Outcome::Gone | Outcome::Foreign => true,
            Outcome::Unreachable { .. } | Outcome::Refused { .. } => false,
        })
    }
}

/// Frees the drive's exports and removes its file and digests. Nodes that cannot be reached are reported, not fatal,
/// but without force the file stays, to free them later.
/// Refused while others hold its lease or are connected, unless forced.
pub async fn destroy(file: &DriveFile, options: DestroyOptions) -> Result<Destroyed> {
    let now = match options.force {
        true => node_statuses(file, options.timeout).await,
        false => unused(file, options.timeout).await?,
    };
    let leases = Leases::take(file, options.force, options.timeout, |node| now[node].state == NodeState::Ok).await?;
    let freeing = file.nodes().zip(&now).enumerate().map(|(index, (node, now))| {
        let token = leases.token(index);
        async move { free(node, now, token, options.timeout).await }
    });
    let outcomes = join_all(freeing).await;
    leases.release().await;
    let nodes: Vec<_> = file
        .nodes()
        .zip(outcomes)
        .map(|(node, outcome)| NodeOutcome { node: node.name.clone(), size_bytes: node.size, outcome })
        .collect();
    let file_removed = !nodes.iter().any(|node| match node.outcome {
        Outcome::Refused { .. } => true,
        Outcome::Unreachable { .. } => !options.force,
        _ => false,
    });
    if file_removed {
        remove(&file.digests_path())?;
        fill::remove_all(file)?;
        remove(&file.path)?;
    } else if let Err(error) = keep_receipts(file, &nodes) {
        tracing::warn!("the receipts of the nodes that were wiped are not in the drive file: {error}");
    }
    Ok(Destroyed { nodes, file_removed })
}

/// Writes the receipts into the drive file, for when the rest of the drive is destroyed.
fn keep_receipts(file: &DriveFile, outcomes: &[NodeOutcome]) -> Result<()> {
    let mut kept = file.clone();
    let nodes = kept.sets.iter_mut().flat_map(|set| &mut set.nodes);
    for (node, outcome) in nodes.zip(outcomes) {
        if let Outcome::Wiped { wiped_bytes, verified_zero } = outcome.outcome {
            node.receipt = Some(WipeReceipt { wiped_bytes, verified_zero });
        }
    }
    if kept == *file { Ok(()) } else { kept.save() }
}

async fn free(node: &SetNode, now: &NodeStatus, token: Option<&str>, timeout: Duration) -> Outcome {
    if let Some(WipeReceipt { wiped_bytes, verified_zero }) = node.receipt {
        return Outcome::Wiped { wiped_bytes, verified_zero };
    }
    let why = || now.problem.clone().unwrap_or_default();
    let Some(export) = Export::of(node, timeout) else { return Outcome::Foreign };
    match now.state {
        NodeState::Foreign => Outcome::Foreign,
        NodeState::Empty => Outcome::Gone,
        NodeState::Unreachable => Outcome::Unreachable { why: why() },
        NodeState::Ok => match export.control.delete_export(&export.name, token).await {
            Ok(receipt) => Outcome::Wiped { wiped_bytes: receipt.wiped_bytes, verified_zero: receipt.verified_zero },
            Err(error) if error.is_not_found() => Outcome::Gone,
            Err(error @ ControlError::Unreachable { .. }) => Outcome::Unreachable { why: error.to_string() },
            Err(error) => Outcome::Refused { why: error.to_string() },
        },
    }
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::io(format_args!("the nodes are free, but removing {}", path.display()), &error))
        }
        _ => Ok(()),
    }
}
