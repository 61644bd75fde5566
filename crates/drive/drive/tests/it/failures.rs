//! Failures: every byte read is correct or the read fails, and nothing incomplete remains.

use crate::common::*;
use cheetah_device::{ByteRange, Data, Device, Error as DeviceError, Geometry, Io};
use cheetah_drive::create::{create, create_unless};
use cheetah_drive::destroy::{WipeOutcome, destroy};
use cheetah_drive::load::load;
use cheetah_drive::status::{NodeState, status};
use cheetah_drive::verify::{Compared, VerifyOptions, verify};
use cheetah_drive::{
    Drive, DriveFile, DriveSize, HashChoice, Hashes, ImageState, Layout, OpenOptions, Refused, Session,
};
use cheetah_error::Fact;
use cheetah_error::next::{self, Lease};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_loses_exactly_its_ranges() {
    let mut lab = Lab::new(&[8 * MIB, 8 * MIB, 8 * MIB]);
    let bytes = image(6 * MIB - 100);
    let file = lab.loaded(STRIPE, &bytes).await;
    lab.nodes.remove(1).shutdown().await;

    let report = verified(&file).await;
    assert!(!report.is_ok());
    let unreadable: Vec<_> = report.unreadable.iter().map(|found| (found.offset, found.len)).collect();
    assert_eq!(unreadable, stripe_ranges(1, 3, file.size));
    assert!(report.mismatched.is_empty() && report.hashes == Hashes::default());
    let lost: u64 = unreadable.iter().map(|(_, len)| len).sum();
    assert_eq!(report.ok_bytes + report.uncompared_bytes + lost, file.size, "every byte is accounted for");

    let refusal = Drive::open(&file, options(false)).await.err().unwrap();
    assert!(refusal.has_next(next::Drive::BringBackOrReadRest), "{refusal}");
    let name = &file.sets[0].nodes[1].name;
    assert!(refusal.fact() == Some(Fact::Lost) && refusal.to_string().contains(name), "{refusal}");
    let drive = Drive::open(&file, OpenOptions { allow_lost: true, ..options(false) }).await.unwrap();
    assert_eq!(drive.troubles().len(), 1);
    let there = drive.device().read(ByteRange::new(2 * UNIT, 2 * UNIT)).await.unwrap();
    assert!(there == bytes[2 << 16..4 << 16]);
    let gone = drive.device().read(ByteRange::new(UNIT - 1, 2)).await.unwrap_err();
    assert_eq!(gone.errno(), 5, "{gone}");

    let now = status(&file, &session()).await.unwrap();
    assert!(!now.healthy && now.nodes[1].state == NodeState::Lost && now.nodes[1].problem.is_some());
    drop(drive);
    let destroyed = destroy(&file, destroy_options(false)).await;
    let kept = destroyed.map_or(true, |destroyed| !destroyed.file_removed);
    assert!(kept && lab.path().exists(), "without it the rest could not be freed");
    let destroyed = destroy(&file, destroy_options(true)).await.unwrap();
    assert!(!destroyed.is_clean() && matches!(destroyed.nodes[1].outcome, WipeOutcome::Unreachable { .. }));
    assert_eq!((lab.exports(), lab.files().len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_reports_a_node_whose_nbd_port_is_dead_although_its_control_port_answers() {
    let lab = Lab::new(&[8 * MIB]);
    let mut file = lab.loaded(STRIPE, &image(MIB)).await;
    assert!(status(&file, &session()).await.unwrap().healthy);
    // One port at which nothing listens, and one at which a server accepts and does not greet.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("nbd://{}/x", silent.local_addr().unwrap());
    let short = std::time::Duration::from_millis(500);
    let dead =
        [("nbd://127.0.0.1:1/x", "refused", NodeState::Unreachable), (&silent, "no greeting", NodeState::Silent)];
    for (nbd, problem, state) in dead {
        let mut file = file.clone();
        let name = file.sets[0].nodes[0].uri().unwrap().export;
        file.sets[0].nodes[0].nbd = nbd.replace("/x", &format!("/{name}"));
        let node = status(&file, &session().within(short)).await.unwrap().nodes.remove(0);
        assert_eq!(node.state, state, "{node:?}");
        assert!(node.problem.as_ref().is_some_and(|text| text.contains(problem)), "{node:?}");
    }
    // Its memory can still be freed over the control port.
    file.sets[0].nodes[0].nbd =
        file.sets[0].nodes[0].nbd.replace(&lab.nodes[0].nbd_address().to_string(), "127.0.0.1:1");
    let destroyed = destroy(&file, destroy_options(false)).await.unwrap();
    assert!(destroyed.is_clean() && matches!(destroyed.nodes[0].outcome, WipeOutcome::Wiped { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_under_an_open_drive_causes_errors_not_zeros() {
    let mut lab = Lab::new(&[8 * MIB, 8 * MIB]);
    let bytes = vec![0xa5; 4 << 20];
    let file = lab.loaded(STRIPE, &bytes).await;
    let session = Session { timeout: std::time::Duration::from_secs(5), ..session() };
    let drive = Drive::open(&file, OpenOptions { session, ..options(false) }).await.unwrap();
    lab.nodes.remove(0).shutdown().await;
    for unit in 0..8 {
        let read = drive.device().read(ByteRange::new(unit * UNIT, UNIT)).await;
        match unit % 2 {
            0 => assert_eq!(read.unwrap_err().errno(), 5),
            _ => assert!(read.unwrap() == bytes[..1 << 16]),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_node_is_refused_as_empty() {
    let mut lab = Lab::new(&[8 * MIB, 8 * MIB]);
    let file = lab.loaded(STRIPE, &image(3 * MIB)).await;
    let address = lab.nodes[1].nbd_address();
    lab.nodes.remove(1).shutdown().await;
    lab.nodes.push(start_node_at(8 * MIB, address));

    for writable in [false, true] {
        let refusal = Drive::open(&file, options(writable)).await.err().unwrap();
        assert_eq!(refusal.fact(), Some(Fact::Restarted), "{refusal}");
    }
    assert_eq!(status(&file, &session()).await.unwrap().nodes[1].state, NodeState::Restarted);
    let report = verified(&file).await;
    assert!(report.mismatched.is_empty(), "lost bytes are unreadable, not different");
    assert_eq!(report.unreadable[0].range(), ByteRange::new(UNIT, UNIT));

    let destroyed = destroy(&file, destroy_options(false)).await.unwrap();
    assert!(destroyed.is_clean());
    assert_eq!(destroyed.nodes[1].outcome, WipeOutcome::Gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_writer_at_a_time_and_a_takeover_fences_the_first() {
    let lab = Lab::new(&[8 * MIB, 8 * MIB]);
    let file = lab.create(STRIPE, 4 * MIB).await;
    let first = Drive::open(&file, options(true)).await.unwrap();
    first.device().write(0, vec![1; 1 << 20].into(), false).await.unwrap();

    let refusal = Drive::open(&file, options(true)).await.err().unwrap();
    assert!(refusal.has_next(Lease::ForceLease), "{refusal}");
    let reader = Drive::open(&file, options(false)).await.unwrap();
    assert!(reader.device().read(ByteRange::new(0, 10)).await.unwrap() == [1; 10][..], "readers are welcome");
    let refusal = destroy(&file, destroy_options(false)).await.unwrap_err();
    assert!(matches!(refusal.cause::<Refused>(), Some(Refused::InUse { .. })), "{refusal}");

    let second = Drive::open(&file, OpenOptions { force_lease: true, ..options(true) }).await.unwrap();
    second.device().write(0, vec![2; 1 << 20].into(), false).await.unwrap();
    let fenced = first.device().write(0, vec![3; 1 << 20].into(), false).await.unwrap_err();
    assert_eq!(fenced.errno(), 1, "{fenced}");
    assert!(reader.device().read(ByteRange::new(0, MIB)).await.unwrap() == [2; 1 << 20][..]);
    // However the first one ends, it does not release the lease of the second one.
    let _ = first.close().await;
    second.device().write(MIB, vec![4; 10].into(), true).await.unwrap();
    second.close().await.unwrap();
    Drive::open(&file, options(true)).await.unwrap().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_creation_leaves_nothing() {
    let lab = Lab::new(&[4 * MIB, 4 * MIB]);
    let mut request = lab.request(STRIPE, DriveSize::Bytes(16 * MIB)).await;
    let error = create(request.clone()).await.unwrap_err();
    assert!(error.has_next(next::Layout::AddMemory), "{error}");

    // As if another drive had allocated the memory after the nodes were asked.
    request.nodes[1].free_bytes = 64 * MIB;
    create(request.clone()).await.unwrap_err();
    assert_eq!((lab.exports(), lab.files().len()), (0, 0));

    request.nodes = lab.found().await;
    request.size = DriveSize::Bytes(MIB);
    request.path = lab.dir.path().join("absent").join("case42.drive");
    create(request.clone()).await.unwrap_err();
    assert_eq!((lab.exports(), lab.files().len()), (0, 0));

    request.path = lab.path();
    let file = create(request.clone()).await.unwrap();
    let again = create(request).await.unwrap_err();
    assert_eq!(again.exit_code(), 2);
    assert_eq!((lab.exports(), DriveFile::load(&lab.path()).unwrap()), (2, file), "the first one is untouched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_creation_leaves_nothing() {
    let lab = Lab::new(&[4 * MIB, 4 * MIB]);
    let request = lab.request(STRIPE, DriveSize::Bytes(4 * MIB)).await;
    let mut stopped = 0;
    for after_us in [0, 100, 300, 1000, 3000, 10_000, 1_000_000] {
        let stop = async {
            if after_us > 0 {
                tokio::time::sleep(std::time::Duration::from_micros(after_us)).await;
            }
            "SIGINT"
        };
        match create_unless(request.clone(), stop).await {
            Ok(file) => {
                assert_eq!(lab.exports(), 2);
                destroy(&file, destroy_options(false)).await.unwrap();
            }
            Err(error) => {
                assert_eq!(error.to_string(), "stopped by SIGINT before the drive was made");
                stopped += 1;
            }
        }
        assert_eq!((lab.exports(), lab.files().len()), (0, 0), "stopped after {after_us} µs");
    }
    assert!(stopped > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_fails_reads_and_verification() {
    let lab = Lab::new(&[8 * MIB, 8 * MIB]);
    let bytes = vec![0x5a; 3 << 20];
    let file = lab.loaded(STRIPE, &bytes).await;
    let export = lab.nodes[1].status().exports[0].name.clone();
    assert!(lab.nodes[1].exports().export(&export).unwrap().corrupt(5000));

    let drive = Drive::open(&file, options(false)).await.unwrap();
    let error = drive.device().read(ByteRange::new(UNIT + 5000, 1)).await.unwrap_err();
    assert_eq!(error.errno(), 5, "{error}");
    drive.device().read(ByteRange::new(0, UNIT)).await.unwrap();
    let report = verified(&file).await;
    assert!(!report.is_ok());
    assert_eq!(report.unreadable.len(), 1, "{report:?}");
    assert_eq!(report.unreadable[0].range(), ByteRange::new(UNIT + 4096, 4096), "the page it is in");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_changed_at_a_node_is_a_mismatch() {
    let lab = Lab::new(&[8 * MIB, 8 * MIB]);
    let file = lab.loaded(Layout::Linear, &image(4 * MIB)).await;
    // The drive file still says intact, as if another copy of it had been used for writing.
    let drive = Drive::open(&file, options(true)).await.unwrap();
    drive.device().write(2 * MIB + 17, vec![0xee; 3].into(), false).await.unwrap();
    drive.close().await.unwrap();
    let report = verified(&file).await;
    assert_eq!(report.mismatched.iter().map(|found| found.range()).collect::<Vec<_>>(), [ByteRange::new(2 * MIB, MIB)]);
    assert_eq!(report.hashes_differing, ["md5", "sha1", "sha256", "blake3"]);
    assert_eq!(report.ok_bytes, 3 * MIB);

    let now = DriveFile::load(&lab.path()).unwrap();
    assert_eq!(now.image.as_ref().map(|image| image.state), Some(ImageState::Modified), "the true record knows");
    std::fs::write(file.digests_path(), [0; 128]).unwrap();
    let options = VerifyOptions { hashes: HashChoice::NONE, ..verify_options(false) };
    let error = verify(&file, options, |_| {}).await.unwrap_err();
    assert_eq!(error.exit_code(), 3, "{error}");
}

/// A source whose second half cannot be read.
struct Half(u64);

impl Device for Half {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.0, writable: false, block_preferred: 4096 }
    }
    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match range.end() > self.0 / 2 {
            true => Io::fail(DeviceError::Lost { device: "disk".into(), range, why: "bad sectors".into() }),
            false => Io::ok(vec![1; usize::try_from(range.len).unwrap()].into()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_an_image_is_never_taken_for_the_whole() {
    let lab = Lab::new(&[16 * MIB]);
    let mut file = lab.create(STRIPE, 8 * MIB).await;
    let source = std::sync::Arc::new(Half(8 * MIB));
    let error = load(&mut file, source, load_options(), |_| {}).await.unwrap_err();
    assert!(matches!(error.device_error(), Some(DeviceError::Lost { .. })), "{error}");
    let file = DriveFile::load(&lab.path()).unwrap();
    assert_eq!(file.image.as_ref().map(|image| image.state), Some(ImageState::Loading));
    let report = verified(&file).await;
    assert!(!report.is_ok() && report.compared == Compared::Loading);
    let refusal = Drive::open(&file, options(false)).await.err().unwrap();
    assert!(refusal.is_evidence(), "{refusal}");
    // The lease is free, so another load can start at once.
    let mut file = file;
    load(&mut file, device(&image(8 * MIB)), load_options(), |_| {}).await.unwrap();
    assert!(verified(&file).await.is_ok());

    let refusal = load(&mut file, device(&image(8 * MIB + 1)), load_options(), |_| {}).await.unwrap_err();
    assert!(matches!(refusal.cause::<Refused>(), Some(Refused::TooLarge { .. })), "{refusal}");
}
