//! The result of a search for a range.

use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_device::coverage::State;

use crate::hit::Hit;
use crate::node::SearchNode;

/// The result for a range. Batches follow each other without gaps, from the start of the device to its end, or of each range that is
/// searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The range.
    pub range: ByteRange,
    /// Whether it was searched: `Read`, or else it is a gap.
    pub state: State,
    /// Why it was not searched.
    pub why: Option<Arc<str>>,
    /// The hits that begin in it, in order.
    pub hits: Vec<Hit>,
    /// The node that found its hits; `None` if this process did, or if there are none.
    pub node: Option<Arc<SearchNode>>,
}

impl Batch {
    /// A range that was not searched.
    pub(crate) fn gap(range: ByteRange, state: State, why: Arc<str>) -> Self {
        Self { range, state, why: Some(why), hits: Vec::new(), node: None }
    }

    /// Whether a batch follows at once, and neither has hits.
    pub(crate) fn goes_on_in(&self, next: &Self) -> bool {
        let has_nothing = |batch: &Self| batch.state == State::Read && batch.hits.is_empty();
        self.range.end() == next.range.offset && has_nothing(self) && has_nothing(next)
    }

    /// The result for a part of the range.
    #[must_use]
    pub fn within(&self, range: ByteRange) -> Self {
        let is_own = |hit: &&Hit| (range.offset..range.end()).contains(&hit.offset);
        let hits = self.hits.iter().filter(is_own).cloned().collect();
        Self { range, state: self.state, why: self.why.clone(), hits, node: self.node.clone() }
    }
}
