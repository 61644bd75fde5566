//! Sources over NBD: dialled, or calling us; packed on their way where the far end can.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::Device as _;
use cheetah_device::readonly::ReadOnly;
use cheetah_image::identity::clean;
use cheetah_image::{Error, Identity, Kind, Result, Source};
use cheetah_nbd::Packing;
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::proto::X_CHEETAH;
use cheetah_nbd::uri::{Address, NbdUri};

use super::{Evidence, Wire};

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
    let name = if uri.export.is_empty() { "nbd".to_owned() } else { uri.export.replace('/', "_") };
    let inbound = matches!(uri.address, Address::Inbound(_));
    let config = ClientConfig { connections, packing, timeout, ..ClientConfig::new(uri) };
    let client = Arc::new(Client::connect(config).await.map_err(|error| Error::failed(error.to_string()))?);
    let identity = identity(&client, location);
    let counted = client.clone();
    let wire = move || {
        let stats = counted.stats();
        Wire { received_bytes: stats.received_bytes, content_bytes: stats.content_bytes, reconnects: stats.reconnects }
    };
    let source = Source { device: Arc::new(ReadOnly::new(client)), identity, name };
    Ok(Evidence { source, wire: Some(Arc::new(wire)), inbound })
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
