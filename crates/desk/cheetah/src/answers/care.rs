//! The answers of `repair`, `drain` and `rebalance`.

use std::borrow::Cow;

use cheetah_drive::check::CheckReport;
use cheetah_drive::drain::Drained;
use cheetah_drive::rebalance::{Moved, NodeBytes};
use cheetah_drive::repair::{Kept, Repaired, Replacement};
use serde::Serialize;

/// The answer of `repair`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Repair<'a> {
    /// The drive file.
    pub drive: Cow<'a, str>,
    /// The result.
    pub repair: &'a Repaired,
}

/// The answer of `repair --keep`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Keep<'a> {
    /// The drive file.
    pub drive: Cow<'a, str>,
    /// The nodes of both sides.
    pub keep: &'a Kept,
}

/// The answer of `repair --check`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Check<'a> {
    /// The result.
    pub check: &'a CheckReport,
    /// The drive file.
    pub drive: Cow<'a, str>,
}

/// The answer of `repair --from-source`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refetch<'a> {
    /// The drive file.
    pub drive: Cow<'a, str>,
    /// The ranges that were fetched again, in order, neighbours merged.
    pub fetched: Vec<Range>,
    /// Their size in bytes.
    pub fetched_bytes: u64,
    /// Nodes that were replaced.
    pub replaced: &'a [Replacement],
    /// The source.
    pub source: &'a str,
}

/// A range of a drive.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Range {
    /// Bytes in it.
    pub len: u64,
    /// The offset of its first byte.
    pub offset: u64,
}

/// The answer of `drain`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Drain<'a> {
    /// The result.
    pub drain: &'a Drained,
}

/// The answer of `drain --undrain`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Undrain<'a> {
    /// Whether the node is marked as draining: no.
    pub draining: bool,
    /// The node, as the user wrote it.
    pub node: &'a str,
}

/// The answer of `rebalance`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rebalance<'a> {
    /// The drive file.
    pub drive: Cow<'a, str>,
    /// A node that would take another part if it had this many bytes of free memory.
    pub lacks: Option<&'a NodeBytes>,
    /// The parts that have moved, in order.
    pub moved: &'a [Moved],
    /// The nodes of the drive now, and the bytes of the drive at each.
    pub nodes: &'a [NodeBytes],
}
