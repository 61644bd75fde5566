//! Calls that sent packets.

use crate::clock::Nanos;

/// One system call that sent packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    /// How many.
    pub(super) packets: usize,
    /// When it was begun.
    pub(super) before: Nanos,
    /// When it had returned.
    pub(super) after: Nanos,
}
