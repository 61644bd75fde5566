//! A range of bytes.

/// The bytes from `start` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
}

impl Extent {
    /// Returns the number of bytes.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns whether all of another extent is in this one.
    pub fn covers(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}
