//! The nodes of a drive: finding them, connecting to them, and asking them for their state.

pub(crate) mod allocate;
mod browse;
pub(crate) mod connect;
pub mod content;
pub(crate) mod export;
pub mod find;
pub mod gather;
pub(crate) mod health;
pub mod here;
pub(crate) mod note;
pub(crate) mod open;
pub(crate) mod spec;
pub(crate) mod trouble;
pub(crate) mod wipe;
