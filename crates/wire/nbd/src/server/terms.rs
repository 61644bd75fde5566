//! The terms of a connection.

use super::packed::ReplyPacking;
use crate::proto::{Command, Request, TransmissionFlags};

/// The terms that client and server negotiated.
pub(super) struct Terms {
    /// The export's transmission flags.
    pub(super) flags: TransmissionFlags,
    /// Whether replies to reads are structured.
    pub(super) structured: bool,
    /// The id of `base:allocation`, if the client selected it.
    pub(super) allocation: Option<u32>,
    /// How reads are packed, if the client selected that.
    pub(super) packs: Option<ReplyPacking>,
    /// The ids of the other contexts that the client selected; they have no information about ranges.
    pub(super) others: Vec<u32>,
}

impl Terms {
    /// Whether the terms themselves forbid the request.
    pub(super) fn forbid(&self, request: &Request) -> bool {
        let no_context = self.allocation.is_none() && self.others.is_empty();
        request.command == Command::BlockStatus && (no_context || !self.structured || request.len == 0)
    }
}
