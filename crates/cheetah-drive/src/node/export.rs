//! An export on a Cheetah node.

use std::time::Duration;

use cheetah_control::ControlClient;

use crate::file::SetNode;

/// An export on a Cheetah node, and the node's control API.
pub(crate) struct NodeExport {
    /// The node's name, as the user wrote it.
    pub node: String,
    /// The export's name.
    pub name: String,
    /// The node's control API.
    pub control: ControlClient,
}

impl NodeExport {
    /// The export of a node entry; `None` for a foreign server.
    pub fn of(node: &SetNode, timeout: Duration) -> Option<Self> {
        let control = ControlClient::new(node.http.as_ref()?).with_timeout(timeout);
        Some(Self { node: node.name.clone(), name: node.uri()?.export, control })
    }
}
