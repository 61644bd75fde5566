//! Partition tables, and surveys of file systems beside the programs that made them.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod ext;
mod fat;
#[allow(dead_code, reason = "shared with other crates")]
#[path = "../../../cheetah/tests/it/support/need.rs"]
mod need;
mod ntfs;
mod partitions;
mod tools;
mod walk;
