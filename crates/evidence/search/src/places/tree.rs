//! Which runs hold a byte: a balanced tree of intervals, in two arrays.
//!
//! The runs are sorted by where they begin. The middle of a slice is the root of its tree, and knows where the last run of the slice ends, so that a
//! slice whose runs all end before a byte is left out.

use super::FileRun;

/// An index of runs.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The numbers of the runs, by where they begin.
    order: Vec<u32>,
    /// The end of the last run in the tree below each.
    ends: Vec<u64>,
}

impl Tree {
    /// Sorts runs, of which there are at most 2^32.
    pub(super) fn of(runs: &[FileRun]) -> Self {
        let mut order: Vec<u32> = (0..runs.len()).filter_map(|number| u32::try_from(number).ok()).collect();
        order.sort_unstable_by_key(|number| (begin(runs, *number), *number));
        let mut ends = vec![0; order.len()];
        set_ends(runs, &order, &mut ends);
        Self { order, ends }
    }

    /// Calls `found` with the number of each run that holds the byte, at most `most` times.
    pub(super) fn each_at(&self, runs: &[FileRun], offset: u64, most: usize, mut found: impl FnMut(usize)) {
        let mut left = most;
        let mut slices = vec![(0, self.order.len())];
        while let Some((from, to)) = slices.pop() {
            let middle = from + (to - from) / 2;
            let (Some(number), Some(end)) = (self.order.get(middle), self.ends.get(middle)) else { continue };
            if from == to || *end <= offset {
                continue;
            }
            slices.push((from, middle));
            if begin(runs, *number) > offset {
                continue;
            }
            slices.push((middle + 1, to));
            if run_end(runs, *number) > offset {
                if left == 0 {
                    return;
                }
                left -= 1;
                found(*number as usize);
            }
        }
    }
}

fn begin(runs: &[FileRun], number: u32) -> u64 {
    runs.get(number as usize).map_or(u64::MAX, |run| run.range.offset)
}

fn run_end(runs: &[FileRun], number: u32) -> u64 {
    runs.get(number as usize).map_or(0, |run| run.range.end())
}

/// Sets the ends of the tree of a slice, and returns that of its root. As deep as the logarithm of its length.
fn set_ends(runs: &[FileRun], order: &[u32], ends: &mut [u64]) -> u64 {
    let middle = order.len() / 2;
    let Some(own) = order.get(middle).map(|number| run_end(runs, *number)) else { return 0 };
    let (before, rest) = ends.split_at_mut(middle);
    let Some((root, behind)) = rest.split_first_mut() else { return 0 };
    let left = set_ends(runs, order.get(..middle).unwrap_or_default(), before);
    let right = set_ends(runs, order.get(middle + 1..).unwrap_or_default(), behind);
    *root = own.max(left).max(right);
    *root
}

#[cfg(test)]
mod tests {
    use cheetah_device::ByteRange;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_runs_that_hold_a_byte_are_those_of_a_look_at_all(
            ranges in prop::collection::vec((0u64..200, 0u64..60), 0..40),
            offset in 0u64..260,
        ) {
            let run = |(begin, len): &(u64, u64)| FileRun { file_offset: 0, range: ByteRange::new(*begin, *len) };
            let runs: Vec<_> = ranges.iter().map(run).collect();
            let (tree, mut found) = (Tree::of(&runs), Vec::new());
            tree.each_at(&runs, offset, usize::MAX, |number| found.push(number));
            found.sort_unstable();
            let holds = |number: &usize| runs[*number].range.contains(ByteRange::new(offset, 1));
            let expected: Vec<_> = (0..runs.len()).filter(holds).collect();
            prop_assert_eq!(&found, &expected);
            let mut some = 0;
            tree.each_at(&runs, offset, 2, |_| some += 1);
            prop_assert_eq!(some, expected.len().min(2));
        }
    }
}
