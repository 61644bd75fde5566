//! System calls that sent packets.

use crate::clock::Nanos;

/// One system call that sent packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SendCall {
    /// The number of packets.
    pub(super) packets: usize,
    /// When it started.
    pub(super) before: Nanos,
    /// When it returned.
    pub(super) after: Nanos,
}
