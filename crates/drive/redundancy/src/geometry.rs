//! Where data and redundancy lie on the members of an array. Does no I/O.
//!
//! Data is dealt to the `n` members in units, as in RAID 0, so a healthy read is a stripe read: one range a member.
//! Consecutive units form *groups* of `k`; they lie on `k` consecutive members, and the group's `m` redundancy units on
//! the next `m`:
//!
//! ```text
//! parity over 3 members (k = 2, m = 1)          mirror over 3 members, 2 copies (k = 1, m = 1)
//!
//!  member 0   member 1   member 2                member 0   member 1   member 2
//!    D0         D1         D2                      D0         D1         D2       data section
//!    D3         D4         D5
//!  P(2,3)     P(4,5)     P(0,1)                    D2         D0         D1       redundancy section
//!  digests    digests    digests                                                  digest section
//! ```
//!
//! After `n` groups, a *cycle*, every member has `k` data units and `m` redundancy units, and the pattern repeats. A
//! member holds three sections, one after the other: data, redundancy, and where `k` > 1 the digests of the data.
//! Beside each redundancy unit, its member holds a *digest cell*: a digest of each page of the group's data. The cell
//! is stored apart from the data, so it shows whether a reconstructed page is the page that was written.

use cheetah_device::placement::{UNIT_MAX, UNIT_MIN};
use cheetah_device::{ByteRange, Error, Size};

/// The bytes that one digest covers.
pub const PAGE_BYTES: u64 = 4096;
/// Bytes of a digest.
pub const DIGEST_BYTES: u64 = 8;
/// The most members of an array, limited by GF(2^8) with two parities.
pub const MEMBERS_MAX: usize = 255;
/// The most copies of a mirror.
pub const COPIES_MAX: usize = 4;

/// The kind of redundancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Redundancy {
    /// Every unit is held by `copies` members: 2 to [`COPIES_MAX`].
    Mirror {
        /// Copies of each unit.
        copies: usize,
    },
    /// `parities` units of parity, 1 (XOR) or 2 (P+Q, as RAID 6), for the data of all other members.
    Parity {
        /// Parity units of a group.
        parities: usize,
    },
}

impl Redundancy {
    /// The number of members that may be lost without losing a byte.
    pub const fn losses_max(self) -> usize {
        match self {
            Self::Mirror { copies } => copies.saturating_sub(1),
            Self::Parity { parities } => parities,
        }
    }

    /// The fewest members that can hold it.
    pub const fn members_min(self) -> usize {
        self.losses_max() + 1
    }

    /// Data units of a group over `members` members.
    const fn data_units(self, members: usize) -> usize {
        match self {
            Self::Mirror { .. } => 1,
            Self::Parity { parities } => members.saturating_sub(parities),
        }
    }

    /// Fails, with the reason, if the numbers are out of range.
    pub fn check(self) -> Result<(), BadGeometry> {
        match self {
            Self::Mirror { copies } if !(2..=COPIES_MAX).contains(&copies) => Err(BadGeometry::Copies(copies)),
            Self::Parity { parities } if !(1..=2).contains(&parities) => Err(BadGeometry::Parities(parities)),
            _ => Ok(()),
        }
    }
}

/// Why numbers are those of no array, or of no set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadGeometry {
    /// A mirror of this number of copies.
    #[error("a mirror has 2 to {COPIES_MAX} copies, not {0}")]
    Copies(usize),
    /// A parity layout of this number of parities.
    #[error("a parity layout has 1 or 2 parities, not {0}")]
    Parities(usize),
    /// The unit, in bytes, is not a power of two from 4 KiB to 4 MiB.
    #[error("a unit of {} cannot be used: take a power of two from 4KiB to 4MiB", Size(*.0))]
    Unit(u64),
    /// Too few or too many members.
    #[error("this redundancy needs {least} to {MEMBERS_MAX} members, not {given}")]
    Members {
        /// The fewest that the redundancy needs.
        least: usize,
        /// How many there are.
        given: usize,
    },
    /// An array without a cycle, or of more than 2^60 bytes.
    #[error("an array has at least one cycle, and at most 1 EiB")]
    Cycles,
    /// The members of a set are larger than 2^60 bytes together.
    #[error("the members are larger than 1 EiB together")]
    TooLarge,
    /// Too few members of a set hold anything.
    #[error("fewer than {least} members are large enough for units of {}", Size(*.unit))]
    TooSmall {
        /// The fewest that the redundancy needs.
        least: usize,
        /// The unit in bytes.
        unit: u64,
    },
}

impl From<BadGeometry> for Error {
    fn from(why: BadGeometry) -> Self {
        Self::Invalid(why.to_string().into())
    }
}

/// The arithmetic of an array of equal members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayGeometry {
    redundancy: Redundancy,
    members: usize,
    unit: u64,
    cycles: u64,
    /// For group `g` of a cycle and redundancy unit `i`, at `g * m + i`: the index of that unit among the `m`
    /// redundancy units of the cycle on its member.
    places: Vec<u8>,
}

/// A run of bytes of one data unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitSpan {
    /// The group.
    pub group: u64,
    /// The index of the unit in its group, from 0.
    pub index: usize,
    /// The range within the unit.
    pub within: ByteRange,
    /// The offset in the array.
    pub at: u64,
}

impl ArrayGeometry {
    /// An array over `members` members of `cycles` cycles each.
    ///
    /// # Errors
    ///
    /// If the unit is not a power of two from 4 KiB to 4 MiB, the redundancy is out of range, there are too few or too
    /// many members, there is no cycle, or the array would exceed 2^60 bytes.
    pub fn new(redundancy: Redundancy, unit: u64, members: usize, cycles: u64) -> Result<Self, BadGeometry> {
        redundancy.check()?;
        if !unit.is_power_of_two() || !(UNIT_MIN..=UNIT_MAX).contains(&unit) {
            return Err(BadGeometry::Unit(unit));
        }
        if !(redundancy.members_min()..=MEMBERS_MAX).contains(&members) {
            return Err(BadGeometry::Members { least: redundancy.members_min(), given: members });
        }
        let mut geometry = Self { redundancy, members, unit, cycles, places: Vec::new() };
        let whole = u128::from(cycles) * u128::from(geometry.member_cycle_bytes()) * members as u128;
        if cycles == 0 || whole > 1 << 60 {
            return Err(BadGeometry::Cycles);
        }
        geometry.places = geometry.count_places();
        Ok(geometry)
    }

    /// The largest array whose members fit in `member_bytes`; `None` if not even a cycle does.
    pub fn cycles_in(redundancy: Redundancy, unit: u64, members: usize, member_bytes: u64) -> Option<u64> {
        let one = Self::new(redundancy, unit, members, 1).ok()?;
        // The digest section is rounded up to a page.
        let cycles = member_bytes.saturating_sub(one.digest_padding_max()) / one.member_cycle_bytes();
        (cycles > 0).then_some(cycles)
    }

    /// The kind of redundancy.
    pub fn redundancy(&self) -> Redundancy {
        self.redundancy
    }

    /// The number of members, `n`.
    pub fn members(&self) -> usize {
        self.members
    }

    /// The data units of a group, `k`.
    pub fn data_units(&self) -> usize {
        self.redundancy.data_units(self.members)
    }

    /// The redundancy units of a group, `m`.
    pub fn redundancy_units(&self) -> usize {
        self.redundancy.losses_max()
    }

    /// Bytes of a unit.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Whether the members hold digests of the data. A mirror reconstructs nothing and has none.
    pub fn has_digests(&self) -> bool {
        self.data_units() > 1
    }

    /// Bytes of data of a group.
    pub fn group_bytes(&self) -> u64 {
        self.data_units() as u64 * self.unit
    }

    /// Bytes of data of the array.
    pub fn size(&self) -> u64 {
        self.cycles * self.members as u64 * self.group_bytes()
    }

    /// The number of groups.
    pub fn groups(&self) -> u64 {
        self.cycles * self.members as u64
    }

    /// Bytes that each member holds.
    pub fn member_bytes(&self) -> u64 {
        self.digests_start() + (self.cycles * self.digest_cycle_bytes()).next_multiple_of(PAGE_BYTES)
    }

    /// Bytes of the data section of each member.
    pub fn data_section_bytes(&self) -> u64 {
        self.cycles * self.group_bytes()
    }

    fn digests_start(&self) -> u64 {
        self.data_section_bytes() + self.cycles * self.redundancy_units() as u64 * self.unit
    }

    /// The unused part of the last page of digests.
    pub(crate) fn digest_padding(&self) -> ByteRange {
        ByteRange::between(self.digests_start() + self.cycles * self.digest_cycle_bytes(), self.member_bytes())
    }

    fn digest_cell_bytes(&self) -> u64 {
        if self.has_digests() { self.group_bytes() / PAGE_BYTES * DIGEST_BYTES } else { 0 }
    }

    fn digest_cycle_bytes(&self) -> u64 {
        self.redundancy_units() as u64 * self.digest_cell_bytes()
    }

    fn digest_padding_max(&self) -> u64 {
        if self.has_digests() { PAGE_BYTES - 1 } else { 0 }
    }

    /// Bytes that each member holds of a cycle.
    fn member_cycle_bytes(&self) -> u64 {
        self.group_bytes() + self.redundancy_units() as u64 * self.unit + self.digest_cycle_bytes()
    }

    #[allow(clippy::cast_possible_truncation, reason = "below the number of members")]
    fn count_places(&self) -> Vec<u8> {
        let mut held = vec![0u8; self.members];
        let mut places = Vec::with_capacity(self.members * self.redundancy_units());
        for group in 0..self.members as u64 {
            for index in 0..self.redundancy_units() {
                let member = self.redundancy_member(group, index);
                places.push(held[member]);
                held[member] += 1;
            }
        }
        debug_assert!(held.iter().all(|count| usize::from(*count) == self.redundancy_units()));
        places
    }

    /// Splits a range of the array at the ends of units.
    pub fn spans(&self, range: ByteRange) -> impl Iterator<Item = UnitSpan> + use<> {
        let (unit, units) = (self.unit, self.data_units() as u64);
        range.split_at_multiples(unit).map(move |piece| {
            let number = piece.offset / unit;
            UnitSpan {
                group: number / units,
                index: (number % units) as usize,
                within: ByteRange::new(piece.offset % unit, piece.len),
                at: piece.offset,
            }
        })
    }

    /// The groups that a range of the array touches.
    pub fn groups_of(&self, range: ByteRange) -> std::ops::Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        range.offset / self.group_bytes()..range.end().div_ceil(self.group_bytes())
    }

    /// The range of the array that a group holds.
    pub fn group_range(&self, group: u64) -> ByteRange {
        ByteRange::new(group * self.group_bytes(), self.group_bytes())
    }

    /// The member that holds data unit `index` of a group.
    pub fn data_member(&self, group: u64, index: usize) -> usize {
        self.member_of(group * self.data_units() as u64 + index as u64)
    }

    /// The offset of data unit `index` of a group on its member.
    pub fn data_offset(&self, group: u64, index: usize) -> u64 {
        (group * self.data_units() as u64 + index as u64) / self.members as u64 * self.unit
    }

    /// The member that holds redundancy unit `index` of a group, and its digest cell.
    pub fn redundancy_member(&self, group: u64, index: usize) -> usize {
        let units = self.data_units() as u64;
        self.member_of(group * units + units + index as u64)
    }

    /// The offset of redundancy unit `index` of a group on its member.
    pub fn redundancy_offset(&self, group: u64, index: usize) -> u64 {
        self.data_section_bytes() + self.redundancy_number(group, index) * self.unit
    }

    /// The range, on the member of redundancy unit `index`, of the digests of pages `pages` of the group's data units:
    /// for each page the digests of all units.
    pub fn digest_range(&self, group: u64, index: usize, pages: std::ops::Range<u64>) -> ByteRange {
        let row = self.data_units() as u64 * DIGEST_BYTES;
        let cell = self.digests_start() + self.redundancy_number(group, index) * self.digest_cell_bytes();
        ByteRange::between(cell + pages.start * row, cell + pages.end * row)
    }

    /// The ranges of a member that belong to these groups, in order; adjacent ones are one range.
    pub(crate) fn member_ranges(&self, groups: std::ops::Range<u64>, member: usize) -> Vec<ByteRange> {
        let mut ranges = Vec::new();
        for group in groups {
            let data = (0..self.data_units()).filter(|index| self.data_member(group, *index) == member);
            ranges.extend(data.map(|index| ByteRange::new(self.data_offset(group, index), self.unit)));
            for index in (0..self.redundancy_units()).filter(|index| self.redundancy_member(group, *index) == member) {
                ranges.push(ByteRange::new(self.redundancy_offset(group, index), self.unit));
                if self.has_digests() {
                    ranges.push(self.digest_range(group, index, 0..self.unit / PAGE_BYTES));
                }
            }
        }
        ranges.sort();
        let mut joined: Vec<ByteRange> = Vec::new();
        for range in ranges {
            match joined.last_mut().filter(|last| last.end() == range.offset) {
                Some(last) => last.len += range.len,
                None => joined.push(range),
            }
        }
        joined
    }

    fn redundancy_number(&self, group: u64, index: usize) -> u64 {
        let (cycle, within) = (group / self.members as u64, (group % self.members as u64) as usize);
        let place = self.places[within * self.redundancy_units() + index];
        cycle * self.redundancy_units() as u64 + u64::from(place)
    }

    fn member_of(&self, number: u64) -> usize {
        (number % self.members as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use proptest::prelude::*;

    fn redundancy() -> impl Strategy<Value = Redundancy> {
        prop_oneof![
            (2usize..=4).prop_map(|copies| Redundancy::Mirror { copies }),
            (1usize..=2).prop_map(|parities| Redundancy::Parity { parities }),
        ]
    }

    proptest! {
        #[test]
        fn no_two_cells_overlap_and_no_group_has_two_units_on_one_member(
            redundancy in redundancy(), more in 0usize..7, cycles in 1u64..4,
        ) {
            let members = redundancy.members_min() + more;
            let geometry = ArrayGeometry::new(redundancy, 8192, members, cycles).unwrap();
            let (k, m) = (geometry.data_units(), geometry.redundancy_units());
            let mut cells: HashMap<usize, Vec<ByteRange>> = HashMap::new();
            for group in 0..geometry.groups() {
                let mut holders = HashSet::new();
                for index in 0..k {
                    let member = geometry.data_member(group, index);
                    prop_assert!(holders.insert(member));
                    let offset = geometry.data_offset(group, index);
                    cells.entry(member).or_default().push(ByteRange::new(offset, geometry.unit()));
                }
                for index in 0..m {
                    let member = geometry.redundancy_member(group, index);
                    prop_assert!(holders.insert(member));
                    let cells = cells.entry(member).or_default();
                    cells.push(ByteRange::new(geometry.redundancy_offset(group, index), geometry.unit()));
                    if geometry.has_digests() {
                        cells.push(geometry.digest_range(group, index, 0..geometry.unit() / PAGE_BYTES));
                    }
                }
            }
            for cells in cells.values_mut() {
                cells.sort();
                prop_assert!(cells.windows(2).all(|pair| pair[0].end() <= pair[1].offset));
                prop_assert!(cells.last().is_some_and(|last| last.end() <= geometry.member_bytes()));
            }
            prop_assert_eq!(cells.len(), members);
        }

        #[test]
        fn data_lies_where_a_stripe_puts_it(more in 0usize..5, parities in 1usize..=2, unit_number in 0u64..60) {
            let redundancy = Redundancy::Parity { parities };
            let members = redundancy.members_min() + more;
            let geometry = ArrayGeometry::new(redundancy, 4096, members, 20).unwrap();
            let unit_number = unit_number % (geometry.size() / 4096);
            let span = geometry.spans(ByteRange::new(unit_number * 4096 + 5, 10)).next().unwrap();
            prop_assert_eq!(geometry.data_member(span.group, span.index) as u64, unit_number % members as u64);
            prop_assert_eq!(geometry.data_offset(span.group, span.index), unit_number / members as u64 * 4096);
            prop_assert_eq!(span.within, ByteRange::new(5, 10));
        }

        #[test]
        fn as_many_cycles_as_fit_are_used(redundancy in redundancy(), more in 0usize..7, bytes in 0u64..1 << 32) {
            let members = redundancy.members_min() + more;
            if let Some(cycles) = ArrayGeometry::cycles_in(redundancy, 65536, members, bytes) {
                let geometry = ArrayGeometry::new(redundancy, 65536, members, cycles).unwrap();
                prop_assert!(geometry.member_bytes() <= bytes);
                let larger = ArrayGeometry::new(redundancy, 65536, members, cycles + 1).unwrap();
                prop_assert!(larger.member_bytes() + PAGE_BYTES > bytes);
            }
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let new = |redundancy, unit, members, cycles| ArrayGeometry::new(redundancy, unit, members, cycles).is_err();
        assert!(new(Redundancy::Mirror { copies: 1 }, 4096, 3, 1));
        assert!(new(Redundancy::Mirror { copies: 5 }, 4096, 9, 1));
        assert!(new(Redundancy::Parity { parities: 3 }, 4096, 9, 1));
        assert!(new(Redundancy::Parity { parities: 2 }, 4096, 2, 1));
        assert!(new(Redundancy::Parity { parities: 1 }, 5000, 3, 1));
        assert!(new(Redundancy::Parity { parities: 1 }, 4096, 256, 1));
        assert!(new(Redundancy::Parity { parities: 1 }, 4096, 3, 0));
        assert!(new(Redundancy::Parity { parities: 1 }, 4096, 3, u64::MAX));
    }
}
