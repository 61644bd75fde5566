//! The answers of `acquire`, besides the events of a running acquisition.

use std::net::SocketAddr;

use cheetah_acquire::acquire::Report;
use serde::Serialize;

/// The events of `acquire` around the acquisition.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Acquire<'a> {
    /// With `--listen`: the command waits for an agent to connect.
    Waiting {
        /// The address at which it waits.
        listen: SocketAddr,
    },
    /// The acquisition is finished.
    Done {
        /// The report.
        report: &'a Report,
    },
}

/// The answer of `acquire --discard` and `save --discard`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Discard {
    /// What was written or uploaded is removed.
    Discarded,
}
