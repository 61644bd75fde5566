//! The number of requests to nodes that reads and writes cost.

use cheetah_device::{ByteRange, Device as _};
use cheetah_redundancy::Redundancy;

use super::{PARITY, Rig, play};
use crate::network::Process;
use crate::process::Reader;

#[test]
fn digests_that_were_remembered_do_not_outlive_a_write() {
    play(async {
        let (rig, writer) = Rig::written(PARITY, 3).await;
        let whole = ByteRange::new(0, rig.shape.size());
        let reader = Reader::open(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
        reader.drive.members().follow(&writer.map(), vec![(0, None)]);
        rig.world.kill(0);
        writer.until_stale(0, true).await;
        for byte in 1..5 {
            rig.write(&writer, byte).await.unwrap();
            for drive in [&reader.drive, &writer.drive] {
                let data = drive.read(whole).await.unwrap();
                assert!(data.into_bytes().iter().all(|held| *held == byte));
            }
        }
    });
}

/// The requests that the nodes have answered since the last call.
fn requests(rig: &Rig) -> (u64, u64) {
    let mut state = rig.world.state.lock();
    let sum = state.nodes.iter().fold((0, 0), |sum, node| (sum.0 + node.reads, sum.1 + node.writes));
    state.nodes.iter_mut().for_each(|node| (node.reads, node.writes) = (0, 0));
    sum
}

#[test]
fn small_requests_take_no_more_requests_to_nodes_than_budgeted() {
    // Members, parities, reads of a page of the lost member, reads and writes of an overwrite.
    for (members, parities, degraded, overwrite) in [(3, 1, 2, (1, 3)), (5, 1, 4, (2, 3)), (7, 2, 5, (3, 5))] {
        play(async move {
            let (rig, writer) = Rig::written(Redundancy::Parity { parities }, members).await;
            let page = ByteRange::new(0, 4096);
            requests(&rig);
            writer.drive.read(page).await.unwrap();
            assert_eq!(requests(&rig), (1, 0), "healthy");
            writer.drive.write(0, vec![2; 4096].into(), false).await.unwrap();
            assert_eq!(requests(&rig), overwrite, "overwrite");
            rig.check_pages(&writer, |at| if page.contains(ByteRange::new(at, 1)) { 2 } else { 1 }).await;
            rig.world.kill(0);
            writer.until_stale(0, true).await;
            writer.drive.read(page).await.unwrap();
            requests(&rig);
            writer.drive.read(page).await.unwrap();
            assert_eq!(requests(&rig), (degraded, 0), "a member is lost");
            writer.drive.read(ByteRange::new(4096, 4096)).await.unwrap();
            assert_eq!(requests(&rig), (1, 0), "of another member");
        });
    }
}
