//! An export on a Cheetah node.

use std::collections::BTreeMap;
use std::time::Duration;

use cheetah_control::ControlClient;
use cheetah_nbd::Security;
use cheetah_tls::{Expected, Role, Roles, credential_store};
use parking_lot::Mutex;

use crate::file::SetNode;

/// The most nodes to which connections are kept.
const KEPT_MAX: usize = 256;

/// An export on a Cheetah node, and the node's control API.
#[derive(Clone)]
pub(crate) struct NodeExport {
    /// The node's name, as the user wrote it.
    pub node: String,
    /// The export's name.
    pub name: String,
    /// The node's control API.
    pub control: ControlClient,
}

/// A client of the control API of a node entry; `None` for a foreign server. If the entry names the node's room and
/// key, only that node is accepted.
pub(crate) fn control(node: &SetNode, timeout: Duration) -> Option<ControlClient> {
    let control = ControlClient::new(node.http.as_ref()?).with_timeout(timeout);
    match node.uri()?.security {
        Security::Room { room, key } => {
            let credential = room.and_then(|room| credential_store::of_room(&room)).or_else(credential_store::default);
            let expected = Expected { roles: Roles::of(&[Role::Node]), key };
            Some(control.with_credential(credential).expecting(expected))
        }
        Security::Usual | Security::Certificates(_) => Some(control),
    }
}

impl NodeExport {
    /// The export of a node entry; `None` for a foreign server.
    pub fn of(node: &SetNode, timeout: Duration) -> Option<Self> {
        Some(Self { node: node.name.clone(), name: node.uri()?.export, control: control(node, timeout)? })
    }
}

/// Exports on nodes that are called again and again: connections to their control API are kept.
#[derive(Default)]
pub(crate) struct KeptExports(Mutex<BTreeMap<(String, String), NodeExport>>);

impl KeptExports {
    /// The export of a node entry; `None` for a foreign server.
    pub fn of(&self, node: &SetNode, timeout: Duration) -> Option<NodeExport> {
        let key = (node.nbd.clone(), node.http.clone()?);
        let mut kept = self.0.lock();
        let export = match kept.get(&key) {
            Some(export) => export.clone(),
            None => {
                let NodeExport { node, name, control } = NodeExport::of(node, timeout)?;
                let export = NodeExport { node, name, control: control.keeping_connection() };
                if kept.len() >= KEPT_MAX {
                    kept.clear();
                }
                kept.insert(key, export.clone());
                export
            }
        };
        Some(NodeExport { control: export.control.with_timeout(timeout), ..export })
    }
}
