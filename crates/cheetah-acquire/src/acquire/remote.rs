//! Sources over NBD: dialled, or calling us; packed on their way where the far end can.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::readonly::ReadOnly;
use cheetah_device::{ByteRange, Device as _, Error as DeviceError};
use cheetah_image::identity::clean;
use cheetah_image::{Error, Identity, Kind, Result, ServedBy, Source};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::proto::X_CHEETAH;
use cheetah_nbd::uri::{Address, NbdUri};
use cheetah_nbd::{Method, Packing};
use futures::FutureExt as _;

use super::{ConnectDigests, Evidence, Wire};

/// Connections, where the server allows several, unless more is known: enough to keep two cores of it busy.
pub const CONNECTIONS_DEFAULT: usize = 2;

/// Opens the export at `uri`, which reports call `location`, over so many connections, 1 to 16. An agent of ours says what it
/// serves.
///
/// # Errors
///
/// [`Error::Failed`] if it cannot be reached.
pub async fn open_nbd(
    uri: NbdUri,
    location: &str,
    connections: usize,
    packing: Packing,
    timeout: Duration,
) -> Result<Evidence> {
    let inbound = matches!(uri.address, Address::Inbound(_));
    let config = ClientConfig {
        connections,
        packing,
        timeout,
        // A server that cannot show that it is the same one has to be compared first.
        trust_reconnects: false,
        ..ClientConfig::new(uri.clone())
    };
    let client = Arc::new(Client::connect(config).await.map_err(|error| Error::failed(error.to_string()))?);
    let server = ServedBy::new(&uri.export, client.description());
    let name = server.file_name();
    let digests = server.instance.is_some().then(|| digests(uri, client.description(), timeout));
    let identity = Identity { server: Some(server), ..identity(&client, location) };
    let counted = client.clone();
    let wire = move || {
        let stats = counted.stats();
        Wire { received_bytes: stats.received_bytes, content_bytes: stats.content_bytes, reconnects: stats.reconnects }
    };
    let source = Source { device: Arc::new(ReadOnly::new(client)), identity, name };
    Ok(Evidence { source, wire: Some(Arc::new(wire)), inbound, digests })
}

/// How to connect to an agent for digests. It must describe itself as `description` says: it is the same process then.
fn digests(uri: NbdUri, description: Option<&str>, timeout: Duration) -> ConnectDigests {
    let description: Option<Arc<str>> = description.map(Arc::from);
    Arc::new(move || {
        let (uri, description) = (uri.clone(), description.clone());
        async move {
            let packing = Packing::Wanted(Method::Omit);
            let config = ClientConfig { packing, timeout, trust_reconnects: false, ..ClientConfig::new(uri) };
            let lost = |why: &str| DeviceError::Lost {
                device: config.name.clone(),
                range: ByteRange::new(0, 0),
                why: format!("{why}; it takes one connection more than it serves the content over").into(),
            };
            let Ok(client) = tokio::time::timeout(timeout, Client::connect(config.clone())).await else {
                return Err(lost("the agent took no further connection"));
            };
            let client = client.map_err(|error| lost(&error.to_string()))?;
            if client.description() != description.as_deref() {
                return Err(lost("another agent took the connection"));
            }
            Ok((client.packed() == Some(Method::Omit)).then_some(client))
        }
        .boxed()
    })
}

/// What an agent says of its source, where it is what we see; otherwise what can be seen.
fn identity(client: &Client, location: &str) -> Identity {
    let size = client.geometry().size;
    let told = client.description().and_then(|text| text.strip_prefix(X_CHEETAH));
    let told = told.and_then(|json| serde_json::from_str::<Identity>(json).ok()).filter(|told| told.size == size);
    match told {
        // What it has to say of the disk; where it is and how it is read, we know ourselves.
        Some(told) => {
            let location = format!("{location} ({})", clean(&told.location));
            Identity { location, ..told }.cleaned()
        }
        None => Identity::new(Kind::Nbd, location, size),
    }
}
