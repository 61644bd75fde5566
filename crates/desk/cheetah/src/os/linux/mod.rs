//! Linux.

mod process;

use cheetah_error::Result;

use super::Feature;
pub use process::{drop_caches, forget_cached, keep_from_swap, lock_own_memory, locked_bytes_max, may_swap};

/// What lets this user lock more memory.
pub const LOCK_MORE: &str = "run as root, grant CAP_IPC_LOCK, or raise the limit (ulimit -l unlimited, or LimitMEMLOCK=infinity in \
                             a systemd unit)";

/// What lets a node lock all that it lends.
pub const LOCK_LENT: &str =
    "start the node by its unit (systemctl start cheetah-node) or as root, or raise the limit (ulimit -l unlimited)";

/// Fails for what this system lacks: nothing.
///
/// # Errors
///
/// None.
pub fn offers(_feature: Feature) -> Result<()> {
    Ok(())
}
