//! Making, enlarging and destroying drives.

pub mod create;
pub mod destroy;
pub mod usage;
