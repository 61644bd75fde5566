//! Partition tables, arrays, and surveys of file systems beside the programs that made them.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod arrays;
mod ext;
mod fat;
mod formats;
mod ntfs;
mod partitions;
mod reach;
mod tools;
mod vss;
mod walk;

use cheetah_testing as need;
