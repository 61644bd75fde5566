//! Destroying drives: the nodes wipe their memory and take it back.

use std::path::Path;

use cheetah_control::ControlError;
use cheetah_control::receipt::Receipt;
use cheetah_kit::file::if_there;
use futures::future::join_all;
use serde::Serialize;

use super::usage::unused;
use crate::file::digests::Digests;
use crate::file::{DriveFile, SetNode};
use crate::fill::files;
use crate::lease::Leases;
use crate::node::export::NodeExport;
use crate::node::health::{NodeState, NodeStatus, node_status, node_statuses};
use crate::node::trouble::{self, Trouble, reason};
use crate::node::wipe::{KeptReceipt, NoReceipt, wipe};
use crate::sealed;
use crate::session::Session;
use crate::set::newest::refresh_any;
use cheetah_error::{Error, Fact, Result};
use cheetah_seal::Keyring;

/// How to destroy a drive.
#[derive(Debug, Clone)]
pub struct DestroyOptions {
    /// Destroy it even if it is in use.
    pub force: bool,
    /// The keys, and how long a node may take to answer.
    pub session: Session,
}

/// The result of destroying a drive.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Destroyed {
    /// The outcomes, by node entry, in file order.
    pub nodes: Vec<NodeOutcome>,
    /// Whether the drive file and its digests were removed. They are kept for another try if a node refused or,
    /// unless forced, could not be reached. The file then holds the receipts of the nodes that were wiped.
    pub file_removed: bool,
    /// Whether the drive was sealed, and its key is destroyed: the content that nodes may still hold cannot be read,
    /// unless there is another copy of the drive file.
    pub key_destroyed: bool,
    /// Why the key could not be destroyed, if it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_problem: Option<String>,
}

/// The outcome on one node.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeOutcome {
    /// The node's name, as the user wrote it.
    pub node: String,
    /// Bytes of the drive that it held.
    pub size_bytes: u64,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: WipeOutcome,
}

/// The outcome of freeing one export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum WipeOutcome {
    /// Freed and wiped, according to the node's receipt.
    Wiped {
        /// The node's receipt, checked.
        receipt: Box<Receipt>,
        /// Whether the receipt is from the drive file, and not signed. The node has been asked, and has no such export.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        kept: bool,
    },
    /// Gone already: the node has restarted, so that its memory went back to the system without a receipt, or the
    /// export was freed before.
    Gone,
    /// The node cannot be reached; its memory may still hold the bytes.
    Unreachable {
        /// The error.
        why: String,
    },
    /// The node's machine accepts connections, and the node does not answer; its memory may still hold the bytes.
    Silent {
        /// The error.
        why: String,
    },
    /// The node answered, and did not free it.
    Refused {
        /// The node's error.
        why: String,
    },
    /// A foreign server, whose bytes are untouched.
    Foreign,
}

impl Destroyed {
    /// Whether no Cheetah node can still hold any of the drive.
    pub fn is_clean(&self) -> bool {
        self.nodes.iter().all(|node| match &node.outcome {
            WipeOutcome::Wiped { receipt, .. } => receipt.statement.verified_zero,
            WipeOutcome::Gone | WipeOutcome::Foreign => true,
            WipeOutcome::Unreachable { .. } | WipeOutcome::Silent { .. } | WipeOutcome::Refused { .. } => false,
        })
    }
}

/// Frees the drive's exports, and removes its file and digests. A node that cannot be reached is reported; the file is
/// then kept to try again, unless forced. Refused while the drive is in use, unless forced.
pub async fn destroy(file: &DriveFile, options: DestroyOptions) -> Result<Destroyed> {
    // A node may have been replaced since the file was written.
    let file = &refresh_any(file, &options.session).await?;
    let now = match options.force {
        true => node_statuses(file, &options.session).await,
        false => unused(file, &options.session).await?,
    };
    // Before the key is destroyed: a member that may not destroy the drive changes nothing.
    let troubles: Vec<Trouble> = now.iter().filter_map(Trouble::of).collect();
    if let Some(refusal) = trouble::refusal(&file.name, &troubles, now.len()) {
        return Err(refusal);
    }
    let leases = Leases::take(file, options.force, &options.session, |node| now[node].state == NodeState::Ok).await?;
    // First: whatever a node does from here on, the content cannot be read any more.
    let key = match destroy_key(file, &options.session.keyring) {
        Ok(key) => key,
        Err(error) => {
            leases.release().await;
            return Err(error);
        }
    };
    let freeing = file.nodes().zip(&now).enumerate().map(|(index, (node, now))| {
        let (token, session) = (leases.token(index), &options.session);
        async move { free(&file.id, node, now, token, session).await }
    });
    let mut outcomes = join_all(freeing).await;
    leases.release().await;
    // Replaced nodes may still hold parts, which are destroyed, too.
    outcomes.extend(
        join_all(others(file).map(|node| async {
            let now = node_status(0, node, &options.session).await;
            free(&file.id, node, &now, None, &options.session).await
        }))
        .await,
    );
    let nodes: Vec<_> = file
        .nodes()
        .chain(others(file))
        .zip(outcomes)
        .map(|(node, outcome)| NodeOutcome { node: node.name.clone(), size_bytes: node.size, outcome })
        .collect();
    let file_removed = !nodes.iter().any(|node| match node.outcome {
        WipeOutcome::Refused { .. } => true,
        WipeOutcome::Unreachable { .. } | WipeOutcome::Silent { .. } => !options.force,
        _ => false,
    });
    let key_destroyed = match &key {
        Key::None => false,
        Key::Destroyed => true,
        // Nothing else needs the file any more, so that its content may be lost if this is interrupted.
        Key::Kept(_) if file_removed => sealed::overwrite(file).is_ok(),
        Key::Kept(_) => false,
    };
    if file_removed {
        for removed in
            [Digests::remove(file), files::remove_all(file), sealed::remove_record(file, &options.session.keyring)]
        {
            // Nothing refers to these files any more.
            removed.unwrap_or_else(|error| tracing::warn!("the nodes are free, but a file is left: {error}"));
        }
        remove(&file.path)?;
    } else if let Err(error) = keep_receipts(file, &nodes) {
        tracing::warn!("the receipts of the nodes that were wiped are not in the drive file: {error}");
    }
    let key_problem = match key {
        Key::Kept(why) if !key_destroyed => Some(why),
        _ => None,
    };
    Ok(Destroyed { nodes, file_removed, key_destroyed, key_problem })
}

/// The key of a drive that is being destroyed.
enum Key {
    /// It is not sealed.
    None,
    /// It is destroyed.
    Destroyed,
    /// It could not be destroyed, as on a full disk: a sentence. The nodes are wiped all the same.
    Kept(String),
}

fn destroy_key(file: &DriveFile, keyring: &Keyring) -> Result<Key> {
    match sealed::destroy_key(file, keyring) {
        Ok(true) => Ok(Key::Destroyed),
        Ok(false) => Ok(Key::None),
        // The file of another drive must stay as it is.
        Err(error) if DriveFile::load(&file.path).is_ok_and(|now| now.id == file.id) => {
            Ok(Key::Kept(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// Nodes that hold no part of the drive, and may still do so: those that were replaced or left, and those to which a part
/// was moving.
fn others(file: &DriveFile) -> impl Iterator<Item = &SetNode> {
    file.sets.iter().flat_map(|set| set.former.iter().chain(set.incoming.iter().map(|incoming| &incoming.node)))
}

/// Writes the receipts into the drive file, for when the rest of the drive is destroyed.
fn keep_receipts(file: &DriveFile, outcomes: &[NodeOutcome]) -> Result<()> {
    file.clone().update(|kept| {
        kept.sets.clone_from(&file.sets);
        // In the order of the outcomes.
        let mut nodes: Vec<&mut SetNode> = Vec::new();
        let mut others: Vec<&mut SetNode> = Vec::new();
        for set in &mut kept.sets {
            nodes.extend(&mut set.nodes);
            others.extend(set.former.iter_mut().chain(set.incoming.iter_mut().map(|incoming| &mut incoming.node)));
        }
        for (node, outcome) in nodes.into_iter().chain(others).zip(outcomes) {
            if let WipeOutcome::Wiped { receipt, .. } = &outcome.outcome {
                node.receipt = Some(receipt.clone());
            }
        }
    })
}

async fn free(drive: &str, node: &SetNode, now: &NodeStatus, token: Option<&str>, session: &Session) -> WipeOutcome {
    // The node is asked even if the drive file has a receipt: anyone may have written that into it.
    let before = KeptReceipt::of(drive, node, &session.credentials);
    if let KeptReceipt::Invalid(why) = &before {
        tracing::warn!("{why}; it is disregarded");
    }
    let why = || {
        let problem = now.problem.clone().unwrap_or_default();
        problem.strip_prefix(&format!("node {}: ", node.name)).map(str::to_owned).unwrap_or(problem)
    };
    let Some(export) = NodeExport::of(node, session) else { return WipeOutcome::Foreign };
    if let (
        KeptReceipt::Proof(receipt),
        NodeState::Restarted | NodeState::Lost | NodeState::Silent | NodeState::Unreachable,
    ) = (&before, now.state)
    {
        return WipeOutcome::Wiped { receipt: receipt.clone(), kept: false };
    }
    match now.state {
        NodeState::Foreign => WipeOutcome::Foreign,
        NodeState::Restarted => gone(before),
        NodeState::Lost if now.transport.is_some() => gone(before),
        NodeState::Refused => WipeOutcome::Refused { why: why() },
        NodeState::Silent => WipeOutcome::Silent { why: why() },
        // That nothing listens is no proof that its memory is wiped.
        NodeState::Unreachable | NodeState::Lost => WipeOutcome::Unreachable { why: why() },
        NodeState::Ok => match wipe(drive, node, &export, token).await {
            Ok(receipt) => WipeOutcome::Wiped { receipt: Box::new(receipt), kept: false },
            Err(NoReceipt::Control(error)) if error.is_not_found() => gone(before),
            Err(NoReceipt::Control(error)) => match (&error, error.fact()) {
                (_, Some(Fact::Silent)) => WipeOutcome::Silent { why: reason(&error) },
                (ControlError::NoAnswer { .. }, fact) if fact != Some(Fact::Refused) => {
                    WipeOutcome::Unreachable { why: reason(&error) }
                }
                _ => WipeOutcome::Refused { why: reason(&error) },
            },
            Err(why) => WipeOutcome::Refused { why: why.to_string() },
        },
    }
}

/// The outcome at a node that answers and has no such export.
fn gone(before: KeptReceipt) -> WipeOutcome {
    match before {
        KeptReceipt::Claim(receipt) | KeptReceipt::Proof(receipt) => WipeOutcome::Wiped { receipt, kept: true },
        KeptReceipt::None | KeptReceipt::Invalid(_) => WipeOutcome::Gone,
    }
}

fn remove(path: &Path) -> Result<()> {
    let removed = if_there(std::fs::remove_file(path)).map(drop);
    removed.map_err(|error| Error::io(format_args!("the nodes are free, but removing {}", path.display()), &error))
}
