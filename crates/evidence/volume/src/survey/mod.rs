//! Finds a file system's metadata ahead of reads.
//!
//! A [`Surveyor`] knows one kind of file system. It does no I/O: it requests ranges by adding them to a [`SurveyPlan`],
//! and is given their bytes as they arrive, in any order. Many of its reads can therefore be in flight over a slow
//! link, and tests and fuzzers need no link.
//!
//! File systems are evidence, and may be damaged or malicious. A surveyor validates every number, never panics, and
//! limits its requests and its memory. It skips structures that it does not understand.

pub(crate) mod directory_tree;
mod file;
pub(crate) mod pending_reads;
mod plan;
mod probes;
mod range_set;
mod request_filter;

pub use self::file::FileRuns;
pub use self::plan::{READ_BYTES_MAX, SurveyPlan};
pub use self::probes::ProbeSurveyor;

pub(crate) use self::range_set::RangeSet;
pub(crate) use self::request_filter::RequestFilter;

use cheetah_device::ByteRange;

/// The length of The Sleuth Kit's reads (`tsk_img_read`), from the sector where the wanted bytes begin. It reads longer
/// ranges with one read.
pub const WINDOW_BYTES: u64 = 64 << 10;

/// Returns the ranges that tools read first to recognise the file system of `volume`: the superblocks of all file
/// systems that The Sleuth Kit tries, up to UFS at 256 KiB.
pub fn probed_ranges(volume: ByteRange) -> impl Iterator<Item = ByteRange> {
    let at = |start, len| ByteRange::new(volume.offset.saturating_add(start), len);
    [at(0, 2 * WINDOW_BYTES), at(256 << 10, WINDOW_BYTES)]
        .into_iter()
        .filter_map(move |range| range.intersection(volume))
}

/// Finds a file system's metadata. All offsets are relative to the start of its volume.
pub trait Surveyor: Send {
    /// Returns the kind of file system, for people: `NTFS`, `ext4`, `FAT32`.
    fn name(&self) -> &'static str;

    /// Starts the survey. Called once, first.
    fn start(&mut self, plan: &mut SurveyPlan);

    /// Takes a range that was [requested](SurveyPlan::read), whole, as it was added to the plan.
    fn arrived(&mut self, range: ByteRange, bytes: &[u8], plan: &mut SurveyPlan);

    /// Notes that a requested range cannot be read.
    fn failed(&mut self, range: ByteRange, plan: &mut SurveyPlan) {
        let _ = (range, plan);
    }

    /// Notes that every requested range has arrived or failed. If nothing is requested now, the survey is over.
    fn idle(&mut self, plan: &mut SurveyPlan) {
        let _ = plan;
    }
}
