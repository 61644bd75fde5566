//! What a search has covered, and how much it found.

use std::sync::Arc;

use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage};

use crate::batch::Batch;
use crate::hit::Hit;
use crate::truncated::{Truncation, Truncations};

/// A range that was not searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Where.
    pub range: ByteRange,
    /// Whether it cannot be read, or was never read when the image was made.
    pub state: State,
    /// Why.
    pub why: Arc<str>,
}

/// The result of a search, so far.
#[derive(Debug, Clone)]
pub struct Outcome {
    coverage: Coverage,
    gaps: Vec<Gap>,
    truncated: Truncations,
    hits: Vec<u64>,
}

impl Outcome {
    /// Nothing of a device of `size` bytes is searched yet, for this number of patterns.
    pub fn new(size: u64, patterns: usize) -> Self {
        Self {
            coverage: Coverage::new(size),
            gaps: Vec::new(),
            truncated: Truncations::default(),
            hits: vec![0; patterns],
        }
    }

    /// Adds a batch.
    pub fn add(&mut self, batch: &Batch) {
        self.coverage.set(batch.range, batch.state);
        batch.hits.iter().for_each(|hit| self.count(hit));
        let Some(why) = &batch.why else { return };
        match self.gaps.last_mut() {
            Some(last) if last.range.end() == batch.range.offset && (last.state, &last.why) == (batch.state, why) => {
                last.range.len += batch.range.len;
            }
            _ => self.gaps.push(Gap { range: batch.range, state: batch.state, why: why.clone() }),
        }
    }

    /// Counts a hit.
    pub fn count(&mut self, hit: &Hit) {
        self.hits.get_mut(hit.pattern).into_iter().for_each(|hits| *hits += 1);
    }

    /// Which bytes were searched (`Read`), cannot be read (`Unreadable`), or were not searched: not there, or not reached.
    pub const fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// The ranges that were not searched, in order, apart from those that were not reached.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Adds a range that was searched only partly.
    pub fn truncate(&mut self, truncation: Truncation) {
        self.truncated.push(truncation);
    }

    /// The ranges that were searched only partly.
    pub const fn truncated(&self) -> &Truncations {
        &self.truncated
    }

    /// The number of hits of each pattern.
    pub fn hits_by_pattern(&self) -> &[u64] {
        &self.hits
    }

    /// The number of hits.
    pub fn hits(&self) -> u64 {
        self.hits.iter().sum()
    }
}
