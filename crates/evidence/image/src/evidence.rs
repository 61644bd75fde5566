//! A source that is open, with the counters of its link.

use std::sync::Arc;

use cheetah_error::{Error, Result};
use cheetah_nbd::client::Client;
use futures::future::BoxFuture;
use serde::Serialize;

use crate::source::Source;

/// A source that is open.
pub struct Evidence {
    /// The source.
    pub source: Source,
    /// Reads the counters of its link, if there is one.
    pub wire: Option<Arc<dyn Fn() -> LinkCounters + Send + Sync>>,
    /// Whether the source connected to us. Any host may connect, so a source that differs from the expected one is
    /// another source, not a changed one.
    pub inbound: bool,
    /// Connects to the agent that serves it to get digests of its content; `None` if no agent serves it.
    pub digests: Option<ConnectDigests>,
    /// The disks and images that it was looked for on, in their order, if it is the content of a volume; none otherwise. It lies on all of
    /// them, or on some.
    pub disks: Vec<Source>,
}

/// Connects to an agent for digests ([`Client::digests`]); `None` if it makes none.
pub type ConnectDigests = Arc<dyn Fn() -> BoxFuture<'static, cheetah_device::Result<Option<Client>>> + Send + Sync>;

impl Evidence {
    /// Connects to the agent that serves the source for digests; `None` where it makes none.
    ///
    /// # Errors
    ///
    /// `Kind::Device` if the agent takes no further connection.
    pub async fn digests_client(&self) -> Result<Option<Client>> {
        let Some(connect) = &self.digests else { return Ok(None) };
        let location = &self.source.identity.location;
        connect().await.map_err(Error::device(format!("asking {location} for digests")))
    }
}

impl From<Source> for Evidence {
    fn from(source: Source) -> Self {
        Self { source, wire: None, inbound: false, digests: None, disks: Vec::new() }
    }
}

/// Counters of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkCounters {
    /// Bytes received, headers included.
    pub received_bytes: u64,
    /// Bytes of content in them, holes included.
    pub content_bytes: u64,
    /// The number of lost connections that were replaced.
    pub reconnects: u64,
}

impl LinkCounters {
    /// Returns the bytes of content for each byte received.
    pub fn compression(self) -> Option<f64> {
        (self.received_bytes > 0).then(|| self.content_bytes as f64 / self.received_bytes as f64)
    }

    /// Returns the sums.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            received_bytes: self.received_bytes + other.received_bytes,
            content_bytes: self.content_bytes + other.content_bytes,
            reconnects: self.reconnects + other.reconnects,
        }
    }
}
