//! Making, enlarging, moving and destroying drives.

pub mod create;
pub mod destroy;
pub mod drain;
pub mod rebalance;
pub mod usage;
