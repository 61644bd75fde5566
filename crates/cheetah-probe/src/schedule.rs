//! When packets are due: patterns as people name them, and the absolute times they make.

/// Most packets one train may have.
pub const PACKETS_MAX: usize = 10_000;
