//! System calls that sent packets.

use crate::clock::Nanos;

/// One system call that sent packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendCall {
    /// The number of packets.
    pub(crate) packets: usize,
    /// When it started.
    pub(crate) before: Nanos,
    /// When it returned.
    pub(crate) after: Nanos,
}
