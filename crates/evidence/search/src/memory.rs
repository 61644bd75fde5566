//! The memory that patterns take.

/// The memory that what finds words takes at most, in bytes for each byte of their forms.
pub const WORD_MEMORY: usize = 100;

/// The patterns of an order take more than its limits allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the patterns are too much for one search")]
pub struct TooMuch;
