//! Members that return, and spares that take the place of others.

use std::time::Duration;

use cheetah_redundancy::MemberState;
use tokio::time::sleep;

use super::{PARITY, PATIENCE, Rig, play};

#[test]
fn a_silent_member_that_wakes_up_after_others_went_on_is_resynchronized() {
    play(async {
        let (rig, writer) = Rig::written(PARITY, 3).await;
        rig.world.freeze(1, true);
        rig.write(&writer, 2).await.unwrap();
        assert_eq!(writer.map().members[1].state, MemberState::Stale);
        rig.write(&writer, 3).await.unwrap();
        // Requests sent to the member before take effect now, if at all.
        rig.world.freeze(1, false);
        assert!(writer.until_complete(PATIENCE).await);
        rig.check(&writer, 3).await;
    });
}

#[test]
fn a_member_lost_during_its_own_resynchronization_returns_in_the_end() {
    play(async {
        let (rig, writer) = Rig::written(PARITY, 3).await;
        rig.world.isolate(0, true);
        rig.write(&writer, 2).await.unwrap();
        // It takes a few writes of its resynchronization, then its connection breaks and it is silent again.
        rig.world.isolate(0, false);
        writer.until_stale(0, false).await;
        rig.world.isolate(0, true);
        rig.world.break_connections(|connection| connection.node == 0);
        rig.write(&writer, 3).await.unwrap();
        assert_eq!(writer.map().members[0].state, MemberState::Stale);
        rig.world.isolate(0, false);
        assert!(writer.until_complete(PATIENCE).await);
        rig.check(&writer, 3).await;
    });
}

#[test]
fn a_spare_that_dies_while_it_is_filled_is_replaced_by_the_next() {
    play(async {
        let (rig, writer) = Rig::written(PARITY, 3).await;
        rig.world.kill(1);
        writer.until_stale(1, true).await;
        rig.world.with_node(3, |node| node.dies_after_writes = Some(2));
        writer.replace(&rig.world, 1, 3).await.unwrap();
        writer.until_stale(1, true).await;
        assert!(!rig.world.with_node(3, |node| node.up));
        rig.world.restart(1);
        writer.replace(&rig.world, 1, 1).await.unwrap();
        assert!(writer.until_complete(PATIENCE).await);
        rig.check(&writer, 1).await;
    });
}

#[test]
fn the_connection_to_a_spare_is_not_cut_off_by_the_search_for_the_former_member() {
    play(async {
        let (rig, writer) = Rig::written(PARITY, 3).await;
        rig.world.kill(1);
        writer.until_stale(1, true).await;
        writer.replace(&rig.world, 1, 3).await.unwrap();
        assert!(writer.until_complete(PATIENCE).await);
        sleep(Duration::from_secs(20)).await;
        rig.write(&writer, 2).await.unwrap();
        assert_eq!(writer.map().members[1].state, MemberState::InSync);
        assert_eq!(writer.drive.members().stats().members_lost, 1);
    });
}
