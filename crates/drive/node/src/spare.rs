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

/// The most that one search at a node takes, in bytes: its words, and its expressions in one thread. The limits of a search are within it.
pub const SEARCH_BYTES_MAX: u64 = 400 << 20;
/// Of the memory of searches, what the results of all jobs take until their clients have them, in bytes: this part, but no more than this.
pub(crate) const OUTPUT_BYTES_MAX: u64 = 8 << 20;
const OUTPUT_SHARE: u64 = 16;
/// A dedicated machine keeps memory for a search as long as this share of its memory, 1 - 1/20, is still lent: about nine tenths of
/// what is built in, of which the kernel takes some before it counts.
const DEDICATED_LENT_SHARE: u64 = 20;
/// A machine that is followed keeps at most this share of its memory for searches.
const FOLLOWED_SEARCH_SHARE: u64 = 20;
/// The memory that searches leave available on a machine that other programs use too.
const SEARCHED_KEPT_BYTES: u64 = 64 << 20;
/// The share of a dedicated machine's memory that its network buffers may take: the third number of `tcp_mem` on the boot image.
const NETWORK_SHARE: u64 = 128;

/// What a machine is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Other programs use it, too.
    Shared,
    /// It runs only a node.
    Dedicated,
    /// It runs only a node, which also searches.
    DedicatedSearching,
}

impl Use {
    /// Of a machine that is `dedicated` to its node or not, whose node searches or not.
    pub const fn of(dedicated: bool, searches: bool) -> Self {
        match (dedicated, searches) {
            (false, _) => Self::Shared,
            (true, false) => Self::Dedicated,
            (true, true) => Self::DedicatedSearching,
        }
    }
}

/// Bytes that a machine with this memory can lend: the available bytes less 5 % of the size or 256 MiB, whichever is more. A machine that is
/// dedicated to its node keeps less: 48 MiB and a 64th of the size. If it searches, it also keeps [`SEARCH_BYTES_MAX`], or as much of
/// that as lies beyond 19 twentieths of its size, so that a small machine lends as much as one that does not search.
pub fn spare_of(memory: MachineMemory, machine: Use) -> u64 {
    let NotLent { bytes_min, bytes_fixed, share } = if machine == Use::Shared { SHARED } else { DEDICATED };
    let spare = memory.available_bytes.saturating_sub(bytes_min.max(bytes_fixed + memory.total_bytes / share));
    let is_lent = memory.total_bytes - memory.total_bytes / DEDICATED_LENT_SHARE;
    match machine {
        Use::Shared | Use::Dedicated => spare,
        Use::DedicatedSearching => spare - SEARCH_BYTES_MAX.min(spare.saturating_sub(is_lent)),
    }
}

/// Bytes this machine can lend now, by `/proc/meminfo` and its control groups. `None` if they are not readable. See [`spare_of`].
pub fn spare_bytes(machine: Use) -> Option<u64> {
    machine_memory().map(|memory| spare_of(memory, machine))
}

/// What the searches of a node may take of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SearchRoom {
    /// All searches together, in bytes.
    pub bytes_max: u64,
    /// The bytes that they leave available.
    pub kept_bytes: u64,
}

impl SearchRoom {
    /// Of a machine that has this memory before it lends `lent_bytes`: what is left, less what it needs itself.
    pub fn beside(memory: MachineMemory, lent_bytes: u64, machine: Use) -> Self {
        let kept_bytes = match machine {
            Use::Shared => SEARCHED_KEPT_BYTES,
            Use::Dedicated | Use::DedicatedSearching => DEDICATED.bytes_fixed + memory.total_bytes / NETWORK_SHARE,
        };
        let taken_bytes = lent_bytes.saturating_add(kept_bytes);
        Self { bytes_max: memory.available_bytes.saturating_sub(taken_bytes), kept_bytes }
    }

    /// Of a machine that is followed and keeps this much available for others: memory that it does not lend, either.
    pub fn followed(total_bytes: u64, keep_free_bytes: u64) -> Self {
        Self { bytes_max: SEARCH_BYTES_MAX.min(total_bytes / FOLLOWED_SEARCH_SHARE), kept_bytes: keep_free_bytes }
    }

    /// What searches themselves may take, and the bytes of their results.
    pub fn divided(self) -> (Self, u64) {
        let output_bytes = OUTPUT_BYTES_MAX.min(self.bytes_max / OUTPUT_SHARE);
        (Self { bytes_max: self.bytes_max - output_bytes, ..self }, output_bytes)
    }
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
    match spare_bytes(Use::Shared) {
        Some(spare) if bytes > spare => Err(TooMuch { bytes, spare_bytes: spare >> 20 << 20 }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// A machine with the boot image and this much memory built in. The kernel takes about a 23rd before it counts, and 110 MiB are not
    /// available; both were measured in a guest with 4 GiB.
    fn booted(built_in_bytes: u64) -> MachineMemory {
        let total_bytes = built_in_bytes - built_in_bytes / 23;
        MachineMemory { total_bytes, available_bytes: total_bytes - 110 * MIB }
    }

    #[test]
    fn a_machine_keeps_a_twentieth_of_its_memory() {
        let room = MachineMemory { total_bytes: 16 * GIB, available_bytes: 12 * GIB };
        assert_eq!(spare_of(room, Use::Shared), 12 * GIB - 16 * GIB / 20);
    }

    #[test]
    fn a_small_machine_keeps_the_minimum() {
        assert_eq!(spare_of(MachineMemory { total_bytes: GIB, available_bytes: GIB / 8 }, Use::Shared), 0);
    }

    #[test]
    fn a_dedicated_machine_of_4_gib_lends_nine_tenths_whether_it_searches_or_not() {
        // Available after the start of the boot image, measured in a guest.
        let room = MachineMemory { total_bytes: 4_110_483_456, available_bytes: 3810 << 20 };
        for machine in [Use::Dedicated, Use::DedicatedSearching] {
            let lent = spare_of(room, machine);
            assert!(lent >= 4 * GIB * 9 / 10);
            assert!(lent + (100 << 20) < room.available_bytes);
            // Some thousands of words.
            assert!(SearchRoom::beside(room, lent, machine).bytes_max >= 24 * MIB);
        }
    }

    #[test]
    fn a_small_machine_lends_as_much_if_it_searches_and_a_large_one_keeps_the_memory_of_a_search() {
        for built_in in [512 * MIB, GIB, 2 * GIB, 4 * GIB] {
            let lent = |machine| spare_of(booted(built_in), machine);
            assert_eq!(lent(Use::DedicatedSearching), lent(Use::Dedicated), "{built_in}");
            assert!(lent(Use::Dedicated) > built_in / 2, "{built_in}");
        }
        for built_in in [32 * GIB, 256 * GIB] {
            let memory = booted(built_in);
            let lent = spare_of(memory, Use::DedicatedSearching);
            assert_eq!(lent, spare_of(memory, Use::Dedicated) - SEARCH_BYTES_MAX, "{built_in}");
            assert!(SearchRoom::beside(memory, lent, Use::DedicatedSearching).bytes_max >= SEARCH_BYTES_MAX);
        }
        for built_in in [8 * GIB, 16 * GIB] {
            let memory = booted(built_in);
            let kept = spare_of(memory, Use::Dedicated) - spare_of(memory, Use::DedicatedSearching);
            assert!((1..=SEARCH_BYTES_MAX).contains(&kept), "{built_in}: {kept}");
        }
    }

    #[test]
    fn searches_leave_the_machine_what_it_needs() {
        let memory = MachineMemory { total_bytes: GIB, available_bytes: 900 * MIB };
        let room = |lent_mib, machine| SearchRoom::beside(memory, lent_mib * MIB, machine);
        assert_eq!(room(836, Use::Shared), SearchRoom { bytes_max: 0, kept_bytes: 64 * MIB });
        assert_eq!(room(500, Use::Shared).bytes_max, 336 * MIB);
        assert_eq!(room(800, Use::Dedicated), SearchRoom { bytes_max: 44 * MIB, kept_bytes: 56 * MIB });
        assert_eq!(SearchRoom::beside(memory, u64::MAX, Use::Shared).bytes_max, 0);
    }

    #[test]
    fn a_machine_that_is_followed_keeps_at_most_a_twentieth_for_searches() {
        let kept = |total| SearchRoom::followed(total, GIB).bytes_max;
        assert_eq!([GIB, 4 * GIB, 64 * GIB].map(kept), [GIB / 20, 4 * GIB / 20, SEARCH_BYTES_MAX]);
        assert_eq!(SearchRoom::followed(GIB, 192 * MIB).kept_bytes, 192 * MIB);
    }

    #[test]
    fn results_take_a_small_part_of_the_memory_of_searches() {
        let divided = |mib: u64| {
            let (room, output_bytes) = SearchRoom { bytes_max: mib * MIB, kept_bytes: 0 }.divided();
            (room.bytes_max, output_bytes)
        };
        assert_eq!(divided(0), (0, 0));
        assert_eq!(divided(16), (15 * MIB, MIB));
        assert_eq!(divided(400), (392 * MIB, 8 * MIB));
    }

    #[test]
    fn more_than_the_machine_has_is_refused() {
        let refused = check(1 << 60).unwrap_err();
        assert!(refused.bytes == 1 << 60 && refused.spare_bytes < 1 << 60, "{refused}");
    }
}
