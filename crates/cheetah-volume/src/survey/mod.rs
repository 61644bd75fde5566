//! Finding what a walk of a file system will read, before it does.
//!
//! A [`Surveyor`] knows one kind of file system. It does no I/O: it asks for ranges by putting them on a [`Plan`], and is
//! given their bytes as they arrive, in any order. So whoever drives it can have many reads on their way over a
//! slow link at once, and it can be tested, and fuzzed, without one.
//!
//! File systems are evidence and may be damaged, or made up to do harm. A surveyor doubts every number, never
//! panics, and bounds what it asks for and what it keeps. What it does not understand it leaves out.

mod file;
pub mod offline;
mod plan;
mod probes;
mod ranges;
pub(crate) mod tree;
mod wanted;
pub(crate) mod wishes;

pub use self::file::FileRuns;
pub use self::plan::{Plan, READ_BYTES_MAX};
pub use self::probes::Probes;

pub(crate) use self::ranges::Ranges;
pub(crate) use self::wanted::Wanted;

use cheetah_device::ByteRange;

use crate::{ext, fat, ntfs};

/// The Sleuth Kit reads so many bytes from the sector that what it wants begins in, however little it wants. (Its
/// `tsk_img_read`; what is longer than that, it reads as it is.)
pub const WINDOW_BYTES: u64 = 64 << 10;

/// What tools read of `volume` first, to find out what it holds: the superblocks of all file systems that The Sleuth Kit
/// tries, up to UFS at 256 KiB.
pub fn tried(volume: ByteRange) -> impl Iterator<Item = ByteRange> {
    let at = |start, len| ByteRange::new(volume.offset.saturating_add(start), len);
    [at(0, 2 * WINDOW_BYTES), at(256 << 10, WINDOW_BYTES)]
        .into_iter()
        .filter_map(move |range| range.intersection(volume))
}

/// What finds a file system's metadata. All offsets are relative to the start of its volume.
pub trait Surveyor: Send {
    /// What kind of file system it is, for people: `NTFS`, `ext4`, `FAT32`.
    fn name(&self) -> &'static str;

    /// Called once, first.
    fn start(&mut self, plan: &mut Plan);

    /// A range that was [asked for](Plan::read) is here; as it was put on the plan, whole.
    fn arrived(&mut self, range: ByteRange, bytes: &[u8], plan: &mut Plan);

    /// A range that was asked for cannot be read.
    fn failed(&mut self, range: ByteRange, plan: &mut Plan) {
        let _ = (range, plan);
    }

    /// Everything that was asked for has arrived or failed. If nothing is asked for now, the survey is over.
    fn idle(&mut self, plan: &mut Plan) {
        let _ = plan;
    }
}

/// The start of a volume that [`recognise`] wants to see, in bytes: boot sectors and superblocks, and little enough for a
/// new connection to bring them in one round trip.
pub const START_BYTES: u64 = 8 << 10;

type Recognise = fn(&[u8]) -> Option<Box<dyn Surveyor>>;

/// Every kind of file system that is known.
const KNOWN: &[Recognise] = &[ntfs::recognise, ext::recognise, fat::recognise];

/// Chooses a surveyor by the first [`START_BYTES`] of a volume, or all of a smaller one; `None` if no file system is
/// known by them.
pub fn recognise(start: &[u8]) -> Option<Box<dyn Surveyor>> {
    KNOWN.iter().find_map(|known| known(start))
}
