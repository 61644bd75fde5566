//! Where the bytes of the sets are in the drive.
//!
//! Sets follow each other. Sets of one *bundle* take turns in units of [`BUNDLE_UNIT_BYTES`]: a drive whose nodes hold
//! several parts each can be spread over more nodes later, by moving parts. A set that is no multiple of the unit leaves
//! its end unused.

use std::ops::Range;

use cheetah_device::linear::Linear;
use cheetah_device::stripe::Stripe;
use cheetah_device::{ByteRange, DynDevice, Result};

use super::Set;

/// The bytes of a set between those of the other sets of its bundle.
pub const BUNDLE_UNIT_BYTES: u64 = 1 << 20;

/// A run of sets that stand alone (one) or take turns.
struct Bundle {
    sets: Range<usize>,
    /// Its first byte in the drive.
    start: u64,
    /// The bytes of each set that are used.
    of_each: u64,
}

impl Bundle {
    fn count(&self) -> u64 {
        self.sets.len() as u64
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.of_each.saturating_mul(self.count()))
    }
}

fn bundles(sets: &[Set]) -> impl Iterator<Item = Bundle> {
    let (mut next, mut start) = (0, 0);
    std::iter::from_fn(move || {
        let (first, set) = (next, sets.get(next)?);
        next += 1;
        while set.bundle.is_some() && sets.get(next).is_some_and(|other| other.bundle == set.bundle) {
            next += 1;
        }
        let of_each = if set.bundle.is_some() { set.size - set.size % BUNDLE_UNIT_BYTES } else { set.size };
        let bundle = Bundle { sets: first..next, start, of_each };
        start = bundle.end();
        Some(bundle)
    })
}

/// The sets of each bundle, in order; a set that stands alone is one.
pub(crate) fn turns(sets: &[Set]) -> impl Iterator<Item = Range<usize>> {
    bundles(sets).map(|bundle| bundle.sets)
}

/// The bytes that the sets hold together.
pub(crate) fn capacity(sets: &[Set]) -> u64 {
    bundles(sets).last().map_or(0, |bundle| bundle.end())
}

/// The first byte of the last bundle: a drive is larger than that.
pub(crate) fn last_start(sets: &[Set]) -> u64 {
    bundles(sets).last().map_or(0, |bundle| bundle.start)
}

/// The number for a further bundle.
pub(crate) fn next_bundle(sets: &[Set]) -> u32 {
    sets.iter().filter_map(|set| set.bundle).max().map_or(0, |last| last.saturating_add(1))
}

/// The ranges of the drive that a range of a set has.
pub(crate) fn in_drive(sets: &[Set], index: usize, range: ByteRange) -> Vec<ByteRange> {
    let Some(bundle) = bundles(sets).find(|bundle| bundle.sets.contains(&index)) else { return Vec::new() };
    let range = ByteRange::new(range.offset, range.len.min(bundle.of_each.saturating_sub(range.offset)));
    if bundle.count() == 1 {
        return (range.len > 0).then(|| ByteRange::new(bundle.start + range.offset, range.len)).into_iter().collect();
    }
    let turn = (index - bundle.sets.start) as u64;
    let place = |piece: ByteRange| {
        let (round, within) = (piece.offset / BUNDLE_UNIT_BYTES, piece.offset % BUNDLE_UNIT_BYTES);
        let unit = round * bundle.count() + turn;
        ByteRange::new(bundle.start + unit * BUNDLE_UNIT_BYTES + within, piece.len)
    };
    range.split_at_multiples(BUNDLE_UNIT_BYTES).map(place).collect()
}

/// The ranges of sets that a range of the drive has, in order.
pub(crate) fn in_sets(sets: &[Set], range: ByteRange) -> Vec<(usize, ByteRange)> {
    let mut found = Vec::new();
    for bundle in bundles(sets) {
        let (from, to) = (range.offset.max(bundle.start), range.end().min(bundle.end()));
        if from >= to {
            continue;
        }
        let within = ByteRange::new(from - bundle.start, to - from);
        if bundle.count() == 1 {
            found.push((bundle.sets.start, within));
            continue;
        }
        for piece in within.split_at_multiples(BUNDLE_UNIT_BYTES) {
            let unit = piece.offset / BUNDLE_UNIT_BYTES;
            let set = (bundle.sets.clone()).nth(usize::try_from(unit % bundle.count()).unwrap_or(0));
            let offset = unit / bundle.count() * BUNDLE_UNIT_BYTES + piece.offset % BUNDLE_UNIT_BYTES;
            found.extend(set.map(|set| (set, ByteRange::new(offset, piece.len))));
        }
    }
    found
}

/// Stacks the devices of the sets, in file order, into the device of the drive.
pub(crate) fn stack(sets: &[Set], devices: Vec<DynDevice>) -> Result<DynDevice> {
    let mut devices = devices.into_iter();
    let mut stacked: Vec<DynDevice> = Vec::new();
    for bundle in bundles(sets) {
        let mut own: Vec<DynDevice> = devices.by_ref().take(bundle.sets.len()).collect();
        match own.len() {
            1 => stacked.append(&mut own),
            _ => stacked.push(std::sync::Arc::new(Stripe::new(BUNDLE_UNIT_BYTES, own)?)),
        }
    }
    match stacked.len() {
        1 => Ok(stacked.remove(0)),
        _ => Ok(std::sync::Arc::new(Linear::new(stacked)?)),
    }
}

#[cfg(test)]
mod tests {
    use cheetah_device::placement::{Layout, Placement};
    use proptest::prelude::*;

    use super::*;
    use crate::file::tests::example;

    /// Sets of these sizes, in MiB and a rest, with these bundles.
    fn sets(of: &[(Option<u32>, u64, u64)]) -> Vec<Set> {
        let set = |(bundle, mib, rest): &(Option<u32>, u64, u64)| {
            let size = mib * BUNDLE_UNIT_BYTES + rest;
            Set { bundle: *bundle, size, ..example().sets[0].clone() }
        };
        of.iter().map(set).collect()
    }

    #[test]
    fn sets_of_a_bundle_take_turns_and_others_follow_each_other() {
        const UNIT: u64 = BUNDLE_UNIT_BYTES;
        let sets = sets(&[(None, 1, 7), (Some(0), 2, 9), (Some(0), 2, 9), (Some(1), 1, 0), (Some(1), 1, 0)]);
        assert_eq!((capacity(&sets), last_start(&sets), next_bundle(&sets)), (7 * UNIT + 7, 5 * UNIT + 7, 2));
        let found = in_sets(&sets, ByteRange::new(UNIT + 5, 2 * UNIT));
        let expected = [(0, UNIT + 5, 2), (1, 0, UNIT), (2, 0, UNIT - 2)];
        assert_eq!(found, expected.map(|(set, offset, len)| (set, ByteRange::new(offset, len))));
        assert_eq!(in_drive(&sets, 2, ByteRange::new(UNIT - 1, 1)), [ByteRange::new(3 * UNIT + 6, 1)]);
        assert_eq!(in_drive(&sets, 2, ByteRange::new(2 * UNIT, 9)), [], "unused");
    }

    proptest! {
        #[test]
        fn both_directions_agree_with_each_other_and_with_the_stacked_devices(
            bundles in prop::collection::vec((1u64..4, 0u64..9, 1usize..4), 1..4),
            at in 0u64..40 << 20,
            len in 1u64..5 << 20,
        ) {
            let mut of = Vec::new();
            for (number, (mib, rest, count)) in bundles.iter().enumerate() {
                let bundle = (*count > 1).then(|| u32::try_from(number).unwrap());
                of.extend(std::iter::repeat_n((bundle, *mib, *rest), *count));
            }
            let sets = sets(&of);
            let size = capacity(&sets);
            let at = at % size;
            let range = ByteRange::new(at, len.min(size - at));
            let found = in_sets(&sets, range);
            prop_assert_eq!(found.iter().map(|(_, piece)| piece.len).sum::<u64>(), range.len);
            let back: Vec<_> = found.iter().flat_map(|(set, piece)| in_drive(&sets, *set, *piece)).collect();
            let mut next = range.offset;
            for piece in back {
                prop_assert_eq!(piece.offset, next);
                next = piece.end();
            }
            // As the devices place them.
            let mut first = 0;
            let mut start = 0;
            let mut placed = Vec::new();
            for (mib, rest, count) in bundles {
                let sizes = vec![mib * BUNDLE_UNIT_BYTES + rest; count];
                let layout = if count > 1 { Layout::Stripe { unit: BUNDLE_UNIT_BYTES } } else { Layout::Linear };
                let placement = Placement::new(layout, &sizes).unwrap();
                let (from, to) = (range.offset.max(start), range.end().min(start + placement.size()));
                if from < to {
                    let within = ByteRange::new(from - start, to - from);
                    placed.extend(placement.map(within).map(|piece| (first + piece.child, piece.range)));
                }
                start += placement.size();
                first += count;
            }
            prop_assert_eq!(found, placed);
        }
    }
}
