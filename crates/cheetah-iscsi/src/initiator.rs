//! A logical unit of an iSCSI target as a [`Device`].

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io, Result};

use crate::uri::IscsiUri;

/// What to connect to, and how.
#[derive(Debug, Clone)]
pub struct IscsiConfig {
    /// The logical unit.
    pub uri: IscsiUri,
    /// What to call it in errors and logs.
    pub name: Arc<str>,
    /// How long a read may take, with all attempts to make it, before it fails with [`Error::Lost`].
    pub timeout: Duration,
    /// The most commands under way at once: 1 to 256. The target may allow fewer.
    pub in_flight_max: usize,
}

impl IscsiConfig {
    /// Up to 32 commands under way, and a timeout of 10 s.
    pub fn new(uri: IscsiUri) -> Self {
        let name = uri.to_string().into();
        Self { uri, name, timeout: Duration::from_secs(10), in_flight_max: 32 }
    }
}

/// What a logical unit says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inquiry {
    /// Who made it.
    pub vendor: String,
    /// What they call it.
    pub product: String,
    /// Which version of it.
    pub revision: String,
    /// Its serial number (VPD page 0x80), where it has one.
    pub serial: Option<String>,
    /// Bytes in a logical block.
    pub block_bytes: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes in a physical block: `block_bytes` or a multiple.
    pub physical_block_bytes: u32,
    /// Whether the target has it write-protected; `None` where it does not say.
    pub write_protected: Option<bool>,
}

/// A connected logical unit. Dropping it logs out.
pub struct Initiator {
    inquiry: Inquiry,
}

impl Initiator {
    /// Connects, logs in, and asks what the logical unit is.
    ///
    /// # Errors
    ///
    /// If the target cannot be reached, refuses the login, or has no such logical unit; if the URI names no logical
    /// unit, the error lists the targets the host has.
    pub async fn connect(config: IscsiConfig) -> Result<Self> {
        let _ = config;
        Err(Error::Unsupported("iSCSI"))
    }

    /// What the logical unit says of itself.
    pub fn inquiry(&self) -> &Inquiry {
        &self.inquiry
    }
}

impl Device for Initiator {
    fn geometry(&self) -> Geometry {
        let size = self.inquiry.blocks.saturating_mul(self.inquiry.block_bytes.into());
        Geometry { size, writable: false, block_preferred: self.inquiry.physical_block_bytes }
    }

    fn read(&self, _range: ByteRange) -> Io<'_, Data> {
        Io::fail(Error::Unsupported("iSCSI"))
    }
}
