//! Where runs of characters of a class stand.

use cheetah_error::Result;
use cheetah_kit::ascii_class::{BLOCK_BYTES, Class, are_masks_fast, each_mask};

use super::text::Characters;

/// What follows or precedes each character of ASCII in UTF-16.
static NUL: Class = Class::of("\0");

/// The fewest characters of which one lies within some 64 bytes: a single one of UTF-16 may begin in these and end in the next.
const MASKS_LEN_MIN: usize = 2;

/// Calls `place` with each place at which at least `len` characters of the class begin, in order. The class does not have NUL.
///
/// In UTF-16, characters may begin at even or odd places. Two runs of which one begins at an even place and one at an odd do not overlap:
/// the NULs of one would be characters of the other.
pub fn each_in_runs<C: Characters>(
    text: C,
    class: &Class,
    len: usize,
    place: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let has_masks = are_masks_fast() && len >= MASKS_LEN_MIN;
    if has_masks { by_masks(text, class, len, place) } else { by_skips(text, class, len, place) }
}

/// Looks at 64 bytes at once, for runs of [`MASKS_LEN_MIN`] characters or more. A run has half of its characters, but one that is cut, within
/// some 64 bytes: only from there on it is followed to its ends.
fn by_masks<C: Characters>(
    text: C,
    class: &Class,
    len: usize,
    mut place: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let unit = C::BYTES;
    let seed_len = (len / 2).clamp(1, BLOCK_BYTES / unit - 1);
    let mut end = 0;
    each_mask([class, &NUL], text.bytes(), |block, [of_class, nul]| {
        let mut seeds = each_begins_a_run(C::begin(of_class, nul), seed_len, unit);
        while seeds != 0 {
            let seed = block + seeds.trailing_zeros() as usize;
            seeds &= seeds - 1;
            // It may lie in the last run, or behind the end of the bytes.
            if seed < end || !text.is(seed, class) {
                continue;
            }
            let mut from = seed;
            while let Some(before) = from.checked_sub(unit).filter(|before| text.is(*before, class)) {
                from = before;
            }
            end = seed + unit;
            while text.is(end, class) {
                end += unit;
            }
            let places = end.checked_sub(len.max(1) * unit).map_or(from..from, |last| from..last + 1);
            places.step_by(unit).try_for_each(&mut place)?;
        }
        Ok(())
    })
}

/// The bits of the mask with which `len` bits begin, each `unit` behind the one before.
const fn each_begins_a_run(mask: u64, len: usize, unit: usize) -> u64 {
    let (mut begin, mut done) = (mask, 1);
    while done < len {
        let more = if done < len - done { done } else { len - done };
        begin &= begin >> (more * unit);
        done += more;
    }
    begin
}

/// Looks at characters from the last of `len` backwards. Where one is none of the class, the next `len` begin behind it, so that most
/// characters are never looked at (the idea of Boyer and Moore, 1977).
fn by_skips<C: Characters>(
    text: C,
    class: &Class,
    len: usize,
    mut place: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let (unit, before) = (C::BYTES, (len.max(1) - 1) * C::BYTES);
    // The last of the characters to look at, from even and from odd places on.
    let mut lasts = [before, before + 1];
    loop {
        let odd = usize::from(unit > 1 && lasts[1] < lasts[0]);
        let (mut last, size) = (lasts[odd], text.bytes().len());
        // Most of the characters that are looked at are none of the class: a short loop passes them.
        while unit == 1 && last < size && !text.is(last, class) {
            last += unit + before;
        }
        if last + unit > size {
            return Ok(());
        }
        let first = last - before;
        lasts[odd] = match (0..len.max(1)).map(|back| last - back * unit).find(|at| !text.is(*at, class)) {
            Some(other) => other + unit + before,
            None => {
                let mut end = last + unit;
                while text.is(end, class) {
                    end += unit;
                }
                (first..end - before).step_by(unit).try_for_each(&mut place)?;
                end + unit + before
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::{Narrow, Wide};
    use super::*;
    use proptest::prelude::*;

    static CLASS: Class = Class::of("0-9 ");

    /// The places at which `len` characters of the class begin, one after the other.
    fn naive<C: Characters>(text: C, len: usize) -> Vec<usize> {
        let is_run = |at: &usize| (0..len).all(|number| text.is(at + number * C::BYTES, &CLASS));
        (0..text.bytes().len()).filter(is_run).collect()
    }

    fn check<C: Characters>(text: C, len: usize) {
        let wanted = naive(text, len);
        for what in ["masks", "skips", "either"] {
            let mut places = Vec::new();
            let note = |at| {
                places.push(at);
                Ok(())
            };
            let done = match what {
                "masks" if len < MASKS_LEN_MIN => continue,
                "masks" => by_masks(text, &CLASS, len, note),
                "skips" => by_skips(text, &CLASS, len, note),
                _ => each_in_runs(text, &CLASS, len, note),
            };
            assert!(done.is_ok());
            assert_eq!(places, wanted, "{what}, {len} in {:?}", text.bytes());
        }
    }

    #[test]
    fn a_character_that_begins_at_the_end_of_64_bytes_is_found() {
        let little = [vec![b'7'; 64], vec![0]].concat();
        let big = [vec![0; 64], vec![b'7']].concat();
        assert_eq!((naive(Wide::<false>(&little), 1), naive(Wide::<true>(&big), 1)), (vec![63], vec![63]));
        check(Wide::<false>(&little), 1);
        check(Wide::<true>(&big), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn runs_are_found_wherever_they_begin_and_end(
            pieces in prop::collection::vec((0usize..5, 0usize..90), 0..12),
            len in 1usize..40,
        ) {
            let mut bytes = Vec::new();
            for (kind, count) in pieces {
                let piece: &[u8] = [&b"7"[..], b"7\0", b"\0 ", b"x", b"\0"][kind];
                bytes.extend(piece.iter().cycle().take(count));
            }
            check(Narrow(&bytes), len);
            check(Wide::<false>(&bytes), len);
            check(Wide::<true>(&bytes), len);
        }
    }

    #[test]
    fn long_runs_and_runs_at_both_ends_are_found() {
        for size in [0, 1, 11, 12, 13, 63, 64, 65, 128, 200, 1_000] {
            check(Narrow(&vec![b'5'; size]), 12);
            check(Wide::<false>(&b"5\0".repeat(size)), 12);
            check(Wide::<true>(&b"\x005".repeat(size)), 12);
        }
    }
}
