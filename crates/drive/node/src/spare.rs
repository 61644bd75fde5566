//! How much RAM this machine can lend.

use cheetah_device::Size;
use cheetah_device::machine_memory::{MachineMemory, machine_memory};

/// The reserve of a machine that other programs use too: 5 % of its memory, at least 256 MiB.
const SHARED: NotLent = NotLent { bytes_min: 256 << 20, bytes_fixed: 0, share: 20 };
/// The reserve of a machine that runs only a node, for the kernel, its network buffers and the node's own requests.
const DEDICATED: NotLent = NotLent { bytes_min: 0, bytes_fixed: 48 << 20, share: 64 };

/// The memory that a machine does not lend.
struct NotLent {
    bytes_min: u64,
    bytes_fixed: u64,
    /// The divisor of the memory's size that gives the reserve.
    share: u64,
}

/// Bytes that a machine with this memory can lend: the available bytes less 5 % of the size or 256 MiB, whichever is more. A machine that is
/// `dedicated` to its node keeps less: 48 MiB and a 64th of the size.
pub fn spare_of(memory: MachineMemory, dedicated: bool) -> u64 {
    let NotLent { bytes_min, bytes_fixed, share } = if dedicated { DEDICATED } else { SHARED };
    memory.available_bytes.saturating_sub(bytes_min.max(bytes_fixed + memory.total_bytes / share))
}

/// Bytes this machine can lend now, by `/proc/meminfo` and its control groups. `None` if they are not readable. See
/// [`spare_of`] for `dedicated`.
pub fn spare_bytes(dedicated: bool) -> Option<u64> {
    machine_memory().map(|memory| spare_of(memory, dedicated))
}

/// More memory than a machine can lend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this machine cannot lend {}: it could spare {} now", Size(*bytes), Size(*spare_bytes))]
pub struct TooMuch {
    /// The bytes that it was to lend.
    pub bytes: u64,
    /// The bytes that it could lend, in whole MiB, so that the user can type the number.
    pub spare_bytes: u64,
}

/// Checks that a machine that other programs use too can lend `bytes`.
///
/// # Errors
///
/// If it cannot.
pub fn check(bytes: u64) -> Result<(), TooMuch> {
    match spare_bytes(false) {
        Some(spare) if bytes > spare => Err(TooMuch { bytes, spare_bytes: spare >> 20 << 20 }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_machine_keeps_a_twentieth_of_its_memory() {
        let room = MachineMemory { total_bytes: 16 * GIB, available_bytes: 12 * GIB };
        assert_eq!(spare_of(room, false), 12 * GIB - 16 * GIB / 20);
    }

    #[test]
    fn a_small_machine_keeps_the_minimum() {
        assert_eq!(spare_of(MachineMemory { total_bytes: GIB, available_bytes: GIB / 8 }, false), 0);
    }

    #[test]
    fn a_dedicated_machine_of_4_gib_lends_nine_tenths() {
        // Available after the start of the boot image, measured in a guest.
        let room = MachineMemory { total_bytes: 4_110_483_456, available_bytes: 3810 << 20 };
        assert!(spare_of(room, true) >= 4 * GIB * 9 / 10);
        assert!(spare_of(room, true) + (100 << 20) < room.available_bytes);
    }

    #[test]
    fn more_than_the_machine_has_is_refused() {
        let refused = check(1 << 60).unwrap_err();
        assert!(refused.bytes == 1 << 60 && refused.spare_bytes < 1 << 60, "{refused}");
    }
}
