//! Which of the superblocks that were found are those of members in use.

use std::collections::BTreeMap;

use cheetah_device::ByteRange;

use super::level::MEMBERS_MAX;
use super::refused::{LeftOut, Unfit};
use super::superblock::{Role, Superblock};

/// A superblock in the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The place of its member.
    pub place: ByteRange,
    /// Where it lies in the device, in bytes.
    pub offset: u64,
    pub superblock: Superblock,
    /// The ranges of its data that it does not have.
    pub bad: Vec<ByteRange>,
}

/// A member whose content is that of the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// The data, in the device.
    pub data: ByteRange,
    /// The ranges of the data that it does not have.
    pub bad: Vec<ByteRange>,
}

/// The members of an array.
#[derive(Debug, Clone, Default)]
pub(super) struct Members {
    /// Each member by its number, if it is there.
    pub present: Vec<Option<Member>>,
    /// The others that were found.
    pub left_out: Vec<LeftOut>,
}

impl Members {
    /// Selects the members among superblocks of one array, of which the newest says which they are.
    pub fn select(newest: &Superblock, found: &[&Found]) -> Self {
        let count = usize::try_from(newest.shape.members).map_or(MEMBERS_MAX, |count| count.min(MEMBERS_MAX));
        let mut members = Self { present: vec![None; count], left_out: Vec::new() };
        // Sorted, so that a report says the same each time.
        let mut by_number = BTreeMap::<_, Vec<_>>::new();
        for one in found {
            match usable(newest, one) {
                Ok(Some(number)) => by_number.entry(number).or_default().push(*one),
                Ok(None) => {}
                Err(why) => members.leave_out(one, why),
            }
        }
        for (number, several) in by_number {
            match (&several[..], members.present.get_mut(number)) {
                ([one], Some(place)) => *place = Some(member(one)),
                (_, None) => several.iter().for_each(|one| members.leave_out(one, Unfit::NoNumber)),
                // One of them may be an old copy.
                _ => several.iter().for_each(|one| members.leave_out(one, Unfit::SameNumber)),
            }
        }
        members
    }

    /// The numbers of those that are not here.
    pub fn missing(&self) -> Vec<usize> {
        (0..self.present.len()).filter(|number| self.present[*number].is_none()).collect()
    }

    fn leave_out(&mut self, one: &Found, why: Unfit) {
        let number = match one.superblock.role_of(one.superblock.number) {
            Role::Member(number) => Some(number),
            Role::Spare | Role::Gone => None,
        };
        self.left_out.push(LeftOut { place: one.place, number, why });
    }
}

/// The number that a device has as a member; `None` if it is a spare.
fn usable(newest: &Superblock, one: &Found) -> Result<Option<usize>, Unfit> {
    let Found { superblock, place, .. } = one;
    // Devices that were removed are spares, too, as the newest superblock has it.
    let (role, was) = (newest.role_of(superblock.number), superblock.role_of(superblock.number));
    if role == Role::Spare && was == Role::Spare {
        return Ok(None);
    }
    // A crash may leave them one apart: superblocks are written before the data that they allow.
    if superblock.events.saturating_add(1) < newest.events {
        return Err(Unfit::Behind { events: superblock.events, newest: newest.events });
    }
    let Role::Member(number) = role else { return Err(Unfit::Gone) };
    match () {
        // One that gives itself another role has not taken up the newest yet: it was a spare, and lacks the content.
        () if superblock.is_partial || was != role => Err(Unfit::Partial),
        () if superblock.shape != newest.shape => Err(Unfit::OtherShape),
        () if used(superblock).len > superblock.data.len => Err(Unfit::Short),
        () if !used(superblock).fits(place.len) => Err(Unfit::Beyond),
        () => Ok(Some(usize::try_from(number).unwrap_or(usize::MAX))),
    }
}

/// The part of a member that the array uses. With redundancy, it is the same length of each.
fn used(superblock: &Superblock) -> ByteRange {
    match superblock.shape.level > 0 {
        true => ByteRange::new(superblock.data.offset, superblock.shape.member_bytes),
        false => superblock.data,
    }
}

fn member(found: &Found) -> Member {
    Member { data: used(&found.superblock).shifted(found.place.offset), bad: found.bad.clone() }
}
