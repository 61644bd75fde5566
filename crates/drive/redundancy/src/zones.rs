//! Arrays over members of unequal sizes. Does no I/O.
//!
//! A set is divided into *zones*. A zone is one array of equal members, over some of the set's members. On each member
//! the zones lie one after the other.
//!
//! **Parity** is placed as md's raid0 places data on unequal disks: over all members until the smallest is full, then
//! over the rest, until too few are left.
//!
//! **A mirror** of `c` copies can hold `S` units if and only if no member is needed for more than one copy of each:
//! `sum of min(size, S) >= c * S`. A member larger than the largest such `S` is used up to `S` only. Zones are chosen
//! such that the free space of the largest member never exceeds the total free space divided by `c`. While there is
//! slack, a zone takes all members with free space. Without slack, it takes the `c` largest.

use std::cmp::Reverse;

use crate::geometry::{ArrayGeometry, BadGeometry, Redundancy};

/// The most zones of a set.
pub const ZONES_MAX: usize = 64;
/// The largest set: all its members together, in bytes.
pub const SET_BYTES_MAX: u64 = 1 << 60;
/// The granularity of shares, in bytes: nodes hold memory in chunks of this size.
const GRANULE_BYTES: u64 = 64 << 10;

/// An array over some of a set's members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// The members of the set that take part, ascending: member `i` of the array is `members[i]`.
    pub members: Vec<usize>,
    /// The array.
    pub array: ArrayGeometry,
    /// For each of `members`, the offset of the zone on it.
    pub member_starts: Vec<u64>,
    /// The offset of the zone's data in the set.
    pub start: u64,
}

impl Zone {
    /// The offset after the zone's data in the set.
    pub fn end(&self) -> u64 {
        self.start + self.array.size()
    }
}

/// The arithmetic of a set of members of any sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetGeometry {
    redundancy: Redundancy,
    zones: Vec<Zone>,
    /// Bytes used on each member.
    used: Vec<u64>,
}

impl SetGeometry {
    /// A set over members of these sizes. The same sizes always make the same set. Members that are too small remain
    /// unused, as does the part of a large member that the others cannot match.
    ///
    /// # Errors
    ///
    /// If the redundancy or the unit is out of range, there are too few or too many members, they are larger than
    /// [`SET_BYTES_MAX`] together, or they are too small to hold anything.
    pub fn new(redundancy: Redundancy, unit: u64, member_bytes: &[u64]) -> Result<Self, BadGeometry> {
        // Checks all but the sizes.
        ArrayGeometry::new(redundancy, unit, member_bytes.len(), 1)?;
        let total = member_bytes.iter().map(|bytes| u128::from(*bytes)).sum::<u128>();
        if total > u128::from(SET_BYTES_MAX) {
            return Err(BadGeometry::TooLarge);
        }
        let mut set = Self { redundancy, zones: Vec::new(), used: vec![0; member_bytes.len()] };
        match redundancy {
            Redundancy::Parity { .. } => set.add_parity_zones(unit, member_bytes)?,
            Redundancy::Mirror { copies } => set.add_mirror_zones(copies, unit, member_bytes)?,
        }
        if set.zones.is_empty() {
            return Err(BadGeometry::TooSmall { least: redundancy.members_min(), unit });
        }
        Ok(set)
    }

    /// The kind of redundancy.
    pub fn redundancy(&self) -> Redundancy {
        self.redundancy
    }

    /// The zones, in order of their data; at least one.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// The number of members.
    pub fn members(&self) -> usize {
        self.used.len()
    }

    /// Bytes of data of the set.
    pub fn size(&self) -> u64 {
        self.zones.last().map_or(0, Zone::end)
    }

    /// Bytes used on each member, from its start.
    pub fn used(&self) -> &[u64] {
        &self.used
    }

    /// The index of the zone that holds the byte at `offset`; `None` beyond the end.
    pub fn zone_at(&self, offset: u64) -> Option<usize> {
        let zone = self.zones.partition_point(|zone| zone.end() <= offset);
        (zone < self.zones.len()).then_some(zone)
    }

    /// How many further members may be lost, whichever they are, if the members for which `lost` holds are already
    /// lost. `None` if part of the content is lost.
    pub fn survives(&self, lost: impl Fn(usize) -> bool) -> Option<usize> {
        let of_zone = |zone: &Zone| {
            let array = &zone.array;
            let width = array.data_units() + array.redundancy_units();
            let lost: Vec<bool> = zone.members.iter().map(|member| lost(*member)).collect();
            // Every group lies on `width` consecutive members.
            let lost_of_group = |first: usize| (0..width).filter(|place| lost[(first + place) % lost.len()]).count();
            (0..lost.len()).map(lost_of_group).max().unwrap_or(0)
        };
        let lost = self.zones.iter().map(of_zone).max().unwrap_or(0);
        self.redundancy.losses_max().checked_sub(lost)
    }

    fn add_parity_zones(&mut self, unit: u64, member_bytes: &[u64]) -> Result<(), BadGeometry> {
        let mut start = 0;
        for level in levels(member_bytes) {
            let members: Vec<usize> = (0..member_bytes.len()).filter(|member| member_bytes[*member] >= level).collect();
            if members.len() < self.redundancy.members_min() {
                break;
            }
            // This level is too small for a cycle. The space becomes part of the next level's zone.
            let Some(cycles) = cycles_in(self.redundancy, unit, members.len(), level - start) else { continue };
            self.add_zone(members, unit, cycles)?;
            start = self.used.iter().copied().max().unwrap_or(0);
        }
        Ok(())
    }

    fn add_mirror_zones(&mut self, copies: usize, unit: u64, member_bytes: &[u64]) -> Result<(), BadGeometry> {
        let copies_u64 = copies as u64;
        // In cycles. Of each cycle, a member holds a unit of data and one further copy of `copies - 1` others.
        let mut left: Vec<u64> = member_bytes.iter().map(|bytes| bytes / (copies_u64 * unit)).collect();
        let cap = mirror_cap(&left, copies_u64);
        left.iter_mut().for_each(|left| *left = (*left).min(cap));
        while self.zones.len() < ZONES_MAX {
            let Some((members, cycles)) = next_mirror_zone(&left, copies) else { break };
            members.iter().for_each(|member| left[*member] -= cycles);
            self.add_zone(members, unit, cycles)?;
        }
        Ok(())
    }

    /// Appends a zone, on each member after the zones that it has.
    fn add_zone(&mut self, members: Vec<usize>, unit: u64, cycles: u64) -> Result<(), BadGeometry> {
        let array = ArrayGeometry::new(self.redundancy, unit, members.len(), cycles)?;
        let member_starts = members.iter().map(|member| self.used[*member]).collect();
        members.iter().for_each(|member| self.used[*member] += array.member_bytes());
        self.zones.push(Zone { members, array, member_starts, start: self.size() });
        Ok(())
    }
}

/// The sizes at which zones end, ascending: the members' sizes, or some of them if there are too many.
fn levels(member_bytes: &[u64]) -> Vec<u64> {
    let mut levels: Vec<u64> = member_bytes.iter().copied().filter(|bytes| *bytes > 0).collect();
    levels.sort_unstable();
    levels.dedup();
    let step = levels.len().div_ceil(ZONES_MAX).max(1);
    levels.into_iter().step_by(step).collect()
}

/// The cycles of the largest array whose members fit in `bytes`, to the byte.
fn cycles_in(redundancy: Redundancy, unit: u64, members: usize, bytes: u64) -> Option<u64> {
    let cycles = ArrayGeometry::cycles_in(redundancy, unit, members, bytes).unwrap_or(0);
    let more = ArrayGeometry::new(redundancy, unit, members, cycles + 1).ok();
    let more = more.filter(|array| array.member_bytes() <= bytes).map(|_| cycles + 1);
    more.or((cycles > 0).then_some(cycles))
}

/// The largest `S` with `sum of min(size, S) >= copies * S`.
fn mirror_cap(sizes: &[u64], copies: u64) -> u64 {
    let holds = |cap: u64| {
        let used: u128 = sizes.iter().map(|size| u128::from(*size.min(&cap))).sum();
        used >= u128::from(copies) * u128::from(cap)
    };
    // The condition holds for 0 and up to some `S`.
    let (mut low, mut high) = (0, SET_BYTES_MAX);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// The members of the next zone of a mirror and its number of cycles, given the cycles left on each member. Maintains
/// the invariant `copies * largest <= sum`, which implies that all cycles are used in the end.
fn next_mirror_zone(left: &[u64], copies: usize) -> Option<(Vec<usize>, u64)> {
    let mut members: Vec<usize> = (0..left.len()).filter(|member| left[*member] > 0).collect();
    members.sort_by_key(|member| (Reverse(left[*member]), *member));
    let copies_u64 = copies as u64;
    let largest = left[*members.first()?];
    let sum: u64 = members.iter().map(|member| left[*member]).sum();
    let slack = sum.checked_sub(largest * copies_u64)?;
    if members.len() < copies {
        return None;
    }
    // A zone over `n` members takes `n - copies` of the slack in every cycle.
    let by_slack = |members: usize| slack.checked_div((members - copies) as u64).unwrap_or(u64::MAX);
    let mut take = members.len();
    if by_slack(take) == 0 {
        // Every member of the largest size must take part: each has to shrink.
        take = members.iter().filter(|member| left[**member] == largest).count().max(copies);
    }
    let (inside, outside) = members.split_at(take);
    let smallest = left[*inside.last()?];
    // The largest of the others may not become larger than a `copies`-th of what is left.
    let by_others =
        outside.first().map_or(u64::MAX, |other| sum.saturating_sub(left[*other] * copies_u64) / take as u64);
    let cycles = smallest.min(by_slack(take)).min(by_others);
    let mut inside = inside.to_vec();
    inside.sort_unstable();
    (cycles > 0).then_some((inside, cycles))
}

/// The bytes to take from each member that has `free` bytes, so that a [`SetGeometry`] over them has at least `wanted`
/// bytes (`None`: as many as possible). Shares are multiples of 64 KiB, and roughly in proportion to the members' free
/// bytes; members of almost the same size give the same share. A member that is not needed gives 0. `None` if the
/// members have too little.
pub fn plan(wanted: Option<u64>, redundancy: Redundancy, unit: u64, free: &[u64]) -> Option<Vec<u64>> {
    let free: Vec<u64> = free.iter().map(|bytes| bytes - bytes % GRANULE_BYTES).collect();
    let size = |shares: &[u64]| SetGeometry::new(redundancy, unit, shares).map_or(0, |set| set.size());
    let largest = size(&free);
    let wanted = wanted.unwrap_or(largest).max(1);
    if largest < wanted {
        return None;
    }
    let shares = if wanted == largest { free } else { smallest_shares(&free, |shares| size(shares) >= wanted) };
    let used: Vec<u64> = SetGeometry::new(redundancy, unit, &shares)
        .ok()?
        .used()
        .iter()
        .map(|bytes| bytes.next_multiple_of(GRANULE_BYTES))
        .collect();
    // `used` makes the same set as `shares`, but nothing else here relies on that.
    Some(if size(&used) >= wanted { used } else { shares })
}

/// The smallest shares, in proportion to the members' free bytes, that are `enough`. All free bytes must be `enough`.
fn smallest_shares(free: &[u64], enough: impl Fn(&[u64]) -> bool) -> Vec<u64> {
    /// The proportionality factor 1 as a fixed-point number.
    const ONE: u64 = 1 << 32;
    let weights = weights(free);
    let shares = |factor: u64| -> Vec<u64> {
        let share = |(weight, free): (&u64, &u64)| {
            let exact = (u128::from(*weight) * u128::from(factor)).div_ceil(u128::from(ONE));
            let share = u64::try_from(exact).unwrap_or(u64::MAX).min(*free);
            share.next_multiple_of(GRANULE_BYTES)
        };
        weights.iter().zip(free).map(share).collect()
    };
    // At the upper limit every member gives all that it has.
    let (mut low, mut high) = (0, ONE + ONE / ALMOST);
    while low < high {
        let middle = low + (high - low) / 2;
        if enough(&shares(middle)) { high = middle } else { low = middle + 1 }
    }
    shares(high)
}

/// Two members count as of the same size if the larger exceeds the smaller by at most this fraction (1/8) of the
/// smaller.
const ALMOST: u64 = 8;

/// Sizes, in which each member of almost the same size as smaller ones gets the smallest one's size: equal members need
/// one zone.
fn weights(free: &[u64]) -> Vec<u64> {
    let mut ascending: Vec<usize> = (0..free.len()).collect();
    ascending.sort_by_key(|member| free[*member]);
    let mut weights = free.to_vec();
    let mut base = 0;
    for member in ascending {
        if free[member] > base + base / ALMOST {
            base = free[member];
        }
        weights[member] = base;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use cheetah_device::ByteRange;
    use proptest::prelude::*;

    const UNIT: u64 = 64 << 10;
    const MIB: u64 = 1 << 20;

    fn redundancy() -> impl Strategy<Value = Redundancy> {
        prop_oneof![
            (2usize..=4).prop_map(|copies| Redundancy::Mirror { copies }),
            (1usize..=2).prop_map(|parities| Redundancy::Parity { parities }),
        ]
    }

    fn unit() -> impl Strategy<Value = u64> {
        (12u32..=22).prop_map(|bits| 1u64 << bits)
    }

    /// The shapes of a set's zones: members, and MiB of data.
    fn shapes(redundancy: Redundancy, mib: &[u64]) -> Vec<(Vec<usize>, u64)> {
        let sizes: Vec<u64> = mib.iter().map(|mib| mib * MIB).collect();
        let set = SetGeometry::new(redundancy, UNIT, &sizes).unwrap();
        set.zones().iter().map(|zone| (zone.members.clone(), zone.array.size() / MIB)).collect()
    }

    #[test]
    fn parity_goes_on_without_the_full_members() {
        let zones = shapes(Redundancy::Parity { parities: 1 }, &[1000, 2000, 3000, 3000]);
        let members: Vec<_> = zones.iter().map(|(members, _)| members.clone()).collect();
        assert_eq!(members, [vec![0, 1, 2, 3], vec![1, 2, 3], vec![2, 3]]);
        for ((_, data), exact) in zones.iter().zip([3000, 2000, 1000]) {
            assert!(*data <= exact && *data > exact * 98 / 100, "{data} of {exact}");
        }
    }

    #[test]
    fn a_mirror_uses_unequal_members_to_the_full() {
        let mirror = Redundancy::Mirror { copies: 2 };
        assert_eq!(shapes(mirror, &[8, 8, 8]), [(vec![0, 1, 2], 12)]);
        assert_eq!(shapes(mirror, &[4, 2, 2]), [(vec![0, 1], 2), (vec![0, 2], 2)]);
        assert_eq!(shapes(mirror, &[16, 2, 2]), [(vec![0, 1], 2), (vec![0, 2], 2)], "limited by the others");
        assert_eq!(shapes(mirror, &[4, 3, 3]), [(vec![0, 1, 2], 3), (vec![0, 1], 1), (vec![0, 2], 1)]);
    }

    #[test]
    fn refusals_say_why() {
        let parity = Redundancy::Parity { parities: 2 };
        let refusal = |redundancy, sizes: &[u64]| SetGeometry::new(redundancy, UNIT, sizes).unwrap_err();
        assert_eq!(refusal(parity, &[MIB; 2]), BadGeometry::Members { least: 3, given: 2 });
        assert_eq!(refusal(parity, &[MIB; 256]), BadGeometry::Members { least: 3, given: 256 });
        assert_eq!(refusal(parity, &[MIB, MIB, UNIT]), BadGeometry::TooSmall { least: 3, unit: UNIT });
        assert_eq!(refusal(parity, &[u64::MAX; 3]), BadGeometry::TooLarge);
        assert_eq!(SetGeometry::new(parity, 5000, &[MIB; 3]), Err(BadGeometry::Unit(5000)));
    }

    #[test]
    fn content_is_lost_with_too_many_members_of_one_group() {
        let set = |redundancy, members| SetGeometry::new(redundancy, UNIT, &vec![64 * MIB; members]).unwrap();
        let survives = |set: &SetGeometry, lost: &[usize]| set.survives(|member| lost.contains(&member));
        let parity = set(Redundancy::Parity { parities: 2 }, 5);
        assert_eq!([survives(&parity, &[]), survives(&parity, &[1]), survives(&parity, &[1, 4])], [2, 1, 0].map(Some));
        assert_eq!(survives(&parity, &[0, 1, 4]), None);
        let mirror = set(Redundancy::Mirror { copies: 2 }, 4);
        assert_eq!([survives(&mirror, &[]), survives(&mirror, &[0]), survives(&mirror, &[0, 2])], [1, 0, 0].map(Some));
        assert_eq!([survives(&mirror, &[0, 1]), survives(&mirror, &[3, 0])], [None, None]);
    }

    #[test]
    fn members_of_almost_the_same_size_give_the_same() {
        let redundancy = Redundancy::Parity { parities: 1 };
        let shares = plan(Some(1 << 30), redundancy, UNIT, &[8 << 30, (8 << 30) + MIB, (8 << 30) - MIB]).unwrap();
        assert!(shares.windows(2).all(|pair| pair[0] == pair[1]), "{shares:?}");
        assert_eq!(SetGeometry::new(redundancy, UNIT, &shares).unwrap().zones().len(), 1);
    }

    #[test]
    fn a_member_that_is_not_needed_gives_nothing() {
        let shares = plan(None, Redundancy::Parity { parities: 1 }, UNIT, &[64 * MIB, 10, 64 * MIB, 64 * MIB]).unwrap();
        assert!(shares[1] == 0 && shares[0] > 63 * MIB, "{shares:?}");
        let shares = plan(None, Redundancy::Mirror { copies: 2 }, UNIT, &[64 * MIB, 8 * MIB]).unwrap();
        assert_eq!(shares, [8 * MIB; 2]);
        assert_eq!(plan(Some(9 * MIB), Redundancy::Mirror { copies: 2 }, UNIT, &[64 * MIB, 8 * MIB]), None);
    }

    #[test]
    fn very_many_members_of_different_sizes_are_used_for_the_greater_part() {
        let sizes: Vec<u64> = (1..=255).map(|member| member * 64 * MIB).collect();
        let total: u64 = sizes.iter().sum();
        for redundancy in [Redundancy::Parity { parities: 1 }, Redundancy::Mirror { copies: 2 }] {
            let set = SetGeometry::new(redundancy, UNIT, &sizes).unwrap();
            let used: u64 = set.used().iter().sum();
            assert!(set.zones().len() <= ZONES_MAX && used > total / 100 * 40, "{redundancy:?}: {used} of {total}");
        }
    }

    proptest! {
        #[test]
        fn zones_do_not_overlap_and_fit(
            redundancy in redundancy(), unit in unit(), sizes in prop::collection::vec(0u64..1 << 36, 0..12),
        ) {
            let Ok(set) = SetGeometry::new(redundancy, unit, &sizes) else { return Ok(()) };
            prop_assert_eq!(&set, &SetGeometry::new(redundancy, unit, &sizes).unwrap());
            prop_assert!(set.zones().len() <= ZONES_MAX);
            let mut ends = vec![0; sizes.len()];
            let mut start = 0;
            for (index, zone) in set.zones().iter().enumerate() {
                prop_assert_eq!(zone.start, start);
                start = zone.end();
                prop_assert_eq!(set.zone_at(start - 1), Some(index));
                prop_assert_eq!(zone.array.members(), zone.members.len());
                prop_assert!(zone.members.is_sorted());
                for (member, member_start) in zone.members.iter().zip(&zone.member_starts) {
                    prop_assert_eq!(*member_start, ends[*member]);
                    ends[*member] += zone.array.member_bytes();
                }
            }
            prop_assert_eq!((set.size(), set.zone_at(start)), (start, None));
            prop_assert_eq!(set.used(), &ends);
            prop_assert!(ends.iter().zip(&sizes).all(|(end, size)| end <= size));
        }

        #[test]
        fn a_mirror_is_as_large_as_it_can_be(copies in 2usize..=4, sizes in prop::collection::vec(0u64..1 << 33, 4..12)) {
            let Ok(set) = SetGeometry::new(Redundancy::Mirror { copies }, 4096, &sizes) else { return Ok(()) };
            prop_assert!(set.zones().len() < ZONES_MAX);
            let cycle = copies as u64 * 4096;
            let cycles: Vec<u64> = sizes.iter().map(|size| size / cycle).collect();
            let cap = mirror_cap(&cycles, copies as u64);
            let used: u64 = cycles.iter().map(|cycles| cycles.min(&cap)).sum();
            prop_assert_eq!(set.size(), used * 4096, "every cycle that can be used");
        }

        #[test]
        fn parity_is_as_large_as_it_can_be(
            parities in 1usize..=2, unit in 12u32..=16, sizes in prop::collection::vec(1u64 << 24..1 << 33, 3..10),
        ) {
            let unit = 1 << unit;
            let set = SetGeometry::new(Redundancy::Parity { parities }, unit, &sizes).unwrap();
            let mut sorted = sizes.clone();
            sorted.sort_unstable();
            let (mut exact, mut start) = (0, 0);
            for (member, size) in sorted.iter().enumerate() {
                exact += (size - start) * (sorted.len() - member).saturating_sub(parities) as u64;
                start = *size;
            }
            // The loss: a cycle of each zone, and the digests, which take 1/512 of the data for each parity.
            let cycle = sizes.len() as u64 * unit * 2;
            let lost = exact / 200 + cycle * (sizes.len() * sizes.len()) as u64;
            prop_assert!(set.size() <= exact && set.size() + lost >= exact, "{} of {}", set.size(), exact);
        }

        #[test]
        fn a_plan_is_enough_and_fits(
            redundancy in redundancy(), unit in unit(), wanted in 1u64..1 << 36,
            free in prop::collection::vec(0u64..1 << 34, 0..9),
        ) {
            let floors: Vec<u64> = free.iter().map(|bytes| bytes - bytes % GRANULE_BYTES).collect();
            let most = SetGeometry::new(redundancy, unit, &floors).map_or(0, |set| set.size());
            match plan(Some(wanted), redundancy, unit, &free) {
                None => prop_assert!(wanted > most),
                Some(shares) => {
                    prop_assert!(shares.iter().zip(&free).all(|(share, free)| share <= free && share % GRANULE_BYTES == 0));
                    let size = SetGeometry::new(redundancy, unit, &shares).unwrap().size();
                    prop_assert!(size >= wanted);
                    let used: Vec<u64> = shares.iter().copied().filter(|share| *share > 0).collect();
                    prop_assert_eq!(SetGeometry::new(redundancy, unit, &used).unwrap().size(), size, "without the unused");
                }
            }
            match plan(None, redundancy, unit, &free) {
                None => prop_assert_eq!(most, 0),
                Some(shares) => prop_assert_eq!(SetGeometry::new(redundancy, unit, &shares).unwrap().size(), most),
            }
        }

        #[test]
        fn a_plan_is_in_proportion(wanted in 1u64 << 26..1 << 32, free in prop::collection::vec(1u64 << 31..1 << 34, 3..9)) {
            let redundancy = Redundancy::Parity { parities: 1 };
            let Some(shares) = plan(Some(wanted), redundancy, 4096, &free) else { return Ok(()) };
            let part = |member: usize| shares[member] as f64 / free[member] as f64;
            for member in 0..free.len() {
                // The largest member may have more than the others can use.
                let alone = free.iter().filter(|other| **other >= free[member]).count() == 1;
                prop_assert!(alone || part(member) >= part(0).min(part(1)) / 1.5 - 0.01, "{shares:?} of {free:?}");
            }
        }

        #[test]
        fn nothing_panics(
            redundancy in redundancy(), unit in any::<u64>(), power in any::<bool>(),
            sizes in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..1 << 40], 0..6), wanted in any::<u64>(),
        ) {
            let unit = if power { 4096 << (unit % 11) } else { unit };
            if let Ok(set) = SetGeometry::new(redundancy, unit, &sizes) {
                let _ = set.zones()[0].array.spans(ByteRange::new(0, 1)).count();
            }
            let _ = plan(Some(wanted), redundancy, unit, &sizes);
        }
    }
}
