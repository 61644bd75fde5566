//! Spares: nodes that take the place of lost ones.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::Size;
use cheetah_error::Error;
use cheetah_redundancy::Members;

use crate::file::SetNode;
use crate::node::allocate::{allocate_spare, confirm, free_spare};
use crate::node::export::NodeExport;
use crate::node::find::{AvailableNode, FindOptions, NodePlace, find};
use crate::node::spec::NodeSpec;
use crate::refused::Refused;
use crate::session::Session;
use crate::set::shared::Shared;

/// How long `auto` listens for announcements.
const BROWSE: Duration = Duration::from_secs(2);

/// A node that was replaced by another.
pub(crate) struct Replaced {
    pub lost: String,
    pub by: String,
}

/// Puts the first suitable spare in the place of a lost member. The error names the reason for each spare.
pub(crate) async fn replace(
    shared: &Arc<Shared>,
    members: &Arc<Members>,
    index: usize,
    spares: &[AvailableNode],
    session: &Session,
) -> Result<Replaced, Error> {
    let (set, nodes) = (shared.set(), shared.nodes());
    let lost = nodes[index].name.clone();
    let size = nodes[index].size;
    let mut why = Vec::new();
    for spare in spares {
        if let Err(unsuitable) = check(spare, &set.drive.name, &nodes, index) {
            why.push(unsuitable.to_string());
            continue;
        }
        let epoch = members.map().map_or(0, |map| map.epoch);
        let node = match allocate_spare(&set, index, epoch, spare, size, session).await {
            Ok(node) => node,
            Err(error) => {
                why.push(error.to_string());
                continue;
            }
        };
        match shared.replace(members, index, node.clone()).await {
            Ok(()) => {
                // The map names it now.
                if let Some(export) = NodeExport::of(&node, session)
                    && let Err(error) = confirm(&export).await
                {
                    tracing::warn!("{error}");
                }
                return Ok(Replaced { lost, by: node.name });
            }
            Err(error) => why.push(free_spare(&node, error, session).await.to_string()),
        }
    }
    if why.is_empty() {
        return Err(Refused::NoSpare { lost, bytes: size }.into());
    }
    let (needed, why) = (Size(size), why.join("; "));
    Err(Error::failed(format!("{lost} is to be replaced by a node with {needed} of free memory: {why}")))
}

/// Why a node cannot take the place of a member; a clause.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsuitable {
    /// It is the node that the member is to leave.
    #[error("node {node} is the one that it is to leave")]
    Same { node: String },
    /// It holds another part of the drive.
    #[error("node {node} holds a part of {drive} already: it cannot take another, or its loss would be two losses")]
    HasPart { node: String, drive: String },
    /// It has too little memory.
    #[error("node {node} has only {} of free memory", Size(*free_bytes))]
    TooSmall { node: String, free_bytes: u64 },
}

/// Refuses a spare that cannot take the place of this member of a set over these nodes.
pub(super) fn check(spare: &AvailableNode, drive: &str, nodes: &[SetNode], index: usize) -> Result<(), Unsuitable> {
    let is_other =
        |(other, node): (usize, &SetNode)| other != index && (spare.is_of(node) || spare.is_export(&node.nbd));
    let node = spare.name.clone();
    if nodes.iter().enumerate().any(is_other) {
        return Err(Unsuitable::HasPart { node, drive: drive.to_owned() });
    }
    if spare.free_bytes < nodes[index].size {
        return Err(Unsuitable::TooSmall { node, free_bytes: spare.free_bytes });
    }
    Ok(())
}

/// Asks the nodes of these names for their free memory, each once. Those that do not answer are left out.
pub(crate) async fn available(names: &[String], session: &Session) -> Vec<AvailableNode> {
    let mut found: Vec<AvailableNode> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        if names[..index].contains(name) {
            continue;
        }
        let nodes = match NodeSpec::from_str(name) {
            Ok(spec) => find(&[spec], &FindOptions { session: session.clone(), browse: BROWSE }).await,
            Err(error) => Err(error),
        };
        match nodes {
            Ok(nodes) => found.extend(nodes),
            Err(error) => tracing::debug!("the spare {name} cannot be used: {error}"),
        }
    }
    found
}

/// A node on the machine of a lost node, if one runs there again: another instance, with memory to lend.
pub(crate) async fn restarted(node: &SetNode, session: &Session) -> Option<AvailableNode> {
    let http = node.http.as_deref()?;
    let (host, port) = http.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let status = session.control(http).status().await.ok()?;
    if Some(&status.instance) == node.instance.as_ref() {
        return None;
    }
    Some(AvailableNode::node(node.name.clone(), host, port.parse().ok()?, &status))
}

/// The name of a spare in a drive file and in a request.
pub(crate) fn name_of(spare: &AvailableNode) -> String {
    match &spare.place {
        NodePlace::Node { nbd, .. } => nbd.clone(),
        NodePlace::Foreign { uri } => uri.clone(),
    }
}
