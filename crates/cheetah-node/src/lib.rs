//! A node: RAM lent to drives, served over NBD, and the HTTP control API.

pub mod control;

pub use control::api;
