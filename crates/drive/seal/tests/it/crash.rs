//! Writers that end in mid-write: a later read returns old content, new content or an error.

use std::sync::atomic::Ordering;

use cheetah_device::{ByteRange, Device as _};
use cheetah_seal::device::Opening;
use cheetah_seal::units::{UNIT_BYTES_LARGE, UNIT_BYTES_SMALL};

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
        // A single byte might be the same in both versions.
        let cuts = (0..=UNITS).flat_map(|unit| {
            let start = unit * stride;
            [start, start + 12, start + 2000, start + UNIT, start + UNIT + 4, start + UNIT + 8, start + stride - 12]
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
            drive.node.left.store(if landed { UNITS * (UNIT + 24) - 12 } else { 0 }, Ordering::Relaxed);
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
        assert!(device.flush().await.is_err());
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
        assert!(first.flush().await.is_err());
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

/// Where the device below goes on to another member: in the middle of unit 1.
const BOUNDARY: u64 = UNIT + 24 + 2000;

#[test]
fn a_unit_that_is_cut_between_members_by_a_crash_keeps_its_new_version() {
    run(async {
        let (old, new) = (pattern(1, whole().len), pattern(2, whole().len));
        for cut in [0, BOUNDARY, BOUNDARY + 1, 2 * (UNIT + 24) - 1] {
            let drive = loaded().await;
            let cutting = |writable| Opening { boundary: Some(BOUNDARY), ..drive.opening(writable) };
            let device = drive.open_with(cutting(true)).await.unwrap();
            drive.node.left.store(cut, Ordering::Relaxed);
            write(&device, 0, new.clone()).await.unwrap_err();
            drive.node.left.store(u64::MAX, Ordering::Relaxed);
            let torn = cut > UNIT + 24;
            assert_eq!(states(&device, &old, &new).await[1], if torn { 'n' } else { 'o' }, "cut at {cut}");
            drop(device);
            // Unverified, not lost.
            let reader = drive.open_with(cutting(false)).await.unwrap();
            assert_eq!(states(&reader, &old, &new).await[1], if torn { '!' } else { 'o' }, "cut at {cut}");
            reader.accept_unverified().await.unwrap();
            assert_eq!(states(&reader, &old, &new).await[1], if torn { 'n' } else { 'o' }, "cut at {cut}");
            // The next writer puts it in its place, and it is still unverified.
            let next = drive.open_with(cutting(true)).await.unwrap();
            next.flush().await.unwrap();
            drop(next);
            let reader = drive.accepting(false).await;
            assert_eq!(states(&reader, &old, &new).await[1], if torn { 'n' } else { 'o' }, "cut at {cut}");
        }
    });
}

#[test]
fn a_drive_whose_torn_unit_cannot_be_put_back_opens_and_keeps_the_copy_until_it_can() {
    run(async {
        let (old, new) = (pattern(1, whole().len), pattern(2, whole().len));
        let drive = loaded().await;
        let opening = |writable| Opening { boundary: Some(BOUNDARY), ..drive.opening(writable) };
        let device = drive.open_with(opening(true)).await.unwrap();
        drive.node.left.store(BOUNDARY, Ordering::Relaxed);
        write(&device, 0, new.clone()).await.unwrap_err();
        drop(device);
        // No write arrives. The copy is in the record of each writer nevertheless.
        drive.node.left.store(0, Ordering::Relaxed);
        for _ in 0..2 {
            let device = drive.open_with(opening(true)).await.unwrap();
            device.flush().await.unwrap();
            device.close().await.unwrap();
            assert_eq!(states(&drive.open(false).await, &old, &new).await[1], '!');
            assert_eq!(states(&drive.accepting(false).await, &old, &new).await[1], 'n');
        }
        // The unit is accepted, and still only in the record.
        drive.accepting(true).await.close().await.unwrap();
        assert_eq!(states(&drive.open(false).await, &old, &new).await[1], 'n');
        drive.node.left.store(u64::MAX, Ordering::Relaxed);
        drive.open_with(opening(true)).await.unwrap().close().await.unwrap();
        let len = drive.store.bytes.lock().len() as u64;
        assert!(len < UNIT, "{len} bytes of a record without copies");
        assert_eq!(states(&drive.open(false).await, &old, &new).await[1], 'n');
    });
}

#[test]
fn only_units_that_are_overwritten_across_a_boundary_are_stored_twice() {
    run(async {
        let drive = Drive::new(UNIT, UNITS * UNIT, false);
        let device = drive.open_with(Opening { boundary: Some(BOUNDARY), ..drive.opening(true) }).await.unwrap();
        let mut grown = Vec::new();
        for _ in 0..2 {
            for unit in 0..UNITS {
                let before = drive.store.written.load(Ordering::Relaxed);
                write(&device, unit * UNIT, pattern(unit, UNIT)).await.unwrap();
                grown.push(drive.store.written.load(Ordering::Relaxed) - before > UNIT);
            }
        }
        assert_eq!(grown, [false, false, false, false, true, true]);
    });
}

#[test]
fn more_copies_than_the_log_may_hold_make_the_writer_store_a_new_record() {
    run(async {
        let (unit, units) = (UNIT_BYTES_LARGE, 16);
        let drive = Drive::new(unit, units * unit, false);
        let device = drive.open_with(Opening { boundary: Some(unit), ..drive.opening(true) }).await.unwrap();
        let mut longest = 0;
        for round in 0..70 {
            let writes = (0..units).map(|index| write(&device, index * unit, pattern(round + index, unit)));
            futures::future::try_join_all(writes).await.unwrap();
            longest = longest.max(drive.store.bytes.lock().len());
        }
        assert!(longest as u64 > 60 << 20 && (longest as u64) < 67 << 20, "{longest} bytes");
        assert!(drive.store.bytes.lock().len() < longest);
        for index in 0..units {
            assert_eq!(read(&device, ByteRange::new(index * unit, unit)).await.unwrap(), pattern(69 + index, unit));
        }
    });
}

#[test]
fn unverified_units_are_listed_and_can_be_accepted() {
    run(async {
        let (old, new) = (pattern(1, whole().len), pattern(2, whole().len));
        let drive = loaded().await;
        let device = drive.open(true).await;
        write(&device, 0, new[..2 * UNIT as usize].to_vec()).await.unwrap();
        drop(device);
        let reader = drive.open(false).await;
        assert_eq!(reader.unverified().await.unwrap(), [ByteRange::new(0, 2 * UNIT)]);
        assert_eq!(states(&reader, &old, &new).await, ['!', '!', 'o']);
        // A reader takes them, and they stay unverified.
        let accepting = drive.accepting(false).await;
        assert_eq!(states(&accepting, &old, &new).await, ['n', 'n', 'o']);
        assert_eq!(accepting.accepted(), 2);
        assert_eq!(states(&drive.open(false).await, &old, &new).await, ['!', '!', 'o']);
        // A writer records them as verified.
        let writer = drive.accepting(true).await;
        assert_eq!(writer.accepted(), 2);
        writer.flush().await.unwrap();
        writer.close().await.unwrap();
        let reader = drive.open(false).await;
        assert!(!reader.has_open_epoch());
        assert_eq!(states(&reader, &old, &new).await, ['n', 'n', 'o']);
    });
}

#[test]
fn a_hole_that_was_written_after_the_last_flush_reads_as_zeros_until_it_is_accepted() {
    run(async {
        for unit in [UNIT, UNIT - 100] {
            let drive = Drive::new(UNIT, UNITS * UNIT - 100, true);
            let device = drive.open(true).await;
            write(&device, 2 * UNIT, pattern(3, UNIT - 100)).await.unwrap();
            write(&device, 0, pattern(2, unit)).await.unwrap();
            drop(device);
            let range = ByteRange::new(0, UNIT);
            let reader = drive.open(false).await;
            assert_eq!(read(&reader, range).await.unwrap(), vec![0; UNIT as usize]);
            let listed = reader.unverified().await.unwrap();
            assert_eq!(listed, [ByteRange::new(0, UNIT), ByteRange::new(2 * UNIT, UNIT - 100)]);
            let accepting = drive.accepting(false).await;
            assert_eq!(read(&accepting, range).await.unwrap()[..unit as usize], pattern(2, unit));
            assert_eq!(read(&accepting, ByteRange::new(UNIT, UNIT)).await.unwrap(), vec![0; UNIT as usize]);
        }
    });
}

#[test]
fn what_is_accepted_is_authentic_and_never_older_than_the_record() {
    run(async {
        let (old, new) = (pattern(1, whole().len), pattern(2, whole().len));
        let drive = loaded().await;
        let rolled_back = drive.node.get(drive.place(0));
        let device = drive.open(true).await;
        write(&device, 0, new.clone()).await.unwrap();
        device.flush().await.unwrap();
        write(&device, 0, new.clone()).await.unwrap();
        drop(device);
        drive.node.set(drive.place(0), &rolled_back);
        let mut changed = drive.node.get(drive.place(1));
        changed[7] ^= 1;
        drive.node.set(drive.place(1), &changed);
        for writable in [false, true] {
            let device = drive.accepting(writable).await;
            assert_eq!(states(&device, &old, &new).await, ['!', '!', 'n']);
        }
    });
}

#[test]
fn a_flush_writes_what_changed_and_not_the_whole_record() {
    run(async {
        let units = 1 << 18;
        let drive = Drive::new(UNIT, units * UNIT, false);
        let device = drive.open(true).await;
        let written = || drive.store.written.load(Ordering::Relaxed);
        let whole = 8 * units;
        assert!(written() > whole, "the record of a new epoch");
        let before = written();
        for n in 0..100 {
            write(&device, n * 97 * UNIT, pattern(n, UNIT)).await.unwrap();
            device.flush().await.unwrap();
        }
        let bytes = (written() - before) / 100;
        assert!(bytes < 100, "{bytes} bytes for a flush of one unit");
        // Adjacent units cost no more.
        let before = written();
        write(&device, 0, pattern(1, 1 << 20)).await.unwrap();
        device.flush().await.unwrap();
        assert!(written() - before < 100);
        // The log is as long as the record at most.
        let before = written();
        let rounds = 40;
        for round in 0..rounds {
            for n in 0..2000 {
                write(&device, (n * 2 + round % 2) * UNIT, pattern(n, UNIT)).await.unwrap();
            }
            device.flush().await.unwrap();
        }
        let bytes = written() - before;
        let entries = rounds * 2000 * 24;
        assert!(bytes < 3 * entries + 2 * whole, "{bytes} bytes for {entries} bytes of stamps");
        device.close().await.unwrap();
        let reader = drive.open(false).await;
        assert_eq!(read(&reader, ByteRange::new(0, UNIT)).await.unwrap(), pattern(0, UNIT));
    });
}

#[test]
fn a_log_that_is_cut_off_anywhere_yields_the_last_whole_entry() {
    run(async {
        let (old, new) = (pattern(1, whole().len), pattern(2, whole().len));
        let drive = loaded().await;
        let device = drive.open(true).await;
        let base = drive.store.bytes.lock().len();
        write(&device, 0, new[..UNIT as usize].to_vec()).await.unwrap();
        device.flush().await.unwrap();
        let one = drive.store.bytes.lock().len();
        write(&device, UNIT, new[UNIT as usize..2 * UNIT as usize].to_vec()).await.unwrap();
        device.flush().await.unwrap();
        drop(device);
        let intact = drive.store.bytes.lock().clone();
        for cut in base..=intact.len() {
            *drive.store.bytes.lock() = intact[..cut].to_vec();
            let expected = match cut {
                cut if cut == intact.len() => ['n', 'n', 'o'],
                cut if cut >= one => ['n', '!', 'o'],
                _ => ['!', '!', 'o'],
            };
            assert_eq!(states(&drive.open(false).await, &old, &new).await, expected, "cut at {cut}");
        }
        // A change before the last entry is no crash.
        for at in base..one {
            let mut changed = intact.clone();
            changed[at] ^= 1;
            *drive.store.bytes.lock() = changed;
            match drive.try_open(false).await {
                Err(_) => {}
                // A changed length may look like an entry that was cut off.
                Ok(reader) => assert_eq!(states(&reader, &old, &new).await, ['!', '!', 'o'], "byte {at}"),
            }
        }
    });
}
