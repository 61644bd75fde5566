//! Headers in memory, for fuzzing: whatever they say, a volume is opened within its place or refused.

use cheetah_device::ByteRange;

use crate::bitlocker;
use crate::luks;
use crate::veracrypt;

/// Parses `data` as each header, its checksum aside, and opens a volume in `range` of a device with a key of zeros, as if it were
/// right. Returns the places of the opened volumes.
pub fn open_any(data: &[u8], range: ByteRange) -> Vec<ByteRange> {
    let luks = [luks::parse_first(data), Some(luks::parse_second(data, 0)), Some(luks::parse_description(data))];
    let luks = luks.into_iter().flatten().flatten().map(|header| header.opened_with_zeros(range));
    let others = [bitlocker::opened_with_zeros(data, range), veracrypt::opened_with_header(data, range)];
    let opened = luks.chain(others).flatten();
    opened.map(|volume| volume.range()).collect()
}
