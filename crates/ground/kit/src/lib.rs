//! Small functions that every crate may need, and that know nothing of any of them.

#![forbid(unsafe_code)]

pub mod clock;
pub mod number;
pub mod percent;
pub mod random;
mod rename;

pub use rename::{rename_new, rename_new_at};
