//! Work that nodes do, as an order and as results.

use cheetah_control::jobs::{JobLine, Work};
use cheetah_device::ByteRange;

use super::not_done::NotDone;

/// Work that nodes do on units.
pub(crate) trait NodeWork: Send + Sync {
    /// What is found in a unit.
    type Found: Send;

    /// The work, for a request.
    fn work(&self) -> Work;

    /// Reads a line of results about units with these ranges of the drive: what was found in those from a number on.
    fn read(&self, line: JobLine, ranges: &[ByteRange]) -> Result<(u64, Vec<Self::Found>), NotDone>;
}
