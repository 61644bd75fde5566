//! Recognises a file system by the start of its volume.

use crate::survey::Surveyor;
use crate::{ext, fat, ntfs};

/// The length of the start of a volume that [`recognise`] needs, in bytes: it covers boot sectors and superblocks, and
/// a new connection delivers it in one round trip.
pub const START_BYTES: u64 = 8 << 10;

type Recognise = fn(&[u8]) -> Option<Box<dyn Surveyor>>;

/// Every known kind of file system.
const KNOWN: &[Recognise] = &[ntfs::recognise, ext::recognise, fat::recognise];

/// Chooses a surveyor by the first [`START_BYTES`] of a volume, or all of a smaller one; `None` if no file system is
/// recognised.
pub fn recognise(start: &[u8]) -> Option<Box<dyn Surveyor>> {
    KNOWN.iter().find_map(|known| known(start))
}
