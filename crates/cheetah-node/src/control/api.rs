//! What the control API says, as Rust types: shared by the node, and by whoever talks to one.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/status` | | [`Status`] |
//! | `POST /v1/exports` | [`NewExport`] | 201 [`ExportStatus`]; 409 the name is taken; 507 no room |
//! | `DELETE /v1/exports/NAME?lease=TOKEN` | | [`Receipt`]; 409 the export is leased to another |
//! | `POST /v1/exports/NAME/lease` | [`LeaseRequest`] | [`LeaseGrant`]; 409 held by another |
//! | `PUT /v1/exports/NAME/lease` | [`LeaseRenewal`] | [`LeaseGrant`]; 409 lost to another, or expired |
//! | `DELETE /v1/exports/NAME/lease?token=TOKEN` | | 204 |
//! | `GET /metrics` | | Prometheus text |
//! | `/v1/probe…` | | measurements of the way here: see [`cheetah_probe::far`] |
//!
//! Every error is a fitting status with [`ErrorBody`]. A request's body is at most [`BODY_BYTES_MAX`].

use serde::{Deserialize, Serialize};

/// Largest body of a request.
pub const BODY_BYTES_MAX: usize = 64 << 10;

/// The mDNS service type nodes announce. Its TXT keys: `http` (port), `instance`, `free` (bytes).
pub const MDNS_SERVICE: &str = "_cheetah._tcp.local.";

/// What a node is and how it fares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The node's name, as its operator chose it; the host name by default.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// 32 hex digits, new at each start: what was stored under another instance is gone.
    pub instance: String,
    /// TCP port of the NBD server.
    pub nbd_port: u16,
    /// TCP port of this API.
    pub http_port: u16,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Memory lent.
    pub memory: MemoryStatus,
    /// Exports, by name.
    pub exports: Vec<ExportStatus>,
}

/// The memory a node lends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Bytes lent, digests included.
    pub lent_bytes: u64,
    /// Bytes of content that fit in them.
    pub usable_bytes: u64,
    /// Bytes set aside for exports created with a reservation.
    pub reserved_bytes: u64,
    /// Bytes that hold content now.
    pub used_bytes: u64,
    /// Bytes that a new export may reserve.
    pub free_bytes: u64,
    /// Bytes faulted in ahead of use so far; the rest follows by itself.
    pub ready_bytes: u64,
    /// Whether the memory is locked, so that none of it reaches a swap device.
    pub locked: bool,
}

/// One export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Memory its content takes: chunks of zeros take none.
    pub used_bytes: u64,
    /// Whether its whole size is set aside for it.
    pub reserved: bool,
    /// Whether its pages carry digests.
    pub digests: bool,
    /// NBD connections open on it.
    pub connections: usize,
    /// Who may write to it, if anybody holds that right alone.
    pub lease: Option<LeaseStatus>,
}

/// A lease in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseStatus {
    /// Who holds it, as they named themselves.
    pub holder: String,
    /// Seconds until it ends unless renewed.
    pub expires_in_s: u64,
}

/// An export to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewExport {
    /// Its name: 1 to 255 of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// Its size; not 0.
    pub size_bytes: u64,
    /// Whether to set the whole size aside now, so that no write can run out of memory.
    #[serde(default)]
    pub reserve: bool,
    /// Whether each page carries a digest that is checked at every read.
    #[serde(default = "yes")]
    pub digests: bool,
}

impl NewExport {
    /// An export with its memory reserved, and digests.
    pub fn reserved(name: impl Into<String>, size_bytes: u64) -> Self {
        Self { name: name.into(), size_bytes, reserve: true, digests: true }
    }

    /// An export that takes memory as it is written, with digests.
    pub fn thin(name: impl Into<String>, size_bytes: u64) -> Self {
        Self { name: name.into(), size_bytes, reserve: false, digests: true }
    }
}

fn yes() -> bool {
    true
}

/// What became of a deleted export's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The export's name.
    pub export: String,
    /// Bytes wiped at deletion.
    pub wiped_bytes: u64,
    /// Whether each of them was read back as zero.
    pub verified_zero: bool,
}

/// What became of all the memory a node lent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReceipt {
    /// The node's name.
    pub node: String,
    /// The instance that ended.
    pub instance: String,
    /// The exports that were still there.
    pub exports: Vec<Receipt>,
    /// Bytes the node had lent.
    pub lent_bytes: u64,
    /// Bytes wiped at the end; what had been freed before was wiped then.
    pub wiped_bytes: u64,
    /// Bytes wiped over the node's whole life, these included.
    pub wiped_total_bytes: u64,
    /// Whether every wiped byte was read back as zero, over the node's whole life.
    pub verified_zero: bool,
    /// Seconds the end took.
    pub seconds: f64,
}

/// Asks for the right to write to an export alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// Who asks, in words another examiner would understand: 1 to 255 bytes.
    pub holder: String,
    /// Seconds the lease lives unless renewed: 5 to 300.
    pub ttl_s: u64,
    /// Takes the lease away from whoever holds it; that writer is refused from then on.
    #[serde(default)]
    pub force: bool,
}

/// A lease granted or renewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseGrant {
    /// 32 hex digits; a secret between node and holder.
    pub token: String,
    /// Seconds it lives from now unless renewed.
    pub ttl_s: u64,
}

/// Renews a lease for as long again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRenewal {
    /// The token that was granted.
    pub token: String,
}

/// A node's offer to an examiner: `POST http://EXAMINER/v1/join`, repeated until answered with 200. The node's
/// address is the one the connection comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The node's name.
    pub name: String,
    /// TCP port of its NBD server.
    pub nbd_port: u16,
    /// TCP port of its control API.
    pub http_port: u16,
    /// Its instance id.
    pub instance: String,
    /// Bytes a new export may reserve.
    pub free_bytes: u64,
}

/// The body of every answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong, in one sentence.
    pub error: String,
}
