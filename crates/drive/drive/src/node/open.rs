//! Opening the part of a drive that one node holds.

use std::sync::Arc;

use cheetah_device::window::Window;
use cheetah_device::{ByteRange, Device as _, DynDevice, Size};
use cheetah_nbd::client::Client;

use super::connect::{Connect, connect};
use super::export::control;
use super::health::{NodeState, node_status};
use crate::file::SetNode;
use crate::session::Session;
use cheetah_error::{Error, Fact, Result};

/// How to open a node's part of a drive.
#[derive(Debug, Clone)]
pub(crate) struct NodeAccess {
    /// Open for writing, under a lease.
    pub writable: bool,
    /// The number of NBD connections.
    pub connections: usize,
    /// What the node is called with.
    pub session: Session,
    /// Whether the content of a read belongs to its reader alone: a sealed drive opens its units in place.
    pub exclusive: bool,
}

/// Connects to one node: only to the instance that holds the drive's bytes, and for writing only under this process's
/// lease.
pub(crate) async fn open_node(node: &SetNode, token: Option<&str>, access: &NodeAccess) -> Result<DynDevice> {
    Ok(open_with(node, token, access, true).await?.1)
}

/// The same for a node that a drive can do without: a request fails as soon as the connection is lost and cannot be
/// replaced at once, so that other nodes can answer it. A foreign server that comes back may be empty, so it is not
/// trusted.
pub(crate) async fn connect_node(
    node: &SetNode,
    token: Option<&str>,
    access: &NodeAccess,
) -> Result<(Arc<Client>, DynDevice)> {
    open_with(node, token, access, false).await
}

async fn open_with(
    node: &SetNode,
    token: Option<&str>,
    access: &NodeAccess,
    indispensable: bool,
) -> Result<(Arc<Client>, DynDevice)> {
    let uri = node.uri().ok_or_else(|| Error::failed(format!("node {}: '{}' is no NBD URI", node.name, node.nbd)))?;
    let instance = node.instance.iter().map(|instance| format!("x-cheetah:instance/{instance}"));
    let lease = token.map(|token| format!("x-cheetah:lease/{token}"));
    let wanted = Connect {
        name: node.name.clone(),
        uri,
        contexts: instance.chain(lease).collect(),
        writable: access.writable,
        connections: access.connections,
        session: access.session.clone(),
        wait_for_replacement: indispensable,
        trust_reconnects: indispensable || node.instance.is_some(),
        exclusive: access.exclusive,
    };
    let client = match connect(wanted).await {
        Ok(client) => client,
        Err(error) => return Err(explain(node, error, &access.session).await),
    };
    if let Some(control) = control(node, &access.session) {
        control.hand_on_revocations().await;
    }
    let size = client.geometry().size;
    if size < node.size {
        return Err(Error::failed(format!(
            "node {}: its export has {} where the drive needs {}; is it the export the drive was made with?",
            node.name,
            Size(size),
            Size(node.size)
        )));
    }
    if size == node.size {
        return Ok((client.clone(), client));
    }
    let share = Window::new(client.clone(), ByteRange::new(0, node.size));
    share.map(|share| (client, Arc::new(share) as DynDevice)).map_err(Error::device(format!("node {}", node.name)))
}

/// Replaces the error of a failed handshake by the one that the node's control API gives, if the node has restarted.
async fn explain(node: &SetNode, error: Error, session: &Session) -> Error {
    if node.http.is_none() {
        return error;
    }
    let status = node_status(0, node, session).await;
    match (status.state, status.problem) {
        (NodeState::Restarted, Some(problem)) => Error::node(Fact::Restarted, problem),
        (NodeState::Lost, Some(problem)) => Error::node(Fact::Lost, problem),
        // It runs, so what it holds is not gone: something refuses connections in its place.
        (NodeState::Ok, _) if error.fact() == Some(Fact::Lost) => Error::node(
            Fact::Unreachable,
            format!(
                "node {}: its control API answers, so it runs, but its NBD server cannot be reached ({error})",
                node.name
            ),
        ),
        (NodeState::Unreachable, Some(problem)) if error.fact() == Some(Fact::Lost) => {
            Error::node(Fact::Unreachable, problem)
        }
        // The control API tells a role from a revoked certificate.
        (NodeState::Refused, Some(problem)) if error.fact() != Some(Fact::Refused) => {
            Error::node(Fact::Refused, problem)
        }
        _ => error,
    }
}
