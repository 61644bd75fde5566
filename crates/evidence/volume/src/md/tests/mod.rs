//! Arrays that a reference model writes, read back.

mod model;

use std::sync::Arc;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Geometry, Io};
use futures::FutureExt as _;
use proptest::prelude::*;

use self::model::{Shape, Superblock, Version, seal_new};
use super::{Array, Assembly, Defect, NotOpened, Remark, Unfit, Why, assemble};

const KIB: usize = 1024;
const CHUNK: usize = 8 * KIB;
const NEW: Version = Version::New { minor: 2 };
const VERSIONS: [Version; 5] = [
    Version::Old { big_endian: false },
    Version::Old { big_endian: true },
    Version::New { minor: 0 },
    Version::New { minor: 1 },
    NEW,
];

/// The content of an array: no two sectors are alike.
fn content(shape: &Shape) -> Vec<u8> {
    let mut state = 1u64;
    (0..shape.chunks() * shape.chunk / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state ^ state >> 29).to_le_bytes()
        })
        .collect()
}

/// The members of an array, each with the superblock that `edit` makes of the usual one.
fn made(shape: &Shape, version: Version, edit: impl Fn(usize, &mut Superblock)) -> Vec<Vec<u8>> {
    let data = shape.spread(&content(shape));
    let members = data.iter().enumerate().map(|(number, data)| {
        let mut superblock = Superblock::new(version, shape.members());
        edit(number, &mut superblock);
        superblock.member(shape, number, data)
    });
    members.collect()
}

fn as_usual(_: usize, _: &mut Superblock) {}

/// A disk with the members behind each other, and their places.
fn disk(members: &[Vec<u8>]) -> (Vec<u8>, Vec<ByteRange>) {
    let mut disk = vec![0x55; 4096];
    let mut places = Vec::new();
    for member in members {
        places.push(ByteRange::new(disk.len() as u64, member.len() as u64));
        disk.extend(member);
    }
    (disk, places)
}

fn assembled(members: &[Vec<u8>]) -> (Assembly, DynDevice) {
    let (disk, places) = disk(members);
    let disk: DynDevice = Arc::new(Memory::new(disk));
    (assemble(&*disk, &places).now_or_never().unwrap(), disk)
}

fn read(device: &DynDevice, range: ByteRange) -> Result<Vec<u8>, Error> {
    device.read(range).now_or_never().unwrap().map(|data| data.into_bytes().into())
}

/// The content of the only array.
fn shown((assembly, disk): &(Assembly, DynDevice)) -> Vec<u8> {
    let [array] = &assembly.volumes[..] else { panic!("{assembly:?}") };
    let device = array.over(disk).unwrap();
    assert_eq!(device.geometry().size, array.size_bytes);
    read(&device, ByteRange::new(0, array.size_bytes)).unwrap()
}

fn sentences(assembly: &Assembly) -> Vec<String> {
    assembly.not_opened.iter().map(ToString::to_string).collect()
}

/// Why arrays are not opened.
fn whys(assembly: &Assembly) -> Vec<Why> {
    let of_array = |one: &NotOpened| if let NotOpened::Array { why, .. } = one { Some(why.clone()) } else { None };
    assembly.not_opened.iter().filter_map(of_array).collect()
}

/// Why devices are left out of an array.
fn unfit(array: &Array) -> Vec<Unfit> {
    let of_device = |remark: &Remark| if let Remark::LeftOut(one) = remark { Some(one.why) } else { None };
    array.remarks.iter().filter_map(of_device).collect()
}

fn without(mut members: Vec<Vec<u8>>, missing: &[usize]) -> Vec<Vec<u8>> {
    let mut number = 0;
    members.retain(|_| {
        number += 1;
        !missing.contains(&(number - 1))
    });
    members
}

/// An array of each level.
fn of_each_level() -> Vec<Shape> {
    let shape = |level, layout, members| Shape::new(level, layout, CHUNK, members, 9);
    // Without redundancy, all of the data of a member are used: up to the superblock, whose place is a multiple of 64 KiB.
    let plain = |level| Shape::new(level, 0, CHUNK, 3, 8);
    let mut shapes = vec![plain(-1), plain(0), shape(1, 0, 2), shape(4, 0, 4)];
    shapes.extend([5, 6].into_iter().flat_map(|level| (0..6).map(move |layout| shape(level, layout, 4))));
    shapes.extend([shape(10, 0x102, 4), shape(10, 0x102, 3), shape(10, 0x103, 4)]);
    shapes
}

#[test]
fn each_level_and_each_version_reads_as_the_model() {
    for shape in of_each_level() {
        for version in VERSIONS {
            let case = assembled(&made(&shape, version, as_usual));
            assert_eq!(sentences(&case.0), [""; 0], "{shape:?} {version:?}");
            assert!(shown(&case) == content(&shape), "{shape:?} {version:?}");
            assert_eq!(case.0.places.len(), shape.members());
            assert_eq!(case.0.volumes[0].remarks, []);
        }
    }
}

#[test]
fn an_array_has_the_name_and_identifier_that_its_members_have() {
    let shape = Shape::new(5, 2, CHUNK, 3, 4);
    let (assembly, _) = assembled(&made(&shape, NEW, as_usual));
    let array = &assembly.volumes[0];
    let id = ["07070707"; 4].join(":");
    assert_eq!((array.name.as_str(), array.id.as_str(), array.label.as_str()), ("lab:home", id.as_str(), "md_home"));
    assert_eq!((array.description().as_str(), array.level.as_str()), ("RAID 5 array lab:home", "RAID 5"));
    let label = |version, name| {
        let (assembly, _) = assembled(&made(&shape, version, |_, one| one.name = name));
        assembly.volumes[0].label.clone()
    };
    for (name, expected) in
        [("lab:0", "md0"), ("lab:a-b/c", "md_a_b_c"), ("md3", "md3"), ("", "md_07070707070707070707070707070707")]
    {
        assert_eq!(label(NEW, name), expected);
    }
    assert_eq!(label(Version::Old { big_endian: false }, "unused"), "md127");
}

#[test]
fn two_arrays_of_one_name_have_different_names_as_files() {
    let shape = Shape::new(1, 0, CHUNK, 1, 4);
    let members: Vec<_> = [1, 2].into_iter().flat_map(|id| made(&shape, NEW, move |_, one| one.id = id)).collect();
    let (assembly, _) = assembled(&members);
    let labels: Vec<_> = assembly.volumes.iter().map(|array| array.label.as_str()).collect();
    assert_eq!(labels, ["md_home", "md_home_02020202020202020202020202020202"]);
}

#[test]
fn a_mirror_of_which_one_copy_is_here_lies_in_one_piece() {
    let shape = Shape::new(1, 0, CHUNK, 3, 5);
    let case = assembled(&without(made(&shape, NEW, as_usual), &[0, 1]));
    let array = &case.0.volumes[0];
    let place = ByteRange::new(4096 + (16 << 10), 5 * CHUNK as u64);
    assert_eq!((array.in_one_piece(), array.pieces()), (Some(place), Some(vec![place])));
    assert_eq!(array.remarks, [Remark::Degraded(vec![0, 1])]);
    assert!(shown(&case) == content(&shape));
}

#[test]
fn arrays_with_redundancy_are_read_without_any_members_that_may_be_missing() {
    for shape in of_each_level().into_iter().filter(|shape| shape.level > 0) {
        let all = made(&shape, NEW, as_usual);
        let count = shape.members();
        for missing in (0..count).flat_map(|one| (0..=one).map(move |other| [one, other])) {
            let lost = if missing[0] == missing[1] { 1 } else { 2 };
            if lost == count {
                continue;
            }
            let case = assembled(&without(all.clone(), &missing));
            let is_enough = match shape.level {
                1 => lost < count,
                6 => true,
                10 => (0..shape.chunks())
                    .all(|chunk| shape.places(chunk).iter().any(|(member, _)| !missing.contains(member))),
                _ => lost == 1,
            };
            if is_enough {
                assert!(shown(&case) == content(&shape), "{shape:?} {missing:?}");
            } else {
                assert_eq!(case.0.volumes, [], "{shape:?} {missing:?}");
                assert!(matches!(whys(&case.0)[..], [Why::Missing { .. }]), "{:?}", sentences(&case.0));
            }
        }
    }
}

#[test]
fn an_array_with_too_few_members_is_named_with_those_that_are_missing() {
    let incomplete = |shape: &Shape, missing: &[usize]| {
        let (assembly, _) = assembled(&without(made(shape, NEW, as_usual), missing));
        assert_eq!(assembly.volumes, []);
        assert_eq!(assembly.places.len(), shape.members() - missing.len());
        assembly
    };
    let id = ["07070707"; 4].join(":");
    assert_eq!(
        sentences(&incomplete(&Shape::new(5, 2, CHUNK, 4, 4), &[1, 3])),
        [format!(
            "the array lab:home ({id}) is not opened: it is RAID 5 of 4 members, and members 1 and 3 are not here"
        )]
    );
    for (number, level) in [(0, "RAID 0"), (-1, "linear")] {
        let assembly = incomplete(&Shape::new(number, 0, CHUNK, 2, 4), &[1]);
        assert_eq!(whys(&assembly), [Why::Missing { level: level.into(), members: 2, missing: vec![1] }]);
    }
}

#[test]
fn a_member_whose_count_of_events_is_behind_is_left_out_and_named() {
    let shape = Shape::new(1, 0, CHUNK, 2, 4);
    let mut members = made(&shape, NEW, |number, one| one.events = if number == 0 { 5 } else { 20 });
    // Its content is old.
    members[0][16 << 10..].fill(1);
    let case = assembled(&members);
    assert!(shown(&case) == content(&shape));
    assert_eq!(
        case.0.volumes[0].description(),
        "RAID 1 array lab:home; degraded: member 0 is not here; the device at byte 4096 (member 0) is left out: its count of \
         events, 5, is behind 20"
    );
    // A crash between the writes of two superblocks leaves them one apart, and changes no data.
    let case = assembled(&made(&shape, NEW, |number, one| one.events = 19 + number as u64));
    assert_eq!(case.0.volumes[0].remarks, []);
    // Unless the newest says that the other one failed.
    let gone = |number: usize, one: &mut Superblock| {
        one.events = 19 + number as u64;
        if number == 1 {
            one.roles[0] = 0xfffe;
        }
    };
    let (assembly, _) = assembled(&made(&shape, NEW, gone));
    assert_eq!(unfit(&assembly.volumes[0]), [Unfit::Gone]);
    // Of a RAID 5, one may be behind; of two, nothing is shown.
    let shape = Shape::new(5, 2, CHUNK, 4, 4);
    for (behind, shows) in [(1, true), (2, false)] {
        let case = assembled(&made(&shape, NEW, |number, one| one.events = if number < behind { 3 } else { 20 }));
        assert_eq!(case.0.volumes.len(), usize::from(shows));
        match shows {
            true => assert!(shown(&case) == content(&shape)),
            false => {
                let [NotOpened::Array { left_out, .. }] = &case.0.not_opened[..] else { panic!("{:?}", case.0) };
                assert_eq!(left_out[0].why, Unfit::Behind { events: 3, newest: 20 });
            }
        }
    }
}

#[test]
fn halves_of_a_mirror_that_were_used_apart_are_not_shown_as_one() {
    let apart = |number: usize, one: &mut Superblock| one.roles[1 - number] = 0xfffe;
    let (assembly, _) = assembled(&made(&Shape::new(1, 0, CHUNK, 2, 4), NEW, apart));
    assert_eq!(assembly.volumes, []);
    assert_eq!(whys(&assembly), [Why::Contradiction]);
}

#[test]
fn two_copies_of_a_member_are_not_used() {
    let shape = Shape::new(5, 2, CHUNK, 3, 4);
    let mut members = made(&shape, NEW, as_usual);
    members.push(members[1].clone());
    let case = assembled(&members);
    assert!(shown(&case) == content(&shape));
    assert_eq!(case.0.volumes[0].remarks.len(), 3, "{:?}", case.0.volumes[0].remarks);
    assert_eq!(unfit(&case.0.volumes[0])[0], Unfit::SameNumber);
}

#[test]
fn a_spare_that_took_up_no_role_itself_is_left_out_although_a_newer_superblock_gives_it_one() {
    let shape = Shape::new(1, 0, CHUNK, 2, 4);
    // The first member failed, and the machine stopped before the superblock of the spare was written.
    let mut members = made(&shape, NEW, |_, one| one.roles = vec![0xfffe, 1, 0]);
    let spare = Superblock { events: 19, roles: vec![0xfffe, 1, 0xffff], ..Superblock::new(NEW, 2) };
    members[0] = spare.member(&shape, 2, &vec![1; 4 * CHUNK]);
    let case = assembled(&members);
    assert!(shown(&case) == content(&shape));
    assert_eq!(unfit(&case.0.volumes[0]), [Unfit::Partial]);
}

#[test]
fn a_spare_is_no_member_and_one_that_was_being_rebuilt_is_left_out() {
    let shape = Shape::new(5, 2, CHUNK, 3, 4);
    let mut members = made(&shape, NEW, |_, one| one.roles.push(0xffff));
    let mut spare = Superblock::new(NEW, 3);
    spare.roles.push(0xffff);
    members.push(spare.member(&shape, 3, &vec![1; 4 * CHUNK]));
    let case = assembled(&members);
    assert!(shown(&case) == content(&shape));
    assert_eq!((case.0.volumes[0].remarks.len(), case.0.places.len()), (0, 4));
    let rebuilt = |number: usize, one: &mut Superblock| one.features = if number == 2 { 2 } else { 0 };
    let mut members = made(&shape, NEW, rebuilt);
    members[2][16 << 10..].fill(1);
    let case = assembled(&members);
    assert!(shown(&case) == content(&shape));
    assert_eq!(unfit(&case.0.volumes[0]), [Unfit::Partial]);
}

#[test]
fn an_array_that_was_not_closed_is_said_and_nothing_is_computed_of_it() {
    let dirty = |_: usize, one: &mut Superblock| one.is_clean = false;
    for version in VERSIONS {
        for shape in [Shape::new(5, 2, CHUNK, 3, 4), Shape::new(6, 2, CHUNK, 4, 4), Shape::new(1, 0, CHUNK, 2, 4)] {
            let members = made(&shape, version, dirty);
            let case = assembled(&members);
            assert!(shown(&case) == content(&shape));
            assert_eq!(case.0.volumes[0].remarks, [Remark::NotClosed]);
            let case = assembled(&without(members, &[1]));
            match shape.level {
                1 => assert!(shown(&case) == content(&shape)),
                _ => assert_eq!(whys(&case.0), [Why::Dirty(vec![1])]),
            }
        }
    }
    // The first copy is read, and no other where it cannot be.
    let shape = Shape::new(1, 0, CHUNK, 2, 4);
    let mut members = made(&shape, NEW, dirty);
    members[1][16 << 10..].fill(1);
    let case = assembled(&members);
    assert!(shown(&case) == content(&shape));
    let bad = ByteRange::new(4096 + (16 << 10) + 512, 512);
    let device = case.0.volumes[0].over(&failing(&case.1, bad)).unwrap();
    assert!(read(&device, ByteRange::new(512, 10)).is_err());
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let refused = |shape: &Shape, edit: &dyn Fn(&mut Superblock), words: &str| {
        let all = (0..shape.members()).map(|number| {
            let mut superblock = Superblock::new(NEW, shape.members());
            edit(&mut superblock);
            superblock.member(shape, number, &vec![0; shape.lens[number]])
        });
        let (assembly, _) = assembled(&all.collect::<Vec<_>>());
        assert_eq!(assembly.volumes, [], "{words}");
        assert!(sentences(&assembly).iter().any(|one| one.contains(words)), "{words}: {:?}", sentences(&assembly));
    };
    let of = |level, layout| Shape::new(level, layout, CHUNK, 4, 4);
    for (level, layout, words) in [
        (10, 0x201, "it is RAID 10 with far copies, which is not supported"),
        (10, 0x1_0201, "RAID 10 with offset copies"),
        (10, 0x105, "copies are too few or too many"),
        (6, 8, "RAID 6 with a layout of DDF"),
        (6, 18, "Q on the last member"),
        (5, 7, "RAID 5 with the layout 7"),
        (-4, 0, "a multipath device"),
        (-100, 0, "a container"),
        (3, 0, "of level 3"),
    ] {
        refused(&of(level, layout), &|_| {}, words);
    }
    let small = Shape { chunk: 2 * KIB, ..of(5, 2) };
    refused(&small, &|_| {}, "RAID 5 in chunks of 2048 bytes");
    refused(
        &Shape { chunk: 12 * KIB, lens: vec![24 * KIB; 4], ..of(0, 0) },
        &|_| {},
        "RAID 0 in chunks of 12288 bytes",
    );
    refused(&Shape { lens: vec![CHUNK; 3], ..of(6, 2) }, &|_| {}, "too few members for its level");
    for (features, words) in [
        (4, "it was being reshaped"),
        (32, "it was being reshaped"),
        (64, "it was being reshaped"),
        (512, "it has a write journal"),
        (1 << 20, "features that are not known (0x100000)"),
    ] {
        refused(&of(5, 2), &|one| one.features = features, words);
    }
    refused(&of(5, 2), &|one| one.roles.push(0xfffd), "it has a write journal");
}

#[test]
fn rows_that_only_larger_members_have_are_read_in_the_layout_that_is_recorded() {
    for layout in [1, 2] {
        let lens = vec![3 * CHUNK, 8 * CHUNK + 4096, 5 * CHUNK, 8 * CHUNK, 5 * CHUNK];
        let shape = Shape { lens, ..Shape::new(0, layout, CHUNK, 5, 1) };
        let case = assembled(&made(&shape, NEW, as_usual));
        assert!(shown(&case) == content(&shape), "{layout}");
    }
    let shape = Shape { lens: vec![3 * CHUNK, 8 * CHUNK], ..Shape::new(0, 0, CHUNK, 2, 1) };
    let (assembly, _) = assembled(&made(&shape, NEW, as_usual));
    assert!(matches!(whys(&assembly)[..], [Why::Kind(_)]), "{assembly:?}");
}

#[test]
fn what_is_on_bad_blocks_of_a_member_is_taken_from_others() {
    // The second sector of the second row of each member.
    let bad = (CHUNK as u64 / 512 + 1, 1);
    for shape in [Shape::new(1, 0, CHUNK, 2, 4), Shape::new(5, 2, CHUNK, 3, 4), Shape::new(6, 2, CHUNK, 5, 4)] {
        for victim in 0..shape.members() {
            let listed = |number: usize, one: &mut Superblock| {
                one.features = 8;
                one.bad = if number == victim { vec![bad] } else { vec![(0, 0)] };
            };
            let mut members = made(&shape, NEW, listed);
            members[victim][(16 << 10) + CHUNK + 512..][..512].fill(1);
            let case = assembled(&members);
            assert_eq!(case.0.volumes[0].in_one_piece(), None);
            assert!(shown(&case) == content(&shape), "{shape:?} {victim}");
        }
    }
    let listed = |_: usize, one: &mut Superblock| (one.features, one.bad) = (8, vec![bad]);
    let shape = Shape::new(5, 2, CHUNK, 3, 4);
    let case = assembled(&made(&shape, NEW, listed));
    let device = case.0.volumes[0].over(&case.1).unwrap();
    let error = read(&device, ByteRange::new(0, 4 * 2 * CHUNK as u64)).unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    let (assembly, _) = assembled(&made(&Shape::new(0, 0, CHUNK, 2, 4), NEW, listed));
    assert_eq!(whys(&assembly), [Why::BadBlocks(0)]);
}

/// A device whose range cannot be read.
struct Failing {
    below: DynDevice,
    bad: ByteRange,
}

impl Device for Failing {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match self.bad.intersection(range) {
            Some(range) => Io::fail(Error::Unreadable { device: "disk".into(), range, why: "bad sector".into() }),
            None => self.below.read(range),
        }
    }
}

fn failing(below: &DynDevice, bad: ByteRange) -> DynDevice {
    Arc::new(Failing { below: Arc::clone(below), bad })
}

#[test]
fn a_sector_that_cannot_be_read_is_computed_from_the_others_or_is_an_error() {
    let shape = Shape::new(5, 2, CHUNK, 3, 4);
    let all = made(&shape, NEW, as_usual);
    let whole = ByteRange::new(0, shape.chunks() as u64 * CHUNK as u64);
    for missing in [&[][..], &[2_usize]] {
        let (assembly, disk) = assembled(&without(all.clone(), missing));
        let device = assembly.volumes[0].over(&failing(&disk, ByteRange::new(4096 + (16 << 10) + 512, 512))).unwrap();
        match missing {
            [] => assert!(read(&device, whole).unwrap() == content(&shape)),
            // The first chunk of the array, of which the second sector is lost.
            _ => {
                assert!(read(&device, ByteRange::new(512, 512)).is_err());
                let rest = ByteRange::new(1024, CHUNK as u64 - 1024);
                assert!(read(&device, rest).unwrap() == content(&shape)[1024..CHUNK]);
            }
        }
    }
}

/// A change to a member.
type Edit = Box<dyn Fn(&mut [u8])>;

#[test]
fn damage_is_named_and_shows_nothing_wrong() {
    let shape = Shape::new(1, 0, CHUNK, 2, 4);
    let superblock = 4096..4096 + 256;
    let with = |edit: &dyn Fn(&mut [u8])| {
        let mut members = made(&shape, NEW, as_usual);
        edit(&mut members[0]);
        let (assembly, _) = assembled(&members);
        assert_eq!(assembly.volumes.len(), 1);
        assert_eq!(assembly.volumes[0].remarks[0], Remark::Degraded(vec![0]));
        let damage = assembly.not_opened.iter().find_map(|one| match one {
            NotOpened::Member { why: Defect::Damaged(damage), .. } => Some(*damage),
            _ => None,
        });
        (damage, unfit(&assembly.volumes[0]).first().copied())
    };
    let sealed = |at: usize, value: &'static [u8]| {
        let superblock = superblock.clone();
        move |member: &mut [u8]| {
            member[superblock.start + at..][..value.len()].copy_from_slice(value);
            seal_new(&mut member[superblock.start..superblock.end + 4]);
        }
    };
    let cases: [(Edit, Option<&str>, Option<Unfit>); 6] = [
        (Box::new(|member| member[4096 + 40] ^= 1), Some("the checksum of its superblock is wrong"), None),
        (
            Box::new(|member| member[4096 + 220..][..4].fill(0xff)),
            Some("its superblock has more roles than are possible"),
            None,
        ),
        (Box::new(sealed(80, &[0xff; 8])), Some("its superblock is damaged"), None),
        (Box::new(sealed(128, &[0xff; 6])), None, Some(Unfit::Beyond)),
        (Box::new(sealed(136, &[8, 0])), None, Some(Unfit::Short)),
        (Box::new(sealed(8, &[8])), Some("its superblock is damaged"), None),
    ];
    for (edit, damage, why) in cases {
        assert_eq!(with(&*edit), (damage, why));
    }
    // One that belongs elsewhere is none.
    assert_eq!(with(&sealed(144, &[9])), (None, None));
}

#[test]
fn the_superblock_at_the_end_of_a_disk_that_is_that_of_its_last_partition_counts_once() {
    let shape = Shape::new(1, 0, CHUNK, 1, 4);
    for version in [Version::Old { big_endian: false }, Version::New { minor: 0 }] {
        let mut member = made(&shape, version, as_usual).remove(0);
        let len = member.len();
        member.splice(0..0, vec![0; 64 << 10]);
        let disk: DynDevice = Arc::new(Memory::new(member));
        let (whole, part) = (ByteRange::new(0, (len + (64 << 10)) as u64), ByteRange::new(64 << 10, len as u64));
        let assembly = assemble(&*disk, &[whole, part]).now_or_never().unwrap();
        assert_eq!(assembly.places, [part]);
        assert!(shown(&(assembly, disk)) == content(&shape), "{version:?}");
    }
}

fn some_shape() -> impl Strategy<Value = Shape> {
    let level = prop_oneof![Just(1), Just(4), Just(5), Just(6), Just(10)];
    (level, 0..6u32, 4..7usize, 1..12usize, prop::sample::select(vec![4 * KIB, 16 * KIB])).prop_map(
        |(level, layout, members, rows, chunk)| {
            let layout = match level {
                10 => 0x100 | (2 + layout % 2),
                _ => layout,
            };
            Shape::new(level, layout, chunk, members, rows)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_array_reads_as_the_model_without_the_members_that_it_can_lose(
        shape in some_shape(),
        version in prop::sample::select(VERSIONS.to_vec()),
        lost in (0..6usize, 0..6usize),
        reads in prop::collection::vec((0.0..1.0f64, 0.0..1.0f64), 1..8),
    ) {
        let missing = match shape.level {
            6 => vec![lost.0 % shape.members(), lost.1 % shape.members()],
            _ => vec![lost.0 % shape.members()],
        };
        let (assembly, disk) = assembled(&without(made(&shape, version, as_usual), &missing));
        let expected = content(&shape);
        let [array] = &assembly.volumes[..] else { return Err(TestCaseError::fail(format!("{assembly:?}"))) };
        prop_assert_eq!(array.size_bytes, expected.len() as u64);
        let device = array.over(&disk).unwrap();
        for (from, to) in reads {
            let at = |part: f64| (part * expected.len() as f64) as usize;
            let (start, end) = (at(from.min(to)), at(from.max(to)));
            let range = ByteRange::between(start as u64, end as u64);
            prop_assert_eq!(&read(&device, range).unwrap(), &expected[start..end]);
        }
    }

    #[test]
    fn any_raid_0_and_any_linear_array_reads_as_the_model(
        level in prop::sample::select(vec![-1, 0]),
        layout in 1..3u32,
        rows in prop::collection::vec((1..9usize, 0..4usize), 1..6),
    ) {
        let lens = rows.iter().map(|(rows, rest)| rows * CHUNK + rest * 512).collect();
        let shape = Shape { lens, ..Shape::new(level, layout, CHUNK, 1, 1) };
        let case = assembled(&made(&shape, NEW, as_usual));
        prop_assert!(shown(&case) == content(&shape));
    }

    #[test]
    fn no_bytes_are_too_bad(
        new in any::<bool>(),
        level in prop::sample::select(vec![-1, 0, 1, 5, 6, 10]),
        edits in prop::collection::vec((0..4096usize, any::<u8>()), 0..40),
    ) {
        let shape = Shape::new(level, if level == 10 { 0x102 } else { 2 }, CHUNK, 4, 4);
        let version = if new { NEW } else { Version::Old { big_endian: false } };
        let mut members = made(&shape, version, as_usual);
        for member in &mut members {
            let start = if new { 4096 } else { member.len() - (64 << 10) };
            edits.iter().for_each(|(at, byte)| member[start + at] = *byte);
        }
        let (bytes, places) = disk(&members);
        let disk: DynDevice = Arc::new(Memory::new(bytes));
        let assembly = super::assemble_unchecked(&*disk, &places).now_or_never().unwrap();
        for array in &assembly.volumes {
            prop_assert!(array.ranges().into_iter().all(|range| places.iter().any(|place| place.contains(range))));
            let device = array.over(&disk).unwrap();
            for at in [0, array.size_bytes / 2, array.size_bytes - 1] {
                let _ = device.read(ByteRange::new(at, 1)).now_or_never().unwrap();
            }
        }
    }
}
