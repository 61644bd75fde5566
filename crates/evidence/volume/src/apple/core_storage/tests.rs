//! A disk whose log is not encrypted, without checksums: what is found on it, whatever is changed.

use cheetah_device::memory::Memory;
use cheetah_testing::apple::core_storage::{
    DISK_ID, FAMILY_ID, METADATA_BLOCK, VOLUME_ID, disk, family, lists, segments, volume,
};
use futures::FutureExt as _;
use proptest::prelude::*;

use super::*;

const DISK_BYTES: usize = 512 << 10;
const VOLUME_BYTES: u64 = 40 << 10;

/// Keys that a passphrase does not seal.
fn context(more: &str) -> String {
    format!(
        "<dict><key>CryptoUsers</key><array><dict><key>UserIdent</key><string>4D67658C</string></dict></array>\
         <key>WrappedVolumeKeys</key><array></array>{more}</dict>"
    )
}

fn made(objects: &[Vec<u8>]) -> Vec<u8> {
    disk(objects, DISK_BYTES)
}

fn found(bytes: Vec<u8>) -> Result<CoreStorage> {
    let range = ByteRange::new(0, bytes.len() as u64);
    read_with(&Memory::new(bytes), range, Log::Whole, Checks::Ignored).now_or_never().unwrap()
}

fn version(id: u64, transaction: u64, name: &str) -> Vec<u8> {
    volume(id, transaction, name, VOLUME_BYTES)
}

fn usual() -> Vec<Vec<u8>> {
    let pieces = segments(&[(0, 4, 50), (4, 7, 60)]);
    let mut objects = lists();
    objects.extend([family(&context("")), version(11, 6, "Old"), pieces, version(11, 7, "Disk")]);
    objects
}

#[test]
fn the_last_version_of_a_volume_counts_and_its_pieces_are_cut_to_its_size() {
    let found = found(made(&usual())).unwrap();
    let LogicalVolume { id, name, family, size_bytes, segments, context } = found.volume;
    assert_eq!((&*id, &*name), (VOLUME_ID, "Disk"));
    assert_eq!((family.to_string(), size_bytes, found.id), (FAMILY_ID.to_owned(), VOLUME_BYTES, Uuid(DISK_ID)));
    let pieces: Vec<_> = segments.iter().map(|one| (one.at, one.len, one.on_disk_at)).collect();
    assert_eq!(pieces, [(0, 4 * 4096, 50 * 4096), (4 * 4096, 6 * 4096, 60 * 4096)]);
    let context = context.unwrap();
    assert_eq!((context.users[0].kind, &*context.users[0].id), ("external key", "4D67658C"));
    assert!(context.is_encrypted() && !context.is_converting);
}

#[test]
fn a_volume_that_was_deleted_is_not_the_one() {
    let mut objects = usual();
    objects.push(version(99, 5, "Deleted"));
    assert_eq!(found(made(&objects)).unwrap().volume.name, "Disk");
    // Without the lists nothing tells them apart.
    assert!(matches!(found(made(&objects[3..])), Err(Flaw::Unsupported(_))));
}

#[test]
fn a_conversion_that_is_not_finished_is_seen() {
    let mut objects = usual();
    let status = "<key>ConversionInfo</key><dict><key>ConversionStatus</key><string>Converting</string></dict>";
    objects[3] = family(&context(status));
    assert!(found(made(&objects)).unwrap().volume.context.unwrap().is_converting);
}

#[test]
fn keys_that_were_wiped_are_none() {
    let mut objects = usual();
    objects[3][..8].copy_from_slice(b"LVFwiped");
    assert_eq!(found(made(&objects)).unwrap().volume.context, None);
}

#[test]
fn pieces_with_gaps_and_on_other_disks_are_refused() {
    for (places, is_damage) in [
        (&[(0, 4, 50), (5, 9, 60)][..], true),
        (&[(0, 9, 50)][..], true),
        (&[(0, 10, 50 | 1 << 48)][..], false),
        (&[(0, 10, (1 << 48) - 1)][..], false),
    ] {
        let mut objects = usual();
        objects[5] = segments(places);
        let outcome = found(made(&objects)).map(|found| found.volume.segments[0].on_disk_at);
        match is_damage {
            true => assert!(matches!(outcome, Err(Flaw::Damaged(_))), "{places:?} {outcome:?}"),
            // The other end of a number is a place that no disk has; it is refused where it is read.
            false => assert!(matches!(outcome, Err(Flaw::Unsupported(_)) | Ok(0x0fff_ffff_ffff_f000)), "{outcome:?}"),
        }
    }
}

#[test]
fn checksums_count_where_they_are_compared() {
    let bytes = made(&usual());
    let range = ByteRange::new(0, bytes.len() as u64);
    let outcome = read(&Memory::new(bytes), range, Log::Used).now_or_never().unwrap();
    assert_eq!(outcome.err(), Some(Flaw::Damaged("no copy of its header is whole")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_disk_is_described_or_refused(edits in prop::collection::vec((0usize..DISK_BYTES, any::<u8>()), 0..20)) {
        let mut bytes = made(&usual());
        for (at, byte) in edits {
            // In the header, the label or the first numbers of an object, mostly.
            let at = if at % 3 == 0 { at % 512 } else { (at / METADATA_BLOCK * METADATA_BLOCK) % (20 * METADATA_BLOCK) + 4096 + at % 256 };
            bytes[at] = byte;
        }
        if let Ok(found) = found(bytes) {
            let end = found.volume.segments.iter().fold(0, |end, one| { assert_eq!(one.at, end); end + one.len });
            prop_assert_eq!(end, found.volume.size_bytes);
        }
    }
}
