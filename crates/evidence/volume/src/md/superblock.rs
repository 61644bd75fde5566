//! What the superblock of a member says.

use cheetah_device::ByteRange;

use super::refused::Obstacle;

/// The superblock of a member, whatever its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    /// The identifier of the array, as `mdadm` prints it.
    pub id: String,
    /// The name of the array.
    pub name: String,
    /// Counts the changes of the array: the largest is the newest.
    pub events: u64,
    /// What all members of an array say of it.
    pub shape: Shape,
    /// The role of each device of the array, by its number.
    pub roles: Vec<Role>,
    /// Why arrays with this superblock are not opened.
    pub obstacle: Option<Obstacle>,
    /// Whether the redundancy is up to date everywhere.
    pub is_clean: bool,
    /// The number of this device in the array.
    pub number: u32,
    /// Whether this device did not have all of its content yet.
    pub is_partial: bool,
    /// Its part that holds the data of the array.
    pub data: ByteRange,
    /// Its list of bad blocks, if it has one.
    pub bad_blocks: Option<BadBlocks>,
}

/// The shape of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// The level: -1 is linear.
    pub level: i32,
    /// The layout; `None` if it is not recorded.
    pub layout: Option<u32>,
    pub chunk_bytes: u64,
    /// The number of members.
    pub members: u32,
    /// The part of each member's data that is used, in levels with redundancy.
    pub member_bytes: u64,
}

/// What a device does in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It is the member with this number, from 0.
    Member(u32),
    Spare,
    /// It failed, or was removed.
    Gone,
}

/// Where a list of bad blocks lies in a member, and the unit in which it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadBlocks {
    pub place: ByteRange,
    pub unit_bits: u8,
}

impl Superblock {
    /// What the device with this number does in the array.
    pub fn role_of(&self, number: u32) -> Role {
        let role = usize::try_from(number).ok().and_then(|number| self.roles.get(number));
        role.copied().unwrap_or(Role::Gone)
    }

    /// Whether two superblocks of one array, of the same time, contradict each other.
    pub fn contradicts(&self, other: &Self) -> bool {
        self.shape != other.shape || !self.in_use().eq(other.in_use())
    }

    /// The members by the numbers of devices.
    fn in_use(&self) -> impl Iterator<Item = (usize, u32)> {
        self.roles.iter().enumerate().filter_map(|(number, role)| match role {
            Role::Member(member) => Some((number, *member)),
            Role::Spare | Role::Gone => None,
        })
    }
}

/// The sum of numbers of 32 bits, as both versions have it as their checksum: what does not fit is added again.
pub(super) fn folded(sum: u64) -> u32 {
    // Truncated on purpose.
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

/// A number of sectors, in bytes.
pub(super) fn in_bytes(sectors: u64) -> Option<u64> {
    sectors.checked_mul(super::SECTOR_BYTES)
}

/// An identifier of 16 bytes, as `mdadm` prints it.
pub(super) fn id_text(bytes: &[u8]) -> String {
    let groups = bytes.chunks(4).map(|four| four.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    groups.collect::<Vec<_>>().join(":")
}
