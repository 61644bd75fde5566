//! Layouts: how much of a drive each node holds, and how the nodes' devices make up the drive.

pub(crate) mod balance;
pub(crate) mod kind;
pub(crate) mod lost;
pub mod plan;
pub(crate) mod stack;
