//! Drives over nodes of a room, used by its examiner.

#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "shared with the tests without a room")]
#[path = "../it/common/mod.rs"]
mod common;
mod lent_keys;

use cheetah_drive::Session;

/// What drives are opened with: the examiner's credential, and the keys of all drives that were made.
pub fn session() -> Session {
    lent_keys::SESSION.clone()
}
