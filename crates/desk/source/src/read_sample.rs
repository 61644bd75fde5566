//! A random sample of the pages that were read of a source, by which the source is recognised later. No I/O.
//!
//! The pages are those whose keyed hashes are the smallest, so that every page that was read has the same chance to be
//! in the sample, however often it was read, and the sample cannot be predicted. Only pages that enter the sample are
//! digested.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

use cheetah_device::{ByteRange, Data};
use cheetah_drive::digests::{ChunkDigest, digest};

/// Bytes of a page. The last one of a source may be shorter.
const PAGE_BYTES: u64 = 4096;
/// The most pages in the sample, about 100 bytes each. If all pages of a full sample are equal, less than 1 % of those read differ, with
/// a confidence of 99.9 %.
const PAGES_MAX: usize = 690;

/// A sample of the pages of a source.
#[derive(Debug)]
pub(crate) struct ReadSample {
    size: u64,
    key: RandomState,
    /// By the hash of its place: the place and the digest of each page.
    pages: BTreeMap<u64, (ByteRange, ChunkDigest)>,
}

impl ReadSample {
    /// Returns the empty sample of a source of `size` bytes.
    pub fn new(size: u64) -> Self {
        Self { size, key: RandomState::new(), pages: BTreeMap::new() }
    }

    /// Records the content read at `range`.
    pub fn note(&mut self, range: ByteRange, data: &Data) {
        let whole_end = if range.end() == self.size { self.size } else { range.end() - range.end() % PAGE_BYTES };
        let whole = ByteRange::between(range.offset.next_multiple_of(PAGE_BYTES), whole_end);
        for page in whole.split_at_multiples(PAGE_BYTES) {
            let hash = self.key.hash_one(page.offset);
            let is_full = self.pages.len() >= PAGES_MAX;
            if is_full && self.pages.last_key_value().is_some_and(|(last, _)| hash > *last) {
                continue;
            }
            self.pages.insert(hash, (page, digest(&data.slice(page.offset - range.offset, page.len))));
            if self.pages.len() > PAGES_MAX {
                self.pages.pop_last();
            }
        }
    }

    /// Returns the places and the digests of the pages.
    pub fn pages(&self) -> Vec<(ByteRange, ChunkDigest)> {
        self.pages.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_pages_are_kept_and_the_last_one_of_the_source() {
        let mut sample = ReadSample::new(3 * PAGE_BYTES + 100);
        sample.note(ByteRange::new(100, 2 * PAGE_BYTES), &Data::from(vec![7; 2 * PAGE_BYTES as usize]));
        sample.note(ByteRange::new(PAGE_BYTES, 10), &Data::from(vec![9; 10]));
        sample.note(ByteRange::new(3 * PAGE_BYTES, 100), &Data::from(vec![8; 100]));
        let mut pages = sample.pages();
        pages.sort_unstable();
        let page = |offset, len, byte| (ByteRange::new(offset, len), digest(&Data::from(vec![byte; len as usize])));
        assert_eq!(pages, [page(PAGE_BYTES, PAGE_BYTES, 7), page(3 * PAGE_BYTES, 100, 8)]);
    }

    #[test]
    fn the_sample_has_a_limit_and_covers_all_that_was_read() {
        let mut sample = ReadSample::new(u64::MAX);
        for mib in 0..64 {
            sample.note(ByteRange::new(mib << 20, 1 << 20), &Data::zeros(1 << 20));
        }
        let pages = sample.pages();
        assert_eq!(pages.len(), PAGES_MAX);
        // A quarter of them is expected in each quarter; fewer than 100 of 690 is as likely as one in 10^10.
        for quarter in 0..4 {
            let within = pages.iter().filter(|(page, _)| page.offset >> 24 == quarter).count();
            assert!(within >= 100, "{quarter}: {within}");
        }
    }
}
