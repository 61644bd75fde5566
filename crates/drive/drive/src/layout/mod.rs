//! Layouts: how much of a drive each node holds.

pub(crate) mod balance;
pub(crate) mod kind;
pub(crate) mod lost;
pub mod plan;
