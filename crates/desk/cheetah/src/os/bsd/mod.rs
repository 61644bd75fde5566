//! FreeBSD and macOS: they have neither FUSE of their own nor block devices of programs. Nothing here has been run yet: it compiles and
//! links.

mod process;

use cheetah_error::next::Attach;
use cheetah_error::{Error, Kind, Result};

use super::Feature;
pub use process::{drop_caches, forget_cached, keep_from_swap, lock_own_memory, locked_bytes_max, may_swap};

/// The name of the system.
const NAME: &str = if cfg!(target_os = "macos") { "macOS" } else { "FreeBSD" };

/// What lets this user lock more memory.
pub const LOCK_MORE: &str = if cfg!(target_os = "macos") {
    "run as root, raise vm.user_wire_limit, or lend less"
} else {
    "run as root, raise the limits (limits -l unlimited, sysctl vm.max_user_wired), or lend less"
};

/// What lets a node lock all that it lends.
pub const LOCK_LENT: &str = LOCK_MORE;

/// Fails for what this system lacks.
///
/// # Errors
///
/// With what the system has not, and what the user can do instead.
pub fn offers(feature: Feature) -> Result<()> {
    match feature {
        Feature::UnixSockets => Ok(()),
        Feature::Mounts | Feature::BlockDevices | Feature::Python | Feature::Demo => {
            Err(Error::new(Kind::Unsupported, format!("{feature}, which Cheetah has not for {NAME}"))
                .next(Attach::ExportOrGoThere))
        }
    }
}
