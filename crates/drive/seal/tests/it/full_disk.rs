//! A disk that becomes full while the record is appended to.

use std::sync::atomic::Ordering;

use cheetah_device::{ByteRange, Device as _, Error};
use cheetah_seal::units::UNIT_BYTES_SMALL;

use crate::support::{Drive, pattern, read, run, write};

const UNIT: u64 = UNIT_BYTES_SMALL;
/// Longer than any entry here.
const ENTRY_BYTES_MAX: u64 = 128;

fn unit(index: u64) -> ByteRange {
    ByteRange::new(index * UNIT, UNIT)
}

fn is_no_space<T>(result: &cheetah_device::Result<T>) -> bool {
    matches!(result, Err(Error::NoSpace(_)))
}

#[test]
fn an_append_cut_off_at_any_byte_refuses_writes_at_once_and_the_writer_goes_on_when_there_is_space() {
    run(async {
        let mut cut_off = 0;
        for room in 0..ENTRY_BYTES_MAX {
            let drive = Drive::new(UNIT, 4 * UNIT, false);
            let device = drive.open(true).await;
            write(&device, 0, pattern(1, 4 * UNIT)).await.unwrap();
            device.flush().await.unwrap();
            drive.store.room.store(room, Ordering::Relaxed);
            write(&device, 0, pattern(2, UNIT)).await.unwrap();
            let flushed = device.flush().await;
            if flushed.is_ok() {
                continue;
            }
            cut_off += 1;
            assert!(is_no_space(&flushed), "{flushed:?}");
            for _ in 0..2 {
                assert!(is_no_space(&write(&device, UNIT, pattern(3, UNIT)).await), "at {room}");
            }
            assert_eq!(read(&device, unit(0)).await.unwrap(), pattern(2, UNIT));
            assert_eq!(read(&device, unit(1)).await.unwrap(), pattern(1, 4 * UNIT)[UNIT as usize..2 * UNIT as usize]);
            // A reader elsewhere reads what was flushed before, or nothing.
            let reader = drive.open(false).await;
            assert_eq!(read(&reader, unit(2)).await.unwrap().len() as u64, UNIT);
            drive.store.room.store(u64::MAX, Ordering::Relaxed);
            write(&device, UNIT, pattern(4, UNIT)).await.unwrap();
            device.flush().await.unwrap();
            // A writer that is killed now loses nothing of it.
            drop(device);
            let device = drive.open(false).await;
            assert_eq!(read(&device, unit(0)).await.unwrap(), pattern(2, UNIT), "at {room}");
            assert_eq!(read(&device, unit(1)).await.unwrap(), pattern(4, UNIT), "at {room}");
        }
        assert!(cut_off > 50, "{cut_off}");
    });
}

#[test]
fn a_writer_that_is_stopped_where_only_the_changes_fit_keeps_them() {
    run(async {
        let drive = Drive::new(UNIT, 64 * UNIT, false);
        let device = drive.open(true).await;
        write(&device, 0, pattern(1, 64 * UNIT)).await.unwrap();
        device.flush().await.unwrap();
        write(&device, UNIT, pattern(2, UNIT)).await.unwrap();
        device.flush().await.unwrap();
        write(&device, 0, pattern(3, UNIT)).await.unwrap();
        // A whole record has a stamp for each unit.
        drive.store.room.store(ENTRY_BYTES_MAX, Ordering::Relaxed);
        assert!(is_no_space(&device.close().await));
        let device = drive.open(false).await;
        assert_eq!(read(&device, unit(0)).await.unwrap(), pattern(3, UNIT));
        assert_eq!(read(&device, unit(1)).await.unwrap(), pattern(2, UNIT));
    });
}
