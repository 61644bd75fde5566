//! The epochs of a sealed drive: each time that it was opened for writing.

/// A writer's epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// Its number, from 1.
    pub number: u32,
    /// Random bytes that make its key differ from that of any other epoch, even of one with the same number.
    pub random: [u8; 32],
    /// Whether its writer has not closed the drive. Units of it may be newer than the record.
    pub open: bool,
}
