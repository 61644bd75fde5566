//! Drives over nodes of a room, used by its examiner.

#[allow(clippy::duplicate_mod, dead_code, reason = "what tests without a room use, with the session of this one")]
#[path = "../common/mod.rs"]
mod common;
mod lent_keys;

use cheetah_drive::Session;

/// What drives are opened with: the examiner's credential, and the keys of all drives that were made.
pub fn session() -> Session {
    lent_keys::SESSION.clone()
}
