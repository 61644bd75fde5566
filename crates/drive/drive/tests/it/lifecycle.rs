//! The life of a drive, over nodes in this process.

use crate::common::*;
use cheetah_device::{ByteRange, Data, Device as _};
use cheetah_drive::create::{CreateRequest, EnlargeRequest, create, enlarge};
use cheetah_drive::destroy::{WipeOutcome, destroy};
use cheetah_drive::digests::Digests;
use cheetah_drive::find::{FindOptions, NodePlace, find};
use cheetah_drive::gather::JoinListener;
use cheetah_drive::load::load;
use cheetah_drive::save::{SaveOptions, copy, save};
use cheetah_drive::status::{NodeState, status};
use cheetah_drive::verify::Compared;
use cheetah_drive::{
    AvailableNode, Drive, DriveFile, DriveSize, HashChoice, ImageState, Layout, NodeSpec, OpenOptions, Refused,
};
use cheetah_error::next;
use cheetah_image::RawFile;
use cheetah_node::{Node, NodeConfig};
use cheetah_tls::CredentialSet;

#[tokio::test(flavor = "multi_thread")]
async fn a_loaded_image_is_verified_and_saved_unchanged() {
    let lab = Lab::new(&[4 * MIB, 12 * MIB, 8 * MIB]);
    let bytes = image(9 * MIB + 777);
    let raw = lab.dir.path().join("image.raw");
    std::fs::write(&raw, &bytes).unwrap();

    for layout in [STRIPE, Layout::Stripe { unit: 4096 }, Layout::Linear] {
        let mut file = lab.create(layout, bytes.len() as u64).await;
        assert_eq!(file.size, bytes.len() as u64, "the drive has exactly the image's size");
        let mut done = 0;
        let source = std::sync::Arc::new(RawFile::open(&raw).unwrap());
        let loaded = load(&mut file, source, load_options(), |progress| done = progress.done).await.unwrap();
        assert_eq!(done, bytes.len() as u64);
        assert_eq!(loaded.hashes.blake3.as_deref(), Some(blake3::hash(&bytes).to_hex().as_str()));
        assert_eq!(DriveFile::load(&lab.path()).unwrap(), file, "the file on disk knows of the image");

        let report = verified(&file).await;
        assert!(report.is_ok() && report.compared == Compared::Digests, "{report:?}");
        assert_eq!((report.ok_bytes, &report.hashes), (file.size, &loaded.hashes));

        let reading = OpenOptions { prefetch_budget: 16 * MIB, ..options(false) };
        let drive = Drive::open(&file, reading).await.unwrap();
        let read = drive.device().read(ByteRange::new(100_001, 3_000_000)).await.unwrap().into_bytes();
        assert!(read == bytes[100_001..3_100_001]);
        assert!(drive.device().write(0, vec![1].into(), false).await.is_err(), "opened read-only");
        let out = lab.dir.path().join("out.raw");
        let digests = Digests::load(&file, loaded.digests.as_ref().unwrap(), loaded.size).unwrap();
        let (expected, digests) = (loaded.hashes.clone(), Some(digests));
        let save_options = SaveOptions { expected, digests, force: true, ..SaveOptions::default() };
        save(drive.device(), &out, save_options, |_| {}).await.unwrap();
        assert!(std::fs::read(&out).unwrap() == bytes);
        drive.close().await.unwrap();

        let now = status(&file, &session()).await.unwrap();
        assert!(now.healthy && now.nodes.iter().all(|node| node.state == NodeState::Ok), "{now:?}");
        let used: u64 = now.nodes.iter().filter_map(|node| node.used_bytes).sum();
        assert!(used < bytes.len() as u64, "zeros take no memory");

        let destroyed = destroy(&file, destroy_options(false)).await.unwrap();
        assert!(destroyed.is_clean() && destroyed.file_removed);
        let wiped = |outcome: &WipeOutcome| matches!(outcome, WipeOutcome::Wiped { receipt, .. } if receipt.statement.wiped_bytes > 0 && receipt.statement.verified_zero);
        assert!(destroyed.nodes.iter().all(|node| wiped(&node.outcome)), "{destroyed:?}");
        assert_eq!((lab.files(), lab.exports()), (vec!["image.raw".to_owned(), "out.raw".to_owned()], 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_in_use_is_enlarged_and_its_users_see_that_when_they_open_it_again() {
    let mut lab = Lab::new(&[4 * MIB]);
    let bytes = image(2 * MIB + 5);
    let mut file = lab.loaded(STRIPE, &bytes).await;
    lab.nodes.extend([start_node(4 * MIB), start_node(4 * MIB)]);
    let nodes = lab.found().await.split_off(1);
    let request = EnlargeRequest {
        nodes,
        layout: STRIPE,
        size: DriveSize::Bytes(3 * MIB + 1),
        parts: 1,
        thin: false,
        session: session(),
    };

    let reader = Drive::open(&file, options(false)).await.unwrap();
    let (before, size) = (file.capacity(), file.size);
    let mut stale = file.clone();
    assert!(!enlarge(&mut file, request.clone()).await.unwrap().is_empty(), "its users are named");
    assert_eq!(file.size, before + 3 * MIB + 1);
    assert_eq!(reader.device().geometry().size, size);
    assert_eq!(reader.device().read(ByteRange::new(0, size)).await.unwrap().len(), size);
    reader.close().await.unwrap();

    // By a process that does not know of it.
    let exports = lab.exports();
    lab.nodes.push(start_node(4 * MIB));
    let others = lab.found().await.split_off(3);
    let refusal = enlarge(&mut stale, EnlargeRequest { nodes: others, ..request }).await.unwrap_err();
    assert_eq!(refusal.cause(), Some(&Refused::Changed { drive: stale.name.clone() }), "{refusal}");
    assert_eq!(lab.exports(), exports);
    assert_eq!(DriveFile::load(&lab.path()).unwrap(), file);
    assert!(verified(&file).await.is_ok(), "the image is where it was");

    let drive = Drive::open(&file, options(true)).await.unwrap();
    let seam = before - 3;
    drive.device().write(seam, vec![7; 6].into(), false).await.unwrap();
    assert!(drive.device().read(ByteRange::new(seam, 6)).await.unwrap() == [7; 6][..]);
    drive.device().write(file.size - 1, vec![8].into(), false).await.unwrap();
    drive.close().await.unwrap();
    let report = verified(&DriveFile::load(&lab.path()).unwrap()).await;
    assert!(report.is_ok() && report.compared == Compared::Modified);
    assert_eq!(report.ok_bytes, file.size, "the image is as loaded, and the rest can be read");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_changed_at_a_node_fails_verification_and_is_not_saved() {
    let lab = Lab::new(&[8 * MIB, 8 * MIB]);
    let bytes = image(4 * MIB - 9);
    let intact = lab.loaded(STRIPE, &bytes).await;
    let drive = Drive::open(&intact, options(true)).await.unwrap();
    // It was opened for writing, but not written.
    let marked = DriveFile::load(&lab.path()).unwrap();
    let report = verified(&marked).await;
    assert!(report.is_ok() && report.compared == Compared::Modified, "{report:?}");
    drive.device().write(2 * MIB + 1, vec![!bytes[2 << 20 | 1]].into(), false).await.unwrap();
    drive.close().await.unwrap();

    for (file, compared) in [(&intact, Compared::Digests), (&marked, Compared::Modified)] {
        let report = verified(file).await;
        assert!(!report.is_ok() && report.compared == compared, "{report:?}");
        assert_eq!(
            report.mismatched.iter().map(|found| found.range()).collect::<Vec<_>>(),
            [ByteRange::new(2 * MIB, MIB)]
        );
    }
    let loaded = intact.image.as_ref().unwrap();
    let digests = Digests::load(&intact, loaded.digests.as_ref().unwrap(), loaded.size).unwrap();
    let drive = Drive::open(&intact, options(false)).await.unwrap();
    let save_options = SaveOptions { hashes: HashChoice::NONE, digests: Some(digests), ..SaveOptions::default() };
    let before = lab.files();
    let error = save(drive.device(), &lab.dir.path().join("out.raw"), save_options, |_| {}).await.unwrap_err();
    assert_eq!(error.exit_code(), 3, "{error}");
    assert_eq!(lab.files(), before, "nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn size_all_takes_all_memory_of_the_nodes() {
    let lab = Lab::new(&[4 * MIB, 8 * MIB]);
    let request = lab.request(STRIPE, DriveSize::All).await;
    let free: u64 = request.nodes.iter().map(|node| node.free_bytes / UNIT * UNIT).sum();
    let file = create(request).await.unwrap();
    assert_eq!(file.size, free);
    assert_eq!(lab.found().await.iter().filter(|node| node.free_bytes >= UNIT).count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_with_redundancy_is_reserved_over_distinct_addresses() {
    let lab = Lab::new(&[8 * MIB, 8 * MIB, 8 * MIB]);
    let parity = Layout::Parity { unit: UNIT, parities: 1 };
    let size = DriveSize::Bytes(4 * MIB);
    let thin = create(CreateRequest { thin: true, ..lab.request(parity, size).await }).await.unwrap_err();
    assert!(thin.is_misuse() && thin.has_next(next::Layout::LeaveOutThin), "{thin}");
    let mut twice = lab.request(parity, size).await;
    twice.nodes[2].place = twice.nodes[0].place.clone();
    let twice = create(twice).await.unwrap_err();
    assert!(twice.is_misuse(), "{twice}");
    let few = create(lab.request(Layout::Mirror { unit: UNIT, copies: 4 }, size).await).await.unwrap_err();
    assert!(few.is_misuse() && few.has_next(next::Layout::ChooseLayout), "{few}");
    assert_eq!((lab.exports(), lab.files()), (0, vec![]));

    let mut file = create(lab.request(parity, size).await).await.unwrap();
    assert_eq!((file.sets[0].epoch, file.size, file.losses_max()), (1, 4 * MIB, 1));
    assert_eq!(DriveFile::load(&file.path).unwrap(), file);
    let now = status(&file, &session()).await.unwrap();
    assert!(now.healthy && now.survives_losses == Some(1), "{now:?}");
    let nodes = lab.found().await;
    let request =
        EnlargeRequest { nodes, layout: STRIPE, size: DriveSize::All, parts: 1, thin: false, session: session() };
    let refusal = enlarge(&mut file, request).await.unwrap_err();
    assert!(refusal.is_misuse() && refusal.has_next(next::Layout::ChooseLayoutLike), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_is_copied_to_another() {
    let lab = Lab::new(&[8 * MIB, 8 * MIB]);
    let bytes = image(3 * MIB);
    let one = lab.loaded(STRIPE, &bytes).await;
    let mut request = lab.request(Layout::Linear, DriveSize::Bytes(4 * MIB)).await;
    request.path = lab.dir.path().join("copy.drive");
    let other = create(request).await.unwrap();
    let from = Drive::open(&one, options(false)).await.unwrap();
    let to = Drive::open(&other, options(true)).await.unwrap();
    let saved = copy(from.device(), to.device(), HashChoice::ALL, |_| {}).await.unwrap();
    assert_eq!(saved.hashes, one.image.unwrap().hashes);
    assert!(to.device().read(ByteRange::new(0, 3 * MIB)).await.unwrap() == bytes[..]);
    let back = copy(to.device(), from.device(), HashChoice::NONE, |_| {}).await.unwrap_err().to_string();
    assert!(back.contains("do not fit"), "{back}");
    to.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_load_leaves_nothing_of_the_first() {
    let lab = Lab::new(&[8 * MIB]);
    let first = vec![0xff; 4 << 20];
    let mut file = lab.loaded(Layout::Linear, &first).await;
    let second = image(MIB + 1);
    load(&mut file, device(&second), load_options(), |_| {}).await.unwrap();
    assert_eq!(file.image.as_ref().map(|image| image.state), Some(ImageState::Intact));
    assert!(verified(&file).await.is_ok());
    let drive = Drive::open(&file, options(false)).await.unwrap();
    let rest = drive.device().read(ByteRange::between(MIB + 1, file.size)).await.unwrap();
    assert!(rest.is_zero());
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_join_in_order_and_once() {
    let mut gather =
        JoinListener::listen("127.0.0.1:0".parse().unwrap(), 2, false, &CredentialSet::default()).await.unwrap();
    let examiner = gather.address().to_string();
    let join = |name: &str| {
        let mut config = NodeConfig::new(2 * MIB, "127.0.0.1:0".parse().unwrap());
        config.join = vec![examiner.clone()];
        config.name = name.into();
        Node::start(config).unwrap()
    };
    let (first, mut found) = (join("first"), Vec::new());
    found.extend(gather.next().await);
    let second = join("second");
    found.extend(gather.next().await);
    assert!(gather.next().await.is_none(), "all wanted have joined");
    for (found, node, name) in [(&found[0], &first, "first"), (&found[1], &second, "second")] {
        assert_eq!(found.name, format!("{name}:{}", node.nbd_address().port()));
        assert_eq!(found.free_bytes, node.status().memory.free_bytes);
    }
    let dir = tempfile::tempdir().unwrap();
    let request = CreateRequest {
        path: dir.path().join("joined.drive"),
        nodes: found,
        layout: Layout::Linear,
        size: DriveSize::Bytes(3 * MIB),
        parts: 1,
        thin: true,
        spares: Vec::new(),
        seal: None,
        session: session(),
    };
    let file = create(request).await.unwrap();
    let drive = Drive::open(&file, options(true)).await.unwrap();
    drive.device().write(MIB, Data::from(vec![1; 1 << 20]), true).await.unwrap();
    drive.close().await.unwrap();
}

/// Needs an interface that carries multicast.
#[tokio::test(flavor = "multi_thread")]
async fn an_announced_node_is_found() {
    if !multicast() {
        cheetah_testing::skip("needs multicast on loopback");
        return;
    }
    let mut config = NodeConfig::new(2 * MIB, "127.0.0.1:0".parse().unwrap());
    config.announce = true;
    let node = Node::start(config).unwrap();
    let options = FindOptions { session: session(), browse: std::time::Duration::from_secs(3) };
    let instance = node.status().instance;
    let is_it =
        |found: &AvailableNode| matches!(&found.place, NodePlace::Node { instance: other, .. } if *other == instance);
    // On a stalled machine a node may be missed.
    let mut found = Vec::new();
    for _ in 0..10 {
        found = find(&[NodeSpec::Auto], &options).await.unwrap_or_default();
        if found.iter().any(is_it) {
            break;
        }
    }
    assert_eq!(found.iter().filter(|found| is_it(found)).count(), 1, "{found:?}");
}

/// Whether a multicast datagram sent over loopback arrives.
fn multicast() -> bool {
    use std::net::{Ipv4Addr, UdpSocket};
    let group = Ipv4Addr::new(224, 0, 0, 251);
    let attempt = || -> std::io::Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
        rustix::net::sockopt::set_ip_multicast_if(&socket, &Ipv4Addr::LOCALHOST)?;
        socket.set_multicast_loop_v4(true)?;
        socket.set_read_timeout(Some(std::time::Duration::from_secs(2)))?;
        socket.send_to(b"?", (group, socket.local_addr()?.port()))?;
        socket.recv(&mut [0; 8]).map(drop)
    };
    attempt().is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn listening_for_joins_beyond_loopback_needs_insecure() {
    let error =
        JoinListener::listen("0.0.0.0:0".parse().unwrap(), 1, false, &CredentialSet::default()).await.err().unwrap();
    assert!(error.is_misuse() && error.has_next(next::Room::SayRoomOrInsecure), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_and_missing_nodes_are_errors() {
    let lab = Lab::new(&[2 * MIB]);
    let port = lab.nodes[0].nbd_address().port();
    let options = FindOptions::new(session());
    let twice = [spec(&lab.nodes[0]), format!("localhost:{port}").parse().unwrap()];
    let error = find(&twice, &options).await.unwrap_err();
    assert!(error.is_misuse(), "{error}");
    let absent = ["127.0.0.1:1".parse().unwrap()];
    let error = find(&absent, &options).await.unwrap_err();
    assert!(error.fact().is_some() && error.has_next(next::Node::CheckNode), "{error}");
}
