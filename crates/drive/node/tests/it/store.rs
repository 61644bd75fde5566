//! The RAM store as a device: compared with a naive model, with defective memory, and with too little memory.

use std::sync::Arc;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, Error, Extent, Zeroing};
use cheetah_node::export::Export;
use cheetah_node::store::Store;
use futures::executor::block_on;
use proptest::prelude::*;

const CHUNK: u64 = 64 << 10;
const PAGE: u64 = 4 << 10;
const MIB: u64 = 1 << 20;

fn store(mib: u64) -> Arc<Store> {
    Store::new(mib * MIB).unwrap()
}

fn read(export: &Export, range: ByteRange) -> cheetah_device::Result<Vec<u8>> {
    block_on(export.read(range)).map(|data| data.into_bytes().to_vec())
}

fn write(export: &Export, offset: u64, bytes: Vec<u8>) {
    block_on(export.write(offset, bytes.into(), false)).unwrap();
}

/// Writes into the device's memory if it lends that, or else as usual. True if it did.
fn write_in_place(device: &impl Device, offset: u64, bytes: &[u8]) -> bool {
    let lent = device.lend_mut(ByteRange::new(offset, bytes.len() as u64), &mut |runs| {
        let mut rest = bytes;
        for run in runs.iter_mut() {
            run.copy_from_slice(&rest[..run.len()]);
            rest = &rest[run.len()..];
        }
        bytes.len()
    });
    let is_lent = lent.is_some();
    lent.unwrap_or_else(|| block_on(device.write(offset, Data::from(bytes.to_vec()), false))).unwrap();
    is_lent
}

#[derive(Debug, Clone)]
enum Step {
    Write {
        at: ByteRange,
        fill: u8,
    },
    WriteParts {
        at: ByteRange,
        fill: u8,
    },
    /// In the device's memory where it lends that.
    WriteInPlace {
        at: ByteRange,
        fill: u8,
    },
    Zero {
        at: ByteRange,
        keep_allocated: bool,
    },
    Trim {
        at: ByteRange,
    },
    Read {
        at: ByteRange,
    },
}

/// Not a multiple of a chunk, nor of a page, and over two leaves of the table.
const SIZE: u64 = 64 * MIB + 5 * CHUNK + 1234;

/// Ranges around the places where something ends: the start, a leaf's end, the device's end.
fn range() -> impl Strategy<Value = ByteRange> {
    let near = prop_oneof![Just(0), Just(64 * MIB - 3 * CHUNK), Just(SIZE - 6 * CHUNK)];
    let unit = prop_oneof![Just(1), Just(512), Just(PAGE), Just(CHUNK)];
    (near, unit, 0u64..6 * CHUNK, 0u64..5 * CHUNK).prop_map(|(near, unit, offset, len)| {
        let offset = ((near + offset) / unit * unit).min(SIZE);
        ByteRange::new(offset, len.next_multiple_of(unit).min(SIZE - offset))
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (range(), 0u8..4).prop_map(|(at, fill)| Step::Write { at, fill }),
        (range(), 0u8..4).prop_map(|(at, fill)| Step::WriteParts { at, fill }),
        (range(), 0u8..4).prop_map(|(at, fill)| Step::WriteInPlace { at, fill }),
        (range(), any::<bool>()).prop_map(|(at, keep_allocated)| Step::Zero { at, keep_allocated }),
        range().prop_map(|at| Step::Trim { at }),
        range().prop_map(|at| Step::Read { at }),
    ]
}

/// Bytes that differ from place to place, or zeros for `fill` 0.
fn content(at: ByteRange, fill: u8) -> Vec<u8> {
    (at.offset..at.end()).map(|i| if fill == 0 { 0 } else { (i / 7) as u8 ^ fill }).collect()
}

/// The same bytes in awkward parts: some bytes, a run of zeros, the rest.
fn parts(at: ByteRange, fill: u8) -> Data {
    let (a, b) = (at.len / 3, at.len / 2);
    let mut data = Data::from(content(ByteRange::new(at.offset, a), fill));
    data.append(Data::zeros(b - a));
    data.append(content(ByteRange::new(at.offset + b, at.len - b), fill).into());
    data
}

/// Does the step. For a trim, the model is written with zeros, since the store promises that trimmed ranges read as
/// zeros.
fn apply<D: Device>(device: &D, trim: fn(&D, ByteRange), step: &Step) -> Option<Vec<u8>> {
    match step.clone() {
        Step::Write { at, fill } => block_on(device.write(at.offset, content(at, fill).into(), false)).unwrap(),
        Step::WriteParts { at, fill } => block_on(device.write(at.offset, parts(at, fill), true)).unwrap(),
        Step::WriteInPlace { at, fill } => {
            for piece in at.split_at_multiples(4 * CHUNK) {
                write_in_place(device, piece.offset, &content(piece, fill));
            }
        }
        Step::Zero { at, keep_allocated } => {
            block_on(device.zero(at, Zeroing { keep_allocated, ..Zeroing::default() })).unwrap();
        }
        Step::Trim { at } => trim(device, at),
        Step::Read { at } => return Some(block_on(device.read(at)).unwrap().into_bytes().to_vec()),
    }
    None
}

/// Extents cover the range, and holes read as zeros.
fn check_extents(export: &Export, whole: &[u8]) {
    let extents = block_on(export.extents(ByteRange::new(0, SIZE))).unwrap();
    assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), SIZE);
    let mut at = 0;
    for extent in extents {
        let bytes = &whole[at as usize..(at + extent.len) as usize];
        assert!(!extent.hole || bytes.iter().all(|byte| *byte == 0), "a hole with content at {at}");
        at += extent.len;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn behaves_like_plain_memory_and_gives_all_of_it_back(
        steps in prop::collection::vec(step(), 1..40),
        reserve in any::<bool>(),
        digests in any::<bool>(),
    ) {
        let store = store(96);
        let before = store.status();
        let export = Export::new(&store, "e", SIZE, reserve, digests).unwrap();
        let model = Memory::new(vec![0; SIZE as usize]);
        for step in &steps {
            let expected = apply(&model, |model, at| block_on(model.zero(at, Zeroing::default())).unwrap(), step);
            prop_assert_eq!(apply(&*export, |export, at| block_on(export.trim(at)).unwrap(), step), expected, "{:?}", step);
        }
        let whole = read(&export, ByteRange::new(0, SIZE)).unwrap();
        prop_assert!(whole == model.snapshot());
        check_extents(&export, &whole);

        let used = store.status().used_bytes;
        prop_assert_eq!(export.used_bytes(), used);
        let receipt = export.delete();
        prop_assert_eq!(receipt.wiped_bytes, used);
        prop_assert!(receipt.verified_zero);
        let after = store.status();
        prop_assert_eq!((after.used_bytes, after.free_bytes, after.reserved_bytes), (0, before.free_bytes, 0));

        // Freed memory reads as zeros when it is used again: a byte written into each chunk leaves the rest of it zero.
        let again = Export::new(&store, "again", before.usable_bytes, true, digests).unwrap();
        for chunk in 0..before.usable_bytes / CHUNK {
            write(&again, chunk * CHUNK, vec![1]);
        }
        let whole = read(&again, ByteRange::new(0, before.usable_bytes)).unwrap();
        let stray = whole.iter().enumerate().position(|(i, byte)| *byte != u8::from((i as u64).is_multiple_of(CHUNK)));
        prop_assert_eq!(stray, None, "old content");
    }
}

#[test]
fn zeros_take_no_memory() {
    let store = store(1);
    let export = Export::new(&store, "zeros", 10 << 30, false, true).unwrap();
    for offset in (0..10 << 30).step_by(128 << 20) {
        write(&export, offset, vec![0; MIB as usize]);
    }
    assert_eq!(export.used_bytes(), 0);
    let data = block_on(export.read(ByteRange::new(5 << 30, 1 << 30))).unwrap();
    assert_eq!(data.parts().len(), 1, "a gibibyte of zeros is one run, and takes no memory");
    let extents = block_on(export.extents(ByteRange::new(0, 10 << 30))).unwrap();
    assert_eq!(extents, [Extent::hole(10 << 30)]);
}

#[test]
fn overwriting_a_chunk_with_zeros_frees_its_memory() {
    let store = store(2);
    let export = Export::new(&store, "e", 4 * CHUNK + 100, false, true).unwrap();
    write(&export, 0, vec![7; (4 * CHUNK + 100) as usize]);
    assert_eq!(export.used_bytes(), 5 * CHUNK);
    write(&export, 4 * CHUNK, vec![0; 100]);
    assert_eq!(export.used_bytes(), 4 * CHUNK, "the short last chunk is whole");
    block_on(export.trim(ByteRange::new(10, 3 * CHUNK))).unwrap();
    assert_eq!(export.used_bytes(), 2 * CHUNK, "chunks trimmed in part keep their memory");
    let keep = Zeroing { keep_allocated: true, ..Zeroing::default() };
    block_on(export.zero(ByteRange::new(0, 4 * CHUNK + 100), keep)).unwrap();
    assert_eq!(export.used_bytes(), 5 * CHUNK, "asked to be allocated");
    block_on(export.zero(ByteRange::new(0, 4 * CHUNK + 100), Zeroing::default())).unwrap();
    assert_eq!(export.used_bytes(), 0);
}

#[test]
fn memory_is_lent_for_whole_pages_under_one_lock_and_zeros_written_there_take_none() {
    let store = store(4);
    let export = Export::new(&store, "e", 2 * MIB, false, true).unwrap();
    let write = |offset, len, fill| write_in_place(&*export, offset, &content(ByteRange::new(offset, len), fill));
    assert!(write(0, 4 * CHUNK, 1) && write(4 * CHUNK + PAGE, PAGE, 1));
    assert!(!write(1, PAGE, 1) && !write(0, 100, 1) && !write(3 * CHUNK, 2 * CHUNK, 1));
    let used = export.used_bytes();
    assert!(write(8 * CHUNK, PAGE, 0) && export.used_bytes() == used, "zeros in a hole took memory");
    assert!(write(0, CHUNK, 0) && export.used_bytes() == used - CHUNK, "a chunk of zeros kept its memory");
    assert_eq!(read(&export, ByteRange::new(0, CHUNK)).unwrap(), vec![0; CHUNK as usize]);
}

#[test]
fn a_page_of_lent_memory_that_was_written_in_part_is_an_error_until_it_is_written_again() {
    let export = Export::new(&store(4), "e", MIB, true, true).unwrap();
    write(&export, 0, vec![7; 3 * PAGE as usize]);
    let lent = export.lend_mut(ByteRange::new(0, 3 * PAGE), &mut |runs| {
        runs[0][..PAGE as usize + 10].fill(9);
        PAGE as usize + 10
    });
    lent.unwrap().unwrap();
    assert_eq!(read(&export, ByteRange::new(0, PAGE)).unwrap(), vec![9; PAGE as usize]);
    assert_eq!(read(&export, ByteRange::new(2 * PAGE, PAGE)).unwrap(), vec![7; PAGE as usize]);
    assert!(matches!(read(&export, ByteRange::new(PAGE, PAGE)), Err(Error::Corrupt { .. })));
    write(&export, PAGE, vec![8; PAGE as usize]);
    assert_eq!(read(&export, ByteRange::new(PAGE, PAGE)).unwrap(), vec![8; PAGE as usize]);
}

#[test]
fn a_thin_export_without_memory_lends_none_and_still_takes_zeros() {
    let store = store(1);
    let export = Export::new(&store, "e", 4 * MIB, false, true).unwrap();
    let mut chunk = 0;
    while block_on(export.write(chunk * CHUNK, vec![1; CHUNK as usize].into(), false)).is_ok() {
        chunk += 1;
    }
    let hole = ByteRange::new(2 * MIB, 4 * CHUNK);
    let used = export.used_bytes();
    assert_eq!(export.lend_mut(hole, &mut |_| panic!("memory was lent")), None);
    assert!(!write_in_place(&*export, hole.offset, &vec![0; hole.len as usize]));
    assert_eq!(export.used_bytes(), used);
}

#[test]
fn a_flipped_bit_fails_reads_of_its_page_only() {
    let store = store(4);
    let export = Export::new(&store, "case42", MIB, false, true).unwrap();
    write(&export, 0, content(ByteRange::new(0, MIB), 1));
    let bad = ByteRange::new(5 * CHUNK + 3 * PAGE, PAGE);
    assert!(export.corrupt(bad.offset + 17));

    let expected = Error::Corrupt { device: "case42".into(), range: bad };
    for offset in (0..MIB).step_by(512) {
        let range = ByteRange::new(offset, 512);
        let result = read(&export, range);
        match bad.contains(range) {
            true => assert_eq!(result, Err(expected.clone())),
            false => assert_eq!(result, Ok(content(range, 1))),
        }
    }
    assert_eq!(read(&export, ByteRange::new(0, MIB)), Err(expected.clone()));
    assert_eq!(read(&export, ByteRange::new(0, bad.offset)), Ok(content(ByteRange::new(0, bad.offset), 1)));

    // A write to a part of the page would make bad bytes look good; one to all of it makes them good.
    assert_eq!(block_on(export.write(bad.offset, vec![1; 10].into(), false)), Err(expected.clone()));
    assert_eq!(read(&export, bad), Err(expected));
    write(&export, bad.offset, content(bad, 1));
    assert_eq!(read(&export, ByteRange::new(0, MIB)), Ok(content(ByteRange::new(0, MIB), 1)));
    assert_eq!(export.stats().digest_errors, 11);
    assert_eq!(store.digest_errors(), 11);
}

#[test]
fn an_export_without_digests_is_not_checked() {
    let store = store(1);
    let export = Export::new(&store, "fast", CHUNK, false, false).unwrap();
    write(&export, 0, vec![2; 100]);
    assert!(export.corrupt(50));
    assert_eq!(read(&export, ByteRange::new(50, 1)), Ok(vec![3]));
}

#[test]
fn a_thin_export_can_run_out_of_memory_and_a_reserved_one_cannot() {
    let store = store(1);
    let free = store.status().free_bytes;
    let reserved = Export::new(&store, "reserved", free / 2, true, true).unwrap();
    let thin = Export::new(&store, "thin", 1 << 40, false, true).unwrap();
    let fits = store.status().free_bytes;
    write(&thin, 0, vec![1; fits as usize]);
    let more = block_on(thin.write(1 << 39, vec![1].into(), false)).unwrap_err();
    assert!(matches!(&more, Error::NoSpace(_)), "{more}");
    assert_eq!(read(&thin, ByteRange::new(1 << 39, 1)), Ok(vec![0]), "what did not fit was not half written");
    write(&reserved, 0, vec![1; (free / 2) as usize]);

    // Memory that one export frees can be used by another.
    block_on(thin.trim(ByteRange::new(0, CHUNK))).unwrap();
    write(&thin, 1 << 39, vec![1]);
    drop(thin);
    assert_eq!(store.status().free_bytes, fits);
}

#[test]
fn an_export_that_does_not_fit_is_refused_with_the_free_size() {
    let store = store(1);
    let free = store.status().free_bytes;
    let refused = Export::new(&store, "big", free + 1, true, true).err().unwrap().to_string();
    assert_eq!(refused, "no space: 960KiB asked for, 896KiB free on this node");
    assert!(matches!(Export::new(&store, "none", 0, true, true).err().unwrap(), Error::Invalid(_)));
    assert!(matches!(Export::new(&store, "huge", u64::MAX, true, true).err().unwrap(), Error::NoSpace(_)));
    assert!(matches!(Export::new(&store, "huge", u64::MAX, false, true).err().unwrap(), Error::NoSpace(_)));
    assert_eq!(store.status().free_bytes, free, "nothing half made is left behind");
    Export::new(&store, "fits", free, true, true).unwrap();
}

#[test]
fn operations_on_a_deleted_export_fail() {
    let store = store(1);
    let old = Export::new(&store, "old", 2 * CHUNK, false, true).unwrap();
    write(&old, 0, vec![1; CHUNK as usize]);
    old.delete();
    let new = Export::new(&store, "new", 2 * CHUNK, false, true).unwrap();
    write(&new, 0, vec![2; CHUNK as usize]);
    for range in [ByteRange::new(0, 1), ByteRange::new(CHUNK, 1)] {
        assert!(matches!(read(&old, range), Err(Error::Lost { .. })));
        assert!(matches!(block_on(old.write(range.offset, vec![9].into(), false)), Err(Error::Lost { .. })));
        assert!(matches!(block_on(old.trim(range)), Err(Error::Lost { .. })));
        assert!(matches!(block_on(old.extents(range)), Err(Error::Lost { .. })));
    }
    assert_eq!(read(&new, ByteRange::new(0, 2)), Ok(vec![2, 2]));
    assert_eq!(old.delete().wiped_bytes, 0, "there is nothing left to wipe");
    assert_eq!(store.wiped(), (CHUNK, true));
}

#[test]
fn ranges_outside_are_refused() {
    let store = store(1);
    let export = Export::new(&store, "e", 100, false, true).unwrap();
    for range in [ByteRange::new(0, 101), ByteRange::new(u64::MAX, 2), ByteRange::new(101, 0)] {
        assert!(matches!(read(&export, range), Err(Error::OutOfBounds { .. })), "{range}");
        assert!(block_on(export.zero(range, Zeroing::default())).is_err(), "{range}");
    }
    assert_eq!(read(&export, ByteRange::new(100, 0)), Ok(vec![]));
}

#[test]
fn deletion_beside_concurrent_readers_and_writers_wipes_everything() {
    let store = store(8);
    let export = Export::new(&store, "busy", 4 * MIB, false, true).unwrap();
    std::thread::scope(|scope| {
        for writer in 1..4u8 {
            let export = &export;
            scope.spawn(move || {
                for round in 0..40u64 {
                    let offset = (round * 37 % 60) * CHUNK + u64::from(writer) * 1000;
                    let write = block_on(export.write(offset, vec![writer; 100_000].into(), false));
                    assert!(matches!(write, Ok(()) | Err(Error::Lost { .. })), "{write:?}");
                    let read = read(export, ByteRange::new(offset, 100_000));
                    match read {
                        Ok(bytes) => assert!(bytes.iter().all(|byte| *byte < 4)),
                        Err(error) => assert!(matches!(error, Error::Lost { .. }), "{error}"),
                    }
                    let trimmed = block_on(export.trim(ByteRange::new(offset, CHUNK)));
                    assert!(matches!(trimmed, Ok(()) | Err(Error::Lost { .. })), "{trimmed:?}");
                }
            });
        }
        scope.spawn(|| export.delete());
    });
    let status = store.status();
    assert_eq!((status.used_bytes, status.free_bytes), (0, status.usable_bytes));
}

#[test]
fn a_reader_across_a_hole_and_a_writer_beside_it_do_not_deadlock() {
    let store = store(8);
    let export = Export::new(&store, "busy", 4 * CHUNK, true, true).unwrap();
    for chunk in [0, 1] {
        write(&export, chunk * CHUNK, vec![1; 65_536]);
    }
    std::thread::scope(|scope| {
        // A range with holes is not lent.
        scope.spawn(|| (0..5_000).for_each(|_| drop(read(&export, ByteRange::new(0, 4 * CHUNK)).unwrap())));
        for chunk in [0, 1] {
            let export = &export;
            scope.spawn(move || (0..5_000).for_each(|_| write(export, chunk * CHUNK, vec![2; 512])));
        }
    });
}
