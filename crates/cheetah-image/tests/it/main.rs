//! Images and sources, made by the programs that usually make them.

#![allow(clippy::print_stderr, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod block;
mod e01_write;
mod ewf;
#[allow(dead_code, reason = "shared with other crates")]
#[path = "../../../cheetah/tests/it/support/need.rs"]
mod need;
mod sources;
