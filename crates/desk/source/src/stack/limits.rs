//! What a look for volumes in volumes may cost, whatever a source says.

use cheetah_device::ByteRange;

/// The number of volumes, one in another, in which others are looked for: more than any system makes.
pub(super) const DEPTH_MAX: u32 = 12;
/// The maximum number of volumes that are shown.
pub(super) const VOLUMES_MAX: usize = 256;
/// The maximum number of shadow copies that are listed.
pub(super) const COPIES_MAX: usize = 1024;
/// The maximum number of partitions of a volume that are looked at.
pub(super) const PARTITIONS_MAX: usize = 64;
/// The maximum number of times that what was found is looked at again.
pub(super) const TURNS_MAX: usize = 64;
/// The number of volumes that are examined at the same time.
pub(super) const AT_ONCE: usize = 8;

/// Volumes begin at multiples of this behind the end of a source: tools count in sectors.
pub(super) const ALIGNMENT: u64 = 4096;
/// The largest offset that a file may have.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// The next place behind `end`.
pub(super) fn next_place(end: u64, len: u64) -> Option<ByteRange> {
    let offset = end.checked_next_multiple_of(ALIGNMENT)?;
    offset.checked_add(len).filter(|end| *end <= OFFSET_MAX).map(|end| ByteRange::between(offset, end))
}
