//! Acquisition, and the agent that serves a source.

#![allow(clippy::print_stderr, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod acquire;
mod agent;
mod common;
mod interrupted;
