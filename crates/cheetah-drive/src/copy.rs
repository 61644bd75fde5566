//! Moving bytes from device to device.

/// How far a copy, a verification or a save has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes dealt with.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}
