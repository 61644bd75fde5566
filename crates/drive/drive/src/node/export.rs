//! An export on a Cheetah node.

use std::collections::BTreeMap;

use cheetah_control::ControlClient;
use cheetah_nbd::Security;
use cheetah_tls::{Expected, Roles};
use parking_lot::Mutex;

use crate::file::SetNode;
use crate::session::Session;

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
pub(crate) fn control(node: &SetNode, session: &Session) -> Option<ControlClient> {
    match node.uri()?.security {
        Security::Room { room, key } => {
            let credentials = &session.credentials;
            let credential = room.and_then(|room| credentials.of_room(&room)).or(credentials.acting_as());
            let expected = Expected { roles: Roles::NODES, key };
            let control = ControlClient::new(node.http.as_ref()?, credential).with_timeout(session.timeout);
            Some(control.expecting(expected))
        }
        Security::Usual | Security::Certificates(_) => Some(session.control(node.http.as_ref()?)),
    }
}

impl NodeExport {
    /// The export of a node entry; `None` for a foreign server.
    pub fn of(node: &SetNode, session: &Session) -> Option<Self> {
        Some(Self { node: node.name.clone(), name: node.uri()?.export, control: control(node, session)? })
    }
}

/// Exports on nodes that are called again and again: connections to their control API are kept.
#[derive(Default)]
pub(crate) struct KeptExports(Mutex<BTreeMap<(String, String), NodeExport>>);

impl KeptExports {
    /// The export of a node entry; `None` for a foreign server.
    pub fn of(&self, node: &SetNode, session: &Session) -> Option<NodeExport> {
        let key = (node.nbd.clone(), node.http.clone()?);
        let mut kept = self.0.lock();
        let export = match kept.get(&key) {
            Some(export) => export.clone(),
            None => {
                let NodeExport { node, name, control } = NodeExport::of(node, session)?;
                let export = NodeExport { node, name, control: control.keeping_connection() };
                if kept.len() >= KEPT_MAX {
                    kept.clear();
                }
                kept.insert(key, export.clone());
                export
            }
        };
        Some(NodeExport { control: export.control.with_timeout(session.timeout), ..export })
    }
}
