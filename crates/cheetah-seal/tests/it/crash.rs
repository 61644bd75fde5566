//! Writers that end in mid-write: a later read returns old content, new content or an error.

use std::sync::atomic::Ordering;

use cheetah_device::{ByteRange, Device as _};
use cheetah_seal::units::UNIT_BYTES_SMALL;

use crate::support::{Drive, pattern, read, run, write};

const UNIT: u64 = UNIT_BYTES_SMALL;
const UNITS: u64 = 3;

fn whole() -> ByteRange {
    ByteRange::new(0, UNITS * UNIT)
}

/// A drive with pattern 1, written and closed.
async fn loaded() -> Drive {
    let drive = Drive::new(UNIT, UNITS * UNIT, false);
    let device = drive.open(true).await;
    write(&device, 0, pattern(1, whole().len)).await.unwrap();
    device.flush().await.unwrap();
    device.close().await.unwrap();
    drive
}

/// Reads each unit: old, new or an error. Returns the states.
async fn states(device: &cheetah_seal::Sealed, old: &[u8], new: &[u8]) -> Vec<char> {
    let mut states = Vec::new();
    for unit in 0..UNITS {
        let range = ByteRange::new(unit * UNIT, UNIT);
        let within = range.offset as usize..range.end() as usize;
        states.push(match read(device, range).await {
            Ok(bytes) if bytes == old[within.clone()] => 'o',
            Ok(bytes) if bytes == new[within] => 'n',
            Ok(_) => panic!("unit {unit} has content that nobody wrote"),
            Err(_) => '!',
        });
    }
    states
}

#[test]
fn a_write_that_is_cut_off_anywhere_is_old_new_or_an_error() {
    run(async {
        let (old, new) = (pattern(1, whole().len), pattern(2, whole().len));
        let stride = UNIT + 24;
        let cuts = (0..=UNITS).flat_map(|unit| {
            let start = unit * stride;
            [start, start + 1, start + 2000, start + UNIT, start + UNIT + 4, start + UNIT + 8, start + stride - 1]
        });
        for cut in cuts {
            // The writer lives on.
            let drive = loaded().await;
            let device = drive.open(true).await;
            drive.node.left.store(cut, Ordering::Relaxed);
            let written = write(&device, 0, new.clone()).await;
            drive.node.left.store(u64::MAX, Ordering::Relaxed);
            let alive = states(&device, &old, &new).await;
            if written.is_ok() {
                assert_eq!(alive, ['n'; UNITS as usize]);
            }
            for (unit, state) in (0..).zip(&alive) {
                let (start, end) = (unit * stride, (unit + 1) * stride);
                let torn = start < cut && cut < end;
                assert_eq!(*state == '!', torn, "cut at {cut}: unit {unit} is {state}");
            }
            // It is gone without a flush: all that it may have changed is either old or unverified.
            drop(device);
            let reader = drive.open(false).await;
            assert!(reader.has_open_epoch());
            for (before, after) in alive.iter().zip(states(&reader, &old, &new).await) {
                assert_eq!(after == 'o', *before == 'o', "cut at {cut}");
                assert_ne!(after, 'n', "a unit newer than the last root must not be handed out as verified");
            }
            // The next writer makes it whole again.
            let next = drive.open(true).await;
            write(&next, 0, new.clone()).await.unwrap();
            assert_eq!(states(&next, &old, &new).await, ['n'; UNITS as usize]);
        }
    });
}

#[test]
fn what_was_flushed_is_read_after_a_crash() {
    run(async {
        let drive = loaded().await;
        let device = drive.open(true).await;
        let new = pattern(2, whole().len);
        write(&device, 0, new.clone()).await.unwrap();
        device.flush().await.unwrap();
        drop(device);
        assert_eq!(read(&drive.open(false).await, whole()).await.unwrap(), new);
        let next = drive.open(true).await;
        assert!(next.has_open_epoch());
        assert_eq!(read(&next, whole()).await.unwrap(), new);
    });
}

#[test]
fn a_write_whose_fate_is_unknown_is_settled_when_the_drive_is_closed() {
    run(async {
        let (old, new) = (pattern(1, whole().len), pattern(2, whole().len));
        for landed in [false, true] {
            let drive = loaded().await;
            let device = drive.open(true).await;
            drive.node.left.store(if landed { UNITS * (UNIT + 24) - 1 } else { 0 }, Ordering::Relaxed);
            write(&device, 0, new.clone()).await.unwrap_err();
            drive.node.left.store(u64::MAX, Ordering::Relaxed);
            device.close().await.unwrap();
            let reader = drive.open(false).await;
            let states = states(&reader, &old, &new).await;
            assert_eq!(states, if landed { ['n', 'n', '!'] } else { ['o'; 3] });
        }
    });
}

#[test]
fn a_flush_fails_if_the_record_cannot_be_stored() {
    run(async {
        let drive = loaded().await;
        let device = drive.open(true).await;
        write(&device, 0, pattern(2, UNIT)).await.unwrap();
        drive.store.fails.store(true, Ordering::Relaxed);
        assert!(device.flush().await.unwrap_err().to_string().contains("the disk is full"));
        drive.store.fails.store(false, Ordering::Relaxed);
        device.flush().await.unwrap();
        assert_eq!(read(&drive.open(false).await, ByteRange::new(0, UNIT)).await.unwrap(), pattern(2, UNIT));
    });
}

#[test]
fn a_writer_that_was_taken_over_does_not_undo_the_record_of_the_next() {
    run(async {
        let drive = loaded().await;
        let first = drive.open(true).await;
        write(&first, 0, pattern(2, UNIT)).await.unwrap();
        let second = drive.open(true).await;
        write(&second, UNIT, pattern(3, UNIT)).await.unwrap();
        second.flush().await.unwrap();
        assert!(first.flush().await.unwrap_err().to_string().contains("taken the drive over"));
        assert!(first.close().await.is_err());
        second.close().await.unwrap();
        assert_eq!(read(&drive.open(false).await, ByteRange::new(UNIT, UNIT)).await.unwrap(), pattern(3, UNIT));
    });
}

#[test]
fn nothing_is_written_before_the_epoch_is_stored() {
    run(async {
        let drive = loaded().await;
        drive.store.fails.store(true, Ordering::Relaxed);
        assert!(drive.try_open(true).await.is_err());
    });
}
