//! Volumes that are put one in another, and found again: arrays and partitions, without a key. The command line's tests have encrypted
//! and logical ones, which need other programs.

use std::sync::Arc;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Geometry, Io};
use cheetah_testing::raid::{disk, mirror, raid5};
use cheetah_testing::vss;
use cheetah_unlock::Place;
use cheetah_volume::assembly::PLACES_MAX;
use cheetah_volume::vss::Defect;
use futures::FutureExt as _;
use proptest::prelude::*;

use super::limits::DEPTH_MAX;
use super::{How, NotShown, ShadowCopies, Start, VolumeStack, find};

/// Types of partitions.
const LINUX: u8 = 0x83;
const RAID: u8 = 0xfd;
const NTFS: u8 = 7;

fn device(bytes: &[u8]) -> DynDevice {
    Arc::new(Memory::new(bytes.to_vec()))
}

fn found_beside(source: &DynDevice, others: &[(String, DynDevice)]) -> VolumeStack {
    let how = How { others, ..How::default() };
    find(source.clone(), Start::Source, how).now_or_never().unwrap()
}

fn found(source: &DynDevice) -> VolumeStack {
    found_beside(source, &[])
}

fn read(device: &DynDevice) -> Vec<u8> {
    let whole = ByteRange::new(0, device.geometry().size);
    device.read(whole).now_or_never().unwrap().unwrap().into_bytes().into()
}

/// The content of each volume by its name, after a comparison with what the whole stack has at its place.
fn contents(source: &DynDevice, stack: &VolumeStack) -> Vec<(String, Vec<u8>)> {
    let whole = read(&stack.over(source.clone()).unwrap());
    let devices = stack.devices(source.clone()).unwrap();
    let named: Vec<_> = devices.into_iter().map(|(name, device)| (name, read(&device))).collect();
    for (volume, (name, content)) in stack.volumes.iter().zip(&named) {
        let place = volume.range.offset as usize..volume.range.end() as usize;
        assert!(whole[place] == *content, "{name}");
        assert!(read(&stack.device(source.clone(), volume).unwrap()) == *content, "{name}");
    }
    named
}

fn names(stack: &VolumeStack) -> Vec<&str> {
    stack.volumes.iter().map(|volume| volume.name.as_str()).collect()
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u8
    };
    std::iter::repeat_with(byte).take(len).collect()
}

#[test]
fn a_volume_that_lies_in_too_many_others_is_shown_and_not_looked_at() {
    let mut bytes = noise(64 << 10, 1);
    for number in 0..DEPTH_MAX + 3 {
        bytes = mirror(&format!("m{number}"), &bytes);
    }
    let source = device(&bytes);
    let stack = found(&source);
    assert_eq!(stack.volumes.len() as u32, DEPTH_MAX + 1);
    assert_eq!(stack.not_opened, [NotShown::TooDeep("md_m2".to_owned())]);
    contents(&source, &stack);
}

#[test]
fn an_array_is_put_together_when_its_last_member_is_found_in_another_volume() {
    let content = noise(200 << 10, 2);
    let members = raid5("outer", &content);
    // The third member lies on another array, whose members are partitions of a partition.
    let inner = raid5("inner", &members[2]);
    let apart = disk(&[(RAID, &inner[0]), (RAID, &inner[1]), (RAID, &inner[2])]);
    let source = device(&disk(&[(RAID, &members[0]), (RAID, &members[1]), (LINUX, &apart)]));
    let stack = found(&source);
    assert_eq!(names(&stack), ["p3.p1", "p3.p2", "p3.p3", "md_inner", "md_outer"]);
    let all = contents(&source, &stack);
    assert!(all[4].1.starts_with(&content));
    assert!(!stack.volumes[4].description().contains("degraded"), "{}", stack.volumes[4].description());
    assert_eq!(stack.not_opened, []);
    assert!(stack.volumes[..4].iter().all(|volume| volume.is_used) && !stack.volumes[4].is_used);
}

#[test]
fn an_array_of_several_sources_and_its_partitions_are_found() {
    let content = noise(300 << 10, 3);
    let inner = disk(&[(LINUX, &content)]);
    let members = raid5("whole", &inner);
    let others: Vec<_> = (1..3).map(|number| (format!("disk{number}"), device(&members[number]))).collect();
    let source = device(&members[0]);
    let stack = found_beside(&source, &others);
    assert_eq!(names(&stack), ["md_whole", "md_whole.p1"]);
    let all = contents(&source, &stack);
    assert!(all[0].1.starts_with(&inner) && all[1].1.starts_with(&content));
    // Alone, no member makes the array.
    assert_eq!(names(&found(&source)), [""; 0]);
    assert_eq!(names(&found_beside(&source, &others[1..])), ["md_whole", "md_whole.p1"]);
}

/// Looks for volumes, and for these shadow copies.
fn found_with(source: &DynDevice, start: Start, copies: ShadowCopies) -> VolumeStack {
    let how = How { copies, ..How::default() };
    find(source.clone(), start, how).now_or_never().unwrap()
}

/// Whether each shadow copy that is shown has the content that it should have.
fn are_right(source: &DynDevice, stack: &VolumeStack, made: &vss::Made) -> bool {
    let all = contents(source, stack);
    let is_block = |content: &[u8], at: usize, block: &[u8]| content[at..at + vss::BLOCK_BYTES] == *block;
    stack.copies.iter().filter(|copy| copy.is_shown).all(|copy| {
        let (_, content) = all.iter().find(|(name, _)| *name == copy.name).unwrap();
        let expected = &made.copies[copy.copy.number as usize - 1].blocks;
        expected.iter().all(|(at, block)| is_block(content, *at, block))
    })
}

#[test]
fn shadow_copies_are_listed_and_shown_if_they_are_asked_for() {
    let made = (0..).map(vss::random).find(|made| made.copies.len() == 3).unwrap();
    let inner = disk(&[(LINUX, &[7; 512]), (NTFS, &made.bytes)]);
    let members = raid5("home", &inner);
    let source = device(&disk(&[(RAID, &members[0]), (RAID, &members[1])]));
    let listed = |stack: &VolumeStack| stack.copies.iter().map(|copy| copy.name.clone()).collect::<Vec<_>>();
    let all = ["md_home.p2.vss1", "md_home.p2.vss2", "md_home.p2.vss3"];
    let volumes = ["md_home", "md_home.p1", "md_home.p2"];
    let named = ShadowCopies::Named(vec![all[1].to_owned()]);
    for (copies, shown) in [
        (ShadowCopies::Unasked, &all[..0]),
        (ShadowCopies::Listed, &all[..0]),
        (named, &all[1..2]),
        (ShadowCopies::All, &all[..]),
    ] {
        let stack = found_with(&source, Start::Source, copies);
        assert_eq!(names(&stack), [&volumes[..], shown].concat());
        assert_eq!(listed(&stack), all);
        assert!(stack.lists_copies && are_right(&source, &stack, &made));
        let outcome = serde_json::to_value(stack.outcome()).unwrap();
        assert_eq!(outcome["shadow_copies"][1]["is_shown"], shown.contains(&all[1]));
        assert_eq!(outcome["shadow_copies"][0]["id"], made.copies[0].id);
        assert_eq!(outcome["shadow_copies"][0]["created"], made.copies[0].created);
        let kinds = outcome["volumes"].as_array().unwrap().iter().filter(|volume| volume["kind"] == "vss");
        assert_eq!(kinds.count(), shown.len());
    }
}

#[test]
fn shadow_copies_in_the_partitions_that_a_table_names_are_looked_for_if_they_are_asked_for() {
    let made = vss::random(1);
    let source = device(&disk(&[(NTFS, &made.bytes)]));
    let place =
        |number, offset, len| Place { partition: Some(number), range: ByteRange::new(offset, len), ..Place::default() };
    let start = Start::Named {
        members: Vec::new(),
        physical: Vec::new(),
        file_systems: vec![place(1, 1 << 20, made.bytes.len() as u64)],
    };
    let unasked = found_with(&source, start.clone(), ShadowCopies::Unasked);
    assert!(unasked.copies.is_empty() && !unasked.lists_copies);
    let all = found_with(&source, start, ShadowCopies::All);
    assert_eq!(all.copies.len(), made.copies.len());
    assert!(all.copies.iter().all(|copy| copy.is_shown) && are_right(&source, &all, &made));
}

#[test]
fn a_damaged_catalog_is_named_and_all_else_is_found() {
    let mut made = vss::random(2);
    made.bytes[made.catalog_at] ^= 1;
    let source = device(&made.bytes);
    let stack = found_with(&source, Start::Source, ShadowCopies::All);
    assert!(stack.copies.is_empty() && stack.volumes.is_empty());
    let NotShown::Catalog { of, why: Defect::Damaged { at, .. } } = &stack.not_opened[0] else {
        panic!("{:?}", stack.not_opened)
    };
    assert_eq!((&**of, *at), ("it", made.catalog_at as u64));
}

#[test]
fn shadow_copies_of_a_volume_without_the_name_of_ntfs_are_named() {
    let mut made = vss::random(2);
    made.bytes[3..11].fill(0);
    let source = device(&disk(&[(NTFS, &made.bytes)]));
    let stack = found_with(&source, Start::Source, ShadowCopies::Unasked);
    let said = "the shadow copies of p1 are not listed: the header of VSS at byte 7680 of the volume is in a volume whose boot \
                sector does not name NTFS";
    let notes: Vec<_> = stack.not_opened.iter().map(ToString::to_string).collect();
    assert_eq!((stack.copies.len(), &notes[..]), (0, &[said.to_owned()][..]));
}

#[test]
fn members_of_arrays_beyond_the_limit_are_left_out_and_that_is_said() {
    let member = |number: usize| device(&mirror(&format!("m{number}"), &noise(8 << 10, number as u64)));
    let others: Vec<_> = (1..=PLACES_MAX).map(|number| (format!("disk{number}"), member(number))).collect();
    let stack = found_beside(&member(0), &others);
    assert_eq!(stack.volumes.len(), PLACES_MAX);
    let too_many = NotShown::TooMany { max: PLACES_MAX, kind: "members of arrays", holder: "it".to_owned() };
    assert_eq!(stack.not_opened, [too_many]);
    assert_eq!(found_beside(&member(0), &others[1..]).not_opened, []);
}

/// A disk with a sector that cannot be read.
struct Damaged(Memory, ByteRange);

impl Device for Damaged {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match self.1.intersection(range) {
            Some(_) => Io::fail(Error::Unreadable { device: "disk".into(), range, why: "bad sector".into() }),
            None => self.0.read(range),
        }
    }
}

#[test]
fn an_array_whose_content_cannot_be_examined_is_shown_and_that_is_said() {
    let content = noise(1 << 20, 6);
    let member = mirror("m", &content);
    // Where the content has its second sector.
    let bad = ByteRange::new((member.len() - content.len() + 512) as u64, 512);
    let source: DynDevice = Arc::new(Damaged(Memory::new(member), bad));
    let stack = found(&source);
    assert_eq!(names(&stack), ["md_m"]);
    let [NotShown::Unread { name, .. }] = &stack.not_opened[..] else { panic!("{:?}", stack.not_opened) };
    assert_eq!(name, "md_m");
}

#[test]
fn a_source_of_another_size_is_refused() {
    let bytes = disk(&[(RAID, &raid5("a", &noise(1 << 17, 4))[0]), (RAID, &raid5("a", &noise(1 << 17, 4))[1])]);
    let stack = found(&device(&bytes));
    assert_eq!(names(&stack), ["md_a"]);
    assert!(stack.over(device(&bytes[..bytes.len() - 512])).is_err());
    assert!(stack.over(device(&[&bytes[..], &[0; 512]].concat())).is_err());
}

#[test]
fn what_no_table_names_is_not_looked_for() {
    let bytes = mirror("m", &noise(64 << 10, 5));
    let named = Start::Named { members: Vec::new(), physical: Vec::new(), file_systems: Vec::new() };
    for start in [Start::Nowhere, named] {
        let stack = find(device(&bytes), start, How::default()).now_or_never().unwrap();
        assert_eq!(names(&stack), [""; 0]);
        assert_eq!(stack.unlocked, None);
    }
}

/// A way to put a volume into another.
#[derive(Debug, Clone, Copy)]
enum Wrap {
    Mirror,
    /// In the partitions of a disk, without one of the members.
    Raid5(Option<usize>),
    /// In the second partition of a disk.
    Partition,
}

fn wraps() -> impl Strategy<Value = Vec<Wrap>> {
    let wrap =
        prop_oneof![Just(Wrap::Mirror), prop::option::of(0usize..3).prop_map(Wrap::Raid5), Just(Wrap::Partition)];
    prop::collection::vec(wrap, 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever lies in whatever is found, with the name that its holders give it.
    #[test]
    fn volumes_one_in_another_are_found_with_their_content(wraps in wraps(), sectors in 1usize..300, seed: u64) {
        let content = noise(512 * sectors, seed);
        let mut bytes = content.clone();
        for (number, wrap) in wraps.iter().enumerate() {
            let name = format!("a{number}");
            bytes = match wrap {
                Wrap::Mirror => mirror(&name, &bytes),
                Wrap::Raid5(missing) => {
                    let members = raid5(&name, &bytes);
                    let here = members.iter().enumerate().filter(|(number, _)| Some(*number) != *missing);
                    disk(&here.map(|(_, member)| (RAID, member.as_slice())).collect::<Vec<_>>())
                }
                Wrap::Partition => disk(&[(LINUX, &[7; 512]), (LINUX, &bytes)]),
            };
        }
        // From the outside: the name of each, and whether it is a volume or the source, or a partition of it.
        let (mut name, mut is_volume) = (String::new(), false);
        for (number, wrap) in wraps.iter().enumerate().rev() {
            match wrap {
                Wrap::Mirror | Wrap::Raid5(_) => (name, is_volume) = (format!("md_a{number}"), true),
                Wrap::Partition if name.is_empty() => name = "p2".to_owned(),
                Wrap::Partition => (name, is_volume) = (format!("{name}.p2"), true),
            }
        }
        let source = device(&bytes);
        let stack = found(&source);
        let all = contents(&source, &stack);
        prop_assert!(stack.not_opened.is_empty(), "{:?}", stack.not_opened);
        match all.iter().find(|(found, _)| *found == name) {
            Some((_, found)) => prop_assert!(is_volume && found.starts_with(&content)),
            None => prop_assert!(!is_volume, "{} is not among {:?}", name, names(&stack)),
        }
    }

    /// A look at any bytes ends, and what it finds can be shown.
    #[test]
    fn any_bytes_are_looked_at(edits in prop::collection::vec((0usize..1 << 20, any::<u8>()), 0..40), which in 0usize..3) {
        let content = noise(64 << 10, 9);
        let mut bytes = match which {
            0 => mirror("a", &mirror("b", &disk(&[(LINUX, &content)]))),
            1 => disk(&[(RAID, &raid5("a", &content)[0]), (RAID, &raid5("a", &content)[2])]),
            _ => disk(&[(LINUX, &disk(&[(LINUX, &content), (RAID, &mirror("b", &content))]))]),
        };
        for (at, byte) in edits {
            // Where superblocks and tables are, mostly.
            let at = if at % 2 == 0 { at % 8192 } else { at % bytes.len() };
            bytes[at] = byte;
        }
        let source = device(&bytes);
        let stack = found(&source);
        let end = stack.over(source.clone()).unwrap().geometry().size;
        prop_assert!(stack.volumes.iter().all(|volume| volume.range.fits(end)));
        prop_assert_eq!(stack.devices(source).unwrap().len(), stack.volumes.len());
    }
}
