//! Drives over nodes in this process, with and without a room, and over other NBD servers.

#![allow(clippy::unwrap_used, reason = "tests")]

mod at_nodes;
mod common;
mod failures;
mod foreign;
mod lifecycle;
mod room;
mod search;
mod search_time;
mod survive;

use std::sync::Arc;

use cheetah_drive::Session;
use cheetah_tls::CredentialSet;

/// What drives are opened with: no key of another session, and no room.
pub fn session() -> Session {
    Session::new(CredentialSet::default(), Arc::default(), common::TIMEOUT)
}
