//! Drives over nodes in this process and over other NBD servers.

#![allow(clippy::unwrap_used, reason = "tests")]

mod at_nodes;
mod common;
mod failures;
mod foreign;
mod lifecycle;
mod search;
mod survive;
