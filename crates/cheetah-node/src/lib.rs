//! A node: RAM lent to drives, served over NBD, and the HTTP control API.

mod arena;
pub mod control;
mod digest;
pub mod export;
mod faulting;
mod pages;
pub mod store;
mod table;

pub use control::api;
