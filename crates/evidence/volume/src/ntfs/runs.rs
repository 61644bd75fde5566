//! Run lists: the clusters of a non-resident attribute.

/// A run of clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// The first cluster on the volume; `None` for a hole.
    pub start: Option<u64>,
    /// The number of clusters; not 0.
    pub clusters: u64,
}

/// Decodes a run list (Carrier, *File System Forensic Analysis*, chapter 11, "Cluster runs"): a byte with the lengths
/// of the two following numbers, the run's length and the signed distance of its start from the previous run's. Stops
/// at the end of the list, and before an invalid run.
#[derive(Debug, Clone)]
pub(super) struct Runs<'a> {
    list: &'a [u8],
    start: i64,
}

impl<'a> Runs<'a> {
    pub(super) fn new(list: &'a [u8]) -> Self {
        Self { list, start: 0 }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let (&head, rest) = self.list.split_first()?;
        let (len_bytes, start_bytes) = (usize::from(head & 15), usize::from(head >> 4));
        if len_bytes > 8 || start_bytes > 8 {
            return None;
        }
        let (len, rest) = rest.split_at_checked(len_bytes)?;
        let (start, rest) = rest.split_at_checked(start_bytes)?;
        self.list = rest;
        let clusters = u64::try_from(signed(len)).ok().filter(|&clusters| clusters > 0)?;
        if start.is_empty() {
            return Some(Run { start: None, clusters });
        }
        self.start = self.start.checked_add(signed(start))?;
        Some(Run { start: Some(u64::try_from(self.start).ok()?), clusters })
    }
}

/// A little-endian number in two's complement, of up to eight bytes.
fn signed(bytes: &[u8]) -> i64 {
    let fill = bytes.last().map_or(0, |&last| if last & 0x80 == 0 { 0 } else { 0xff });
    let mut all = [fill; 8];
    for (to, from) in all.iter_mut().zip(bytes) {
        *to = *from;
    }
    i64::from_le_bytes(all)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes a run list, with a minimum length of each number.
    pub(in crate::ntfs) fn encode(runs: &[Run], bytes_min: usize) -> Vec<u8> {
        let shortest = |number: i64| {
            (bytes_min.max(1)..8).find(|&n| number << (64 - 8 * n) >> (64 - 8 * n) == number).unwrap_or(8)
        };
        let (mut list, mut before) = (Vec::new(), 0);
        for run in runs {
            let len = shortest(run.clusters as i64);
            let start = run.start.map(|start| start as i64 - std::mem::replace(&mut before, start as i64));
            let start_len = start.map_or(0, shortest);
            list.push((start_len << 4 | len) as u8);
            list.extend(&run.clusters.to_le_bytes()[..len]);
            list.extend(&start.unwrap_or(0).to_le_bytes()[..start_len]);
        }
        list.push(0);
        list
    }

    fn run() -> impl Strategy<Value = Run> {
        let number = || prop_oneof![1..200_u64, 1..100_000_u64, 1..1_u64 << 60];
        (prop::option::of(number()), number()).prop_map(|(start, clusters)| Run { start, clusters })
    }

    proptest! {
        #[test]
        fn an_encoded_run_list_decodes_to_itself(runs in prop::collection::vec(run(), 0..20), bytes_min in 0..9_usize) {
            prop_assert_eq!(Runs::new(&encode(&runs, bytes_min)).collect::<Vec<_>>(), runs);
        }

        #[test]
        fn any_bytes_decode_like_the_model(list in prop::collection::vec(any::<u8>(), 0..200)) {
            // The model: one byte at a time, in wide integers.
            let (mut at, mut start, mut model) = (0, 0_i128, Vec::new());
            let number = |at: usize, n: usize| -> Option<i128> {
                let bytes = list.get(at..at + n)?;
                let value = bytes.iter().rev().fold(0_i128, |value, &byte| value << 8 | i128::from(byte));
                Some(if n > 0 && bytes[n - 1] >= 0x80 { value - (1 << (8 * n)) } else { value })
            };
            while let Some(&head) = list.get(at) {
                let (n, m) = (usize::from(head & 15), usize::from(head >> 4));
                let (Some(len), Some(by)) = (number(at + 1, n.min(8)), number(at + 1 + n.min(8), m.min(8))) else { break };
                start += by;
                let fits = (0..=i128::from(i64::MAX)).contains(&start);
                if n > 8 || m > 8 || len <= 0 || m > 0 && !fits {
                    break;
                }
                model.push(Run { start: (m > 0).then_some(start as u64), clusters: len as u64 });
                at += 1 + n + m;
            }
            prop_assert_eq!(Runs::new(&list).collect::<Vec<_>>(), model);
        }
    }

    #[test]
    fn an_example_run_list_is_decoded() {
        // 56 clusters from 342,573, then 114 clusters 363,758 later, then a hole of 32, then 16 clusters at a lower
        // number.
        let list =
            [0x31, 0x38, 0x2d, 0x3a, 0x05, 0x31, 0x72, 0xee, 0x8c, 0x05, 0x01, 0x20, 0x11, 0x10, 0xfc, 0x00, 0xff];
        let expected = [
            Run { start: Some(342_573), clusters: 56 },
            Run { start: Some(706_331), clusters: 114 },
            Run { start: None, clusters: 32 },
            Run { start: Some(706_327), clusters: 16 },
        ];
        assert_eq!(Runs::new(&list).collect::<Vec<_>>(), expected);
    }
}
