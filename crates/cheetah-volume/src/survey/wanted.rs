//! Wanting nothing twice, and nothing outside the volume.

use cheetah_device::ByteRange;

use super::ranges::Ranges;
use super::{Plan, WINDOW_BYTES};

/// The most that one survey reads, and the most that it has fetched, in bytes: far more than the metadata of any sane
/// file system, and a bound for the others.
const BYTES_MAX: u64 = 16 << 30;

/// What a surveyor wanted so far.
///
/// It goes between a surveyor and its [`Plan`]: what lies outside the volume or was wanted before is cut off. A range may
/// be read after it was fetched, for only what is read comes back to the surveyor.
#[derive(Debug)]
pub(crate) struct Wanted {
    volume: ByteRange,
    read: Ranges,
    /// What was read or fetched.
    near: Ranges,
    read_bytes: u64,
    fetched_bytes: u64,
}

impl Wanted {
    /// Nothing yet, of a volume of so many bytes.
    pub(crate) fn new(volume_bytes: u64) -> Self {
        let volume = ByteRange::new(0, volume_bytes);
        Self { volume, read: Ranges::default(), near: Ranges::default(), read_bytes: 0, fetched_bytes: 0 }
    }

    /// Puts what is new of `range` on the plan, to be read.
    pub(crate) fn read(&mut self, plan: &mut Plan, range: ByteRange) {
        let Some(range) = range.intersection(self.volume) else { return };
        let range = ByteRange::new(range.offset, range.len.min(BYTES_MAX - self.read_bytes));
        for part in self.read.add(range) {
            self.read_bytes += part.len;
            self.near.add(part);
            plan.read(part);
        }
    }

    /// Puts what is new of `range` on the plan, to be fetched.
    pub(crate) fn fetch(&mut self, plan: &mut Plan, range: ByteRange) {
        let Some(range) = range.intersection(self.volume) else { return };
        let range = ByteRange::new(range.offset, range.len.min(BYTES_MAX - self.fetched_bytes));
        for part in self.near.add(range) {
            self.fetched_bytes += part.len;
            plan.fetch(part);
        }
    }

    /// As [`fetch_windows`](Self::fetch_windows), but sooner: what is read goes before what is fetched. It may still be read for
    /// itself.
    pub(crate) fn fetch_windows_soon(&mut self, plan: &mut Plan, range: ByteRange) {
        let before = plan.fetches.len();
        self.fetch_windows(plan, range);
        plan.reads.extend(plan.fetches.drain(before..));
    }

    /// As [`fetch`](Self::fetch), with the bytes behind `range` that The Sleuth Kit reads along with it.
    pub(crate) fn fetch_windows(&mut self, plan: &mut Plan, range: ByteRange) {
        let len = range.len.checked_next_multiple_of(WINDOW_BYTES).unwrap_or(range.len);
        self.fetch(plan, ByteRange::new(range.offset, len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_wanted_twice_or_outside() {
        let mut wanted = Wanted::new(100_000);
        let mut plan = Plan::default();
        wanted.fetch(&mut plan, ByteRange::new(50, 50));
        wanted.read(&mut plan, ByteRange::new(0, 75));
        wanted.fetch(&mut plan, ByteRange::new(0, 120));
        wanted.read(&mut plan, ByteRange::new(70, 10));
        wanted.fetch_windows(&mut plan, ByteRange::new(60_000, 10));
        wanted.read(&mut plan, ByteRange::new(100_000, u64::MAX));
        assert_eq!(plan.reads, [ByteRange::new(0, 75), ByteRange::new(75, 5)]);
        assert_eq!(plan.fetches, [ByteRange::new(50, 50), ByteRange::new(100, 20), ByteRange::new(60_000, 40_000)]);
    }
}
