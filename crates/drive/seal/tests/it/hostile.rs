//! Nodes that return something else than what was written: an error each time, and never content.

use cheetah_device::error::Withheld;
use cheetah_device::{ByteRange, Device as _, Error};
use cheetah_seal::device::Opening;
use cheetah_seal::units::{UNIT_BYTES_LARGE, UNIT_BYTES_SMALL};
use cheetah_seal::{DriveKey, Record, SealError, Sealed};

use crate::support::{Drive, ID, pattern, read, run, write};

const UNIT: u64 = UNIT_BYTES_SMALL;
const UNITS: u64 = 6;

/// A drive whose units 0 to 5 have the patterns 0 to 5, written in two epochs.
async fn loaded(drive: &Drive) {
    for units in [0..3, 3..UNITS] {
        let device = drive.open(true).await;
        for unit in units {
            write(&device, unit * UNIT, pattern(unit, UNIT)).await.unwrap();
        }
        device.flush().await.unwrap();
        device.close().await.unwrap();
    }
}

fn content(unit: u64) -> ByteRange {
    ByteRange::new(unit * UNIT, UNIT)
}

/// Reads a unit, which must fail; returns why it is not handed out.
async fn refusal(device: &Sealed, unit: u64) -> Withheld {
    match read(device, content(unit)).await {
        Err(Error::Withheld { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

/// Checks that the intact units are still read.
async fn others_are_intact(device: &Sealed, bad: &[u64]) {
    for unit in (0..UNITS).filter(|unit| !bad.contains(unit)) {
        assert_eq!(read(device, content(unit)).await.unwrap(), pattern(unit, UNIT));
    }
}

#[test]
fn one_flipped_bit_anywhere_in_a_unit_is_an_error() {
    run(async {
        let drive = Drive::new(UNIT, UNITS * UNIT, false);
        loaded(&drive).await;
        let device = drive.open(false).await;
        let place = drive.place(2);
        let intact = drive.node.get(place);
        // Some of the ciphertext, and all of the stamp and the tag.
        let cipher = (0..UNIT as usize).step_by(97);
        for at in cipher.chain(UNIT as usize..intact.len()) {
            for bit in 0..8 {
                let mut changed = intact.clone();
                changed[at] ^= 1 << bit;
                drive.node.set(place, &changed);
                refusal(&device, 2).await;
            }
        }
        others_are_intact(&device, &[2]).await;
        drive.node.set(place, &intact);
        others_are_intact(&device, &[]).await;
    });
}

#[test]
fn units_that_are_exchanged_within_a_drive_are_errors() {
    run(async {
        let drive = Drive::new(UNIT, UNITS * UNIT, false);
        loaded(&drive).await;
        let device = drive.open(false).await;
        // Of one epoch, and of two.
        for (one, other) in [(0, 1), (2, 3)] {
            let (first, second) = (drive.node.get(drive.place(one)), drive.node.get(drive.place(other)));
            drive.node.set(drive.place(one), &second);
            drive.node.set(drive.place(other), &first);
            refusal(&device, one).await;
            refusal(&device, other).await;
            others_are_intact(&device, &[one, other]).await;
            drive.node.set(drive.place(one), &first);
            drive.node.set(drive.place(other), &second);
        }
    });
}

#[test]
fn units_of_another_drive_are_errors_even_under_the_same_key() {
    run(async {
        let key = DriveKey::random().unwrap();
        let drive = Drive::with_id(ID, key.clone(), UNIT, UNITS * UNIT, false);
        let other = Drive::with_id(*b"another drive's!", key, UNIT, UNITS * UNIT, false);
        loaded(&drive).await;
        loaded(&other).await;
        drive.node.set(drive.place(0), &other.node.get(other.place(0)));
        let device = drive.open(false).await;
        assert_eq!(refusal(&device, 0).await, Withheld::NotAuthentic);
        // The other's record opens this drive no more than its units do.
        *drive.store.bytes.lock() = other.store.bytes.lock().clone();
        assert!(drive.try_open(false).await.is_err());
    });
}

#[test]
fn a_unit_of_another_writer_with_the_same_epoch_is_an_error() {
    run(async {
        let drive = Drive::new(UNIT, UNITS * UNIT, false);
        loaded(&drive).await;
        let before = drive.store.bytes.lock().clone();
        let first = drive.open(true).await;
        write(&first, 0, pattern(100, UNIT)).await.unwrap();
        let rival = drive.node.get(drive.place(0));
        // A second writer that has an older copy of the record begins an epoch with the same number.
        *drive.store.bytes.lock() = before;
        let second = drive.open(true).await;
        write(&second, 0, pattern(200, UNIT)).await.unwrap();
        assert_eq!(drive.node.get(drive.place(0))[UNIT as usize..][..8], rival[UNIT as usize..][..8], "the same stamp");
        drive.node.set(drive.place(0), &rival);
        assert_eq!(refusal(&second, 0).await, Withheld::NotAuthentic);
    });
}

#[test]
fn a_unit_that_is_rolled_back_is_an_error() {
    run(async {
        let drive = Drive::new(UNIT, UNITS * UNIT, false);
        loaded(&drive).await;
        let device = drive.open(true).await;
        let old = drive.node.get(drive.place(1));
        write(&device, UNIT, pattern(101, UNIT)).await.unwrap();
        let older = drive.node.get(drive.place(1));
        write(&device, UNIT, pattern(102, UNIT)).await.unwrap();
        for version in [old, older] {
            drive.node.set(drive.place(1), &version);
            assert_eq!(refusal(&device, 1).await, Withheld::OldVersion);
        }
        others_are_intact(&device, &[1]).await;
    });
}

#[test]
fn a_node_that_answers_from_an_old_snapshot_of_itself_yields_errors() {
    run(async {
        let drive = Drive::new(UNIT, UNITS * UNIT, false);
        loaded(&drive).await;
        let snapshot = drive.node.memory.snapshot();
        let device = drive.open(true).await;
        for unit in 0..UNITS {
            write(&device, unit * UNIT, pattern(unit + 50, UNIT)).await.unwrap();
        }
        device.flush().await.unwrap();
        device.close().await.unwrap();
        drive.node.set(ByteRange::new(0, snapshot.len() as u64), &snapshot);
        let reader = drive.open(false).await;
        for unit in 0..UNITS {
            let reason = refusal(&reader, unit).await;
            // The record does not list writers of whose units none is left.
            assert!(matches!(reason, Withheld::OldVersion | Withheld::UnknownWriter), "{reason}");
        }
    });
}

#[test]
fn a_zeroed_unit_is_an_error_even_where_holes_are_allowed() {
    run(async {
        for holes in [false, true] {
            let drive = Drive::new(UNIT, UNITS * UNIT, holes);
            loaded(&drive).await;
            let place = drive.place(4);
            drive.node.set(place, &vec![0; place.len as usize]);
            let device = drive.open(false).await;
            assert_eq!(refusal(&device, 4).await, Withheld::NotAuthentic);
            others_are_intact(&device, &[4]).await;
        }
    });
}

#[test]
fn a_hole_stays_a_hole_whatever_a_node_puts_there() {
    run(async {
        let drive = Drive::new(UNIT, UNITS * UNIT, true);
        let device = drive.open(true).await;
        write(&device, 0, pattern(0, UNIT)).await.unwrap();
        drive.node.set(drive.place(1), &drive.node.get(drive.place(0)));
        assert_eq!(read(&device, content(1)).await.unwrap(), vec![0; UNIT as usize]);
    });
}

#[test]
fn a_partial_write_to_a_broken_unit_is_refused_and_a_whole_one_mends_it() {
    run(async {
        let drive = Drive::new(UNIT, UNITS * UNIT, false);
        loaded(&drive).await;
        let place = drive.place(2);
        drive.node.set(place, &vec![7; place.len as usize]);
        let device = drive.open(true).await;
        assert!(write(&device, 2 * UNIT + 5, vec![1]).await.is_err(), "the other bytes would be made up");
        refusal(&device, 2).await;
        write(&device, 2 * UNIT, pattern(2, UNIT)).await.unwrap();
        others_are_intact(&device, &[]).await;
    });
}

#[test]
fn a_record_that_lacks_the_newest_known_writer_opens_nothing_and_is_left_as_it_is() {
    run(async {
        let drive = Drive::new(UNIT, UNITS * UNIT, false);
        let mut records = Vec::new();
        for _ in 0..2 {
            loaded(&drive).await;
            records.push(drive.store.bytes.lock().clone());
        }
        for (known, record, opens) in [(2, &records[0], true), (4, &records[1], true), (3, &records[0], false)] {
            for writable in [false, true] {
                drive.store.bytes.lock().clone_from(record);
                let opened = drive.open_with(Opening { epoch: known, ..drive.opening(writable) }).await;
                assert_eq!(opened.is_ok(), opens, "{known}");
                if let Err(error) = opened {
                    assert_eq!(error, SealError::OldRecord);
                    assert_eq!(*drive.store.bytes.lock(), *record);
                }
            }
        }
    });
}

#[test]
fn a_record_with_one_flipped_bit_or_cut_off_opens_nothing() {
    run(async {
        let drive = Drive::new(UNIT_BYTES_LARGE, 3 * UNIT_BYTES_LARGE, false);
        drive.open(true).await.close().await.unwrap();
        let intact = drive.store.bytes.lock().clone();
        for at in 0..intact.len() {
            let mut changed = intact.clone();
            changed[at] ^= 1 << (at % 8);
            assert!(Record::decode(&changed, &drive.key).is_err(), "byte {at}");
            assert!(Record::decode(&intact[..at], &drive.key).is_err(), "cut off at {at}");
        }
        assert!(Record::decode(&intact, &DriveKey::random().unwrap()).is_err(), "another key");
        assert!(Record::decode(&intact, &drive.key).is_ok());
    });
}
