//! Redundant drives over real nodes: nodes are lost, come back empty, and are replaced, while drives are read and
//! written.

use std::time::Duration;

use crate::common::*;
use cheetah_control::ControlClient;
use cheetah_control::api::LeaseRequest;
use cheetah_device::{ByteRange, Data, Device as _, Error as DeviceError};
use cheetah_drive::check::{CheckOptions, check};
use cheetah_drive::destroy::destroy;
use cheetah_drive::refetch::{self, RefetchOptions};
use cheetah_drive::repair::{RepairOptions, Repaired, repair};
use cheetah_drive::status::status;
use cheetah_drive::{AvailableNode, Drive, DriveFile, Layout, Refused};
use cheetah_error::{Kind, next};

const MIRROR: Layout = Layout::Mirror { unit: UNIT, copies: 2 };
const PARITY: Layout = Layout::Parity { unit: UNIT, parities: 1 };
const DOUBLE_PARITY: Layout = Layout::Parity { unit: UNIT, parities: 2 };

async fn read_all(file: &DriveFile) -> Data {
    let drive = Drive::open(file, options(false)).await.unwrap();
    let data = drive.device().read(ByteRange::new(0, file.size)).await.unwrap();
    drive.close().await.unwrap();
    data
}

async fn repaired(file: &mut DriveFile, spares: Vec<AvailableNode>) -> Repaired {
    repair(file, RepairOptions { spares, force_lease: false, session: session() }, |_| {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loaded_drive_is_read_in_full_after_as_many_losses_as_its_layout_survives() {
    for (layout, nodes, losses) in
        [(MIRROR, 2, 1), (MIRROR, 3, 1), (PARITY, 3, 1), (PARITY, 5, 1), (DOUBLE_PARITY, 5, 2)]
    {
        let mut lab = Lab::new(&vec![16 * MIB; nodes]);
        let bytes = image(6 * MIB - 100);
        let file = lab.loaded(layout, &bytes).await;
        assert!(read_all(&file).await == bytes[..]);
        for lost in 0..losses {
            lab.nodes.remove(lost).shutdown().await;
            assert!(read_all(&file).await == bytes[..], "{layout:?} after {} losses", lost + 1);
            assert!(verified(&file).await.is_ok());
        }
        lab.nodes.remove(0).shutdown().await;
        let refusal = Drive::open(&file, options(false)).await.err().unwrap();
        assert!(refusal.has_next(next::Drive::BringBackOrReadRest), "{refusal}");
    }
}

/// Payload bytes that the nodes have received for writes.
fn received_bytes(lab: &Lab) -> u64 {
    lab.nodes.iter().flat_map(|node| node.exports().stats()).map(|(_, stats)| stats.written_bytes).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn zeros_over_a_whole_drive_send_no_redundancy_as_bytes_and_survive_a_loss() {
    for (layout, nodes) in [(MIRROR, 2), (PARITY, 3), (DOUBLE_PARITY, 5)] {
        let mut lab = Lab::new(&vec![16 * MIB; nodes]);
        let file = lab.loaded(layout, &image(6 * MIB - 100)).await;
        let before = received_bytes(&lab);
        let writer = Drive::open(&file, options(true)).await.unwrap();
        let whole = ByteRange::new(0, file.size);
        writer.device().trim(whole).await.unwrap();
        // The last group is zeroed in part, so it is encoded from bytes.
        let sent = received_bytes(&lab) - before;
        assert!(sent <= 6 * UNIT, "{layout:?}: {sent} bytes");
        writer.close().await.unwrap();
        assert!(read_all(&file).await.is_zero());
        let checked =
            check(&file, CheckOptions { force_lease: false, session: session() }, |_| {}).await.unwrap().checked;
        assert!(checked.is_sound() && !checked.has_found(), "{layout:?}: {checked:?}");
        lab.nodes.remove(1).shutdown().await;
        assert!(read_all(&file).await.is_zero());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_device_of_a_reader_is_read_after_the_drive_is_dropped() {
    let lab = Lab::new(&[16 * MIB; 2]);
    let bytes = image(2 * MIB);
    let file = lab.loaded(MIRROR, &bytes).await;
    let device = Drive::open(&file, options(false)).await.unwrap().device();
    for _ in 0..3 {
        // Longer than a read lease.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let read = tokio::time::timeout(TIMEOUT, device.read(ByteRange::new(0, 2 * MIB))).await.expect("an answer");
        assert!(read.unwrap() == bytes[..]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_lost_under_an_open_drive_costs_no_error_and_no_byte() {
    for (layout, nodes) in [(MIRROR, 2), (PARITY, 3)] {
        let mut lab = Lab::new(&vec![16 * MIB; nodes]);
        let bytes = image(4 * MIB);
        let file = lab.loaded(layout, &bytes).await;
        let reader = Drive::open(&file, options(false)).await.unwrap();
        let writer = Drive::open(&file, options(true)).await.unwrap();
        writer.device().write(0, vec![1; 100_000].into(), false).await.unwrap();
        lab.nodes.remove(1).shutdown().await;
        writer.device().write(50_000, vec![2; 300_000].into(), false).await.unwrap();
        writer.device().flush().await.unwrap();
        let mut expected = bytes.clone();
        expected[..50_000].fill(1);
        expected[50_000..350_000].fill(2);
        let whole = ByteRange::new(0, file.size);
        assert!(writer.device().read(whole).await.unwrap() == expected[..]);
        assert!(reader.device().read(whole).await.unwrap() == expected[..]);
        writer.close().await.unwrap();
        reader.close().await.unwrap();
        // With the old drive file, and with the current one.
        assert!(read_all(&file).await == expected[..]);
        assert!(read_all(&DriveFile::load(&file.path).unwrap()).await == expected[..]);
        assert!(!status(&file, &session()).await.unwrap().healthy);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_file_behind_a_symbolic_link_knows_of_a_node_lost_under_the_link() {
    let mut lab = Lab::new(&[16 * MIB; 2]);
    let file = lab.create(MIRROR, 4 * MIB).await;
    let link = lab.dir.path().join("link.drive");
    std::os::unix::fs::symlink(&file.path, &link).unwrap();
    let drive = Drive::open(&DriveFile::load(&link).unwrap(), options(true)).await.unwrap();
    drive.device().write(0, vec![1; 100_000].into(), false).await.unwrap();
    let lost = lab.nodes.remove(1);
    let address = lost.nbd_address().to_string();
    lost.shutdown().await;
    drive.device().write(0, vec![2; 100_000].into(), false).await.unwrap();
    drive.close().await.unwrap();
    assert!(link.is_symlink());
    let known = DriveFile::load(&file.path).unwrap();
    let stale: Vec<_> = known.nodes().filter(|node| node.state.is_some()).map(|node| node.name.as_str()).collect();
    assert_eq!(stale, [address]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_file_that_cannot_be_written_fails_writes_only_where_it_has_a_vote() {
    for (layout, nodes, has_vote) in [(PARITY, 3, false), (MIRROR, 2, true)] {
        let mut lab = Lab::new(&vec![16 * MIB; nodes]);
        let file = lab.create(layout, 4 * MIB).await;
        let drive = Drive::open(&file, options(true)).await.unwrap();
        drive.device().write(0, vec![1; 100_000].into(), false).await.unwrap();
        std::fs::remove_file(&file.path).unwrap();
        std::fs::create_dir(&file.path).unwrap();
        lab.nodes.remove(1).shutdown().await;
        let written = drive.device().write(0, vec![2; 200_000].into(), false).await;
        assert_eq!(written.is_err(), has_vote, "{layout:?}: {written:?}");
        // The file is rewritten with the map that records that the drive is closed.
        std::fs::remove_dir(&file.path).unwrap();
        drive.close().await.unwrap();
        let known = DriveFile::load(&file.path).unwrap();
        assert_eq!(known.nodes().filter(|node| node.state.is_some()).count(), 1, "{layout:?}");
        if !has_vote {
            let mut expected = vec![0; (4 * MIB) as usize];
            expected[..200_000].fill(2);
            assert!(read_all(&known).await == expected[..]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_file_with_several_hard_links_can_only_be_read() {
    let lab = Lab::new(&[16 * MIB; 2]);
    for layout in [MIRROR, STRIPE] {
        let file = lab.loaded(layout, &image(MIB)).await;
        let other = lab.dir.path().join("other.drive");
        std::fs::hard_link(&file.path, &other).unwrap();
        let refusal = Drive::open(&file, options(true)).await.err().unwrap();
        assert_eq!(refusal.cause(), Some(&Refused::SeveralNames { path: file.path.clone(), names: 2 }), "{refusal}");
        assert_eq!(read_all(&file).await.len(), MIB);
        std::fs::remove_file(&other).unwrap();
        Drive::open(&file, options(true)).await.unwrap().close().await.unwrap();
        destroy(&file, destroy_options(false)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spare_takes_the_place_of_a_lost_node_and_readers_follow() {
    for (layout, nodes) in [(MIRROR, 3), (PARITY, 3)] {
        let mut lab = Lab::new(&vec![16 * MIB; nodes]);
        let bytes = image(4 * MIB);
        let mut file = lab.loaded(layout, &bytes).await;
        let old = file.clone();
        let reader = Drive::open(&old, options(false)).await.unwrap();
        lab.nodes.remove(0).shutdown().await;
        lab.nodes.push(start_node(16 * MIB));
        let spare = lab.found().await.pop().unwrap();
        let outcome = repaired(&mut file, vec![spare]).await;
        assert!(outcome.is_complete() && outcome.replaced.len() == 1, "{outcome:?}");
        // Another loss, which only a repaired drive survives.
        lab.nodes.remove(0).shutdown().await;
        assert!(read_all(&file).await == bytes[..]);
        assert!(read_all(&old).await == bytes[..], "an old drive file still opens the drive");
        let whole = ByteRange::new(0, file.size);
        let begun = std::time::Instant::now();
        loop {
            match reader.device().read(whole).await {
                Ok(data) => break assert!(data == bytes[..]),
                Err(error) => assert!(begun.elapsed() < TIMEOUT, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_came_back_empty_is_never_read_and_can_be_replaced_by_itself() {
    let mut lab = Lab::new(&[16 * MIB; 3]);
    let bytes = image(4 * MIB);
    let mut file = lab.loaded(PARITY, &bytes).await;
    let address = lab.nodes[2].nbd_address();
    lab.nodes.remove(2).shutdown().await;
    lab.nodes.push(start_node_at(16 * MIB, address));
    assert!(read_all(&file).await == bytes[..]);
    let spare = lab.found().await.pop().unwrap();
    let outcome = repaired(&mut file, vec![spare]).await;
    assert!(outcome.is_complete(), "{outcome:?}");
    lab.nodes.remove(0).shutdown().await;
    assert!(read_all(&file).await == bytes[..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_never_write_at_once() {
    let lab = Lab::new(&[16 * MIB; 3]);
    let file = lab.create(PARITY, 2 * MIB).await;
    let first = Drive::open(&file, options(true)).await.unwrap();
    let refusal = Drive::open(&file, options(true)).await.err().unwrap();
    assert!(refusal.has_next(next::Lease::ForceLease), "{refusal}");
    let forced = cheetah_drive::OpenOptions { force_lease: true, ..options(true) };
    let second = Drive::open(&file, forced).await.unwrap();
    second.device().write(0, vec![2; 4096].into(), false).await.unwrap();
    assert!(first.device().write(0, vec![1; 4096].into(), false).await.is_err());
    let _ = first.close().await;
    second.close().await.unwrap();
    assert!(read_all(&file).await.slice(0, 4096) == [2; 4096][..]);
}

/// Ends the leases of a writer at the first nodes, as if they had expired while the writer's process was stopped.
async fn end_leases(file: &DriveFile, nodes: usize) {
    for node in file.nodes().take(nodes) {
        let (control, export) = (ControlClient::new(node.http.as_ref().unwrap(), None), node.uri().unwrap().export);
        let request = LeaseRequest { holder: "another".into(), ttl_s: 300, force: true };
        let token = control.acquire_lease(&export, &request).await.unwrap().token;
        control.release_lease(&export, &token).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_whose_leases_have_ended_goes_on_without_a_loss_if_nobody_else_wrote() {
    for (layout, nodes) in [(MIRROR, 2), (PARITY, 3)] {
        let lab = Lab::new(&vec![24 * MIB; nodes]);
        let file = lab.create(layout, 12 * MIB).await;
        let writer = Drive::open(&file, options(true)).await.unwrap();
        let (device, half) = (writer.device(), file.size / 2);
        device.write(0, vec![1; 8192].into(), false).await.unwrap();
        for ended in 1..=nodes {
            end_leases(&file, ended).await;
            // One region that is recorded, and one that is not.
            let (here, there) = (vec![2 * ended as u8; 8192], vec![2 * ended as u8 + 1; 8192]);
            let there_at = half + ended as u64 * MIB;
            let (here_done, there_done) = tokio::join!(
                device.write(0, here.clone().into(), false),
                device.write(there_at, there.clone().into(), false)
            );
            here_done.unwrap();
            there_done.unwrap();
            assert!(device.read(ByteRange::new(0, 8192)).await.unwrap() == here[..]);
            assert!(device.read(ByteRange::new(there_at, 8192)).await.unwrap() == there[..]);
        }
        writer.close().await.unwrap();
        assert!(status(&file, &session()).await.unwrap().healthy, "{layout:?}");
        assert!(read_all(&file).await.slice(0, 8192) == vec![2 * nodes as u8; 8192][..]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_whose_leases_have_ended_writes_nothing_more_if_another_wrote_meanwhile() {
    // With and without a stored map of the first writer: both writers' maps then have the same epoch.
    for ((layout, nodes), is_stored) in [((MIRROR, 2), true), ((PARITY, 3), true), ((PARITY, 3), false)] {
        let lab = Lab::new(&vec![24 * MIB; nodes]);
        let file = lab.create(layout, 12 * MIB).await;
        let first = Drive::open(&file, options(true)).await.unwrap();
        if is_stored {
            first.device().write(0, vec![1; 8192].into(), false).await.unwrap();
        }
        end_leases(&file, file.nodes().count()).await;
        let second = Drive::open(&file, options(true)).await.unwrap();
        second.device().write(0, vec![2; 8192].into(), false).await.unwrap();
        second.close().await.unwrap();
        let device = first.device();
        let (here, there) = tokio::join!(
            device.write(0, vec![3; 8192].into(), false),
            device.write(file.size / 2, vec![3; 8192].into(), false)
        );
        drop(device);
        for refusal in [here.unwrap_err(), there.unwrap_err()] {
            assert!(matches!(refusal, DeviceError::Fenced(_)), "{layout:?}: {refusal}");
        }
        assert!(first.is_fenced());
        let refusal = first.device().read(ByteRange::new(0, 4096)).await.unwrap_err();
        assert!(matches!(refusal, DeviceError::Fenced(_)), "{refusal}");
        first.close().await.ok();
        let content = read_all(&file).await;
        assert!(content.slice(0, 8192) == [2; 8192][..] && content.slice(8192, file.size - 8192).is_zero());
        let status = status(&file, &session()).await.unwrap();
        assert!(status.healthy, "nothing of the first writer's last writes is anywhere");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_whose_leases_have_ended_uses_no_node_where_too_few_are_left_to_exclude_another_writer() {
    let mut lab = Lab::new(&[24 * MIB; 3]);
    let file = lab.create(PARITY, 12 * MIB).await;
    let first = Drive::open(&file, options(true)).await.unwrap();
    first.device().write(0, vec![1; 300_000].into(), false).await.unwrap();
    // Another writer's map could be at the two lost nodes; the third node has none that is newer than the first
    // writer's.
    end_leases(&file, file.nodes().count()).await;
    let last = file.nodes().last().unwrap();
    let (control, export) = (ControlClient::new(last.http.as_ref().unwrap(), None), last.uri().unwrap().export);
    let held = control.map(&export).await.unwrap().unwrap();
    lab.nodes.remove(1).shutdown().await;
    lab.nodes.remove(0).shutdown().await;
    assert!(first.device().write(0, vec![3; 300_000].into(), false).await.is_err());
    let read = first.device().read(ByteRange::new(0, 300_000)).await;
    assert!(read.is_err(), "what the node holds may be out of date");
    first.close().await.ok();
    assert_eq!(control.map(&export).await.unwrap().unwrap(), held);
}

/// Writes to an open drive until stopped, and tracks the expected content.
async fn keep_writing(drive: &Drive, expected: &mut [u8], stop: &std::sync::atomic::AtomicBool) {
    let mut at = 0;
    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
        at = (at * 7 + 123_457) % (expected.len() - 70_000);
        let bytes = vec![at as u8; 1 + at % 70_000];
        expected[at..at + bytes.len()].copy_from_slice(&bytes);
        drive.device().write(at as u64, bytes.into(), false).await.unwrap();
    }
    drive.device().flush().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_is_repaired_by_its_writer_while_it_writes() {
    for layout in [MIRROR, PARITY] {
        let mut lab = Lab::new(&[24 * MIB; 3]);
        let bytes = image(12 * MIB);
        let mut file = lab.loaded(layout, &bytes).await;
        let writer = Drive::open(&file, options(true)).await.unwrap();
        let mut expected = bytes.clone();
        lab.nodes.remove(1).shutdown().await;
        writer.device().write(0, vec![7; 5000].into(), false).await.unwrap();
        expected[..5000].fill(7);
        lab.nodes.push(start_node(24 * MIB));
        let spare = lab.found().await.pop().unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let repairing = async {
            let outcome = repaired(&mut file, vec![spare]).await;
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            outcome
        };
        let (outcome, ()) = tokio::join!(repairing, keep_writing(&writer, &mut expected, &stop));
        assert!(outcome.is_complete() && outcome.replaced.len() == 1 && outcome.writer.is_some(), "{outcome:?}");
        // A loss that only a repaired drive survives, with the same writer.
        lab.nodes.remove(0).shutdown().await;
        writer.device().write(0, vec![8; 5000].into(), false).await.unwrap();
        expected[..5000].fill(8);
        writer.close().await.unwrap();
        assert!(read_all(&file).await == expected[..], "{layout:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_replaces_a_node_that_stays_lost_by_the_drives_spare() {
    let mut lab = Lab::new(&[16 * MIB; 3]);
    let bytes = image(4 * MIB);
    let mut file = lab.loaded(PARITY, &bytes).await;
    let spare = start_node(16 * MIB);
    // A spare named while nothing is lost is kept for the next loss.
    let named = lab.found_at(&spare).await;
    assert!(repaired(&mut file, vec![named]).await.replaced.is_empty());
    let patient = cheetah_drive::OpenOptions { replace_after: Some(Duration::from_secs(1)), ..options(true) };
    let writer = Drive::open(&file, patient).await.unwrap();
    lab.nodes.remove(2).shutdown().await;
    until_whole(&file).await;
    lab.nodes.remove(0).shutdown().await;
    writer.close().await.unwrap();
    assert!(read_all(&file).await == bytes[..]);
    drop(spare);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_uses_a_node_again_that_was_restarted_empty() {
    let mut lab = Lab::new(&[16 * MIB; 3]);
    let bytes = image(4 * MIB);
    let file = lab.loaded(PARITY, &bytes).await;
    let patient = cheetah_drive::OpenOptions { replace_after: Some(Duration::from_secs(1)), ..options(true) };
    let writer = Drive::open(&file, patient).await.unwrap();
    let address = lab.nodes[2].nbd_address();
    lab.nodes.remove(2).shutdown().await;
    lab.nodes.push(start_node_at(16 * MIB, address));
    until_whole(&file).await;
    lab.nodes.remove(0).shutdown().await;
    writer.close().await.unwrap();
    assert!(read_all(&file).await == bytes[..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_spare_repair_says_how_much_memory_is_needed() {
    let mut lab = Lab::new(&[16 * MIB; 3]);
    let mut file = lab.loaded(PARITY, &image(4 * MIB)).await;
    let lost = lab.nodes.remove(2);
    let name = lost.nbd_address().to_string();
    lost.shutdown().await;
    for is_open in [false, true] {
        let writer = if is_open { Some(Drive::open(&file, options(true)).await.unwrap()) } else { None };
        let outcome = repaired(&mut file, Vec::new()).await;
        assert_eq!((outcome.missing.len(), &*outcome.missing[0].node), (1, &*name));
        assert!(outcome.missing[0].size_bytes >= 2 * MIB, "{outcome:?}");
        let no_spare = Refused::NoSpare { lost: name.clone(), bytes: outcome.missing[0].size_bytes };
        assert_eq!(outcome.problems[0], no_spare.to_string());
        if let Some(writer) = writer {
            writer.close().await.unwrap();
        }
    }
}

/// Waits until a drive survives as many losses as its layout allows.
async fn until_whole(file: &DriveFile) {
    let begun = std::time::Instant::now();
    while !status(file, &session()).await.unwrap().healthy {
        assert!(begun.elapsed() < TIMEOUT, "the drive is not repaired");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_that_too_many_losses_took_are_fetched_again_from_the_source() {
    for layout in [MIRROR, PARITY] {
        let mut lab = Lab::new(&[16 * MIB; 3]);
        let bytes = image(5 * MIB + 700);
        let mut file = lab.loaded(layout, &bytes).await;
        let old = file.clone();
        // Two nodes are restarted empty: one is used again, the other is replaced.
        let address = lab.nodes[2].nbd_address();
        lab.nodes.remove(2).shutdown().await;
        lab.nodes.remove(1).shutdown().await;
        lab.nodes.push(start_node_at(16 * MIB, address));
        let spare = start_node(16 * MIB);
        assert!(refetch::is_needed(&file, &session()).await.unwrap());
        let options = |source: &[u8], spares| RefetchOptions {
            source: device(source),
            spares,
            force_lease: true,
            session: session(),
        };
        let named = vec![lab.found_at(&spare).await];
        let few = refetch::refetch(&mut file, &options(&bytes, Vec::new()), |_| {}).await.unwrap_err();
        assert_eq!(few.kind(), Kind::Failed, "{few}");

        // A source that has changed in a lost range is refused, and none of its bytes is ever read.
        let mut changed = bytes.clone();
        changed.iter_mut().for_each(|byte| *byte ^= 1);
        let error = refetch::refetch(&mut file, &options(&changed, named.clone()), |_| {}).await.unwrap_err();
        assert!(error.is_evidence(), "{error}");
        assert!(Drive::open(&old, crate::common::options(false)).await.is_err());
        assert!(!status(&old, &session()).await.unwrap().healthy);

        let fetched = refetch::refetch(&mut file, &options(&bytes, named), |_| {}).await.unwrap();
        assert!((1..=bytes.len() as u64).contains(&fetched.bytes()), "{fetched:?}");
        assert!(!refetch::is_needed(&file, &session()).await.unwrap());
        assert!(status(&old, &session()).await.unwrap().healthy);
        assert!(verified(&old).await.is_ok());
        // Redundancy is complete again. The old drive file names none of the remaining nodes.
        lab.nodes.remove(0).shutdown().await;
        assert!(read_all(&file).await == bytes[..], "{layout:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_since_the_load_is_not_replaced_by_what_the_source_holds() {
    let mut lab = Lab::new(&[16 * MIB; 3]);
    let bytes = image(4 * MIB);
    let file = lab.loaded(PARITY, &bytes).await;
    Drive::open(&file, options(true)).await.unwrap().close().await.unwrap();
    let mut file = DriveFile::load(&file.path).unwrap();
    lab.nodes.remove(2).shutdown().await;
    lab.nodes.remove(1).shutdown().await;
    let from = RefetchOptions { source: device(&bytes), spares: Vec::new(), force_lease: true, session: session() };
    let refusal = refetch::refetch(&mut file, &from, |_| {}).await.unwrap_err();
    assert!(refusal.is_evidence(), "{refusal}");
}
