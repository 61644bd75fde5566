//! Headers in memory, for fuzzing: whatever they say, a volume is opened within its place or refused.

use cheetah_device::ByteRange;
use cheetah_volume::offline;

use crate::apfs;
use crate::bitlocker;
use crate::core_storage;
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

/// Opens the volumes of Apple's systems on `disk`, which lies at `offset` of a device, with keys of zeros, whatever their checksums are.
/// Returns the places of those that are open.
pub fn open_apple(disk: &[u8], offset: u64) -> Vec<ByteRange> {
    let range = ByteRange::new(offset, disk.len() as u64);
    let core_storage = offline::core_storage(disk.to_vec()).map(|found| core_storage::opened_with_zeros(&found, range));
    let apfs = offline::apfs(disk.to_vec());
    let apfs = apfs.map(|(container, runs)| apfs::opened_with_zeros(&container, runs, range));
    core_storage.into_iter().chain(apfs).flatten().map(|volume| volume.range()).collect()
}
