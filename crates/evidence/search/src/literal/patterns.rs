//! The bytes of patterns.

use crate::found::number;
use crate::memory::GROWING;

/// Patterns, each with a number.
pub struct Patterns {
    /// The bytes of all, one after the other.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    ignore_case: bool,
}

/// What each of several different patterns was collected for.
pub struct Origins {
    /// Where the origins of each pattern begin in `all`; at the end, their number.
    first: Vec<u32>,
    all: Vec<u32>,
}

impl Origins {
    /// What a pattern was collected for.
    pub fn of(&self, pattern: u32) -> &[u32] {
        let pattern = pattern as usize;
        let Some([from, to]) = self.first.get(pattern..pattern + 2) else { return &[] };
        self.all.get(*from as usize..*to as usize).unwrap_or_default()
    }
}

impl Patterns {
    /// None yet. If the case of ASCII letters is ignored, those that are added have small ones.
    pub const fn new(ignore_case: bool) -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), ignore_case }
    }

    /// Adds a pattern, with the next number from 0 on.
    pub fn push(&mut self, pattern: &[u8]) {
        self.bytes.extend_from_slice(pattern);
        self.ends.push(self.bytes.len());
    }

    /// What a pattern of this length takes at most, from when it is collected to when it is one of different patterns.
    pub const fn memory_bytes(len: usize) -> usize {
        // Collected: its bytes, its end and its origin; then its place in the order; then the same again, and where its origins begin.
        let collected = GROWING * (len + size_of::<usize>() + size_of::<u32>());
        collected + size_of::<u32>() + len + size_of::<usize>() + 2 * size_of::<u32>()
    }

    /// Each pattern once, in the order of the bytes, and the `origins` of those that are equal: there is one for each pattern.
    pub fn distinct(&self, origins: &[u32]) -> (Self, Origins) {
        let mut order: Vec<u32> = (0..number(self.len())).collect();
        order.sort_unstable_by(|a, b| self.bytes(*a).cmp(self.bytes(*b)).then(a.cmp(b)));
        let mut distinct = Self {
            bytes: Vec::with_capacity(self.bytes.len()),
            ends: Vec::with_capacity(self.len()),
            ignore_case: self.ignore_case,
        };
        let mut first = Vec::with_capacity(self.len() + 1);
        let mut last = None;
        for (place, pattern) in order.iter().enumerate() {
            let bytes = self.bytes(*pattern);
            if last != Some(bytes) {
                distinct.push(bytes);
                first.push(number(place));
                last = Some(bytes);
            }
        }
        first.push(number(order.len()));
        let all = order.iter().filter_map(|pattern| origins.get(*pattern as usize)).copied().collect();
        (distinct, Origins { first, all })
    }

    /// The number of patterns.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the case of ASCII letters is ignored.
    pub const fn ignores_case(&self) -> bool {
        self.ignore_case
    }

    /// The bytes of a pattern; none if there is no such pattern.
    pub fn bytes(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let Some(end) = self.ends.get(number) else { return &[] };
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default();
        self.bytes.get(start..*end).unwrap_or_default()
    }

    /// Whether `bytes` begin with a pattern.
    pub fn begins(&self, number: u32, bytes: &[u8]) -> bool {
        let pattern = self.bytes(number);
        bytes.get(..pattern.len()).is_some_and(|there| match self.ignore_case {
            true => there.eq_ignore_ascii_case(pattern),
            false => there == pattern,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Patterns that are numbered from 0 on.
    pub fn patterns(all: &[Vec<u8>], ignore_case: bool) -> Patterns {
        let mut patterns = Patterns::new(ignore_case);
        all.iter().for_each(|pattern| patterns.push(pattern));
        patterns
    }

    #[test]
    fn equal_patterns_become_one_that_has_all_their_origins() {
        let all = [&b"b"[..], b"a", b"b", b"ab", b"a"].map(<[u8]>::to_vec);
        let (distinct, origins) = patterns(&all, false).distinct(&[10, 11, 12, 13, 14]);
        let found: Vec<_> = (0..3).map(|number| (distinct.bytes(number), origins.of(number))).collect();
        let [one, two, both] = [&[11, 14][..], &[13], &[10, 12]];
        assert_eq!(found, [(&b"a"[..], one), (&b"ab"[..], two), (&b"b"[..], both)]);
        assert!(distinct.len() == 3 && distinct.bytes(3).is_empty() && origins.of(3).is_empty());
    }
}
