//! Volumes that are used as Windows uses them, with what each shadow copy was at its time; and damage.

use std::sync::Arc;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Extent, Geometry, Io};
use cheetah_testing::vss::{BLOCK_BYTES, Made, MadeCopy, MadeStore, Volume, random};
use futures::FutureExt as _;
use proptest::prelude::*;

use super::{Budget, Catalog, Damage, Defect, NotOpened, Opened, Part, Snapshot, catalog, open};

/// Where the volume lies in its disk.
const AT: u64 = 12 << 10;

fn disk(made: &Made) -> DynDevice {
    Arc::new(Memory::new([&vec![0x55; AT as usize][..], &made.bytes, &[0x66; 512]].concat()))
}

fn volume_of(made: &Made) -> ByteRange {
    ByteRange::new(AT, made.bytes.len() as u64)
}

fn listed(made: &Made, disk: &DynDevice) -> Result<Option<Catalog>, Defect> {
    catalog(&**disk, volume_of(made)).now_or_never().unwrap()
}

fn opened(made: &Made, disk: &DynDevice) -> Opened {
    opened_within(&mut Budget::default(), made, disk)
}

fn opened_within(budget: &mut Budget, made: &Made, disk: &DynDevice) -> Opened {
    let catalog = listed(made, disk).unwrap().unwrap();
    let numbers: Vec<_> = catalog.copies.iter().map(|copy| copy.number).collect();
    open(&**disk, &catalog, &numbers, budget).now_or_never().unwrap()
}

fn read(device: &DynDevice, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
    let data = device.read(ByteRange::new(offset, len)).now_or_never().unwrap()?;
    Ok(data.into_bytes().into())
}

/// Whether all blocks whose content is certain are as they should be, read at once, and in parts that begin within sectors.
fn is_right(snapshot: &Snapshot, expected: &MadeCopy, disk: &DynDevice) -> bool {
    let device = snapshot.over(disk).unwrap();
    let size = device.geometry().size;
    let whole = read(&device, 0, size).unwrap();
    let in_parts: Vec<_> = ByteRange::new(0, size)
        .split_at_multiples(4999)
        .flat_map(|part| read(&device, part.offset, part.len).unwrap())
        .collect();
    let is_block = |(at, content): (&usize, &Vec<u8>)| whole[*at..*at + BLOCK_BYTES] == content[..];
    whole == in_parts && expected.blocks.iter().all(is_block)
}

fn check(made: &Made) {
    let disk = disk(made);
    let opened = opened(made, &disk);
    assert_eq!(opened.not_opened, []);
    assert_eq!(opened.snapshots.len(), made.copies.len());
    for (snapshot, expected) in opened.snapshots.iter().zip(&made.copies) {
        let copy = &snapshot.copy;
        assert_eq!((copy.id.as_ref(), copy.created_text()), (Some(&expected.id), expected.created.clone()));
        assert_eq!((copy.machine.as_str(), copy.size_bytes), ("LAB", made.bytes.len() as u64));
        assert!(is_right(snapshot, expected, &disk), "number {}", copy.number);
    }
}

/// A volume with two shadow copies.
fn two() -> Made {
    let mut volume = Volume::new(16, 1);
    volume.copy();
    volume.write_to_copy(3, 0xff);
    (1..6).for_each(|block| volume.write(block));
    volume.copy();
    (1..12).for_each(|block| volume.write(block));
    volume.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn each_shadow_copy_reads_as_the_volume_was_at_its_time(seed: u64) {
        check(&random(seed));
    }
}

#[test]
fn a_block_that_was_moved_is_read_where_it_is_or_was_kept() {
    for writes in [&[][..], &[9], &[2, 9], &[12], &[9, 12]] {
        let mut volume = Volume::new(16, 7);
        volume.copy();
        volume.shift(2, 9);
        volume.shift(9, 12);
        writes.iter().for_each(|block| volume.write(*block));
        volume.copy();
        volume.shift(12, 14);
        volume.write(14);
        check(&volume.finish());
    }
}

#[test]
fn what_was_written_to_a_shadow_copy_is_not_seen_by_older_ones() {
    let mut volume = Volume::new(16, 3);
    volume.copy();
    volume.write_to_copy(2, 0x8000_0001);
    volume.write_to_copy(2, 0x10);
    volume.write(2);
    volume.copy();
    volume.write_to_copy(2, 0xf0);
    volume.write_to_copy(4, 0xf0);
    volume.write(2);
    check(&volume.finish());
}

#[test]
fn free_space_of_the_newest_one_is_a_hole_and_reads_as_zeros() {
    let made = two();
    let disk = disk(&made);
    let opened = opened(&made, &disk);
    let block = BLOCK_BYTES as u64;
    for (snapshot, is_newest) in opened.snapshots.iter().zip([false, true]) {
        let device = snapshot.over(&disk).unwrap();
        let extents = device.extents(ByteRange::new(block + 5, 14 * block)).now_or_never().unwrap().unwrap();
        // Of 16 blocks, 8 are free.
        let expected = match is_newest {
            true => vec![Extent::data(7 * block - 5), Extent::hole(7 * block + 5)],
            false => vec![Extent::data(14 * block)],
        };
        assert_eq!(extents, expected);
        let free = read(&device, 12 * block, block).unwrap();
        assert_eq!(free.iter().all(|byte| *byte == 0), is_newest);
    }
}

#[test]
fn bytes_that_read_as_zeros_since_nothing_was_kept_are_counted() {
    let mut lost = 0;
    for made in (0..40).map(random) {
        let disk = disk(&made);
        let snapshots = opened(&made, &disk).snapshots;
        for (snapshot, is_newest) in snapshots.iter().zip((1..).map(|number| number == snapshots.len())) {
            let device = snapshot.over(&disk).unwrap();
            let whole = ByteRange::new(0, device.geometry().size);
            let extents = device.extents(whole).now_or_never().unwrap().unwrap();
            let holes = extents.iter().filter(|extent| **extent == Extent::hole(extent.len)).map(|extent| extent.len);
            assert_eq!(snapshot.lost_bytes(), holes.sum::<u64>());
            assert!(is_newest || snapshot.lost_bytes() == 0);
            lost += snapshot.lost_bytes();
        }
    }
    assert!(lost > 0);
}

#[test]
fn a_bitmap_that_calls_the_first_block_free_is_refused() {
    let MadeStore { bitmap, .. } = two().stores[1];
    // The bits of the bitmap and of the previous one, in the block behind it.
    let damage = |made: &mut Made, blocks: &[usize]| {
        blocks.iter().for_each(|block| made.bytes[bitmap + block * BLOCK_BYTES + 128] |= 1);
    };
    let why = Defect::Damaged { part: Part::Bitmap, at: bitmap as u64, why: Damage::FirstBlock };
    assert_eq!(refusals(|made| damage(made, &[0, 1])), both(&why));
    // One of them alone says nothing.
    assert_eq!(refusals(|made| damage(made, &[0])), [None, None]);
}

#[test]
fn a_volume_without_shadow_copies_has_no_catalog() {
    let mut made = two();
    let whole = disk(&made);
    assert!(catalog(&*whole, ByteRange::new(0, AT)).now_or_never().unwrap() == Ok(None));
    for (at, len) in [(0x1e00, 16), (0x1e30, 8)] {
        let kept = made.bytes[at..at + len].to_vec();
        made.bytes[at..at + len].fill(0);
        assert_eq!(listed(&made, &disk(&made)), Ok(None), "{at}");
        made.bytes[at..at + len].copy_from_slice(&kept);
    }
    made.bytes.truncate(0x1e10);
    assert_eq!(listed(&made, &disk(&made)), Ok(None));
}

/// A place, what is written there, and the damage to a structure.
type Edit = (usize, Vec<u8>, Part, Damage);

#[test]
fn a_damaged_catalog_is_refused_with_its_place() {
    let made = two();
    let first = made.catalog_at;
    let number = |value: u64| value.to_le_bytes().to_vec();
    let time = made.bytes[first + 128 + 48..][..8].to_vec();
    let cases: [Edit; 9] = [
        (3, vec![0; 8], Part::Header, Damage::NotNtfs),
        (0x1e10, vec![3], Part::Header, Damage::Version),
        (0x1e14, vec![2], Part::Header, Damage::Kind),
        (first, vec![0], Part::Catalog, Damage::Identifier),
        (first + 20, vec![3], Part::Catalog, Damage::Kind),
        (first + 32, number(5), Part::Catalog, Damage::Place),
        (first + 40, number(first as u64), Part::Catalog, Damage::Twice),
        (first + 128, vec![9], Part::Catalog, Damage::Entry),
        (first + 128 + 256 + 48, time, Part::Catalog, Damage::SameTime),
    ];
    for (at, bytes, part, why) in cases {
        let mut made = two();
        made.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
        let place = if part == Part::Header { 0x1e00 } else { first as u64 };
        assert_eq!(listed(&made, &disk(&made)), Err(Defect::Damaged { part, at: place, why }));
    }
    let mut beyond = two();
    let at = beyond.bytes.len() as u64 - 512;
    beyond.bytes[first + 40..][..8].copy_from_slice(&number(at));
    let expected = Defect::Damaged { part: Part::Catalog, at, why: Damage::Beyond };
    assert_eq!(listed(&beyond, &disk(&beyond)), Err(expected));
}

#[test]
fn a_catalog_of_more_blocks_than_any_has_is_refused() {
    for (blocks, is_listed) in [(64, true), (65, false)] {
        let mut made = two();
        let mut block = made.bytes[made.catalog_at..][..BLOCK_BYTES].to_vec();
        block[128..].fill(0);
        let first = made.bytes.len();
        made.bytes[0x1e30..][..8].copy_from_slice(&(first as u64).to_le_bytes());
        for number in 1..=blocks {
            let (at, next) = (made.bytes.len(), if number < blocks { made.bytes.len() + BLOCK_BYTES } else { 0 });
            block[32..40].copy_from_slice(&(at as u64).to_le_bytes());
            block[40..48].copy_from_slice(&(next as u64).to_le_bytes());
            made.bytes.extend(&block);
        }
        let last = (first + 64 * BLOCK_BYTES) as u64;
        let expected = match is_listed {
            true => Ok(Some(Catalog { volume: volume_of(&made), copies: Vec::new() })),
            false => Err(Defect::Damaged { part: Part::Catalog, at: last, why: Damage::LongList }),
        };
        assert_eq!(listed(&made, &disk(&made)), expected);
    }
}

/// Opens both shadow copies after damage, and returns why each is not opened.
fn refusals(damage: impl Fn(&mut Made)) -> [Option<Defect>; 2] {
    let mut made = two();
    damage(&mut made);
    let disk = disk(&made);
    let opened = opened(&made, &disk);
    let original = two();
    for snapshot in &opened.snapshots {
        let expected = &original.copies[snapshot.copy.number as usize - 1];
        assert!(is_right(snapshot, expected, &disk), "number {}", snapshot.copy.number);
    }
    [1, 2].map(|number| opened.not_opened.iter().find(|one| one.number == number).map(|one| one.why.clone()))
}

/// What is expected if the store of the second one cannot be used.
fn both(why: &Defect) -> [Option<Defect>; 2] {
    [Some(Defect::Later { number: 2, why: Box::new(why.clone()) }), Some(why.clone())]
}

#[test]
fn a_damaged_store_is_refused_and_so_are_the_older_ones() {
    let put = |made: &mut Made, at: usize, bytes: &[u8]| made.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    for number in [1, 2] {
        let MadeStore { header, list, .. } = two().stores[number - 1];
        let second = list + 160;
        let again = (list as u64).to_le_bytes();
        let edits: [(usize, &[u8], Part, usize, Damage); 6] = [
            (header, &[0], Part::Store, header, Damage::Identifier),
            (list + 20, &[6], Part::List, list, Damage::Kind),
            (second + 24, &[3], Part::Descriptor, second, Damage::Flags),
            (second, &[1], Part::Descriptor, second, Damage::Original),
            (second + 16, &[0xff; 8], Part::Descriptor, second, Damage::Content),
            (list + 40, &again, Part::List, list, Damage::Twice),
        ];
        for (place, bytes, part, at, why) in edits {
            let why = Defect::Damaged { part, at: at as u64, why };
            let expected = if number == 1 { [Some(why), None] } else { both(&why) };
            assert_eq!(refusals(|made| put(made, place, bytes)), expected);
        }
    }
}

#[test]
fn the_stores_of_a_second_volume_count_with_those_of_the_first() {
    let made = two();
    let disk = disk(&made);
    // They have 13 entries.
    let mut budget = Budget(20);
    assert_eq!(opened_within(&mut budget, &made, &disk).not_opened, []);
    let again = opened_within(&mut budget, &made, &disk).not_opened;
    let [refused] = &again[..] else { panic!("{again:?}") };
    assert_eq!(refused.number, 1);
    assert!(matches!(refused.why, Defect::Damaged { why: Damage::ManyBlocks, .. }), "{refused}");
}

#[test]
fn a_bitmap_is_needed_by_the_newest_one_alone() {
    let at = two().stores[1].bitmap;
    let why = Defect::Damaged { part: Part::Bitmap, at: at as u64, why: Damage::Identifier };
    // Its store cannot be trusted either.
    assert_eq!(refusals(|made| made.bytes[at] = 0), both(&why));
    let at = two().stores[0].bitmap;
    assert_eq!(refusals(|made| made.bytes[at] = 0), [None, None]);
}

#[test]
fn one_without_a_store_in_the_volume_or_larger_than_it_is_refused_by_name() {
    // The entries of the newest one are the first ones.
    let entry = two().catalog_at + 128;
    assert_eq!(refusals(|made| made.bytes[entry + 128] = 1), both(&Defect::NoStore));
    let size = two().bytes.len() as u64 | 1 << 40;
    assert_eq!(refusals(|made| made.bytes[entry + 8 + 5] = 1), [None, Some(Defect::TooLarge(size))]);
}

#[test]
fn a_block_that_was_moved_away_and_back_is_an_error_and_no_other_is() {
    let mut volume = Volume::new(16, 5);
    volume.copy();
    volume.shift(2, 9);
    volume.write(12);
    let mut made = volume.finish();
    // The forwarder, and the descriptor behind it as one back.
    let forwarder = made.stores[0].list + 128 + 32;
    let [from, to] = [2, 9].map(|block: u64| (block * BLOCK_BYTES as u64).to_le_bytes());
    let back = [&to[..], &from, &[0; 8], &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(made.bytes[forwarder..forwarder + 16], [from, to].concat());
    made.bytes[forwarder + 32..forwarder + 64].copy_from_slice(&back);
    let disk = disk(&made);
    let device = opened(&made, &disk).snapshots[0].over(&disk).unwrap();
    let block = BLOCK_BYTES as u64;
    let range = ByteRange::new(2 * block + 700, 10);
    let read_it = read(&device, range.offset, range.len);
    assert!(matches!(read_it, Err(Error::Unreadable { range: bad, .. }) if bad == range), "{read_it:?}");
    assert!(read(&device, 0, 2 * block).is_ok() && read(&device, 3 * block, 13 * block).is_ok());
    assert!(read(&device, block, 2 * block).is_err());
}

#[test]
fn a_block_that_was_moved_to_the_highest_place_is_an_error_and_no_other_is() {
    let mut made = two();
    // The newest one says that it is as large as can be, and that its first block was moved to the end.
    let (size, descriptor) = (made.catalog_at + 128 + 8, made.stores[1].list + 128);
    made.bytes[size..size + 8].fill(0xff);
    let to = (u64::MAX - u64::MAX % BLOCK_BYTES as u64).to_le_bytes();
    let forwarder = [&[0; 8][..], &to, &[0; 8], &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
    made.bytes[descriptor..descriptor + 32].copy_from_slice(&forwarder);
    let disk = disk(&made);
    let device = opened(&made, &disk).snapshots[0].over(&disk).unwrap();
    let block = BLOCK_BYTES as u64;
    assert!(read(&device, 0, 2 * block).is_err());
    assert!(read(&device, block, 2 * block).is_ok());
}

/// A disk with a bad place.
struct Bad {
    memory: DynDevice,
    place: ByteRange,
}

impl Device for Bad {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match range.intersection(self.place) {
            Some(_) => Io::fail(Error::Unreadable { device: "disk".into(), range, why: "bad".into() }),
            None => self.memory.read(range),
        }
    }
}

#[test]
fn what_cannot_be_read_is_an_error_where_it_is_needed() {
    let made = two();
    let at = |offset: usize, len: u64| ByteRange::new(AT + offset as u64, len);
    let on = |place| -> DynDevice { Arc::new(Bad { memory: disk(&made), place }) };
    let error = listed(&made, &on(at(0, 512))).unwrap_err();
    assert!(matches!(error, Defect::Unread { part: Part::Header, at: 0x1e00, .. }), "{error}");
    let error = listed(&made, &on(at(made.catalog_at, 512))).unwrap_err();
    assert!(matches!(error, Defect::Unread { part: Part::Catalog, .. }), "{error}");
    // A block of a list, and the block behind the last one of a list, which is read with it.
    let refused = opened(&made, &on(at(made.stores[0].list, 1))).not_opened;
    assert!(matches!(&refused[..], [NotOpened { number: 1, why: Defect::Unread { .. } }]), "{refused:?}");
    let bad = on(at(4 * BLOCK_BYTES, 512));
    let opened = opened(&made, &bad);
    assert_eq!(opened.not_opened, []);
    let device = opened.snapshots[0].over(&bad).unwrap();
    // Both were kept of that block.
    assert!(read(&device, 4 * BLOCK_BYTES as u64, 512).is_ok());
    assert!(read(&device, made.bytes.len() as u64, 1).is_err());
    let beyond: DynDevice = Arc::new(Memory::new(vec![0; 64 << 10]));
    assert!(opened.snapshots[0].over(&beyond).is_err());
}
