//! Groups that the tests write themselves, against a model that looks each extent up.

use std::fmt::Write as _;
use std::sync::Arc;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Device as _, DynDevice};
use futures::FutureExt as _;
use proptest::prelude::*;

use super::label::checksum;
use super::{Assembly, NotOpened, Why, assemble};

const SECTOR: usize = 512;
/// Where a physical volume keeps its metadata, and how much, in bytes.
const AREA: (usize, usize) = (4096, 12 << 10);
/// Where the first extent of a physical volume begins, and the size of an extent.
const START: usize = 16 << 10;
const EXTENT: usize = 8 << 10;
const EXTENTS: usize = 12;
const PHYSICAL_BYTES: usize = START + EXTENTS * EXTENT;

/// Places in a segment: the number of a physical volume, and an extent of it.
type Stripes = Vec<(usize, usize)>;

#[derive(Debug, Clone)]
struct Segment {
    /// Extents of each stripe.
    extents: usize,
    unit: usize,
    stripes: Stripes,
}

fn id(kind: char, number: usize) -> String {
    format!("{kind}{number:031}")
}

fn hyphenated(id: &str) -> String {
    format!("{}-{}-{}", &id[..6], &id[6..26], &id[26..])
}

/// The text of a segment.
fn segment(number: usize, first: usize, segment: &Segment) -> String {
    let Segment { extents, unit, stripes } = segment;
    let count = stripes.len();
    let size = if count > 1 { format!("stripe_size = {}\n", unit / SECTOR) } else { String::new() };
    let places: Vec<_> = stripes.iter().map(|(on, first)| format!("\"pv{on}\", {first}")).collect();
    let (extents, places) = (extents * count, places.join(",\n"));
    format!(
        "segment{number} {{\nstart_extent = {first}\nextent_count = {extents}\ntype = \"striped\"\n\
         stripe_count = {count}\t# linear\n{size}stripes = [\n{places}\n]\n}}\n"
    )
}

/// The text of a visible logical volume.
fn logical(name: &str, number: usize, segments: &str) -> String {
    let id = hyphenated(&id('L', number));
    format!("{name} {{\nid = \"{id}\"\nstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]\nflags = []\n{segments}}}\n")
}

fn logical_of(name: &str, number: usize, segments: &[Segment]) -> String {
    let (mut text, mut first) = (String::new(), 0);
    for (number, one) in segments.iter().enumerate() {
        text += &segment(number + 1, first, one);
        first += one.extents * one.stripes.len();
    }
    logical(name, number, &text)
}

/// The text of a group with this number of physical volumes.
fn group(sequence: usize, physical: usize, logical: &str) -> String {
    let mut text = format!(
        "# Written by a test\ncontents = \"Text Format Volume Group\"\nversion = 1\ndescription = \"a \\\"}} test\"\n\n\
         vg-0 {{\nid = \"{}\"\nseqno = {sequence}\nextent_size = {}\nphysical_volumes {{\n",
        hyphenated(&id('G', 0)),
        EXTENT / SECTOR
    );
    for number in 0..physical {
        write!(
            text,
            "pv{number} {{\nid = \"{}\"\ndevice = \"/dev/sd{number}\"\nstatus = [\"ALLOCATABLE\"]\nflags = []\n\
             pe_start = {}\npe_count = {EXTENTS}\n}}\n",
            hyphenated(&id('P', number)),
            START / SECTOR
        )
        .unwrap();
    }
    text + "}\nlogical_volumes {\n" + logical + "}\n}\n"
}

/// A physical volume, with this text from an offset of its buffer on.
fn physical(number: usize, text: &str, at: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..PHYSICAL_BYTES).map(|at| (at / 97 + 31 * number + at) as u8).collect();
    bytes[..START].fill(0);
    let label = &mut bytes[SECTOR..2 * SECTOR];
    label[..8].copy_from_slice(b"LABELONE");
    label[8] = 1;
    label[20..24].copy_from_slice(&32u32.to_le_bytes());
    label[24..32].copy_from_slice(b"LVM2 001");
    label[32..64].copy_from_slice(id('P', number).as_bytes());
    let places = [PHYSICAL_BYTES, START, 0, 0, 0, AREA.0, AREA.1, 0, 0];
    for (place, value) in label[64..].chunks_exact_mut(8).zip(places) {
        place.copy_from_slice(&(value as u64).to_le_bytes());
    }
    let sum = checksum(&[&label[20..]]);
    label[16..20].copy_from_slice(&sum.to_le_bytes());
    let text = [text.as_bytes(), b"\0"].concat();
    let area = &mut bytes[AREA.0..AREA.0 + AREA.1];
    for (index, byte) in text.iter().enumerate() {
        area[SECTOR + (at + index) % (AREA.1 - SECTOR)] = *byte;
    }
    area[4..20].copy_from_slice(b" LVM2 x[5A%r0N*>");
    area[20] = 1;
    for (place, value) in [(24, AREA.0), (32, AREA.1), (40, SECTOR + at), (48, text.len())] {
        area[place..place + 8].copy_from_slice(&(value as u64).to_le_bytes());
    }
    area[56..60].copy_from_slice(&checksum(&[&text]).to_le_bytes());
    let sum = checksum(&[&area[4..SECTOR]]);
    area[..4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Assembles the physical volumes, which lie behind each other on a disk.
fn assembled(volumes: &[Vec<u8>]) -> (Assembly, DynDevice) {
    let disk: DynDevice = Arc::new(Memory::new(volumes.concat()));
    let place = |number| ByteRange::new((number * PHYSICAL_BYTES) as u64, PHYSICAL_BYTES as u64);
    let places: Vec<_> = (0..volumes.len()).map(place).collect();
    (assemble(&*disk, &places).now_or_never().unwrap(), disk)
}

fn read(device: &DynDevice, range: ByteRange) -> Vec<u8> {
    device.read(range).now_or_never().unwrap().unwrap().into_bytes().into()
}

fn sentences(assembly: &Assembly) -> Vec<String> {
    assembly.not_opened.iter().map(ToString::to_string).collect()
}

/// The content of a logical volume, extent by extent and unit by unit.
fn modelled(volumes: &[Vec<u8>], segments: &[Segment]) -> Vec<u8> {
    let mut content = Vec::new();
    for Segment { extents, unit, stripes } in segments {
        let unit = if stripes.len() > 1 { *unit } else { EXTENT };
        for row in 0..extents * EXTENT / unit {
            for (on, first) in stripes {
                content.extend(&volumes[*on][START + first * EXTENT + row * unit..][..unit]);
            }
        }
    }
    content
}

const LINEAR: fn(usize, usize, usize) -> Segment =
    |on, first, extents| Segment { extents, unit: 0, stripes: vec![(on, first)] };

#[test]
fn the_checksum_begins_in_its_own_state_and_goes_on_over_parts() {
    // That it is LVM2's is shown by the labels that LVM2 itself writes, in the tests of the command line.
    assert_eq!(checksum(&[b""]), 0xf597_a6cf);
    assert_eq!(checksum(&[b"12", b"345"]), checksum(&[b"12345"]));
}

#[test]
fn linear_parts_that_follow_each_other_are_one_piece_and_others_are_joined() {
    let whole = logical_of("root", 0, &[LINEAR(0, 2, 3), LINEAR(0, 5, 1)]);
    let apart = logical_of("home", 1, &[LINEAR(1, 0, 2), LINEAR(0, 0, 1)]);
    let text = group(3, 2, &(whole + &apart));
    let volumes = [physical(0, &text, 0), physical(1, &text, 0)];
    let (assembly, disk) = assembled(&volumes);
    assert_eq!(sentences(&assembly), [""; 0]);
    let [root, home] = &assembly.volumes[..] else { panic!("{assembly:?}") };
    assert_eq!((root.label(), root.size_bytes), ("vg--0-root".to_owned(), 4 * EXTENT as u64));
    let place = ByteRange::new((START + 2 * EXTENT) as u64, 4 * EXTENT as u64);
    assert_eq!((root.in_one_piece(), root.pieces()), (Some(place), Some(vec![place])));
    assert_eq!((home.in_one_piece(), home.pieces().unwrap().len()), (None, 2));
    let shown = home.over(&disk).unwrap();
    let expected = modelled(&volumes, &[LINEAR(1, 0, 2), LINEAR(0, 0, 1)]);
    assert_eq!(read(&shown, ByteRange::new(0, home.size_bytes)), expected);
    assert_eq!(assembly.places.len(), 2);
}

#[test]
fn a_text_that_goes_on_at_the_start_of_its_buffer_is_read_and_the_newest_counts() {
    let old = group(4, 2, &logical_of("old", 0, &[LINEAR(0, 0, 1)]));
    let new = group(5, 2, &logical_of("new", 0, &[LINEAR(1, 0, 1)]));
    let (assembly, _) = assembled(&[physical(0, &old, 0), physical(1, &new, AREA.1 - SECTOR - 100)]);
    let names: Vec<_> = assembly.volumes.iter().map(|one| &one.name).collect();
    assert_eq!(names, ["new"]);
    assert_eq!(sentences(&assembly), [""; 0]);
}

#[test]
fn a_group_with_a_missing_physical_volume_names_it_and_opens_what_lies_on_the_others() {
    let both = [LINEAR(0, 0, 1), LINEAR(1, 0, 1)];
    let text = group(1, 2, &(logical_of("here", 0, &[LINEAR(0, 1, 1)]) + &logical_of("both", 1, &both)));
    let (assembly, _) = assembled(&[physical(0, &text, 0)]);
    let names: Vec<_> = assembly.volumes.iter().map(|one| &one.name).collect();
    assert_eq!(names, ["here"]);
    assert_eq!(
        sentences(&assembly),
        [
            "the volume group vg-0 is not complete: its physical volume pv1 (P0000000000000000000000000000001, once \
             /dev/sd1) is not here",
            "the logical volume vg-0/both is not opened: it lies on pv1, not all of which is here",
        ]
    );
    // The group has gone on without it: what is on it is old.
    let text = text.replace("device = \"/dev/sd1\"\nstatus = [\"ALLOCATABLE\"]", "status = [\"MISSING\"]");
    let (again, _) = assembled(&[physical(0, &text, 0), physical(1, &text, 0)]);
    assert_eq!(again.volumes, assembly.volumes);
    assert_eq!(again.not_opened.len(), 2);
}

#[test]
fn other_kinds_of_volumes_are_refused_by_name_and_parts_of_them_not_named() {
    let other = |kind: &str, more: &str| {
        format!("segment1 {{\nstart_extent = 0\nextent_count = 1\ntype = \"{kind}\"\n{more}\n}}\n")
    };
    let hidden = |text: String| text.replace(", \"VISIBLE\"", "");
    let kinds = [
        ("thin", "a thin volume"),
        ("thin-pool", "a pool of thin volumes"),
        ("raid1", "a RAID (raid1)"),
        ("mirror", "a mirror"),
        ("cache+METADATA_FORMAT", "a cached volume"),
        ("writecache", "a cached volume"),
        ("vdo", "a volume of VDO"),
        ("new", "of type new"),
    ];
    let mut text: String =
        kinds.iter().enumerate().map(|(at, (kind, _))| logical(&format!("l{at}"), at, &other(kind, ""))).collect();
    text += &logical_of("origin", 20, &[LINEAR(0, 0, 1)]);
    text += &logical_of("snap", 21, &[LINEAR(0, 1, 1)]);
    text += &hidden(logical("snapshot0", 22, &other("snapshot", "origin = \"origin\"\ncow_store = \"snap\"")));
    text += &hidden(logical_of("root_rimage_0", 23, &[LINEAR(0, 2, 1)]));
    text += &logical("merged", 24, &segment(1, 0, &LINEAR(0, 3, 1)));
    text += &hidden(logical("snapshot1", 25, &other("snapshot", "origin = \"merged\"\nmerging_store = \"change\"")));
    text += &logical("moved", 26, &segment(1, 0, &LINEAR(0, 0, 1)).replace("\"pv0\"", "\"pvmove0\""));
    let (assembly, _) = assembled(&[physical(0, &group(1, 1, &text), 0)]);
    let names: Vec<_> = assembly.volumes.iter().map(|one| &one.name).collect();
    assert_eq!(names, ["origin"]);
    let mut expected: Vec<_> =
        kinds.iter().enumerate().map(|(at, (_, words))| (format!("l{at}"), Why::Kind((*words).to_owned()))).collect();
    expected.push(("snap".to_owned(), Why::Kind("a snapshot".to_owned())));
    expected.push(("merged".to_owned(), Why::Merging));
    expected.push(("moved".to_owned(), Why::OnLogical("pvmove0".to_owned())));
    for (name, why) in &expected {
        let (group, name, why) = ("vg-0".to_owned(), name.clone(), why.clone());
        let one = NotOpened::Logical { group, name, why };
        let found = &assembly.not_opened;
        assert!(found.contains(&one), "{one}: {found:?}");
    }
    assert_eq!(assembly.not_opened.len(), expected.len());
}

#[test]
fn damage_and_contradictions_are_named_and_open_nothing_wrong() {
    let good = group(1, 1, &logical_of("root", 0, &[LINEAR(0, 0, 2)]));
    let refused = |volume: Vec<u8>, words: &str| {
        let (assembly, _) = assembled(&[volume]);
        assert_eq!(assembly.volumes, [], "{words}");
        assert!(sentences(&assembly).iter().any(|one| one.contains(words)), "{words}: {:?}", sentences(&assembly));
    };
    for (at, words) in [
        (SECTOR + 40, "the checksum of its label is wrong"),
        (AREA.0 + 30, "the checksum of a metadata area is wrong"),
        (AREA.0 + SECTOR + 9, "the checksum of its metadata is wrong"),
    ] {
        let mut volume = physical(0, &good, 0);
        volume[at] ^= 1;
        refused(volume, words);
    }
    let changed = |from: &str, to: &str| physical(0, &good.replace(from, to), 0);
    refused(changed("\"pv0\", 0", "\"pv0\", 11"), "reaches beyond the end of the physical volume pv0");
    refused(changed("pe_start = 32", "pe_start = 200"), "root is not opened: it reaches beyond");
    refused(changed("start_extent = 0", "start_extent = 1"), "its segments do not follow each other");
    refused(changed("extent_count = 2", "extent_count = 18446744073709551615"), "reaches beyond");
    refused(changed("vg-0 {", "../0 {"), "a name that LVM2 does not allow");
    refused(changed("root {", ".. {"), "a name that LVM2 does not allow");
    refused(changed("extent_size = 16", "extent_size = 0"), "no size");
    refused(changed("stripe_count = 1", "stripe_count = 2"), "others than it counts");
    refused(changed("seqno = 1\n", ""), "no number");
    // Two with one identifier: one may be an old copy.
    let (assembly, _) = assembled(&[physical(0, &good, 0), physical(0, &good, 0)]);
    assert_eq!(assembly.volumes, []);
    assert_eq!(sentences(&assembly).iter().filter(|one| one.contains("others have its identifier")).count(), 2);
    // Cut short, and in no group.
    let (assembly, _) = assembled(&[vec![0; PHYSICAL_BYTES]]);
    assert_eq!(assembly, Assembly::default());
    assert!(!matches!(assembly.not_opened.first(), Some(NotOpened::Physical { .. })));
}

fn some_segment() -> impl Strategy<Value = Segment> {
    let place = || (0..3usize, 0..EXTENTS);
    let stripes = prop_oneof![prop::collection::vec(place(), 1..=1), prop::collection::vec(place(), 2..=4),];
    (1..=4usize, prop::sample::select(vec![4 << 10, 8 << 10]), stripes).prop_map(|(extents, unit, mut stripes)| {
        stripes.iter_mut().for_each(|(_, first)| *first = (*first).min(EXTENTS - extents));
        Segment { extents, unit, stripes }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_table_of_segments_reads_as_a_model_that_looks_each_unit_up(
        segments in prop::collection::vec(some_segment(), 1..6),
        reads in prop::collection::vec((0.0..1.0f64, 0.0..1.0f64), 1..8),
    ) {
        let text = group(1, 3, &logical_of("any", 0, &segments));
        let volumes: Vec<_> = (0..3).map(|number| physical(number, &text, 0)).collect();
        let (assembly, disk) = assembled(&volumes);
        prop_assert_eq!(sentences(&assembly), [""; 0]);
        let expected = modelled(&volumes, &segments);
        let volume = &assembly.volumes[0];
        prop_assert_eq!(volume.size_bytes, expected.len() as u64);
        let shown = volume.over(&disk).unwrap();
        for (from, to) in reads {
            let at = |part: f64| (part * expected.len() as f64) as usize;
            let (start, end) = (at(from.min(to)), at(from.max(to)));
            prop_assert_eq!(&read(&shown, ByteRange::between(start as u64, end as u64)), &expected[start..end]);
        }
        if let Some(pieces) = volume.pieces() {
            let joined: Vec<u8> = pieces.into_iter().flat_map(|piece| read(&disk, piece)).collect();
            prop_assert_eq!(joined, expected);
        }
    }

    #[test]
    fn no_bytes_are_too_bad(edits in prop::collection::vec((0..START, any::<u8>()), 0..40)) {
        let text = group(1, 1, &logical_of("root", 0, &[LINEAR(0, 0, 2)]));
        let mut volume = physical(0, &text, 0);
        edits.into_iter().for_each(|(at, byte)| volume[at] = byte);
        let disk: DynDevice = Arc::new(Memory::new(volume));
        let place = ByteRange::new(0, PHYSICAL_BYTES as u64);
        let assembly = super::assemble_unchecked(&*disk, &[place]).now_or_never().unwrap();
        for volume in &assembly.volumes {
            prop_assert!(volume.ranges().all(|range| place.contains(range)));
        }
    }
}
