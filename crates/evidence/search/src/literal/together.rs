//! A few patterns that are found by their first bytes, at many places at once.
//!
//! The library looks at 16 or 32 places with a few instructions of a processor (Teddy, of Hyperscan), and compares a pattern where its
//! first bytes may stand. It tells the first place at which any pattern stands, so the others are compared there, too, and it goes on
//! behind that.

use aho_corasick::Span;
use aho_corasick::packed::{Config, Searcher};
use cheetah_error::Result;

use super::patterns::Patterns;
use crate::memory::{GROWING, Memory};

/// Shorter patterns meet too many places.
const PATTERN_BYTES_MIN: usize = 3;
/// What the library takes for each pattern besides its bytes: its list and its number, in growing lists.
const PATTERN_BYTES: usize = GROWING * (size_of::<Vec<u8>>() + 2 * size_of::<u32>());
/// What it takes for its tables: of the first bytes, and of a hash of 64 places.
const TABLES_BYTES: usize = 16 << 10;

/// Patterns, to be found together.
pub struct Together {
    searcher: Searcher,
    chosen: Vec<u32>,
}

impl Together {
    /// Prepares to find the chosen patterns; `None` if this processor or the library cannot, or if it would not be fast.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if that may take more than the memory.
    pub fn new(patterns: &Patterns, chosen: &[u32], memory: &mut Memory) -> Result<Option<Self>> {
        let lens = || chosen.iter().map(|pattern| patterns.bytes(*pattern).len());
        if patterns.ignores_case() || lens().any(|len| len < PATTERN_BYTES_MIN) {
            return Ok(None);
        }
        let each = PATTERN_BYTES + GROWING * size_of::<u32>();
        memory.take(lens().fold(TABLES_BYTES, |all, len| all.saturating_add(GROWING * len).saturating_add(each)))?;
        let mut builder = Config::new().builder();
        builder.extend(chosen.iter().map(|pattern| patterns.bytes(*pattern)));
        Ok(builder.build().map(|searcher| Self { searcher, chosen: chosen.to_vec() }))
    }

    /// Calls `found` with the number of each pattern in `bytes`, and where it begins. The patterns are those that it was made of.
    pub fn scan(
        &self,
        patterns: &Patterns,
        bytes: &[u8],
        mut found: impl FnMut(u32, usize) -> Result<()>,
    ) -> Result<()> {
        let mut from = 0;
        while let Some(first) = self.searcher.find_in(bytes, Span { start: from, end: bytes.len() }) {
            let at = first.start();
            let rest = bytes.get(at..).unwrap_or_default();
            for pattern in self.chosen.iter().filter(|pattern| patterns.begins(**pattern, rest)) {
                found(*pattern, at)?;
            }
            from = at + 1;
        }
        Ok(())
    }
}
