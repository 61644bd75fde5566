//! Nodes of a sealed drive that answer from an old snapshot of themselves.

use cheetah_device::{ByteRange, Device as _, Error};
use cheetah_redundancy::Redundancy;
use cheetah_seal::Sealed;

use super::{MIRROR, PARITY, Rig, play};
use crate::network::Process;
use crate::process::{Reader, Writer};
use crate::sealing::Sealing;

/// A sealed drive that holds 2 everywhere, and the content of each node from when it held 1; closed.
async fn overwritten(redundancy: Redundancy, members: usize) -> (Rig, Sealing, Writer, Vec<Vec<u8>>) {
    let mut rig = Rig::new(redundancy, members);
    let sealing = Sealing::new(&rig.shape);
    let writer = rig.open().await;
    let mut snapshots = Vec::new();
    for byte in [1, 2] {
        let sealed = sealing.open(&rig.world, &writer.process, &writer.drive, true).await.unwrap();
        sealed.write(0, vec![byte; sealing.size() as usize].into(), false).await.unwrap();
        sealed.flush().await.unwrap();
        sealed.close().await.unwrap();
        if byte == 1 {
            snapshots = (0..members).map(|node| rig.world.with_node(node, |node| node.content.clone())).collect();
        }
    }
    (rig, sealing, writer, snapshots)
}

async fn reader(rig: &Rig, sealing: &Sealing) -> Sealed {
    let process = Process::new(99);
    let reader = Reader::open(&rig.world, &process, &rig.shape).await.unwrap();
    sealing.open(&rig.world, &process, &reader.drive, false).await.unwrap()
}

#[test]
fn a_node_that_answers_from_an_old_snapshot_is_named_and_the_others_are_read() {
    for (redundancy, members) in [(MIRROR, 3), (PARITY, 4), (Redundancy::Parity { parities: 2 }, 5)] {
        play(async move {
            let (rig, sealing, _writer, snapshots) = overwritten(redundancy, members).await;
            for (node, snapshot) in snapshots.iter().enumerate() {
                let newest = rig.world.with_node(node, |node| node.content.clone());
                rig.world.with_node(node, |node| node.content.clone_from(snapshot));
                let sealed = reader(&rig, &sealing).await;
                let read = sealed.read(ByteRange::new(0, sealing.size())).await.unwrap().into_bytes();
                assert!(read.iter().all(|byte| *byte == 2), "{redundancy:?}, node {node}");
                let altered: Vec<_> = sealed.altered().into_keys().collect();
                assert_eq!(altered, [format!("member {node}").into()], "{redundancy:?}");
                rig.world.with_node(node, |found| found.content = newest);
            }
        });
    }
}

#[test]
fn nodes_that_all_answer_from_old_snapshots_yield_errors_and_no_byte() {
    for (redundancy, members) in [(MIRROR, 2), (PARITY, 3)] {
        play(async move {
            let (rig, sealing, _writer, snapshots) = overwritten(redundancy, members).await;
            for (node, snapshot) in snapshots.iter().enumerate() {
                rig.world.with_node(node, |node| node.content.clone_from(snapshot));
            }
            let sealed = reader(&rig, &sealing).await;
            for range in ByteRange::new(0, sealing.size()).split_at_multiples(512) {
                let error = sealed.read(range).await.unwrap_err();
                assert!(matches!(error, Error::Withheld { .. }), "{redundancy:?}: {error}");
            }
        });
    }
}
