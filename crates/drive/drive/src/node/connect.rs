//! Connecting to one export.

use std::sync::Arc;

use cheetah_device::error::EROFS;
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::uri::{Address, NbdUri};
use cheetah_tls::{Expected, Roles};

use crate::session::Session;
use cheetah_error::{Error, Fact, Next, Result};

/// A connection to make.
pub(crate) struct Connect {
    /// The node's name, as the user wrote it.
    pub name: String,
    /// The export's URI.
    pub uri: NbdUri,
    /// Meta contexts that the server must grant.
    pub contexts: Vec<String>,
    /// Whether to open the export for writing.
    pub writable: bool,
    /// The number of NBD connections.
    pub connections: usize,
    /// What the server is called with.
    pub session: Session,
    /// Whether requests wait while a lost connection is being replaced.
    pub wait_for_replacement: bool,
    /// Whether to accept a reconnection to a server that cannot show that it is the same process as before.
    pub trust_reconnects: bool,
    /// Whether the content of a read belongs to its reader alone.
    pub exclusive: bool,
}

impl Connect {
    /// A single read-only connection to any instance; the URI is still to be set.
    pub fn reading(name: String, session: &Session) -> Self {
        Self {
            name,
            uri: NbdUri::new(Address::Unix(Default::default()), ""),
            contexts: Vec::new(),
            writable: false,
            connections: 1,
            session: session.clone(),
            wait_for_replacement: true,
            trust_reconnects: true,
            exclusive: false,
        }
    }
}

/// Connects to an export. The error names the node.
pub(crate) async fn connect(wanted: Connect) -> Result<Arc<Client>> {
    let config = ClientConfig {
        name: wanted.name.as_str().into(),
        expected: Expected::roles(Roles::NODES),
        contexts: wanted.contexts,
        writable: wanted.writable,
        connections: wanted.connections,
        credentials: wanted.session.credentials,
        timeout: wanted.session.timeout,
        wait_for_replacement: wanted.wait_for_replacement,
        trust_reconnects: wanted.trust_reconnects,
        exclusive: wanted.exclusive,
        ..ClientConfig::new(wanted.uri)
    };
    // Its error names the node and the URI.
    let client = Client::connect(config).await.map_err(|error| match &error {
        cheetah_device::Error::Io { errno, .. } if *errno != EROFS => {
            Error::node(Fact::of_errno(*errno), error.to_string()).advise(Next::of_connection(*errno))
        }
        _ => Error::failed(error.to_string()),
    })?;
    Ok(Arc::new(client))
}
