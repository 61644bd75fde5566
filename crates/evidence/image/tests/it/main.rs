//! Images and sources, made by the programs that usually make them.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod bad_disk;
mod block;
mod e01_write;
mod ewf;
mod sources;

use cheetah_testing as need;
