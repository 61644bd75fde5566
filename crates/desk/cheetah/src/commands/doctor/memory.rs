//! The memory that can be lent, and locked.

use cheetah_device::Size;
use cheetah_node::spare;

use crate::answers::doctor::{Check, State};
use crate::os;

/// What a node needs to lend memory that is never swapped.
pub struct Memory {
    /// The bytes that this machine can lend now; `None` if it does not say.
    spare_bytes: Option<u64>,
    /// The bytes that this user can lock; `None` without a limit.
    locked_bytes_max: Option<u64>,
    /// Whether there is a swap device or file, as far as the system tells.
    swaps: bool,
}

impl Memory {
    pub fn of_this_machine() -> Self {
        Self {
            spare_bytes: spare::spare_bytes(spare::Use::Shared),
            locked_bytes_max: os::locked_bytes_max(),
            swaps: os::may_swap(),
        }
    }
}

/// Whether the memory that this machine can lend can be locked.
pub fn locking(found: &Memory) -> Check {
    let check = |finding: String| Check::works("memory", &["node"], finding);
    let Some(spare_bytes) = found.spare_bytes else {
        return check("this system does not say how much memory is free".into())
            .but(State::Unknown, "give the amount to lend, in bytes: cheetah node --memory SIZE");
    };
    let lent = Size(spare_bytes >> 20 << 20);
    let Some(limit) = found.locked_bytes_max.filter(|limit| *limit < spare_bytes) else {
        return check(format!("{lent} can be lent, and locked"));
    };
    let danger = match found.swaps {
        true => "evidence may reach the swap device",
        false => "nothing is swapped now, as there is no swap device",
    };
    check(format!("{lent} can be lent, but this user can lock only {}: {danger}", Size(limit)))
        .but(State::Fails, os::LOCK_LENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn memory_can_be_locked_up_to_the_limit() {
        let found = |spare_bytes, locked_bytes_max, swaps| locking(&Memory { spare_bytes, locked_bytes_max, swaps });
        assert_eq!(found(Some(8 * GIB), None, true).finding, "8GiB can be lent, and locked");
        assert_eq!(found(Some(8 * GIB), Some(16 * GIB), true).state, State::Works);
        let fails = found(Some(8 * GIB), Some(8 << 20), true);
        assert_eq!(fails.state, State::Fails);
        assert_eq!(
            fails.finding,
            "8GiB can be lent, but this user can lock only 8MiB: evidence may reach the swap device"
        );
        assert!(found(Some(8 * GIB), Some(8 << 20), false).finding.contains("no swap device"));
        assert_eq!(found(None, None, false).state, State::Unknown);
    }
}
