//! Work that nodes do, as an order and as results.

use std::sync::Arc;

use cheetah_control::jobs::{JobLine, Work};
use cheetah_device::ByteRange;

use super::not_done::NotDone;

/// What a node found in units, by their number; or why it found nothing in one.
pub(crate) type Results<F> = Vec<Result<F, Arc<str>>>;

/// Work that nodes do on units.
pub(crate) trait NodeWork: Send + Sync {
    /// What is found in a unit.
    type Found: Send;

    /// The work, for a request.
    fn work(&self) -> Work;

    /// Reads a line of results about units with these ranges of the drive: what was found in those from a number on, or why that
    /// is of no use.
    fn read(&self, line: JobLine, ranges: &[ByteRange]) -> Result<(u64, Results<Self::Found>), NotDone>;
}
