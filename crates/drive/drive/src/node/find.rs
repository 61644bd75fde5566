//! Finding nodes: named on the command line, announced on the network, or foreign NBD servers.

use std::time::Duration;

use cheetah_control::ControlError;
use cheetah_device::Device as _;
use futures::future::join_all;

use super::browse::browse;
use super::connect::{Connect, connect};
use super::spec::host_port;
pub use super::spec::{AvailableNode, NodePlace, NodeSpec};
use super::trouble;
use crate::session::Session;
use cheetah_error::{Error, Fact, Result, next};

/// The time-out of a request to the named port itself, when the control port after it does not answer.
const MISTAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// How to look for nodes.
#[derive(Debug, Clone)]
pub struct FindOptions {
    /// What nodes are called with.
    pub session: Session,
    /// How long to listen for announcements (`auto`).
    pub browse: Duration,
}

impl FindOptions {
    /// Listens for announcements for three seconds.
    pub fn new(session: Session) -> Self {
        Self { session, browse: Duration::from_secs(3) }
    }
}

/// Asks the named nodes for their free memory. The answers are in the order of `specs`. All nodes must answer, and none
/// may be named twice.
pub async fn find(specs: &[NodeSpec], options: &FindOptions) -> Result<Vec<AvailableNode>> {
    let answers = join_all(specs.iter().map(|spec| find_one(spec, options))).await;
    let mut found: Vec<AvailableNode> = Vec::new();
    let mut failures = Vec::new();
    for (spec, answer) in specs.iter().zip(answers) {
        match answer {
            Ok(nodes) => nodes.into_iter().try_for_each(|node| add(&mut found, node, *spec == NodeSpec::Auto))?,
            Err(error) => failures.push(error),
        }
    }
    match &failures[..] {
        [] => Ok(found),
        [only] => Err(only.clone()),
        several => {
            let why: Vec<_> = several.iter().map(ToString::to_string).collect();
            let sentence = format!("{} nodes cannot be used: {}", several.len(), why.join("; "));
            Err(trouble::together(sentence, several))
        }
    }
}

/// Adds `node`. A duplicate is ignored if it announced itself, and an error otherwise.
fn add(found: &mut Vec<AvailableNode>, node: AvailableNode, announced: bool) -> Result<()> {
    match found.iter().find(|other| other.same(&node)) {
        Some(_) if announced => Ok(()),
        Some(other) => Err(Error::misuse(format!("{} and {} are the same node; name it once", other.name, node.name))),
        None => {
            found.push(node);
            Ok(())
        }
    }
}

async fn find_one(spec: &NodeSpec, options: &FindOptions) -> Result<Vec<AvailableNode>> {
    match spec {
        NodeSpec::Node { host, port } => {
            let http_port = port + 1;
            let client = options.session.control(host_port(host, http_port));
            match client.status().await {
                Ok(status) => Ok(vec![AvailableNode::node(spec.to_string(), host, http_port, &status)]),
                Err(error) => Err(explain(spec, host, *port, error, &options.session).await),
            }
        }
        NodeSpec::Foreign(uri) => {
            // Opened for writing, so that a read-only server is refused now rather than at the first write.
            let reading = Connect::reading(spec.to_string(), &options.session);
            let wanted = Connect { uri: uri.clone(), writable: true, ..reading };
            let size = connect(wanted).await?.geometry().size;
            Ok(vec![AvailableNode {
                name: spec.to_string(),
                free_bytes: size,
                place: NodePlace::Foreign { uri: uri.to_string() },
            }])
        }
        NodeSpec::Auto => browse(options.browse, &options.session).await,
    }
}

/// The error for a node that does not answer. If the user named a control port, the error says so.
async fn explain(spec: &NodeSpec, host: &str, port: u16, error: ControlError, session: &Session) -> Error {
    let (control, why, fact, next) = match error {
        ControlError::NoAnswer { why, fact, next, .. } if fact != Fact::Refused => (port + 1, why, fact, next),
        other => return trouble::of_call(format!("{spec} cannot be used: {}", trouble::reason(&other)), &other),
    };
    let asked = session.within_at_most(MISTAKE_TIMEOUT).control(host_port(host, port)).status().await;
    if let Ok(status) = asked {
        let nbd = host_port(host, status.nbd_port);
        return Error::misuse(format!("{spec} is a node's control port; name its NBD port: {nbd}"));
    }
    Error::node(fact, format!("no node answers at {spec} ({why}, on its control port {control})"))
        .advise(next)
        .next(next::Node::CheckNode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_named_twice_is_refused() {
        let place = NodePlace::Node { nbd: "a:1".into(), http: "a:2".into(), instance: "ab".repeat(16) };
        let node = |name: &str| AvailableNode { name: name.into(), free_bytes: 1, place: place.clone() };
        let mut found = vec![node("lab-7")];
        add(&mut found, node("lab-7.local"), true).unwrap();
        assert!(add(&mut found, node("10.0.0.7"), false).unwrap_err().is_misuse());
        assert_eq!(found.len(), 1);
    }
}
