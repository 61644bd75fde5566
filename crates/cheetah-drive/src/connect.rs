//! Connecting to one export.

use std::sync::Arc;
use std::time::Duration;

use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::uri::{Address, NbdUri};

use cheetah_image::error::{Error, Result};

/// What to connect to, and how.
pub(crate) struct Connect {
    /// The node, as the user knows it.
    pub name: String,
    /// The export.
    pub uri: NbdUri,
    /// Meta contexts the server must grant.
    pub contexts: Vec<String>,
    /// Whether to write.
    pub writable: bool,
    /// NBD connections.
    pub connections: usize,
    /// How long the server may be silent.
    pub timeout: Duration,
}

impl Connect {
    /// One connection to read over, of any instance; the URI is still to be given.
    pub fn reading(name: String) -> Self {
        Self {
            name,
            uri: NbdUri { address: Address::Unix(Default::default()), export: String::new() },
            contexts: Vec::new(),
            writable: false,
            connections: 1,
            timeout: Duration::from_secs(10),
        }
    }
}

/// Connects, or says which node and why not.
pub(crate) async fn connect(wanted: Connect) -> Result<Arc<Client>> {
    let Connect { name, uri, contexts, writable, connections, timeout } = wanted;
    let name = name.as_str().into();
    let config = ClientConfig { name, contexts, writable, connections, timeout, ..ClientConfig::new(uri) };
    // Its error names the node and the URI.
    let client = Client::connect(config).await.map_err(|error| Error::failed(error.to_string()))?;
    Ok(Arc::new(client))
}
