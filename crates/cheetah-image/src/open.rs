//! One way in: whatever holds the evidence becomes a read-only device, chosen by what is given.

use std::path::Path;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::readonly::ReadOnly;
use cheetah_device::{Device as _, DynDevice};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::uri::NbdUri;

use crate::error::{Error, Result};
use crate::identity::{Identity, Kind};
use crate::raw::RawFile;

/// How to open a source.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// How long a peer may be silent.
    pub timeout: Duration,
    /// Connections to an NBD server, where it allows several: 1 to 16.
    pub connections: usize,
}

impl Default for OpenOptions {
    /// 10 s, and two connections: enough to keep two cores of a server busy.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), connections: 2 }
    }
}

/// A source that is open. What it needs to be read (files, connections, a child process) lives as long as its device.
pub struct Source {
    /// Its bytes. Refuses writes.
    pub device: DynDevice,
    /// What is known of it.
    pub identity: Identity,
    /// What to call it: the file's name without its extension, or the export's.
    pub name: String,
}

/// Opens what the user calls `spec`: an `nbd://`, `nbd+unix://` or `iscsi://` URI, or the path of an image or a disk.
pub async fn open(spec: &str, options: &OpenOptions) -> Result<Source> {
    if spec.starts_with("nbd://") || spec.starts_with("nbd+unix://") {
        return nbd(spec, options).await;
    }
    raw(spec, Path::new(spec))
}

async fn nbd(spec: &str, options: &OpenOptions) -> Result<Source> {
    let uri = NbdUri::from_str(spec).map_err(|error| Error::misuse(error.to_string()))?;
    let name = if uri.export.is_empty() { "nbd".to_owned() } else { uri.export.replace('/', "_") };
    let config = ClientConfig { connections: options.connections, timeout: options.timeout, ..ClientConfig::new(uri) };
    let client = Client::connect(config).await.map_err(|error| Error::failed(error.to_string()))?;
    let identity = Identity::new(Kind::Nbd, spec, client.geometry().size);
    Ok(Source { device: Arc::new(ReadOnly::new(Arc::new(client))), identity, name })
}

fn raw(spec: &str, path: &Path) -> Result<Source> {
    let name = path.file_stem().map_or_else(|| "image".to_owned(), |stem| stem.to_string_lossy().into_owned());
    let device = RawFile::open(path)?;
    let identity = Identity::new(Kind::Raw, spec, device.geometry().size);
    Ok(Source { device: Arc::new(device), identity, name })
}
