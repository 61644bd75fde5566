//! The control API's types, shared by nodes and their clients.
//!
//! docs/reference/control-api.md lists the requests with their bodies and answers. [`routes`](crate::routes) has the
//! paths.
//!
//! An error has an HTTP status and an [`ErrorBody`]. A request's body is at most [`BODY_BYTES_MAX`] bytes, one with a
//! map at most [`MAP_BODY_BYTES_MAX`], one with a job at most [`JOB_BODY_BYTES_MAX`](crate::jobs::JOB_BODY_BYTES_MAX).

use std::collections::BTreeMap;

use cheetah_error::Next;
use serde::{Deserialize, Serialize};

use crate::jobs::ScanStatus;

/// The largest body of a request, in bytes, but for those with a map or a job.
pub const BODY_BYTES_MAX: usize = 64 << 10;

/// The longest map, in bytes.
pub const MAP_BYTES_MAX: usize = 512 << 10;

/// The largest body of a request with a map, in bytes. Quotes, backslashes and line ends in a map take two bytes each.
pub const MAP_BODY_BYTES_MAX: usize = 2 * MAP_BYTES_MAX + (4 << 10);

/// The longest text of a note, in bytes.
pub const NOTE_BYTES_MAX: usize = 16 << 10;

/// The most notes of an export.
pub const NOTES_MAX: usize = 8;

/// The most nodes that a draining node's parts may go to.
pub const DRAINING_TO_MAX: usize = 64;

/// The most exports in [`Status::dropped`].
pub const DROPPED_MAX: usize = 64;

/// The error for an export that exists and holds no map.
pub const NO_MAP: &str = "this export holds no map";

/// The mDNS service type that nodes announce. Its TXT keys: `http` (port), `instance`, `free` (bytes).
pub const MDNS_SERVICE: &str = "_cheetah._tcp.local.";

/// A node's status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// The node's name, chosen by its operator; the host name by default.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// 32 hex digits, new at each start: content stored under another instance is gone.
    pub instance: String,
    /// TCP port of the NBD server.
    pub nbd_port: u16,
    /// TCP port of this API.
    pub http_port: u16,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Disks that the machine's kernel exposes to its programs; `None` if unknown.
    #[serde(default)]
    pub disks_visible: Option<u32>,
    /// Whether the machine was started from the boot image.
    #[serde(default)]
    pub boot_image: bool,
    /// The lent memory.
    pub memory: MemoryStatus,
    /// Exports, by name.
    pub exports: Vec<ExportStatus>,
    /// Set while the node is about to leave: it takes no new exports, and has no free memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<Draining>,
    /// The exports that the node dropped last because its machine needed the memory, oldest first, at most
    /// [`DROPPED_MAX`]. Their content is lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
    /// Set if the node lends its processor: it works on jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<ScanStatus>,
}

/// An export that a node dropped because its machine needed the memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Dropped {
    /// Its name.
    pub export: String,
    /// Its size.
    pub size_bytes: u64,
}

/// The mark of a node that is about to leave. Processes that have drives open for writing move their parts elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Draining {
    /// Nodes that may take the parts, in the user's notation, at most [`DRAINING_TO_MAX`]. Without one, spares of the
    /// drive and announced nodes are used.
    #[serde(default)]
    pub to: Vec<String>,
}

/// The memory a node lends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryStatus {
    /// Bytes lent now, digests included.
    pub lent_bytes: u64,
    /// Bytes of content that fit in it.
    pub usable_bytes: u64,
    /// Bytes reserved for exports.
    pub reserved_bytes: u64,
    /// Bytes that hold content.
    pub used_bytes: u64,
    /// Bytes that a new export can reserve.
    pub free_bytes: u64,
    /// Bytes faulted in so far; a background thread faults in the rest.
    pub ready_bytes: u64,
    /// Whether the memory is locked, so that none of it can be swapped out.
    pub locked: bool,
    /// Bytes wiped since the node's start.
    #[serde(default)]
    pub wiped_bytes: u64,
}

/// An export's status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExportStatus {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Memory used by its content: chunks of zeros take none.
    pub used_bytes: u64,
    /// Whether its whole size is reserved.
    pub reserved: bool,
    /// Whether its pages carry digests.
    pub digests: bool,
    /// Its NBD connections.
    pub connections: usize,
    /// Its write lease, if held.
    pub lease: Option<LeaseStatus>,
    /// The epoch of its map, if it holds one.
    pub map_epoch: Option<u64>,
    /// Bytes that clients have read from it since it was created.
    #[serde(default)]
    pub read_bytes: u64,
    /// Set while the machine needs the memory: the holder of the lease moves the export elsewhere, or the node may drop it
    /// after this many seconds. It drops it at once if the machine has almost no memory left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leave_in_s: Option<u64>,
    /// Set until its creator has recorded it: it is deleted after this many seconds unless that confirms it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_in_s: Option<u64>,
}

/// A lease in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeaseStatus {
    /// The holder's own description.
    pub holder: String,
    /// Seconds until it expires.
    pub expires_in_s: u64,
}

/// A request to create an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewExport {
    /// Its name: 1 to 255 of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// Its size; not 0.
    pub size_bytes: u64,
    /// Whether to reserve the whole size now, so that no write can run out of memory.
    #[serde(default)]
    pub reserve: bool,
    /// Whether each page has a digest that every read checks.
    #[serde(default = "yes")]
    pub digests: bool,
}

impl NewExport {
    /// An export with its memory reserved, and digests.
    pub fn reserved(name: impl Into<String>, size_bytes: u64) -> Self {
        Self { name: name.into(), size_bytes, reserve: true, digests: true }
    }

    /// An export that allocates memory as it is written, with digests.
    pub fn thin(name: impl Into<String>, size_bytes: u64) -> Self {
        Self { name: name.into(), size_bytes, reserve: false, digests: true }
    }
}

fn yes() -> bool {
    true
}

/// The wipe of a deleted export's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wiped {
    /// The export's name.
    pub export: String,
    /// The export's size.
    pub size_bytes: u64,
    /// Bytes wiped by the deletion.
    pub wiped_bytes: u64,
    /// Whether each of them was read back as zero.
    pub verified_zero: bool,
    /// The keys of its sealed content that the node was lent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys_lent: Vec<KeyLent>,
}

/// Keys of sealed content that a node was lent for a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyLent {
    /// The task, as the lender named it.
    pub task: String,
    /// The member that lent them first.
    pub by: String,
    /// When that was, RFC 3339, by the node's clock.
    pub first: String,
    /// When they were lent for the last time.
    pub last: String,
    /// How often they were lent: once for each job.
    pub times: u64,
    /// Whether all copies were wiped.
    pub wiped: bool,
}

/// The receipt for all the memory that a node lent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeReceipt {
    /// The node's name.
    pub node: String,
    /// The instance that ended.
    pub instance: String,
    /// The exports it still had.
    pub exports: Vec<Wiped>,
    /// Bytes lent.
    pub lent_bytes: u64,
    /// Bytes wiped at the end; memory freed earlier was wiped then.
    pub wiped_bytes: u64,
    /// Bytes wiped since the node's start, including these.
    pub wiped_total_bytes: u64,
    /// Whether every byte wiped since the node's start was read back as zero.
    pub verified_zero: bool,
    /// Duration of the end in seconds.
    pub seconds: f64,
}

/// A request for an export's write lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// The holder's description for other examiners: 1 to 255 bytes.
    pub holder: String,
    /// The time to live in seconds: 5 to 300.
    pub ttl_s: u64,
    /// Whether to take the lease from its holder, whose writes are refused from then on.
    #[serde(default)]
    pub force: bool,
}

/// A lease granted or renewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeaseGrant {
    /// 32 hex digits, secret between node and holder.
    pub token: String,
    /// The time to live in seconds, from now.
    pub ttl_s: u64,
}

/// A request to renew a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeaseRenewal {
    /// The lease's token.
    pub token: String,
}

/// A map to be stored with an export, until the export is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewMap {
    /// The token of the export's write lease.
    pub token: String,
    /// Its epoch: later than that of the stored map, unless both are the same.
    pub epoch: u64,
    /// Any text of at most [`MAP_BYTES_MAX`] bytes.
    pub map: String,
}

/// A map stored with an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StoredMap {
    /// Its epoch.
    pub epoch: u64,
    /// Its text.
    pub map: String,
}

/// A note to be stored with an export, in place of one of the same name, until the export is deleted. Notes need no
/// lease. Other processes use them to leave messages for the holder of the lease, and the holder answers by notes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewNote {
    /// Its name: 1 to 64 of `a-z -`.
    pub name: String,
    /// Any text of at most [`NOTE_BYTES_MAX`] bytes.
    pub text: String,
}

/// The notes of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Notes {
    /// The texts, by name.
    pub notes: BTreeMap<String, String>,
}

/// A node's offer to an examiner: sent to [`JOIN`](crate::routes::JOIN) at the examiner's machine until it is
/// answered with 200. The node's address is the one that the connection comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// The answer to a [`Join`] that is accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Joined {}

/// The body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// The error, in one sentence.
    pub error: String,
    /// The next steps, if there are some. The reader names the verbs.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "cheetah_error::next::known")]
    pub next: Vec<Next>,
}
