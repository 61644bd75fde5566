//! Making, enlarging and destroying drives.

pub mod create;
pub mod destroy;
mod usage;
