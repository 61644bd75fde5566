//! Unusual answers of a target to reads, and the errors that readers get.

use std::time::Duration;

use cheetah_device::error::EINVAL;
use cheetah_device::{ByteRange, Device, Error};
use cheetah_iscsi::pdu::Digests;
use cheetah_iscsi::testing::{Act, Fake, Plan};

use crate::{connect, pattern, read};

/// A long time-out, which no test here reaches.
const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn any_range_is_read_with_any_digests() {
    let disk = pattern(5 << 20);
    for (header, data) in [(false, false), (true, false), (false, true), (true, true)] {
        let plan = Plan { digests: Digests { header, data }, ..Plan::new(&disk, |_| Act::Answer) };
        let fake = Fake::start(plan).await;
        let device = connect(&fake.uri(), TIMEOUT).await.unwrap();
        let inquiry = device.inquiry();
        assert_eq!((&*inquiry.vendor, &*inquiry.product, &*inquiry.revision), ("ACME", "FAKE DISK", "1.0"));
        assert_eq!((inquiry.serial.as_deref(), inquiry.write_protected), (Some("S1"), Some(true)));
        assert_eq!((inquiry.block_bytes, inquiry.physical_block_bytes), (512, 4096));
        assert_eq!((device.geometry().size, device.geometry().writable), (5 << 20, false));
        for (offset, len) in [(0, 5 << 20), (1, 1), (511, 2), (513, 1 << 20), ((5 << 20) - 1, 1), (77, 0)] {
            let expected = &disk[offset as usize..(offset + len) as usize];
            assert!(read(&device, offset, len).await.unwrap() == expected, "{offset}+{len}");
        }
        let beyond = read(&device, 5 << 20, 1).await;
        assert!(matches!(beyond, Err(Error::OutOfBounds { .. })), "{beyond:?}");
    }
}

#[tokio::test]
async fn nothing_is_ever_written() {
    let fake = Fake::start(Plan::new(&pattern(1 << 20), |_| Act::Answer)).await;
    let device = connect(&fake.uri(), TIMEOUT).await.unwrap();
    let range = ByteRange::new(0, 512);
    assert_eq!(device.write(0, vec![1; 512].into(), true).await, Err(Error::ReadOnly));
    assert_eq!(device.zero(range, Default::default()).await, Err(Error::ReadOnly));
    assert_eq!(device.trim(range).await, Err(Error::ReadOnly));
}

#[tokio::test]
async fn the_window_limits_outstanding_commands() {
    let disk = pattern(8 << 20);
    let fake = Fake::start(Plan { window: 3, ..Plan::new(&disk, |_| Act::Answer) }).await;
    let device = connect(&fake.uri(), TIMEOUT).await.unwrap();
    // The target asserts that the commands fit in its window.
    assert!(read(&device, 0, 8 << 20).await.unwrap()[..] == disk[..]);
    assert_eq!(fake.connections(), 1);
}

/// Reads 64 KiB from a target that does `act` the first time; the result, and how many connections it took.
async fn once(act: Act) -> (Result<Vec<u8>, Error>, usize) {
    let disk = pattern(1 << 20);
    let plan = Plan::new(&disk, move |seen| if seen.number == 0 { act.clone() } else { Act::Answer });
    let fake = Fake::start(plan).await;
    let device = connect(&fake.uri(), TIMEOUT).await.unwrap();
    let result = read(&device, 100, 64 << 10).await;
    if let Ok(data) = &result {
        assert!(data[..] == disk[100..100 + (64 << 10)]);
    }
    // In each case, the next read works.
    assert!(read(&device, 4096, 4096).await.unwrap() == disk[4096..8192]);
    (result, fake.connections())
}

#[tokio::test]
async fn a_separate_status_a_ping_and_a_recovered_error_are_no_failures() {
    for act in [Act::StatusApart, Act::AfterPing, Act::Recovered] {
        let (result, connections) = once(act.clone()).await;
        assert!(result.is_ok() && connections == 1, "{act:?}: {connections} connections");
    }
}

#[tokio::test]
async fn a_transient_condition_is_retried() {
    let attention = Act::Sense(6, (0x29, 0), None);
    let aborted = Act::Sense(0xB, (0x47, 0), None);
    let becoming_ready = Act::Sense(2, (4, 1), None);
    for act in [attention, aborted, becoming_ready, Act::Status(0x08), Act::Status(0x28), Act::Failed(1)] {
        let (result, connections) = once(act.clone()).await;
        assert!(result.is_ok() && connections == 1, "{act:?}: {connections} connections");
    }
}

#[tokio::test]
async fn a_protocol_violation_causes_a_reconnection() {
    for act in [
        Act::HangUpAfter(0),
        Act::HangUpAfter(1),
        Act::BadDigest,
        Act::TooMuch,
        Act::Twice,
        Act::Gap,
        Act::WrongTag,
        Act::WantsToWrite,
        Act::Reject,
        Act::Event(1),
        Act::Event(3),
        // Its size may have changed, so it is checked.
        Act::Sense(6, (0x2A, 9), None),
    ] {
        let (result, connections) = once(act.clone()).await;
        assert!(result.is_ok() && connections == 2, "{act:?}: {connections} connections");
    }
}

#[tokio::test]
async fn a_medium_error_names_the_block() {
    // The read is of 64 KiB from 100, which is blocks 0 to 128.
    for (block, expected) in [
        (Some(17), ByteRange::new(17 * 512, 512)),
        (Some(0), ByteRange::new(100, 412)),
        (Some(128), ByteRange::new(65536, 100)),
        (Some(129), ByteRange::new(100, 65536)),
        (None, ByteRange::new(100, 65536)),
    ] {
        match once(Act::Sense(3, (0x11, 0), block)).await.0 {
            Err(Error::Unreadable { range, .. }) => assert_eq!(range, expected, "{block:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn other_errors_are_not_taken_for_bad_blocks() {
    for (act, expected) in [(Act::Sense(5, (0x21, 0), None), EINVAL), (Act::Status(0x18), cheetah_device::error::EPERM)]
    {
        match once(act).await.0 {
            Err(error @ Error::Io { errno, .. }) => assert_eq!(errno, expected, "{error}"),
            other => panic!("{other:?}"),
        }
    }
    // These say nothing about the sectors, and must not be taken for bad ones.
    for act in [Act::Sense(2, (0x3A, 0), None), Act::Sense(4, (0x44, 0), None), Act::Short] {
        let read = once(act).await.0;
        assert!(matches!(read, Err(Error::Lost { .. })), "{read:?}");
    }
}

#[tokio::test]
async fn a_refused_login_names_the_target_and_the_status() {
    for status in [(2, 2), (2, 3), (3, 1)] {
        let fake = Fake::start(Plan { status, ..Plan::new(&pattern(4096), |_| Act::Answer) }).await;
        let error = connect(&fake.uri(), TIMEOUT).await.err().unwrap().to_string();
        let (class, detail) = status;
        assert!(error.contains(&format!("{class:02x}{detail:02x}")), "{error}");
        assert!(error.contains("iscsi://127.0.0.1"), "{error}");
    }
    let moved = Fake::start(Plan { status: (1, 1), ..Plan::new(&pattern(4096), |_| Act::Answer) }).await;
    let error = connect(&moved.uri(), TIMEOUT).await.err().unwrap().to_string();
    assert!(error.contains("10.9.8.7:3260,1"), "names where it has moved to: {error}");
}
