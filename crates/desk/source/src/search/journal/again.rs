//! Ranges that are searched again and cannot be read now: what was found there stays.

use cheetah_device::coverage::State as Reach;
use cheetah_device::{ByteRange, Coverage, coalesce};
use cheetah_search::seam::Overlap;

use super::record::RangePart;

/// Why a range does not count as searched that was read for the first time.
const WHY_BESIDE: &str = "what lies beside it was read before, and not together with it";

/// The ranges that were searched before, and cannot be read now, in a range from `offset` on.
pub fn lost(offset: u64, parts: &[RangePart], coverage: &Coverage) -> Vec<ByteRange> {
    let mut lost = Vec::new();
    each(offset, parts, |part, range| {
        if part.state.is_some_and(|state| state != Reach::Read) {
            lost.extend(coverage.runs(range).filter(|(_, reach)| *reach == Reach::Read).map(|(run, _)| run));
        }
    });
    lost
}

/// The bytes beside a range that is lost within which something new does not count as searched.
pub fn reach_bytes(overlap: Overlap) -> u64 {
    (overlap.edge() as u64).saturating_mul(2)
}

/// The parts of a range from `offset` on as they are to be recorded, if these ranges are [`lost`].
///
/// What was searched before stays so if it cannot be read now. Hits across the border of such a range and of one that is read for the
/// first time are not found then, so the second does not count as searched beside it: it is searched again the next time.
pub fn settled(
    offset: u64,
    parts: Vec<RangePart>,
    (coverage, overlap): (&Coverage, Overlap),
    lost: &[ByteRange],
) -> Vec<RangePart> {
    if lost.is_empty() {
        return parts;
    }
    let (near, further) = (widened(lost, overlap.edge() as u64), widened(lost, reach_bytes(overlap)));
    let mut settled: Vec<RangePart> = Vec::new();
    each(offset, &parts, |part, range| {
        for (run, before) in coverage.runs(range) {
            let around = if before == Reach::Read { &near } else { &further };
            for (piece, is_near) in divided(run, around) {
                let (state, why, node) = match (part.state, before) {
                    // What can be read there now says less of its hits than what was read before.
                    (Some(Reach::Read), Reach::Read) if is_near => (None, None, None),
                    (Some(Reach::Read), _) if is_near => (Some(Reach::Unreadable), Some(WHY_BESIDE.to_owned()), None),
                    (Some(Reach::Unread | Reach::Unreadable), Reach::Read) => (None, None, None),
                    (state, _) => (state, part.why.clone(), part.node),
                };
                let len = piece.len;
                match settled.last_mut() {
                    Some(last) if (last.state, &last.why, last.node) == (state, &why, node) => last.len += len,
                    _ => settled.push(RangePart { len, state, why, node }),
                }
            }
        }
    });
    settled
}

/// Calls `with` for each part and its range.
fn each(offset: u64, parts: &[RangePart], mut with: impl FnMut(&RangePart, ByteRange)) {
    let mut at = offset;
    for part in parts {
        let range = ByteRange::new(at, part.len);
        at = range.end();
        with(part, range);
    }
}

/// The ranges with as many bytes on both sides.
fn widened(ranges: &[ByteRange], by: u64) -> Vec<ByteRange> {
    let wider = |range: &ByteRange| ByteRange::between(range.offset.saturating_sub(by), range.end().saturating_add(by));
    coalesce(ranges.iter().map(wider).collect(), 0)
}

/// The pieces of a range, in order, and whether each lies in one of the others, which are in order.
fn divided(range: ByteRange, others: &[ByteRange]) -> Vec<(ByteRange, bool)> {
    let first = others.partition_point(|other| other.end() <= range.offset);
    let (mut pieces, mut at) = (Vec::new(), range.offset);
    for other in others.iter().skip(first).take_while(|other| other.offset < range.end()) {
        let Some(within) = other.intersection(range) else { continue };
        pieces.extend([(ByteRange::between(at, within.offset), false), (within, true)]);
        at = within.end();
    }
    pieces.push((ByteRange::between(at, range.end()), false));
    pieces.retain(|(piece, _)| !piece.is_empty());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(len: u64, state: Option<Reach>) -> RangePart {
        let why = state.filter(|state| *state != Reach::Read).map(|_| "bad sector".to_owned());
        RangePart { len, state, why, node: None }
    }

    #[test]
    fn what_was_searched_stays_so_and_what_is_new_beside_it_is_searched_again() {
        let mut coverage = Coverage::new(1000);
        coverage.set(ByteRange::new(0, 500), Reach::Read);
        let overlap = Overlap { before: 4, after: 6 };
        let same = vec![part(500, Some(Reach::Read)), part(500, Some(Reach::Unreadable))];
        assert!(lost(0, &same, &coverage).is_empty());
        assert_eq!(settled(0, same.clone(), (&coverage, overlap), &[]), same);
        let parts = vec![
            part(400, Some(Reach::Read)),
            part(90, Some(Reach::Unreadable)),
            part(310, Some(Reach::Read)),
            part(200, Some(Reach::Unreadable)),
        ];
        let beside = RangePart { why: Some(WHY_BESIDE.into()), ..part(10, Some(Reach::Unreadable)) };
        let expected = [
            part(390, Some(Reach::Read)),
            part(110, None),
            beside,
            part(290, Some(Reach::Read)),
            part(200, Some(Reach::Unreadable)),
        ];
        let lost = lost(0, &parts, &coverage);
        assert_eq!(lost, [ByteRange::new(400, 90)]);
        assert_eq!(settled(0, parts, (&coverage, overlap), &lost), expected);
    }

    #[test]
    fn a_range_is_divided_where_others_begin_and_end() {
        let range = ByteRange::new;
        let others = [range(0, 5), range(12, 3), range(18, 50)];
        let pieces = [(range(10, 2), false), (range(12, 3), true), (range(15, 3), false), (range(18, 2), true)];
        assert_eq!(divided(range(10, 10), &others), pieces);
        assert_eq!(divided(range(6, 2), &others), [(range(6, 2), false)]);
    }
}
