//! Drives that are verified at their nodes: the verdict is that of a verification that reads everything.

use std::collections::BTreeMap;

use crate::common::*;
use cheetah_device::{ByteRange, Device as _};
use cheetah_drive::create::{CreateRequest, create};
use cheetah_drive::load::load;
use cheetah_drive::verify::{AtNodes, VerifyOptions, VerifyReport, verify};
use cheetah_drive::{Drive, DriveFile, DriveSize, HashChoice, Layout};

const MIRROR: Layout = Layout::Mirror { unit: UNIT, copies: 2 };
const PARITY: Layout = Layout::Parity { unit: UNIT, parities: 1 };
const DOUBLE_PARITY: Layout = Layout::Parity { unit: UNIT, parities: 2 };

/// Verifies a drive both ways. The verdict and the BLAKE3 are the same.
async fn verified_both_ways(file: &DriveFile) -> (VerifyReport, AtNodes) {
    let plain = verified(file).await;
    let mut near = verify(file, verify_options(true), |_| {}).await.unwrap();
    let at_nodes = near.at_nodes.take().unwrap();
    let bytes: u64 = at_nodes.work.node_bytes.values().chain(at_nodes.work.here_bytes.values()).sum();
    assert_eq!(bytes, file.size, "{at_nodes:?}");
    assert_eq!(near.hashes.blake3, plain.hashes.blake3);
    let verdict = |report: &VerifyReport| VerifyReport {
        hashes: Default::default(),
        hashes_differing: report.hashes_differing.iter().filter(|name| *name == "blake3").cloned().collect(),
        ..report.clone()
    };
    assert_eq!(verdict(&near), verdict(&plain));
    (near, at_nodes)
}

/// Bytes that the nodes sent to readers of their exports.
fn sent_bytes(lab: &Lab) -> u64 {
    lab.nodes.iter().flat_map(|node| node.exports().stats()).map(|(_, stats)| stats.read_bytes).sum()
}

fn here_bytes(at_nodes: &AtNodes) -> u64 {
    at_nodes.work.here_bytes.values().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_layout_is_verified_at_its_nodes_and_hardly_a_byte_is_read() {
    for (layout, memories) in [
        (STRIPE, &[16 * MIB; 3][..]),
        (STRIPE, &[2 * MIB, 12 * MIB, 5 * MIB]),
        (Layout::Stripe { unit: 4 << 10 }, &[16 * MIB; 2]),
        (Layout::Stripe { unit: 4 * MIB }, &[16 * MIB; 2]),
        (Layout::Linear, &[3 * MIB, 16 * MIB]),
        (MIRROR, &[16 * MIB; 3]),
        (PARITY, &[16 * MIB; 4]),
        (PARITY, &[4 * MIB, 16 * MIB, 16 * MIB]),
        (DOUBLE_PARITY, &[16 * MIB; 5]),
    ] {
        let lab = Lab::lending(memories);
        let bytes = image(9 * MIB + 777);
        let file = lab.loaded(layout, &bytes).await;
        let before = sent_bytes(&lab);
        let near = verify(&file, verify_options(true), |_| {}).await.unwrap();
        assert!(near.is_ok(), "{layout:?}: {near:?}");
        assert_eq!(near.hashes.blake3.as_deref(), Some(blake3::hash(&bytes).to_hex().as_str()));
        let at_nodes = near.at_nodes.unwrap();
        // The last unit of the image, and what lies on two nodes.
        assert!(here_bytes(&at_nodes) <= 1024 << 10, "{layout:?}: {at_nodes:?}");
        assert!(sent_bytes(&lab) - before <= here_bytes(&at_nodes) + (64 << 10), "{layout:?}");
        assert_eq!(at_nodes.hashes_skipped, ["md5", "sha1", "sha256"]);
        verified_both_ways(&file).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_in_parts_with_space_after_its_image_is_verified_at_its_nodes() {
    for (layout, nodes, parts) in [(STRIPE, 3, 1), (PARITY, 3, 2), (MIRROR, 2, 2)] {
        let lab = Lab::lending(&vec![24 * MIB; nodes]);
        let request = CreateRequest { parts, ..lab.request(layout, DriveSize::Bytes(20 * MIB)).await };
        let mut file = create(request).await.unwrap();
        let bytes = image(11 * MIB + 5000);
        load(&mut file, device(&bytes), load_options(), |_| {}).await.unwrap();
        let (report, at_nodes) = verified_both_ways(&file).await;
        assert!(report.is_ok() && here_bytes(&at_nodes) <= 256 << 10, "{layout:?}: {at_nodes:?}");
        let options = VerifyOptions { hashes: HashChoice::NONE, ..verify_options(true) };
        assert!(verify(&file, options, |_| {}).await.unwrap().is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_at_a_node_is_found() {
    for (layout, nodes) in [(STRIPE, 3), (Layout::Linear, 1), (MIRROR, 2), (PARITY, 3)] {
        let lab = Lab::lending(&vec![16 * MIB; nodes]);
        let file = lab.loaded(layout, &image(6 * MIB)).await;
        let drive = Drive::open(&file, options(true)).await.unwrap();
        drive.device().write(2 * MIB + 17, vec![0xee; 3].into(), false).await.unwrap();
        drive.close().await.unwrap();
        let (report, _) = verified_both_ways(&file).await;
        let found: Vec<_> = report.mismatched.iter().map(|found| found.range()).collect();
        assert_eq!(found, [ByteRange::new(2 * MIB, MIB)], "{layout:?}");
        assert_eq!(report.hashes_differing, ["blake3"]);
        let options = VerifyOptions { hashes: HashChoice::NONE, ..verify_options(true) };
        assert_eq!(verify(&file, options, |_| {}).await.unwrap().mismatched, report.mismatched);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_whose_memory_is_damaged_is_unreadable_or_read_from_the_others() {
    for (layout, nodes, survives) in
        [(STRIPE, 2, false), (Layout::Linear, 1, false), (MIRROR, 2, true), (PARITY, 3, true)]
    {
        let lab = Lab::lending(&vec![16 * MIB; nodes]);
        let file = lab.loaded(layout, &image(6 * MIB)).await;
        let exports = lab.nodes[0].exports();
        let name = exports.status()[0].name.clone();
        assert!(exports.export(&name).unwrap().corrupt(5000));
        let (report, at_nodes) = verified_both_ways(&file).await;
        assert_eq!(report.is_ok(), survives, "{layout:?}: {report:?}");
        assert_eq!(report.unreadable.iter().map(|bad| bad.len).sum::<u64>(), if survives { 0 } else { 4096 });
        let name = &file.nodes().next().unwrap().name;
        let damaged = format!("the memory of node {name} is damaged");
        assert!(at_nodes.work.here_bytes.contains_key(damaged.as_str()), "{at_nodes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drive_that_has_lost_a_node_is_verified_at_the_others() {
    for (layout, nodes) in [(STRIPE, 3), (Layout::Linear, 2), (MIRROR, 3), (PARITY, 4), (DOUBLE_PARITY, 5)] {
        let mut lab = Lab::lending(&vec![7 * MIB; nodes]);
        let file = lab.loaded(layout, &image(8 * MIB)).await;
        lab.nodes.remove(1).shutdown().await;
        let (report, at_nodes) = verified_both_ways(&file).await;
        assert_eq!(report.is_ok(), file.losses_max() > 0, "{layout:?}: {report:?}");
        // Of a stripe, each chunk lies on the lost node, too, and is read again in pieces.
        assert_eq!(at_nodes.work.node_bytes.is_empty(), layout == STRIPE, "{layout:?}: {at_nodes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_do_not_lend_their_processor_are_read_and_the_report_says_so() {
    let mut lab = Lab::lending(&[16 * MIB; 2]);
    lab.nodes.push(start_node(16 * MIB));
    let file = lab.loaded(STRIPE, &image(6 * MIB)).await;
    let (report, at_nodes) = verified_both_ways(&file).await;
    assert!(report.is_ok());
    let names: Vec<_> = file.nodes().map(|node| node.name.as_str()).collect();
    let expected: BTreeMap<_, _> = names[..2].iter().map(|name| ((*name).into(), 2 * MIB)).collect();
    assert_eq!(at_nodes.work.node_bytes, expected);
    let why = format!("node {} does not lend its processor", names[2]);
    assert_eq!(at_nodes.work.here_bytes, [(why.into(), 2 * MIB)].into());

    let lab = Lab::new(&[16 * MIB; 2]);
    let file = lab.loaded(STRIPE, &image(2 * MIB)).await;
    let report = verify(&file, verify_options(true), |_| {}).await.unwrap();
    assert!(report.is_ok() && report.hashes.md5.is_some());
    assert_eq!(here_bytes(&report.at_nodes.unwrap()), 2 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_ends_in_the_middle_costs_a_redundant_drive_no_byte() {
    for (layout, nodes, steps) in [(MIRROR, 3, 0), (MIRROR, 2, 50), (PARITY, 3, 0), (PARITY, 4, 200)] {
        let mut lab = Lab::lending(&vec![24 * MIB; nodes]);
        let file = lab.loaded(layout, &image(20 * MIB)).await;
        let verifying = verify(&file, verify_options(true), |_| {});
        let ending = async {
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            lab.nodes.remove(0).shutdown().await
        };
        let (report, _) = tokio::join!(verifying, ending);
        let report = report.unwrap();
        assert!(report.is_ok(), "{layout:?}: {report:?}");
        assert!(verify(&file, verify_options(true), |_| {}).await.unwrap().is_ok());
    }
}
