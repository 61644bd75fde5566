//! How a drive is: what each of its nodes says.

use std::time::Duration;

use cheetah_device::coverage::State;
use cheetah_image::Hashes;
use cheetah_nbd::greeting;
use cheetah_node::control::api::{ExportStatus, Status};
use cheetah_node::control::{ControlClient, ControlError};
use futures::future::join_all;
use serde::Serialize;

use crate::connect::{Connect, connect};
use crate::file::{DigestsRef, DriveFile, Image, ImageState, SetNode};
use crate::fill;
use cheetah_image::error::Result;

/// How a drive is.
#[derive(Debug, Clone, Serialize)]
pub struct DriveStatus {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Bytes in it.
    pub size_bytes: u64,
    /// Its sets' layouts, in words.
    pub layout: Vec<String>,
    /// What was loaded, if anything.
    pub image: Option<ImageStatus>,
    /// How much of the image is there; of one that is being filled, or could not be read in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covered: Option<CoveredStatus>,
    /// Whether every node is there with the bytes it was given.
    pub healthy: bool,
    /// For each node entry, in file order.
    pub nodes: Vec<NodeStatus>,
}

/// An image and the condition it is in now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageStatus {
    /// Where it came from, as the user wrote it.
    pub source: String,
    /// Bytes of the drive it takes, from the start.
    pub size: u64,
    /// Its condition.
    pub state: Condition,
    /// The file of chunk digests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digests: Option<DigestsRef>,
    /// Hashes of the whole.
    pub hashes: Hashes,
}

/// The condition of an image: as the drive file records it, unless a node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// A node of the drive is lost, and what it held with it.
    Lost,
    /// As recorded.
    #[serde(untagged)]
    Recorded(ImageState),
}

impl ImageStatus {
    fn new(image: &Image, healthy: bool) -> Self {
        let Image { source, size, state, digests, hashes } = image.clone();
        let state = if healthy { Condition::Recorded(state) } else { Condition::Lost };
        Self { source, size, state, digests, hashes }
    }
}

/// How much of an image is there, as last recorded: somebody who fills the drive records it every few seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CoveredStatus {
    /// Bytes that are there.
    pub read_bytes: u64,
    /// Bytes that are not there yet.
    pub unread_bytes: u64,
    /// Bytes that the source could not read.
    pub unreadable_bytes: u64,
    /// Whether the image is still being filled; if not, the rest could not be read.
    #[serde(skip)]
    pub filling: bool,
    /// The process that fills the drive now.
    pub filler: Option<String>,
}

/// How one node's part of a drive is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    pub connections: Option<usize>,
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
    /// Does not answer, on its control port or its NBD port.
    Unreachable,
    /// A foreign server that answers; whether it restarted cannot be told.
    Foreign,
}

impl NodeState {
    /// Whether its bytes can be read, as far as can be told.
    pub const fn is_healthy(self) -> bool {
        matches!(self, Self::Ok | Self::Foreign)
    }
}

/// Asks every node, waiting at most `timeout`. Nodes that do not answer are part of the answer.
pub async fn status(file: &DriveFile, timeout: Duration) -> Result<DriveStatus> {
    let mut nodes = node_statuses(file, timeout).await;
    join_all(file.nodes().zip(&mut nodes).map(|(node, status)| check_nbd(node, status, timeout))).await;
    let covered = fill::covered(file)?.map(|covered| CoveredStatus {
        read_bytes: covered.coverage.bytes(State::Read),
        unread_bytes: covered.coverage.bytes(State::Unread),
        unreadable_bytes: covered.coverage.bytes(State::Unreadable),
        filling: file.fill.is_some(),
        filler: nodes.iter().find_map(|node| node.writer.clone()).filter(|_| file.fill.is_some()),
    });
    let healthy = nodes.iter().all(|node| node.state.is_healthy());
    Ok(DriveStatus {
        name: file.name.clone(),
        id: file.id.clone(),
        size_bytes: file.size,
        layout: file.sets.iter().map(|set| set.describe()).collect(),
        image: file.image.as_ref().map(|image| ImageStatus::new(image, healthy)),
        covered,
        healthy,
        nodes,
    })
}

/// Asks every node of a drive, waiting at most `limit` for each. The answers are in file order.
pub(crate) async fn node_statuses(file: &DriveFile, limit: Duration) -> Vec<NodeStatus> {
    let entries = file.sets.iter().enumerate().flat_map(|(set, content)| content.nodes.iter().map(move |n| (set, n)));
    join_all(entries.map(|(set, node)| node_status(set, node, limit))).await
}

/// Asks one node.
pub(crate) async fn node_status(set: usize, node: &SetNode, limit: Duration) -> NodeStatus {
    let (state, problem, export) = match (&node.http, &node.instance) {
        (Some(http), Some(instance)) => {
            let answer = ControlClient::new(http).with_timeout(limit).status().await;
            judge(node, instance, answer)
        }
        _ => foreign(node, limit).await,
    };
    NodeStatus {
        node: node.name.clone(),
        set,
        nbd: node.nbd.clone(),
        size_bytes: node.size,
        state,
        problem,
        used_bytes: export.as_ref().map(|export| export.used_bytes),
        reserved: export.as_ref().map(|export| export.reserved),
        connections: export.as_ref().map(|export| export.connections),
        writer: export.and_then(|export| export.lease).map(|lease| lease.holder),
    }
}

type Judgement = (NodeState, Option<String>, Option<ExportStatus>);

fn judge(node: &SetNode, instance: &str, answer: std::result::Result<Status, ControlError>) -> Judgement {
    let export_name = node.uri().map(|uri| uri.export).unwrap_or_default();
    match answer {
        Err(error) => (NodeState::Unreachable, Some(error.to_string()), None),
        Ok(status) if status.instance != instance => (NodeState::Empty, Some(came_back_empty(&node.name)), None),
        Ok(status) => match status.exports.into_iter().find(|export| export.name == export_name) {
            Some(export) => (NodeState::Ok, None, Some(export)),
            None => {
                let name = &node.name;
                let problem = match node.receipt {
                    Some(_) => format!("node {name} has wiped its part of the drive; destroy the rest"),
                    None => format!("node {name} has no export {export_name} any more: it was freed"),
                };
                (NodeState::Empty, Some(problem), None)
            }
        },
    }
}

/// Checks that a node whose control API answers also answers on its NBD port. It does not open the export, which would
/// count as a use of the drive.
pub(crate) async fn check_nbd(node: &SetNode, status: &mut NodeStatus, limit: Duration) {
    if status.state == NodeState::Ok
        && let Some(uri) = node.uri()
        && let Err(why) = greeting::check(&uri.address, limit).await
    {
        let name = &node.name;
        status.state = NodeState::Unreachable;
        status.problem = Some(format!("node {name}: its control API answers, its NBD server does not ({why})"));
    }
}

async fn foreign(node: &SetNode, timeout: Duration) -> Judgement {
    let Some(uri) = node.uri() else {
        return (NodeState::Unreachable, Some(format!("'{}' is no NBD URI", node.nbd)), None);
    };
    match connect(Connect { uri, timeout, ..Connect::reading(node.name.clone()) }).await {
        Ok(_) => (NodeState::Foreign, None, None),
        Err(error) => (NodeState::Unreachable, Some(error.to_string()), None),
    }
}

/// What to say of a node that is another instance than the drive file records.
pub(crate) fn came_back_empty(node: &str) -> String {
    format!(
        "node {node} came back empty: it was restarted since the drive was made, and what it held is gone; create and \
         load the drive anew"
    )
}
