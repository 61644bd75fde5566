//! Whether an image has in clear what BitLocker encrypts, or has ciphertext. The first sectors of volumes tell: as they are on the disk, and
//! as they are read here.

use cheetah_volume::formats::is_bitlocker;
use cheetah_windows::buffers::{Extent, Partition};

use super::in_use::Remark;

/// The first sector of something; `None` if it cannot be read.
pub(super) type Start = Option<Vec<u8>>;

/// What must be known of a volume. `here` is its start as it is read through its own device, and `on_disk` returns what is on the medium, by
/// the number of a disk and an offset there in bytes.
pub(super) fn of_volume(
    text: &str,
    here: Option<&[u8]>,
    extents: &[Extent],
    on_disk: impl FnOnce(u32, u64) -> Start,
) -> Option<Remark> {
    // A volume that no key opened yet.
    if here.is_some_and(is_bitlocker) {
        return Some(Remark::ReadAsCiphertext(text.to_owned()));
    }
    // What lies on no disk, such as a CD, is not encrypted on one.
    let extent = extents.first()?;
    let on_disk = on_disk(extent.disk, extent.offset);
    match on_disk.as_deref().map(is_bitlocker) {
        Some(false) => None,
        Some(true) if here.is_some() => Some(Remark::ReadInClear(text.to_owned())),
        Some(true) | None => Some(Remark::EncryptionUnknown(text.to_owned())),
    }
}

/// What must be known of a whole disk with these partitions. `start` returns what is at an offset in bytes.
pub(super) fn of_disk(text: &str, partitions: &[Partition], start: impl Fn(u64) -> Start) -> Option<Remark> {
    let is_encrypted = |offset: u64| start(offset).as_deref().map(is_bitlocker);
    let known: Vec<_> = partitions.iter().map(|partition| (partition.number, is_encrypted(partition.offset))).collect();
    let encrypted = known.iter().filter(|(_, is_encrypted)| *is_encrypted == Some(true));
    let encrypted: Vec<u32> = encrypted.map(|(number, _)| *number).collect();
    match &encrypted[..] {
        // A stick may have no table of partitions; Windows may then list one that is all of it.
        [] | [_] if is_encrypted(0) == Some(true) => Some(Remark::ReadAsCiphertext(text.to_owned())),
        [] if known.iter().any(|(_, is_encrypted)| is_encrypted.is_none()) => {
            Some(Remark::PartitionsUnknown(text.to_owned()))
        }
        [] => None,
        _ => Some(Remark::ReadEncrypted(text.to_owned(), encrypted)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use cheetah_testing::evidence;
    use flate2::read::GzDecoder;

    use super::*;

    const VOLUME: &str = r"\\?\Volume{4c1b02c1-d990-11dc-99ae-806e6f6e6963}";
    const DISK: &str = r"\\.\PhysicalDrive1";

    /// A sector with these bytes at these places.
    fn sector(places: &[(usize, &[u8])]) -> Vec<u8> {
        let mut sector = vec![0; 512];
        for (at, bytes) in places {
            sector[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        sector
    }

    fn ntfs() -> Vec<u8> {
        sector(&[(0, b"\xeb\x52\x90NTFS    "), (510, b"\x55\xaa")])
    }

    /// Boot sectors of BitLocker: of Windows Vista, of later versions, of a volume that is encrypted where it is written, and of a stick
    /// ("To Go"), which looks like FAT.
    fn encrypted() -> [Vec<u8>; 4] {
        const IDENTIFIER: &[u8] = b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01";
        const ON_WRITE: &[u8] = b"\x3b\x4d\xa8\x92\x80\xdd\x0e\x4d\x9e\x4e\xb1\xe3\x28\x4e\xae\xd8";
        [
            sector(&[(0, b"\xeb\x52\x90-FVE-FS-")]),
            sector(&[(0, b"\xeb\x58\x90-FVE-FS-"), (160, IDENTIFIER)]),
            sector(&[(0, b"\xeb\x58\x90"), (160, ON_WRITE)]),
            sector(&[(0, b"\xeb\x58\x90MSWIN4.1"), (424, IDENTIFIER)]),
        ]
    }

    /// The boot sectors of real volumes, as far as they are there.
    fn real() -> Vec<Vec<u8>> {
        let names = ["aes-xts_128", "aes_128_diffuser", "recovery_password", "startup_key", "suspended"];
        let packed = names.into_iter().filter_map(|name| evidence(&format!("locked/{name}.bin.gz")));
        let unpacked = packed.map(|path| {
            let mut sector = vec![0; 512];
            GzDecoder::new(File::open(path).unwrap()).read_exact(&mut sector).unwrap();
            sector
        });
        unpacked.collect()
    }

    /// What is said of a volume that begins at 1 MiB of disk 1.
    fn volume(here: Start, on_disk: Start) -> Option<Remark> {
        let extents = [Extent { disk: 1, offset: 1 << 20, len: 1 << 30 }, Extent { disk: 2, offset: 0, len: 1 << 30 }];
        of_volume(VOLUME, here.as_deref(), &extents, |disk, offset| on_disk.filter(|_| (disk, offset) == (1, 1 << 20)))
    }

    fn says_where_each_is_read(sectors: Vec<Vec<u8>>) {
        for encrypted in sectors {
            let known = |remark: fn(String) -> Remark| Some(remark(VOLUME.to_owned()));
            assert_eq!(volume(Some(ntfs()), Some(encrypted.clone())), known(Remark::ReadInClear));
            assert_eq!(volume(Some(encrypted.clone()), Some(encrypted.clone())), known(Remark::ReadAsCiphertext));
            let partitions = [(1, 1 << 20), (3, 1 << 30)].map(|(number, offset)| Partition { number, offset, len: 1 });
            let start = |offset: u64| Some(if offset == 1 << 30 { encrypted.clone() } else { ntfs() });
            let numbered = Remark::ReadEncrypted(DISK.to_owned(), vec![3]);
            assert_eq!(of_disk(DISK, &partitions, start), Some(numbered));
        }
    }

    #[test]
    fn a_volume_of_bitlocker_is_read_in_clear_through_itself_and_as_ciphertext_through_its_disk() {
        says_where_each_is_read(encrypted().to_vec());
    }

    #[test]
    fn a_real_volume_of_bitlocker_is_read_in_clear_through_itself_and_as_ciphertext_through_its_disk() {
        says_where_each_is_read(real());
    }

    #[test]
    fn nothing_is_said_of_a_volume_that_is_not_encrypted() {
        assert_eq!(volume(Some(ntfs()), Some(ntfs())), None);
        let partitions = [Partition { number: 1, offset: 1 << 20, len: 1 << 30 }];
        assert_eq!(of_disk(DISK, &partitions, |_| Some(ntfs())), None);
        // Its own first sectors hold no volume that could be told.
        assert_eq!(of_disk(DISK, &[], |_| None), None);
        // A CD lies on no disk.
        assert_eq!(of_volume(VOLUME, Some(&ntfs()), &[], |_, _| None), None);
    }

    #[test]
    fn a_disk_with_a_partition_that_cannot_be_read_is_said_to_be_unknown_unless_another_is_encrypted() {
        let [_, encrypted, ..] = encrypted();
        let partitions = [(1, 1 << 20), (2, 1 << 30)].map(|(number, offset)| Partition { number, offset, len: 1 });
        let of_first = |first: Vec<u8>| of_disk(DISK, &partitions, |offset| (offset == 1 << 20).then(|| first.clone()));
        assert_eq!(of_first(ntfs()), Some(Remark::PartitionsUnknown(DISK.to_owned())));
        assert_eq!(of_first(encrypted), Some(Remark::ReadEncrypted(DISK.to_owned(), vec![1])));
    }

    #[test]
    fn a_volume_that_cannot_be_compared_with_its_disk_is_said_to_be_unknown() {
        let unknown = Some(Remark::EncryptionUnknown(VOLUME.to_owned()));
        let [_, encrypted, ..] = encrypted();
        assert_eq!(volume(Some(ntfs()), None), unknown);
        assert_eq!(volume(None, None), unknown);
        assert_eq!(volume(None, Some(encrypted.clone())), unknown);
        // Bytes of BitLocker here are ciphertext, wherever they come from.
        assert_eq!(volume(Some(encrypted), None), Some(Remark::ReadAsCiphertext(VOLUME.to_owned())));
        // Too short to tell.
        assert_eq!(volume(Some(Vec::new()), Some(ntfs())), None);
    }

    #[test]
    fn a_stick_without_partitions_is_ciphertext_as_a_whole() {
        let [.., to_go] = encrypted();
        let start = |offset: u64| (offset == 0).then(|| to_go.clone());
        let whole = Some(Remark::ReadAsCiphertext(DISK.to_owned()));
        assert_eq!(of_disk(DISK, &[], start), whole);
        assert_eq!(of_disk(DISK, &[Partition { number: 1, offset: 0, len: 1 << 30 }], start), whole);
    }
}
