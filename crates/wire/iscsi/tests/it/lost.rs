//! Targets that are lost, for a while or for good.

use std::time::{Duration, Instant};

use cheetah_device::{ByteRange, Error};
use cheetah_iscsi::testing::{Act, BLOCK, Fake, Plan, Seen};
use cheetah_iscsi::{Initiator, IscsiConfig};

use crate::{config, connect, pattern, read};

const SHORT: Duration = Duration::from_secs(3);
/// No operation takes this long, unless the machine stalls.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads a range that must be reported lost at the time-out; returns the reason.
async fn lost(device: &Initiator) -> String {
    let begin = Instant::now();
    match read(device, 1000, 100_000).await {
        Err(Error::Lost { device, why, .. }) => {
            assert_eq!(&*device, "disk");
            // A generous upper limit: the machine may be busy.
            assert!(begin.elapsed() >= SHORT && begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
            why.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_target_that_never_answers_is_lost() {
    let fake = Fake::start(Plan::new(&pattern(1 << 20), |_| Act::Ignore)).await;
    let device = connect(&fake.uri(), SHORT).await.unwrap();
    assert_eq!(lost(&device).await, "no answer for 3s");
    // The target answers pings, so the connection was not replaced.
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn a_target_whose_digests_are_always_wrong_is_lost() {
    let fake = Fake::start(Plan::new(&pattern(1 << 20), |_| Act::BadDigest)).await;
    let device = connect(&fake.uri(), SHORT).await.unwrap();
    lost(&device).await;
}

#[tokio::test]
async fn a_target_that_hangs_up_repeatedly_is_used_while_it_makes_progress() {
    // One read per connection.
    let disk = pattern(4 << 20);
    let plan = Plan::new(&disk, |seen| if seen.number % 2 == 0 { Act::Answer } else { Act::HangUpAfter(3) });
    let fake = Fake::start(plan).await;
    let device = connect(&fake.uri(), PATIENCE).await.unwrap();
    assert!(read(&device, 0, 4 << 20).await.unwrap()[..] == disk[..]);
    assert!(fake.connections() > 1);
}

#[tokio::test]
async fn a_block_at_which_the_target_closes_the_connection_is_unreadable_and_all_others_are_read() {
    const BAD: u64 = 1234;
    let disk = pattern(4 << 20);
    let closes = |seen: Seen| (seen.lba..seen.lba + seen.blocks as u64).contains(&BAD);
    let plan = Plan::new(&disk, move |seen| if closes(seen) { Act::HangUpAfter(0) } else { Act::Answer });
    let fake = Fake::start(plan).await;
    let block = BLOCK as u64;
    // An initiator that must recognise its disk is replaced after each loss, and need not learn again.
    for trust_reconnects in [true, false] {
        let open = || Initiator::connect(IscsiConfig { trust_reconnects, ..config(&fake.uri(), PATIENCE) });
        let mut device = open().await.unwrap();
        let (mut left, mut unreadable) = (vec![ByteRange::new(0, 4 << 20)], Vec::new());
        while let Some(range) = left.pop() {
            match read(&device, range.offset, range.len).await {
                Ok(content) => assert!(content[..] == disk[range.offset as usize..range.end() as usize]),
                Err(Error::Unreadable { .. }) if range.len > block => {
                    let half = (range.len / 2).next_multiple_of(block);
                    left.extend([
                        ByteRange::new(range.offset + half, range.len - half),
                        ByteRange { len: half, ..range },
                    ]);
                }
                Err(Error::Unreadable { range, .. }) => unreadable.push(range),
                Err(Error::Lost { .. }) if !trust_reconnects => {
                    left.push(range);
                    device = open().await.unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(unreadable, [ByteRange::new(BAD * block, block)]);
    }
    assert!(fake.connections() < 100, "{} connections", fake.connections());
}

#[tokio::test]
async fn another_disk_in_its_place_is_refused() {
    let disk = pattern(1 << 20);
    let hang_up =
        || Plan::new(&pattern(1 << 20), |seen| if seen.number == 0 { Act::HangUpAfter(1) } else { Act::Answer });
    let serial = Plan { serial: |connection| ["S1", "S2", "S1"][connection.min(2)], ..hang_up() };
    let size = Plan { blocks: |connection, blocks| blocks - connection, ..hang_up() };
    for plan in [serial, size] {
        let fake = Fake::start(plan).await;
        let device = connect(&fake.uri(), PATIENCE).await.unwrap();
        // Later reads fail, too: the right disk may be back, but it may have changed.
        for _ in 0..2 {
            let other = read(&device, 0, disk.len() as u64 / 2).await;
            assert!(matches!(other, Err(Error::Lost { .. })), "{other:?}");
        }
        assert_eq!(fake.connections(), 2);
    }
}

#[tokio::test]
async fn a_disk_that_describes_itself_as_before_is_not_read_by_an_initiator_that_must_recognise_it() {
    let plan = Plan::new(&pattern(1 << 20), |seen| if seen.number == 0 { Act::HangUpAfter(1) } else { Act::Answer });
    let fake = Fake::start(plan).await;
    let config = IscsiConfig { trust_reconnects: false, ..config(&fake.uri(), PATIENCE) };
    let device = Initiator::connect(config).await.unwrap();
    for _ in 0..2 {
        let again = read(&device, 0, 512 << 10).await;
        assert!(matches!(again, Err(Error::Lost { .. })), "{again:?}");
    }
    assert_eq!(fake.connections(), 1);
}

#[tokio::test]
async fn a_refused_connection_is_an_error() {
    // Bound, so that no other program gets the port, but not listening.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = held.local_addr().unwrap().port();
    assert!(connect(&format!("iscsi://127.0.0.1:{port}/t/0"), SHORT).await.is_err());
}

#[tokio::test]
async fn dropped_reads_do_not_disturb_others() {
    let disk = pattern(8 << 20);
    let fake = Fake::start(Plan::new(&disk, |_| Act::Answer)).await;
    let device = connect(&fake.uri(), PATIENCE).await.unwrap();
    for at in 0..20 {
        let gone = tokio::time::timeout(Duration::from_micros(at * 50), read(&device, 0, 8 << 20)).await;
        drop(gone);
        let at = at * BLOCK as u64 * 3;
        assert!(read(&device, at, 70_000).await.unwrap() == disk[at as usize..][..70_000]);
    }
    assert_eq!(fake.connections(), 1);
}
