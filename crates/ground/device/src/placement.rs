//! The mapping of bytes to children in linear and striped devices.
//!
//! A placement is a list of adjacent *zones*. A zone begins at the same offset on each of its member children, and its
//! units rotate over them. A zone of one member is a range of that child. A linear placement has a zone for each child.
//! A stripe over equal children is one zone over all of them. Over unequal children it is that of md's raid0: over all
//! children until the smallest is full, then over the rest, and so on.
//!
//! The layers above rely on two properties of every placement: a range of the whole is *one* range on each child it
//! touches, and its parts come in order there.

use smallvec::SmallVec;

use crate::{ByteRange, Error, Size};

/// The order of bytes on children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One child after the other.
    Linear,
    /// Round robin (RAID 0).
    Stripe {
        /// Consecutive bytes on one child: a power of two from [`UNIT_MIN`] to [`UNIT_MAX`].
        unit: u64,
    },
}

/// The smallest stripe unit: a page.
pub const UNIT_MIN: u64 = 4 << 10;
/// The largest stripe unit.
pub const UNIT_MAX: u64 = 4 << 20;

impl Layout {
    /// Fails, with the reason, if the stripe unit is invalid.
    pub fn check(self) -> Result<(), Unplaceable> {
        let Self::Stripe { unit } = self else { return Ok(()) };
        if unit.is_power_of_two() && (UNIT_MIN..=UNIT_MAX).contains(&unit) {
            return Ok(());
        }
        Err(Unplaceable::Unit(unit))
    }
}

/// Why bytes cannot be placed on children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unplaceable {
    /// The stripe unit, in bytes, is not a power of two from [`UNIT_MIN`] to [`UNIT_MAX`].
    #[error("a stripe unit of {} cannot be used: take a power of two from {} to {}", Size(*.0), Size(UNIT_MIN), Size(UNIT_MAX))]
    Unit(u64),
    /// There is no child.
    #[error("a device needs at least one child to hold its bytes")]
    NoChildren,
    /// The sizes of the children add up to more than 2^63 bytes.
    #[error("the children are larger than 8 EiB together")]
    TooLarge,
    /// A striped child is smaller than a unit.
    #[error("child {} of the stripe has {}, less than one stripe unit of {}", .child + 1, Size(*.bytes), Size(*.unit))]
    ChildTooSmall {
        /// Its place among the children, from 0.
        child: usize,
        /// Its size in bytes.
        bytes: u64,
        /// The stripe unit in bytes.
        unit: u64,
    },
}

impl From<Unplaceable> for Error {
    fn from(why: Unplaceable) -> Self {
        Self::Invalid(why.to_string().into())
    }
}

/// The mapping of a device's bytes to its children.
#[derive(Debug, Clone)]
pub struct Placement {
    /// Contiguous, in order, none empty.
    zones: Vec<Zone>,
    /// log2 of the stripe unit.
    unit_bits: u32,
    size: u64,
}

#[derive(Debug, Clone)]
struct Zone {
    /// The first byte of the zone in the whole, and the first after it.
    start: u64,
    end: u64,
    /// The offset of the zone on each of its members.
    child_start: u64,
    members: SmallVec<[usize; 4]>,
}

/// A range that is contiguous in the whole and on one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildRange {
    /// The index of the child.
    pub child: usize,
    /// The range on that child.
    pub range: ByteRange,
    /// The offset in the whole.
    pub at: u64,
}

impl Placement {
    /// Distributes bytes over children of these sizes. A stripe uses whole units only; the rest of a child stays
    /// unused.
    ///
    /// Fails without children, with an invalid unit, if a striped child is smaller than a unit, and if the sizes add up
    /// to more than 2^63 bytes.
    pub fn new(layout: Layout, child_sizes: &[u64]) -> Result<Self, Unplaceable> {
        layout.check()?;
        if child_sizes.is_empty() {
            return Err(Unplaceable::NoChildren);
        }
        child_sizes
            .iter()
            .try_fold(0u64, |sum, size| sum.checked_add(*size))
            .filter(|sum| *sum <= 1 << 63)
            .ok_or(Unplaceable::TooLarge)?;
        let (zones, unit_bits) = match layout {
            Layout::Linear => (linear_zones(child_sizes), 0),
            Layout::Stripe { unit } => (stripe_zones(unit, child_sizes)?, unit.trailing_zeros()),
        };
        let size = zones.last().map_or(0, |zone| zone.end);
        Ok(Self { zones, unit_bits, size })
    }

    /// Returns the size of the whole.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Maps `range` to ranges of children, in order, none empty. Bytes beyond [`size`](Self::size) have none.
    pub fn map(&self, range: ByteRange) -> Pieces<'_> {
        let zone = self.zones.partition_point(|zone| zone.end <= range.offset);
        Pieces { zones: &self.zones[zone..], unit_bits: self.unit_bits, at: range.offset, end: range.end() }
    }
}

/// The ranges of children of a range: see [`Placement::map`].
#[derive(Debug, Clone)]
pub struct Pieces<'a> {
    zones: &'a [Zone],
    unit_bits: u32,
    at: u64,
    end: u64,
}

impl Iterator for Pieces<'_> {
    type Item = ChildRange;

    fn next(&mut self) -> Option<ChildRange> {
        let zone = self.zones.first()?;
        if self.at >= self.end {
            return None;
        }
        let piece = zone.piece(self.at, self.end, self.unit_bits);
        self.at += piece.range.len;
        if self.at >= zone.end {
            self.zones = &self.zones[1..];
        }
        Some(piece)
    }
}

impl Zone {
    /// Returns the range of this zone that starts at `at` and ends at `end` at the latest.
    #[allow(clippy::cast_possible_truncation, reason = "the column is below the number of members, which is a usize")]
    fn piece(&self, at: u64, end: u64, unit_bits: u32) -> ChildRange {
        let within = at - self.start;
        let end = end.min(self.end);
        if let [child] = self.members[..] {
            return ChildRange { child, range: ByteRange::new(self.child_start + within, end - at), at };
        }
        let members = self.members.len() as u64;
        let (turn, in_unit) = (within >> unit_bits, within & ((1 << unit_bits) - 1));
        let (row, column) = (turn / members, turn % members);
        let len = (end - at).min((1 << unit_bits) - in_unit);
        let offset = self.child_start + (row << unit_bits) + in_unit;
        ChildRange { child: self.members[column as usize], range: ByteRange::new(offset, len), at }
    }
}

fn linear_zones(child_sizes: &[u64]) -> Vec<Zone> {
    let mut start = 0;
    let mut zones = Vec::new();
    for (child, size) in child_sizes.iter().enumerate().filter(|(_, size)| **size > 0) {
        zones.push(Zone { start, end: start + size, child_start: 0, members: [child].into_iter().collect() });
        start += size;
    }
    zones
}

fn stripe_zones(unit: u64, child_sizes: &[u64]) -> Result<Vec<Zone>, Unplaceable> {
    if let Some(child) = child_sizes.iter().position(|size| *size < unit) {
        return Err(Unplaceable::ChildTooSmall { child, bytes: child_sizes[child], unit });
    }
    let usable: Vec<u64> = child_sizes.iter().map(|size| size - size % unit).collect();
    let mut zones = Vec::new();
    let (mut start, mut child_start) = (0, 0);
    // Each round ends at the end of the smallest child that is larger than the last round.
    while let Some(child_end) = usable.iter().copied().filter(|size| *size > child_start).min() {
        let members: SmallVec<[usize; 4]> = (0..usable.len()).filter(|child| usable[*child] > child_start).collect();
        let end = start + (child_end - child_start) * members.len() as u64;
        zones.push(Zone { start, end, child_start, members });
        (start, child_start) = (end, child_end);
    }
    Ok(zones)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn pieces(layout: Layout, sizes: &[u64], range: ByteRange) -> Vec<(usize, u64, u64)> {
        let placement = Placement::new(layout, sizes).unwrap();
        placement.map(range).map(|piece| (piece.child, piece.range.offset, piece.range.len)).collect()
    }

    #[test]
    fn linear_children_follow_each_other() {
        let found = pieces(Layout::Linear, &[10, 0, 5, 7], ByteRange::new(8, 9));
        assert_eq!(found, [(0, 8, 2), (2, 0, 5), (3, 0, 2)]);
    }

    #[test]
    fn a_stripe_alternates_units() {
        let unit = 4 * KIB;
        let found = pieces(Layout::Stripe { unit }, &[8 * KIB; 3], ByteRange::new(unit - 1, 2 * unit + 2));
        assert_eq!(found, [(0, unit - 1, 1), (1, 0, unit), (2, 0, unit), (0, unit, 1)]);
    }

    #[test]
    fn a_stripe_over_unequal_children_continues_without_the_full_ones() {
        let unit = 4 * KIB;
        let layout = Layout::Stripe { unit };
        // 1, 3 and 2 units (and an unused remainder): three rows, of 3, 2 and 1.
        let sizes = [unit, 3 * unit + 100, 2 * unit];
        let placement = Placement::new(layout, &sizes).unwrap();
        assert_eq!(placement.size(), 6 * unit);
        let found = pieces(layout, &sizes, ByteRange::new(0, 6 * unit));
        let expected = [(0, 0), (1, 0), (2, 0), (1, unit), (2, unit), (1, 2 * unit)];
        assert_eq!(found, expected.map(|(child, offset)| (child, offset, unit)));
    }

    #[test]
    fn ranges_beyond_the_end_map_to_nothing() {
        assert_eq!(pieces(Layout::Linear, &[10], ByteRange::new(10, 5)), []);
        assert_eq!(pieces(Layout::Linear, &[10], ByteRange::new(u64::MAX, u64::MAX)), []);
        assert_eq!(pieces(Layout::Linear, &[10], ByteRange::new(8, u64::MAX)), [(0, 8, 2)]);
    }

    #[test]
    fn refusals_say_why() {
        let refusal = |layout, sizes: &[u64]| Placement::new(layout, sizes).unwrap_err();
        let stripe = |unit| Layout::Stripe { unit };
        for unit in [0, 512, 4097, 3 << 12, 8 << 20, u64::MAX] {
            assert_eq!(refusal(stripe(unit), &[1 << 30]), Unplaceable::Unit(unit));
        }
        assert_eq!(refusal(Layout::Linear, &[]), Unplaceable::NoChildren);
        assert_eq!(refusal(Layout::Linear, &[u64::MAX, 1]), Unplaceable::TooLarge);
        let small = Unplaceable::ChildTooSmall { child: 1, bytes: 1000, unit: 64 * KIB };
        assert_eq!(refusal(stripe(64 * KIB), &[1 << 30, 1000]), small);
        assert_eq!(small.to_string(), "child 2 of the stripe has 1000B, less than one stripe unit of 64KiB");
    }
}
