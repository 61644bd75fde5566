//! Formats that are named by their signatures.

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io};
use cheetah_volume::formats::{Identified, identify};
use proptest::prelude::*;

const SIZE: usize = 4 << 20;

fn identified(bytes: Vec<u8>, volume: ByteRange) -> Identified {
    futures::executor::block_on(identify(&Memory::new(bytes), volume))
}

fn names(bytes: Vec<u8>) -> Vec<&'static str> {
    let whole = ByteRange::new(0, bytes.len() as u64);
    identified(bytes, whole).formats.iter().map(|format| format.name).collect()
}

fn with(places: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    for (at, content) in places {
        bytes[*at..at + content.len()].copy_from_slice(content);
    }
    bytes
}

#[test]
fn a_volume_without_a_signature_has_no_format() {
    for size in [0, 1, 511, 512, 4096, 70_000, SIZE] {
        for byte in [0, 0xff, 0x20] {
            assert_eq!(names(vec![byte; size]), [""; 0], "{size} bytes of {byte}");
        }
    }
}

#[test]
fn superblocks_at_the_end_are_found_in_sectors_of_both_sizes() {
    let isw = b"Intel Raid ISM Cfg Sig. ";
    assert_eq!(names(with(&[(SIZE - 1024, isw)])), ["member of an Intel RAID"]);
    assert_eq!(names(with(&[(SIZE - 8192, isw)])), ["member of an Intel RAID"]);
    let md = b"\xfc\x4e\x2b\xa9\x01\0\0\0";
    assert_eq!(names(with(&[(SIZE - 8192, md)])), ["member of a Linux software RAID (md 1.0)"]);
    let old = b"\xa9\x2b\x4e\xfc\0\0\0\0";
    assert_eq!(names(with(&[(SIZE - 65536, old)])), ["member of a Linux software RAID (md 0.90)"]);
    assert_eq!(
        names(with(&[(SIZE - 63 * 512, b"Promise Technology, Inc.")])),
        ["member of a RAID of a Promise controller"]
    );
}

#[test]
fn a_member_of_a_mirror_also_has_the_format_of_the_file_system_in_it() {
    let md = b"\xfc\x4e\x2b\xa9\x01\0\0\0";
    assert_eq!(names(with(&[(0, b"XFSB"), (SIZE - 8192, md)])), ["XFS", "member of a Linux software RAID (md 1.0)"]);
}

#[test]
fn a_volume_is_examined_within_its_bounds() {
    let bytes = with(&[(1 << 20, b"XFSB"), ((1 << 20) - 512, b"\xde\x11\xde\x11")]);
    let at = |offset, len| identified(bytes.clone(), ByteRange::new(offset, len)).formats.len();
    assert_eq!((at(1 << 20, 1 << 20), at(0, 1 << 20), at((1 << 20) + 512, 1 << 20)), (1, 1, 0));
}

#[test]
fn a_part_that_cannot_be_read_is_noted_and_the_rest_is_examined() {
    struct Damaged;
    impl Device for Damaged {
        fn geometry(&self) -> Geometry {
            Geometry { size: SIZE as u64, writable: false, block_preferred: 4096 }
        }
        fn read(&self, range: ByteRange) -> Io<'_, Data> {
            if range.offset == 0 {
                return Io::fail(Error::Unreadable { device: "disk".into(), range, why: "bad sector".into() });
            }
            let mut bytes = vec![0; range.len as usize];
            let end = bytes.len() - 512;
            if range.end() == SIZE as u64 {
                bytes[end..end + 4].copy_from_slice(b"\xde\x11\xde\x11");
            }
            Io::ok(Data::from(bytes))
        }
    }
    let found = futures::executor::block_on(identify(&Damaged, ByteRange::new(0, SIZE as u64)));
    assert_eq!(found.formats.len(), 1);
    assert!(found.unread.is_some_and(|why| why.contains("bad sector")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Naming any volume ends.
    #[test]
    fn any_volume_is_examined_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..3000), repeats in 1usize..200, cut in 0usize..4096,
    ) {
        let mut volume = bytes.repeat(repeats);
        volume.truncate(volume.len().saturating_sub(cut));
        names(volume);
    }
}
