//! The state of a drive's nodes, as they report it.

use std::time::Duration;

use cheetah_control::ControlError;
use cheetah_control::api::{ExportStatus, Status};
use cheetah_error::{Error, Fact, Next};
use cheetah_nbd::answering;
use cheetah_tls::Transport;
use futures::future::join_all;
use serde::{Serialize, Serializer};

use super::connect::{Connect, connect};
use super::export::control;
use super::trouble::{self, Trouble};
use crate::file::set::DriveSet;
use crate::file::{DriveFile, NodeSync, SetNode};
use crate::session::Session;

/// The state of one node's part of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeStatus {
    /// The node's name, as the user wrote it.
    pub node: String,
    /// The index of its set.
    pub set: usize,
    /// The NBD URI of its export.
    pub nbd: String,
    /// Bytes of the drive that it holds.
    pub size_bytes: u64,
    /// The node's state.
    pub state: NodeState,
    /// Its state if it missed writes to a drive with redundancy; absent if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<NodeSync>,
    /// Bytes of its part that may lack writes, if it missed some, as the map records it every few seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_bytes: Option<u64>,
    /// Where its part is moving to, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moving: Option<Moving>,
    /// The problem, in a sentence, if there is one.
    pub problem: Option<String>,
    /// The next steps for the problem. In the answer, the problem names them.
    #[serde(skip)]
    pub next: Vec<Next>,
    /// Bytes of the export that hold data; `None` if unknown.
    pub used_bytes: Option<u64>,
    /// Whether its memory is reserved; `None` if unknown.
    pub reserved: Option<bool>,
    /// NBD connections to the export; `None` if unknown.
    pub connections: Option<usize>,
    /// The process that holds the write lease, if there is one.
    pub writer: Option<String>,
    /// Seconds until the node may drop its part, because its machine needs the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leave_in_s: Option<u64>,
    /// The protection of the connection over which it answered; `None` if it did not answer.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    #[serde(serialize_with = "as_text")]
    pub transport: Option<Transport>,
}

/// The move of a node's part to another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Moving {
    /// Bytes that the other node may still lack, as the map records it every few seconds.
    pub left_bytes: u64,
    /// The name of the other node.
    pub to: String,
}

fn as_text<S: Serializer>(transport: &Option<Transport>, serializer: S) -> Result<S::Ok, S::Error> {
    transport.as_ref().map(ToString::to_string).serialize(serializer)
}

/// The state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// It answers, and holds its part of the drive.
    Ok,
    /// It answers, and does not let this member of the room use it.
    Refused,
    /// Its machine cannot be reached.
    Unreachable,
    /// Its machine accepts connections, and the node does not answer, on its control port or its NBD port.
    Silent,
    /// Another, empty, instance answers: it was restarted.
    Restarted,
    /// Its part of the drive is gone: its process has ended, or it has freed the part.
    Lost,
    /// A foreign server that answers; a restart would go unnoticed.
    Foreign,
}

impl From<Fact> for NodeState {
    fn from(fact: Fact) -> Self {
        match fact {
            Fact::Refused => Self::Refused,
            Fact::Unreachable => Self::Unreachable,
            Fact::Silent => Self::Silent,
            Fact::Restarted => Self::Restarted,
            Fact::Lost => Self::Lost,
        }
    }
}

impl NodeState {
    /// Why it cannot be used, if it cannot.
    pub const fn fact(self) -> Option<Fact> {
        match self {
            Self::Ok | Self::Foreign => None,
            Self::Refused => Some(Fact::Refused),
            Self::Unreachable => Some(Fact::Unreachable),
            Self::Silent => Some(Fact::Silent),
            Self::Restarted => Some(Fact::Restarted),
            Self::Lost => Some(Fact::Lost),
        }
    }

    /// Whether its part of the drive can be read, as far as is known.
    pub const fn is_healthy(self) -> bool {
        self.fact().is_none()
    }
}

impl NodeStatus {
    /// Whether it answers and holds all of its part of the drive.
    pub fn is_whole(&self) -> bool {
        self.state.is_healthy() && self.sync.is_none()
    }
}

impl Trouble {
    /// That of a node which was called in vain.
    pub(crate) fn of_call(node: &str, error: &ControlError) -> Self {
        Self { fact: error.fact(), why: trouble::sentence(node, error), next: error.steps().to_vec() }
    }

    /// That of a node whose state was asked for; `None` if it is of use.
    pub(crate) fn of(status: &NodeStatus) -> Option<Self> {
        let fact = status.state.fact();
        let why = status.problem.clone().unwrap_or_else(|| format!("node {} lacks writes", status.node));
        (fact.is_some() || status.problem.is_some()).then_some(Self { fact, why, next: status.next.clone() })
    }
}

/// Asks every node of a drive, waiting for each as long as the session allows. The answers are in file order.
pub(crate) async fn node_statuses(file: &DriveFile, session: &Session) -> Vec<NodeStatus> {
    let entries = file.sets.iter().enumerate().flat_map(|(set, content)| content.nodes.iter().map(move |n| (set, n)));
    join_all(entries.map(|(set, node)| node_status(set, node, session))).await
}

/// The same of the nodes of one set.
pub(crate) async fn set_statuses(set: &DriveSet, session: &Session) -> Vec<NodeStatus> {
    join_all(set.nodes().iter().map(|node| node_status(set.index, node, session))).await
}

/// Asks one node for its state.
pub(crate) async fn node_status(set: usize, node: &SetNode, session: &Session) -> NodeStatus {
    let (transport, (state, problem, export)) = match (control(node, session), &node.instance) {
        (Some(control), Some(instance)) => match control.status_and_transport().await {
            Ok((status, transport)) => (Some(transport), judge(node, instance, Ok(status))),
            Err(error) => {
                (None, not_lost_if_nbd_answers(node, judge(node, instance, Err(error)), session.timeout).await)
            }
        },
        _ => foreign(node, session).await,
    };
    NodeStatus {
        node: node.name.clone(),
        set,
        nbd: node.nbd.clone(),
        size_bytes: node.size,
        state,
        sync: node.state,
        behind_bytes: None,
        moving: None,
        next: problem.as_ref().map(|problem| problem.steps().to_vec()).unwrap_or_default(),
        problem: problem.map(|problem| problem.to_string()),
        used_bytes: export.as_ref().map(|export| export.used_bytes),
        reserved: export.as_ref().map(|export| export.reserved),
        connections: export.as_ref().map(|export| export.connections),
        leave_in_s: export.as_ref().and_then(|export| export.leave_in_s),
        writer: export.and_then(|export| export.lease).map(|lease| lease.holder),
        transport,
    }
}

type Judgement = (NodeState, Option<Error>, Option<ExportStatus>);

fn judge(node: &SetNode, instance: &str, answer: Result<Status, ControlError>) -> Judgement {
    let export_name = node.uri().map(|uri| uri.export).unwrap_or_default();
    match answer {
        Err(error) => {
            let state = error.fact().map_or(NodeState::Unreachable, NodeState::from);
            (state, Some(Trouble::of_call(&node.name, &error).into()), None)
        }
        Ok(status) if status.instance != instance => {
            (NodeState::Restarted, Some(Error::failed(came_back_empty(&node.name))), None)
        }
        Ok(status) => match status.exports.into_iter().find(|export| export.name == export_name) {
            Some(export) => (NodeState::Ok, None, Some(export)),
            None => {
                let name = &node.name;
                let problem = match &node.receipt {
                    Some(_) => format!("node {name} has wiped its part of the drive; destroy the rest"),
                    None if status.dropped.iter().any(|dropped| dropped.export == export_name) => {
                        format!("node {name} dropped its part of the drive: its machine needed the memory")
                    }
                    None => format!("node {name} has no export {export_name} any more: it was freed"),
                };
                (NodeState::Lost, Some(Error::failed(problem)), None)
            }
        },
    }
}

/// A node whose control port refuses connections has not ended if its NBD port takes them.
async fn not_lost_if_nbd_answers(node: &SetNode, judgement: Judgement, limit: Duration) -> Judgement {
    match (judgement, node.uri()) {
        ((NodeState::Lost, why, None), Some(uri)) if answering::check(&uri.address, limit).await.is_ok() => {
            let (name, why) = (&node.name, why.map(|why| why.to_string()).unwrap_or_default());
            let problem = format!(
                "node {name}: its NBD server answers, so it runs, but its control API cannot be reached ({why})"
            );
            (NodeState::Unreachable, Some(Error::failed(problem)), None)
        }
        (judgement, _) => judgement,
    }
}

/// Checks that a node whose control API answers also answers on its NBD port. It does not open the export, which would
/// count as a use of the drive.
pub(crate) async fn check_nbd(node: &SetNode, status: &mut NodeStatus, limit: Duration) {
    if status.state == NodeState::Ok
        && let Some(uri) = node.uri()
        && let Err(why) = answering::check(&uri.address, limit).await
    {
        let name = &node.name;
        // The process still holds its part, since its control API answers.
        let is_silent = why.kind() == std::io::ErrorKind::TimedOut;
        status.state = if is_silent { NodeState::Silent } else { NodeState::Unreachable };
        status.problem = Some(format!("node {name}: its control API answers, its NBD server does not ({why})"));
    }
}

async fn foreign(node: &SetNode, session: &Session) -> (Option<Transport>, Judgement) {
    let Some(uri) = node.uri() else {
        let problem = Error::failed(format!("'{}' is no NBD URI", node.nbd));
        return (None, (NodeState::Unreachable, Some(problem), None));
    };
    match connect(Connect { uri, ..Connect::reading(node.name.clone(), session) }).await {
        Ok(client) => (Some(client.transport().clone()), (NodeState::Foreign, None, None)),
        Err(error) => {
            let state = error.fact().map_or(NodeState::Unreachable, NodeState::from);
            (None, (state, Some(error), None))
        }
    }
}

/// The problem of a node that is another instance than the drive file records.
pub(crate) fn came_back_empty(node: &str) -> String {
    format!(
        "node {node} came back empty: it was restarted since the drive was made, and what it held is gone; create and \
         load the drive anew"
    )
}
