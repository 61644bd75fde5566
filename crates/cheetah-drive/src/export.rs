//! An export on a node of ours.

use std::time::Duration;

use cheetah_node::control::ControlClient;

use crate::file::SetNode;

/// An export on a node of ours, and how to speak to that node.
pub(crate) struct Export {
    /// The node, as the user knows it.
    pub node: String,
    /// Its name there.
    pub name: String,
    /// The node's control API.
    pub control: ControlClient,
}

impl Export {
    /// The export that holds an entry's bytes; `None` for a foreign server.
    pub fn of(node: &SetNode, timeout: Duration) -> Option<Self> {
        let control = ControlClient::new(node.http.as_ref()?).with_timeout(timeout);
        Some(Self { node: node.name.clone(), name: node.uri()?.export, control })
    }
}
