//! The sealed device against plain memory.

use cheetah_device::error::Withheld;
use cheetah_device::{ByteRange, Data, Device as _, Error, Extent, Zeroing};
use cheetah_seal::units::{UNIT_BYTES_LARGE, UNIT_BYTES_SMALL};
use proptest::prelude::*;

use crate::support::{Drive, pattern, read, run, write};

const SIZE: u64 = 5 * UNIT_BYTES_SMALL + 1234;

#[derive(Debug, Clone)]
enum Step {
    Write(u64, u64),
    Zero(u64, u64),
    Trim(u64, u64),
    Read(u64, u64),
    Flush,
    Reopen,
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..SIZE, 1..3 * UNIT_BYTES_SMALL);
    prop_oneof![
        4 => place().prop_map(|(at, len)| Step::Write(at, len)),
        1 => place().prop_map(|(at, len)| Step::Zero(at, len)),
        1 => place().prop_map(|(at, len)| Step::Trim(at, len)),
        3 => place().prop_map(|(at, len)| Step::Read(at, len)),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
        1 => Just(Step::Look),
    ]
}

fn within(at: u64, len: u64) -> ByteRange {
    ByteRange::between(at, (at + len).min(SIZE))
}

fn indices(range: ByteRange) -> std::ops::Range<usize> {
    range.offset as usize..range.end() as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_sealed_drive_behaves_like_memory(steps in prop::collection::vec(step(), 1..24), holes in any::<bool>()) {
        run(async {
            let drive = Drive::new(UNIT_BYTES_SMALL, SIZE, holes);
            let mut model = vec![0; SIZE as usize];
            // A trimmed byte reads as anything until it is written.
            let mut known = vec![true; SIZE as usize];
            let mut device = drive.open(true).await;
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Write(at, len) => {
                        let range = within(at, len);
                        let bytes = pattern(n as u64, range.len);
                        model[indices(range)].copy_from_slice(&bytes);
                        known[indices(range)].fill(true);
                        write(&device, range.offset, bytes).await.unwrap();
                    }
                    Step::Zero(at, len) => {
                        let range = within(at, len);
                        model[indices(range)].fill(0);
                        known[indices(range)].fill(true);
                        device.zero(range, Zeroing::default()).await.unwrap();
                    }
                    Step::Trim(at, len) => {
                        let range = within(at, len);
                        known[indices(range)].fill(false);
                        device.trim(range).await.unwrap();
                    }
                    Step::Read(at, len) => {
                        let range = within(at, len);
                        let found = read(&device, range).await.unwrap();
                        let same = found.iter().zip(&model[indices(range)]).zip(&known[indices(range)]);
                        assert!(same.clone().all(|((a, b), known)| !known || a == b), "{range}");
                    }
                    Step::Flush => device.flush().await.unwrap(),
                    Step::Reopen => {
                        device.flush().await.unwrap();
                        device.close().await.unwrap();
                        device = drive.open(true).await;
                    }
                    Step::Look => {
                        let whole = ByteRange::new(0, SIZE);
                        let mut at = 0;
                        for extent in device.extents(whole).await.unwrap() {
                            let range = ByteRange::new(at, extent.len);
                            let zeros = model[indices(range)].iter().zip(&known[indices(range)]);
                            assert!(!extent.zero || zeros.clone().all(|(byte, known)| !known || *byte == 0));
                            at = range.end();
                        }
                        assert_eq!(at, SIZE);
                    }
                }
            }
            device.close().await.unwrap();
            let reader = drive.open(false).await;
            let found = read(&reader, ByteRange::new(0, SIZE)).await.unwrap();
            assert!(found.iter().zip(&model).zip(&known).all(|((a, b), known)| !known || a == b));
        });
    }
}

#[test]
fn writers_side_by_side_in_one_unit_lose_nothing() {
    run(async {
        let drive = Drive::new(UNIT_BYTES_LARGE, 4 * UNIT_BYTES_LARGE, false);
        let device = drive.open(true).await;
        let len = 1000;
        let writes = (0..200).map(|n| write(&device, n * len, pattern(n, len)));
        futures::future::try_join_all(writes).await.unwrap();
        for n in 0..200 {
            assert_eq!(read(&device, ByteRange::new(n * len, len)).await.unwrap(), pattern(n, len));
        }
    });
}

#[test]
fn a_dropped_write_leaves_the_drive_readable() {
    run(async {
        let drive = Drive::new(UNIT_BYTES_SMALL, 8 * UNIT_BYTES_SMALL, false);
        let device = drive.open(true).await;
        for n in 0..8 {
            let mut abandoned = device.write(n * UNIT_BYTES_SMALL, pattern(n, UNIT_BYTES_SMALL).into(), false);
            assert!(futures::poll!(&mut abandoned).is_pending());
            drop(abandoned);
        }
        device.flush().await.unwrap();
        device.close().await.unwrap();
        for n in 0..8 {
            let found = read(&device, ByteRange::new(n * UNIT_BYTES_SMALL, UNIT_BYTES_SMALL)).await.unwrap();
            assert!(found == pattern(n, UNIT_BYTES_SMALL) || found.iter().all(|byte| *byte == 0), "{n}");
        }
    });
}

#[test]
fn a_reader_sees_what_another_process_wrote_once_that_has_flushed() {
    run(async {
        let drive = Drive::new(UNIT_BYTES_SMALL, 8 * UNIT_BYTES_SMALL, false);
        let writer = drive.open(true).await;
        let range = ByteRange::new(0, UNIT_BYTES_SMALL);
        write(&writer, 0, pattern(1, range.len)).await.unwrap();
        writer.flush().await.unwrap();
        let reader = drive.open(false).await;
        write(&writer, 0, pattern(2, range.len)).await.unwrap();
        let refusal = read(&reader, range).await.unwrap_err();
        assert!(matches!(refusal, Error::Withheld { reason: Withheld::Unverified, .. }), "{refusal}");
        writer.flush().await.unwrap();
        assert_eq!(read(&reader, range).await.unwrap(), pattern(2, range.len));
    });
}

#[test]
fn a_reader_sees_a_hole_that_another_process_filled_or_made_once_that_has_flushed() {
    run(async {
        let drive = Drive::new(UNIT_BYTES_SMALL, 2 * UNIT_BYTES_SMALL, true);
        let (writer, reader) = (drive.open(true).await, drive.open(false).await);
        let whole = ByteRange::new(0, 2 * UNIT_BYTES_SMALL);
        let zeros = vec![0; whole.len as usize];
        write(&writer, 0, pattern(1, whole.len)).await.unwrap();
        assert_eq!(read(&reader, whole).await.unwrap(), zeros);
        assert_eq!(reader.extents(whole).await.unwrap(), [Extent::hole(whole.len)]);
        writer.flush().await.unwrap();
        assert_eq!(reader.extents(whole).await.unwrap(), [Extent::data(whole.len)]);
        assert_eq!(read(&reader, whole).await.unwrap(), pattern(1, whole.len));
        writer.zero(whole, Zeroing::default()).await.unwrap();
        assert!(read(&reader, whole).await.is_err(), "neither the former content nor the new one is flushed there");
        writer.flush().await.unwrap();
        assert_eq!(read(&reader, whole).await.unwrap(), zeros);
    });
}

#[test]
fn a_hole_whose_record_cannot_be_read_again_is_an_error() {
    run(async {
        let drive = Drive::new(UNIT_BYTES_SMALL, UNIT_BYTES_SMALL, false);
        let (writer, reader) = (drive.open(true).await, drive.open(false).await);
        let whole = ByteRange::new(0, UNIT_BYTES_SMALL);
        write(&writer, 0, pattern(1, whole.len)).await.unwrap();
        writer.flush().await.unwrap();
        let intact = std::mem::take(&mut *drive.store.bytes.lock());
        assert!(read(&reader, whole).await.is_err());
        assert!(reader.extents(whole).await.is_err());
        *drive.store.bytes.lock() = intact;
        assert_eq!(read(&reader, whole).await.unwrap(), pattern(1, whole.len));
    });
}

#[test]
fn a_reader_writes_nothing() {
    run(async {
        let drive = Drive::new(UNIT_BYTES_SMALL, UNIT_BYTES_SMALL, true);
        let reader = drive.open(false).await;
        let range = ByteRange::new(0, 10);
        assert!(write(&reader, 0, vec![1]).await.is_err());
        assert!(reader.zero(range, Zeroing::default()).await.is_err());
        assert!(reader.trim(range).await.is_err());
        assert!(!reader.geometry().writable);
        let writer = drive.open(true).await;
        writer.close().await.unwrap();
        assert!(write(&writer, 0, vec![1]).await.is_err(), "it is closed");
    });
}

#[test]
fn a_unit_and_its_trailer_travel_in_one_write() {
    run(async {
        let drive = Drive::new(UNIT_BYTES_LARGE, 20 * UNIT_BYTES_LARGE, false);
        let device = drive.open(true).await;
        write(&device, 0, pattern(1, 2 * UNIT_BYTES_LARGE)).await.unwrap();
        write(&device, 5 * UNIT_BYTES_LARGE + 7, pattern(1, 100)).await.unwrap();
        device.zero(ByteRange::new(6 * UNIT_BYTES_LARGE, 3), Zeroing::default()).await.unwrap();
        let places = [drive.units.sealed_range(0, 2), drive.place(5), drive.place(6)];
        assert_eq!(*drive.node.writes.lock(), places);
    });
}

#[test]
fn holes_reach_nodes_only_where_that_is_allowed() {
    run(async {
        for holes in [false, true] {
            let drive = Drive::new(UNIT_BYTES_SMALL, 4 * UNIT_BYTES_SMALL, holes);
            let device = drive.open(true).await;
            write(&device, 0, pattern(1, 4 * UNIT_BYTES_SMALL)).await.unwrap();
            device.zero(ByteRange::new(10, 3 * UNIT_BYTES_SMALL), Zeroing::default()).await.unwrap();
            device.trim(ByteRange::new(3 * UNIT_BYTES_SMALL, UNIT_BYTES_SMALL)).await.unwrap();
            let is_hole = |unit| drive.node.get(drive.place(unit)).iter().all(|byte| *byte == 0);
            assert_eq!([0, 1, 2, 3].map(is_hole), [false, holes, holes, holes]);
            let expected = [pattern(1, 10), vec![0; 3 * UNIT_BYTES_SMALL as usize]].concat();
            assert_eq!(read(&device, ByteRange::new(0, expected.len() as u64)).await.unwrap(), expected);
        }
    });
}

#[test]
fn zeros_that_nodes_must_not_know_of_are_sealed() {
    run(async {
        let drive = Drive::new(UNIT_BYTES_SMALL, 4 * UNIT_BYTES_SMALL, false);
        let device = drive.open(true).await;
        device.write(0, Data::zeros(4 * UNIT_BYTES_SMALL), false).await.unwrap();
        let stored = drive.node.memory.snapshot();
        let zeros = stored.iter().filter(|byte| **byte == 0).count();
        assert!(zeros < stored.len() / 100, "{zeros} of {}", stored.len());
    });
}

#[test]
fn an_enlarged_drive_keeps_its_content_and_the_new_end_is_zeros_until_it_is_written() {
    run(async {
        let (small, large) = (3 * 4096 + 100, 9 * 4096 + 5);
        let mut drive = Drive::new(4096, small, false);
        let device = drive.open(true).await;
        write(&device, 0, pattern(1, small)).await.unwrap();
        device.flush().await.unwrap();
        device.close().await.unwrap();
        let memory = drive.node.memory.snapshot();
        let mut larger = Drive::with_id(drive.id, drive.key.clone(), 4096, large, false);
        larger.node.memory.write(0, memory.into(), false).await.unwrap();
        larger.store = drive.store.clone();
        drive = larger;
        let expected = [pattern(1, small), vec![0; (large - small) as usize]].concat();
        // The record does not know the new size yet.
        assert_eq!(read(&drive.open(false).await, ByteRange::new(0, large)).await.unwrap(), expected);
        let writer = drive.open(true).await;
        let reader = drive.open(false).await;
        write(&writer, large - 5000, pattern(2, 5000)).await.unwrap();
        writer.flush().await.unwrap();
        let expected = [&expected[..large as usize - 5000], &pattern(2, 5000)].concat();
        assert_eq!(read(&writer, ByteRange::new(0, large)).await.unwrap(), expected);
        assert_eq!(read(&reader, ByteRange::new(0, large)).await.unwrap(), expected);
        writer.close().await.unwrap();
        assert_eq!(read(&drive.open(false).await, ByteRange::new(0, large)).await.unwrap(), expected);
        // Its nodes are never opened as those of a smaller drive.
        let small = Drive { units: cheetah_seal::Units::new(4096, small).unwrap(), ..drive };
        assert!(small.try_open(false).await.is_err());
    });
}

#[test]
fn a_reader_of_a_drive_that_was_enlarged_since_reads_what_a_later_writer_flushed() {
    run(async {
        let (small, large) = (3 * 4096 + 100, 9 * 4096);
        let mut drive = Drive::new(4096, large, false);
        let (as_enlarged, as_made) = (drive.units, cheetah_seal::Units::new(4096, small).unwrap());
        cheetah_seal::device::RecordStore::store(
            &*drive.store,
            &cheetah_seal::Record::new(drive.id, as_made, false).encode(&drive.key).unwrap(),
        )
        .unwrap();
        drive.units = as_made;
        let former = drive.open(true).await;
        write(&former, 0, pattern(1, small)).await.unwrap();
        former.flush().await.unwrap();
        let reader = drive.open(false).await;
        // A reader of the larger drive, while the writer knows the former size only.
        drive.units = as_enlarged;
        let larger = drive.open(false).await;
        let expected = [pattern(1, small), vec![0; (large - small) as usize]].concat();
        assert_eq!(read(&larger, ByteRange::new(0, large)).await.unwrap(), expected);
        write(&former, 100, pattern(2, 9000)).await.unwrap();
        former.flush().await.unwrap();
        former.close().await.unwrap();
        let expected = [&expected[..100], &pattern(2, 9000), &expected[9100..]].concat();
        for reader in [&reader, &larger] {
            let size = reader.geometry().size;
            assert_eq!(read(reader, ByteRange::new(0, size)).await.unwrap(), expected[..size as usize]);
        }
        let writer = drive.open(true).await;
        write(&writer, 5000, pattern(3, large - 5000)).await.unwrap();
        writer.close().await.unwrap();
        let expected = [&expected[..5000], &pattern(3, large - 5000)].concat();
        for reader in [&reader, &larger, &drive.open(false).await] {
            let size = reader.geometry().size;
            assert_eq!(read(reader, ByteRange::new(0, size)).await.unwrap(), expected[..size as usize]);
        }
    });
}

#[test]
fn a_drive_whose_every_unit_is_written_again_has_nothing_unverified_of_former_writers() {
    run(async {
        let drive = Drive::new(4096, 3 * 4096, false);
        let killed = drive.open(true).await;
        write(&killed, 0, pattern(1, 4096)).await.unwrap();
        drop(killed);
        for (written, left) in [(2 * 4096, true), (3 * 4096, false)] {
            let writer = drive.open(true).await;
            write(&writer, 0, pattern(2, written)).await.unwrap();
            writer.flush().await.unwrap();
            writer.close().await.unwrap();
            assert_eq!(drive.open(false).await.has_open_epoch(), left);
        }
    });
}
