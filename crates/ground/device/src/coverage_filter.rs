//! Content with missing ranges: never read from its source, or unreadable there.

use std::sync::Arc;

use crate::coverage::State;
use crate::error::Withheld;
use crate::layer::{Layer, Reads, Writes};
use crate::{ByteRange, Coverage, Device, DynDevice, Error, Extent, Io, Result};

/// Fails reads of ranges that were not read from the source, or were unreadable: the device below has zeros there,
/// which are not the source's content. Read-only.
pub struct CoverageFilter {
    below: DynDevice,
    coverage: Coverage,
    name: Arc<str>,
    when: &'static str,
}

impl CoverageFilter {
    /// Allows reads of the ranges that are `Read` in `coverage`, and of everything after its end. `name` is
    /// what errors call the device, and `when` says when it was read, as in `when the image was made`.
    pub fn new(below: DynDevice, coverage: Coverage, name: impl Into<Arc<str>>, when: &'static str) -> Self {
        Self { below, coverage, name: name.into(), when }
    }
}

impl Layer for CoverageFilter {
    type Below = DynDevice;
    const READS: Reads = Reads::PassThrough;
    const WRITES: Writes = Writes::Refused;

    fn below(&self) -> &DynDevice {
        &self.below
    }

    fn may_read(&self, range: ByteRange) -> Result<()> {
        let gap = self.coverage.runs(range).find(|(_, state)| *state != State::Read);
        gap.map_or(Ok(()), |(range, state)| {
            let reason = match state {
                State::Unread => Withheld::NotRead(self.when),
                _ => Withheld::WasUnreadable(self.when),
            };
            Err(Error::Withheld { device: self.name.clone(), range, reason })
        })
    }

    fn on_extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        let runs: Vec<_> = self.coverage.runs(range).collect();
        if runs.iter().all(|(_, state)| *state == State::Read) {
            return self.below.extents(range);
        }
        let behind = ByteRange::between(self.coverage.size().max(range.offset), range.end());
        Io::later(async move {
            let mut extents = Vec::new();
            for (run, state) in runs.into_iter().chain((!behind.is_empty()).then_some((behind, State::Read))) {
                let found = match state {
                    State::Read => self.below.extents(run).await?,
                    // Not a hole: a reader that skips holes would take it for zeros.
                    State::Unread | State::Unreadable => vec![Extent::data(run.len)],
                };
                found.into_iter().for_each(|extent| extent.push(&mut extents));
            }
            Ok(extents)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Data;
    use crate::memory::Memory;

    #[tokio::test]
    async fn an_unreadable_range_is_an_error_and_never_a_hole() {
        let mut coverage = Coverage::new(100);
        coverage.set(ByteRange::new(0, 100), State::Read);
        coverage.set(ByteRange::new(40, 10), State::Unreadable);
        let filter = CoverageFilter::new(Arc::new(Memory::new(vec![0; 200])), coverage, "case42", "when it was filled");
        assert!(filter.read(ByteRange::new(0, 40)).await.is_ok() && filter.read(ByteRange::new(50, 150)).await.is_ok());
        let error = filter.read(ByteRange::new(0, 41)).await.unwrap_err();
        let reason = Withheld::WasUnreadable("when it was filled");
        assert_eq!(error, Error::Withheld { device: "case42".into(), range: ByteRange::new(40, 1), reason });
        let extents = filter.extents(ByteRange::new(10, 190)).await.unwrap();
        assert_eq!(extents, [Extent::data(190)]);
        assert!(filter.write(0, Data::zeros(1), false).await.is_err());
    }
}
