//! The map: which members of a drive hold its content now, and where its redundancy may not agree with its data.
//!
//! A map has an *epoch*. Each change makes the next epoch, and only the writer, which holds the lease, makes changes.
//! It is stored at more members than losses are survived.
//!
//! Regions are recorded in two kinds of set, which must not be mixed:
//!
//! * `unsettled`: redundancy may disagree with the data, because a write there may not have ended. A region enters, in
//!   a stored map, before the first write to it. After a crash of the writer, redundancy is recomputed there.
//! * `missed`, of each member: the member may lack writes there. It begins as a copy of `unsettled` when the member
//!   goes stale, and gains every region written from then on. Only a resynchronization that wrote this very member
//!   removes a region. A new member, which holds nothing, begins with all regions.
//!
//! A member may *move* to another node, its *incoming* node, while it is read and written: see [`crate::moves`].

use std::fmt;
use std::str::FromStr;

use crate::bad::BadRanges;

/// The most regions of a drive.
pub const REGIONS_MAX: u64 = 1024;
/// The smallest region, in bytes.
pub const REGION_BYTES_MIN: u64 = 4 << 20;

/// The role of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// It holds all that was written: it is read and written.
    InSync,
    /// It is being resynchronized: written, but not read.
    Syncing,
    /// It missed writes: neither read nor written.
    Stale,
}

impl MemberState {
    /// Whether writes are sent to it.
    pub const fn is_written(self) -> bool {
        !matches!(self, Self::Stale)
    }
}

/// A member, as recorded in the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its role.
    pub state: MemberState,
    /// Where it may lack writes. Empty if it is in sync.
    pub missed: Regions,
    /// While it moves to another node: where that node may lack writes.
    pub incoming: Option<Regions>,
}

impl Member {
    /// A member in this state that may lack writes in `missed`, and does not move.
    pub const fn new(state: MemberState, missed: Regions) -> Self {
        Self { state, missed, incoming: None }
    }
}

/// A version of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// Its epoch, from 1.
    pub epoch: u64,
    /// Whether a writer has it open.
    pub open: bool,
    /// The members.
    pub members: Vec<Member>,
    /// Where redundancy may disagree with the data.
    pub unsettled: Regions,
    /// Pages whose content is lost.
    pub bad: BadRanges,
}

impl Map {
    /// The map of a new drive of `size` bytes: every member is in sync, and nothing was written.
    pub fn new(members: usize, size: u64) -> Self {
        let none = Regions::new(size);
        let member = Member::new(MemberState::InSync, none.clone());
        Self { epoch: 1, open: false, members: vec![member; members], unsettled: none, bad: BadRanges::default() }
    }

    /// Whether every member is in sync, and redundancy agrees with the data everywhere.
    pub fn is_clean(&self) -> bool {
        self.unsettled.is_empty() && self.members_in_sync() == self.members.len()
    }

    /// The number of members in sync.
    pub fn members_in_sync(&self) -> usize {
        self.members.iter().filter(|member| member.state == MemberState::InSync).count()
    }
}

/// A set of regions of a drive: equal parts, of at least [`REGION_BYTES_MIN`] and at most [`REGIONS_MAX`] in number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regions {
    region_bytes: u64,
    count: u64,
    bits: Vec<u64>,
}

impl Regions {
    /// No region of a drive of `size` bytes.
    pub fn new(size: u64) -> Self {
        Self::divided(size, size.div_ceil(REGIONS_MAX).next_power_of_two().max(REGION_BYTES_MIN))
    }

    /// No region of a drive of `size` bytes, divided into regions of `region_bytes`. For tests.
    pub fn divided(size: u64, region_bytes: u64) -> Self {
        let count = size.div_ceil(region_bytes);
        Self { region_bytes, count, bits: vec![0; count.div_ceil(64) as usize] }
    }

    /// Every region of a drive of `size` bytes.
    pub fn all(size: u64) -> Self {
        Self::new(size).whole()
    }

    /// Every region of the same drive.
    pub fn whole(&self) -> Self {
        let mut whole = self.clone();
        (0..self.count).for_each(|region| whole.insert(region));
        whole
    }

    /// Whether these are regions of a drive of `size` bytes.
    pub fn divide(&self, size: u64) -> bool {
        self.count == size.div_ceil(self.region_bytes)
    }

    /// Bytes of a region.
    pub fn region_bytes(&self) -> u64 {
        self.region_bytes
    }

    /// The regions that the bytes from `start` up to `end` touch.
    pub fn touched(&self, start: u64, end: u64) -> std::ops::Range<u64> {
        (start / self.region_bytes).min(self.count)..end.div_ceil(self.region_bytes).min(self.count)
    }

    /// Whether it is in the set.
    pub fn contains(&self, region: u64) -> bool {
        self.bits.get((region / 64) as usize).is_some_and(|word| word >> (region % 64) & 1 == 1)
    }

    /// Adds a region.
    pub fn insert(&mut self, region: u64) {
        if let Some(word) = self.bits.get_mut((region / 64) as usize).filter(|_| region < self.count) {
            *word |= 1 << (region % 64);
        }
    }

    /// Adds every region of another set of the same drive.
    pub fn insert_all(&mut self, other: &Self) {
        self.bits.iter_mut().zip(&other.bits).for_each(|(own, more)| *own |= more);
    }

    /// Removes a region.
    pub fn remove(&mut self, region: u64) {
        if let Some(word) = self.bits.get_mut((region / 64) as usize) {
            *word &= !(1 << (region % 64));
        }
    }

    /// Whether it has no region.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| *word == 0)
    }

    /// The number of regions in it.
    pub fn len(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The regions in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.count).filter(|region| self.contains(*region))
    }

    /// Parses the output of [`Display`](fmt::Display) for a drive of `size` bytes. `None` if the text has another form.
    pub fn parse(text: &str, size: u64) -> Option<Self> {
        let mut regions = Self::new(size);
        for run in text.split(',').filter(|run| !run.is_empty()) {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let (first, last) = (u64::from_str(first).ok()?, u64::from_str(last).ok()?);
            if first > last || last >= regions.count {
                return None;
            }
            (first..=last).for_each(|region| regions.insert(region));
        }
        Some(regions)
    }
}

/// Runs of regions: `0-3,7`.
impl fmt::Display for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut at = 0;
        let mut first = true;
        while at < self.count {
            if !self.contains(at) {
                at += 1;
                continue;
            }
            let end = (at..self.count).find(|region| !self.contains(*region)).unwrap_or(self.count);
            let comma = if first { "" } else { "," };
            match end - at {
                1 => write!(f, "{comma}{at}")?,
                _ => write!(f, "{comma}{at}-{}", end - 1)?,
            }
            first = false;
            at = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn printed_regions_are_read_back(size in 1u64..1 << 42, chosen in prop::collection::vec(0u64..1024, 0..40)) {
            let mut regions = Regions::new(size);
            chosen.iter().for_each(|region| regions.insert(*region));
            prop_assert_eq!(Regions::parse(&regions.to_string(), size), Some(regions.clone()));
            prop_assert!(regions.region_bytes() * REGIONS_MAX >= size);
            prop_assert_eq!(regions.iter().count() as u64, regions.len());
        }
    }

    #[test]
    fn regions_out_of_range_are_refused() {
        let size = 3 * REGION_BYTES_MIN;
        for text in ["3", "1-3", "2-1", "x", "0-", "0,9"] {
            assert_eq!(Regions::parse(text, size), None, "{text}");
        }
        assert_eq!(Regions::all(size).to_string(), "0-2");
        assert_eq!(Regions::new(size).touched(REGION_BYTES_MIN - 1, REGION_BYTES_MIN + 1), 0..2);
    }
}
