//! Formats that are named by their signatures.

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, Error, Geometry, Io};
use cheetah_volume::formats::{Identified, identify};
use proptest::prelude::*;

use crate::walk::evidence;

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

/// A record of XFS's log, as mkfs.xfs leaves one in an external log.
fn log_record() -> [u8; 512] {
    let mut record = [0; 512];
    for (at, number) in [(0, 0xfeed_babe_u32), (4, 1), (8, 2), (12, 512), (300, 1)] {
        record[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }
    record
}

#[test]
fn an_external_log_of_xfs_and_a_journal_of_ext_are_named() {
    let record = log_record();
    for at in [0, 512, 80 << 10, (256 << 10) - 512] {
        assert_eq!(names(with(&[(at, &record)])), ["external log of an XFS file system"], "{at}");
    }
    assert_eq!(names(with(&[(256 << 10, &record)])), [""; 0]);
    for (at, wrong) in [(8, 4), (8, 0), (12, 0), (12, u32::MAX), (300, 4)] {
        let mut record = record;
        record[at..at + 4].copy_from_slice(&wrong.to_be_bytes());
        assert_eq!(names(with(&[(0, &record)])), [""; 0], "{at}");
    }
    // The log within a file system is no format of its own.
    assert_eq!(names(with(&[(0, b"XFSB"), (4096, &record)])), ["XFS"]);
    let mut superblock = [0; 1024];
    superblock[56..58].copy_from_slice(&0xef53_u16.to_le_bytes());
    superblock[96] = 8;
    assert_eq!(names(with(&[(1024, &superblock)])), ["journal of an ext file system"]);
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
    assert!(found.unread.is_some());
}

/// How a locked volume of the folder of real images is described; `None` if the folder is missing.
fn described(name: &str) -> Option<String> {
    let bytes = evidence(&format!("locked/{name}.bin.gz"))?;
    let whole = ByteRange::new(0, bytes.len() as u64);
    Some(identified(bytes, whole).formats.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "))
}

#[test]
fn locked_volumes_are_named_with_their_identifiers_and_what_opens_them() {
    let expected = [
        (
            "aes-xts_128",
            "19540fda-3072-4554-9ddc-9df7343ef068, \"DESKTOP-QNI1MMF TestVolume 10/8/2021\", AES-XTS 128; opened by: \
             password (55faeded-603a-459f-8f6b-325cf781f971)",
        ),
        (
            "aes_128_diffuser",
            "2210b6bd-080e-4c5c-aa34-123fac7e138a, \"USER-PC TestVolume 10/24/2021\", AES-CBC 128 with diffuser; opened by: \
             password (026194ab-364b-4e7a-a692-8eae6db079f9)",
        ),
        (
            "recovery_password",
            "8e6909f1-6ba3-49ea-bf8d-ec83fab656cd, \"DESKTOP-QNI1MMF TestVolume 10/8/2021\", AES-XTS 128; opened by: \
             recovery password (3c116b76-c67b-484e-b439-ce2ed68b561e), password (6dd54bcd-633d-4836-9ebc-44fa02f1776d)",
        ),
        (
            "startup_key",
            "81fb9ffe-0199-47f6-9779-ebf07bd69fc6, \"DESKTOP-QNI1MMF TestVolume 10/8/2021\", AES-XTS 128; opened by: \
             startup key (b3411a58-3400-420a-8b7e-9b5f706425c0), password (ee7a5fdb-3aca-4126-b09b-35873e92dcc8)",
        ),
        (
            "suspended",
            "2d07ad36-231d-4ae6-b995-21f7e5fbdc34, \"DESKTOP-QNI1MMF TestVolume 10/24/2021\", AES-XTS 128; opened by: \
             clear key (62472a91-12f9-40d4-81b5-4c1567e40d0e)",
        ),
        ("decrypted", "5990e160-faf6-4ad6-becd-2ced35d2b4d5, not encrypted any more"),
        ("luks1-sha1", "99b82e69-daca-4472-8523-d23f33aae7ab, aes-ecb; opened by: key slot (0)"),
        (
            "luks2-aes-cbc-essiv",
            "76b0ce9c-e47f-4183-a121-a936b11b103e, aes-cbc-essiv:sha256; opened by: key slot (0, argon2id)",
        ),
    ];
    for (name, words) in expected {
        let Some(found) = described(name) else { continue };
        let kind = if name.starts_with("luks") { "LUKS, encrypted" } else { "BitLocker, encrypted" };
        assert_eq!(found, format!("{kind} ({words})"), "{name}");
    }
}

#[test]
fn an_encrypted_container_is_named_with_its_users_and_one_that_is_not_encrypted_by_its_format() {
    if let Some(found) = described("apfs-encrypted") {
        let user = "password of \"Encrypted\" (00DF510A-FFE6-4969-9607-EFA24D864392)";
        assert_eq!(found, format!("APFS (8C615519-FBAA-4932-B249-CB09A5CFB875, AES-XTS 128; opened by: {user})"));
    }
    assert_eq!(names(with(&[(32, b"NXSB\0\x10")])), ["APFS"]);
    assert_eq!(names(with(&[(8, &[1, 0, 0x10, 0]), (88, b"CS")])), ["Apple Core Storage (FileVault 2)"]);
}

#[test]
fn a_locked_volume_whose_first_metadata_are_damaged_is_described_by_the_next() {
    let Some(mut bytes) = evidence("locked/suspended.bin.gz") else { return };
    let whole = ByteRange::new(0, bytes.len() as u64);
    let intact = identified(bytes.clone(), whole);
    let first = u64::from_le_bytes(bytes[176..184].try_into().unwrap()) as usize;
    bytes[first..first + 4096].fill(0xee);
    assert_eq!(identified(bytes.clone(), whole), intact);
    for at in [184, 192] {
        bytes[at..at + 8].fill(0xff);
    }
    let named = identified(bytes, whole);
    assert_eq!((named.formats[0].name, &named.formats[0].lock), ("BitLocker, encrypted", &None));
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
