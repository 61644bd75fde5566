//! The memory that preparing to find words takes: what it may be at most is counted before it is taken.
//!
//! The bytes are derived from what the engine keeps, with what growing lists have twice. An order that takes more is refused, so that a
//! node stays within its limit for any words that a client sends.

use cheetah_error::{Error, Result};

/// The memory that blocks of known files take at most, in bytes for each byte of their keys.
pub const BLOCK_MEMORY: usize = 8;

/// The patterns of an order take more than its limits allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the patterns are too much for one search")]
pub struct TooMuch;

/// A list that grows has up to twice its length, and its former place while it is copied.
pub const GROWING: usize = 3;

/// The memory that is left.
pub struct Memory {
    bytes_max: usize,
    left_bytes: usize,
}

impl Memory {
    /// Up to this much.
    pub const fn of(bytes_max: usize) -> Self {
        Self { bytes_max, left_bytes: bytes_max }
    }

    /// Counts memory that will be taken.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if there is not as much.
    pub fn take(&mut self, bytes: usize) -> Result<()> {
        self.left_bytes = self.left_bytes.checked_sub(bytes).ok_or_else(|| {
            Error::misuse(format!(
                "the words take more than the {} MiB of memory that are left for them: divide them",
                self.bytes_max >> 20
            ))
            .because(TooMuch)
        })?;
        Ok(())
    }

    /// What was counted.
    pub const fn taken_bytes(&self) -> usize {
        self.bytes_max - self.left_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_up_to_its_limit_and_a_refusal_takes_none() {
        let mut memory = Memory::of(10);
        memory.take(4).unwrap();
        memory.take(7).unwrap_err();
        memory.take(6).unwrap();
        assert_eq!((memory.taken_bytes(), memory.take(1).is_err()), (10, true));
    }
}
