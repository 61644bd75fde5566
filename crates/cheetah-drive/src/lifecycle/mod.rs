//! Making, enlarging and destroying drives.

pub mod create;
pub mod destroy;
pub mod drain;
pub mod usage;
