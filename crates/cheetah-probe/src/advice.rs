//! What a path means for an acquisition.

use serde::{Deserialize, Serialize};

/// What to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Size of the disk it is for.
    pub disk_bytes: u64,
}
