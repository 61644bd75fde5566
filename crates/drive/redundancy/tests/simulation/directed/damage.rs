//! Damaged pages, and pages that no member holds any more.

use std::time::Duration;

use cheetah_device::{ByteRange, Device as _};

use super::{MIRROR, PARITY, PATIENCE, Rig, play};
use crate::network::Process;
use crate::process::{Reader, Writer};
use crate::sealing::{Sealing, UNIT};

#[test]
fn damaged_pages_of_data_redundancy_and_digests_are_rewritten() {
    play(async {
        for page in 0..Rig::new(PARITY, 3).shape.geometry().member_bytes() / crate::node::PAGE {
            let (rig, writer) = Rig::written(PARITY, 3).await;
            rig.world.with_node(1, |node| node.damaged.insert(page));
            // This read or this check finds the damage, in whatever section the page is.
            writer.drive.read(ByteRange::new(0, rig.shape.size())).await.unwrap();
            for at in (50..rig.shape.size()).step_by(4096) {
                writer.drive.write(at, vec![1; 100].into(), false).await.unwrap();
            }
            assert!(writer.until_complete(PATIENCE).await);
            assert!(rig.world.with_node(1, |node| node.damaged.is_empty()), "page {page}");
            rig.check(&writer, 1).await;
        }
    });
}

/// Checks that all bytes outside bad ranges are `old` or `new`, and that reads fail exactly in bad ranges, with all
/// members and without any one of them.
async fn check_but_bad(rig: &Rig, writer: &Writer, old: u8, new: u8) {
    let bad = writer.map().bad;
    let mut readers = Vec::new();
    for without in 0..rig.shape.members {
        let reader = Reader::open(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
        reader.drive.members().follow(&writer.map(), vec![(without, None)]);
        readers.push(reader);
    }
    for at in (0..rig.shape.size()).step_by(512) {
        let block = ByteRange::new(at, 512);
        for drive in readers.iter().map(|reader| &reader.drive).chain([&writer.drive]) {
            match drive.read(block).await {
                Ok(data) => {
                    assert!(!bad.touch(block));
                    assert!(data.into_bytes().iter().all(|byte| [old, new].contains(byte)), "made-up bytes at {at}");
                }
                Err(error) => assert!(bad.touch(block), "{error}"),
            }
        }
    }
}

#[test]
fn a_writer_and_a_member_lost_in_mid_write_cost_at_most_the_pages_of_the_write_and_redundancy_returns() {
    let mut met = 0;
    for (lost, writes) in (0..3).flat_map(|lost| (0..9).map(move |writes| (lost, writes))) {
        for empty in [false, true] {
            let met = &mut met;
            play(async move {
                let (mut rig, writer) = Rig::written(PARITY, 3).await;
                rig.world.state.lock().writes_left = Some(writes);
                let write = writer.drive.write(8192, vec![2; 12288].into(), false);
                tokio::time::timeout(Duration::from_millis(100), write).await.ok();
                writer.kill(&rig.world);
                rig.world.state.lock().writes_left = None;
                match empty {
                    true => rig.world.kill(lost),
                    false => rig.world.isolate(lost, true),
                }
                let writer = rig.open().await;
                writer.until_stale(lost, true).await;
                assert!(writer.map().bad.is_empty(), "the member may still return with what is missing");
                match empty {
                    true => writer.replace(&rig.world, lost, 3).await.unwrap(),
                    false => rig.world.isolate(lost, false),
                }
                assert!(writer.until_complete(PATIENCE).await, "{:?}", writer.map());
                let bad = writer.drive.members().bad_ranges();
                // Of a group that the write changed, the other unit is lost as well.
                let groups = ByteRange::new(8192, 16384);
                assert!(bad.iter().all(|bad| groups.contains(*bad)), "{bad:?}");
                check_but_bad(&rig, &writer, 1, 2).await;
                *met += bad.len();
                if !bad.is_empty() {
                    let inside = writer.drive.write(bad[0].offset + 512, vec![9; 512].into(), false).await;
                    assert!(inside.is_err(), "the rest of the page is not known");
                    // The next writer knows them, too.
                    writer.kill(&rig.world);
                    let writer = rig.open().await;
                    assert_eq!(writer.drive.members().bad_ranges(), bad);
                    check_but_bad(&rig, &writer, 1, 2).await;
                    for bad in bad {
                        writer.drive.write(bad.offset, vec![2; bad.len as usize].into(), false).await.unwrap();
                    }
                    assert!(writer.drive.members().bad_ranges().is_empty());
                    assert!(rig.world.state.lock().drive_file.as_ref().unwrap().map.bad.is_empty(), "stored");
                    check_but_bad(&rig, &writer, 1, 2).await;
                }
            });
        }
    }
    assert!(met > 0, "no page was lost, so nothing was tested");
}

#[test]
fn a_page_that_two_members_of_a_mirror_have_damaged_is_bad_until_it_is_written() {
    play(async {
        let (rig, writer) = Rig::written(MIRROR, 2).await;
        rig.world.kill(1);
        writer.until_stale(1, true).await;
        rig.world.with_node(0, |node| node.damaged.insert(0));
        writer.replace(&rig.world, 1, 2).await.unwrap();
        assert!(writer.until_complete(PATIENCE).await);
        let page = ByteRange::new(0, 4096);
        assert_eq!(writer.drive.members().bad_ranges(), [page]);
        check_but_bad(&rig, &writer, 1, 1).await;
        rig.write(&writer, 2).await.unwrap();
        rig.check(&writer, 2).await;
    });
}

/// The sealed units of a drive do not fill its pages exactly.
#[test]
fn a_sealed_unit_on_a_bad_page_is_good_once_it_is_written_and_its_neighbour_stays_an_error() {
    for redundancy in [MIRROR, PARITY] {
        play(async move {
            let mut rig = Rig::new(redundancy, 3);
            let sealing = Sealing::new(&rig.shape);
            let writer = rig.open().await;
            let sealed = sealing.open(&rig.world, &writer.process, &writer.drive, true).await.unwrap();
            let units = ByteRange::new(0, sealing.size()).split_at_multiples(UNIT).collect::<Vec<_>>();
            let filled = |unit: &ByteRange, byte: u8| cheetah_device::Data::from(vec![byte; unit.len as usize]);
            sealed.write(0, vec![1; sealing.size() as usize].into(), false).await.unwrap();
            rig.world.kill(1);
            writer.until_stale(1, true).await;
            rig.world.with_node(0, |node| node.damaged.insert(1));
            writer.replace(&rig.world, 1, 3).await.unwrap();
            assert!(writer.until_complete(PATIENCE).await);
            assert!(!writer.map().bad.is_empty(), "no page was lost, so nothing was tested");

            let mut lost = Vec::new();
            for unit in &units {
                if sealed.read(*unit).await.is_err() {
                    lost.push(*unit);
                }
            }
            assert!(lost.len() >= 2, "{lost:?}");
            while let Some(unit) = lost.pop() {
                assert!(sealed.write(unit.offset + 5, vec![9].into(), false).await.is_err(), "the rest is not known");
                sealed.write(unit.offset, filled(&unit, 2), false).await.unwrap();
                for unit in &units {
                    match sealed.read(*unit).await {
                        Ok(data) => assert!(data.into_bytes().iter().all(|byte| [1, 2].contains(byte))),
                        Err(error) => assert!(lost.contains(unit), "{error}"),
                    }
                }
                for unit in &lost {
                    assert!(sealed.read(*unit).await.is_err(), "{unit} was made up");
                }
            }
            assert!(writer.map().bad.is_empty());
            sealed.close().await.unwrap();
        });
    }
}

#[test]
fn a_reader_with_an_older_map_finds_no_zeros_in_a_page_that_became_bad() {
    play(async {
        let (rig, writer) = Rig::written(MIRROR, 2).await;
        let reader = Reader::open(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
        // Member 1 misses a write near the page, and returns when the other copy of the page is damaged.
        rig.world.freeze(1, true);
        writer.drive.write(4096, vec![2; 4096].into(), false).await.unwrap();
        rig.world.with_node(0, |node| node.damaged.insert(0));
        rig.world.freeze(1, false);
        assert!(writer.until_complete(PATIENCE).await);
        let page = ByteRange::new(0, 4096);
        assert!(writer.map().bad.touch(page));
        if let Ok(held) = reader.drive.read(page).await {
            assert!(held.into_bytes().iter().all(|byte| *byte == 1));
        }
    });
}

#[test]
fn a_page_that_becomes_bad_while_it_is_read_is_an_error() {
    play(async {
        let (rig, writer) = Rig::written(MIRROR, 2).await;
        let reader = Reader::open(&rig.world, &Process::new(99), &rig.shape).await.unwrap();
        let page = ByteRange::new(0, 4096);
        // One copy is damaged, so that the page is read from the other.
        rig.world.with_node(0, |node| node.damaged.insert(0));
        let mut map = writer.map();
        let mut follow = |bad: bool| {
            map.epoch += 1;
            if bad {
                map.bad.insert(&[page]).unwrap()
            } else {
                map.bad.remove(page).unwrap()
            }
            reader.drive.members().follow(&map, Vec::new());
        };
        for rewritten in [false, true] {
            rig.world.isolate(1, true);
            let mut read = reader.drive.read(page);
            assert!(tokio::time::timeout(Duration::from_millis(100), &mut read).await.is_err());
            follow(true);
            if rewritten {
                follow(false);
            }
            let reads = rig.world.with_node(1, |node| node.reads);
            rig.world.isolate(1, false);
            assert_eq!(read.await.is_ok(), rewritten);
            if rewritten {
                assert!(rig.world.with_node(1, |node| node.reads) > reads + 1, "not read again");
            }
            follow(false);
        }
    });
}

#[test]
fn a_check_finds_and_repairs_what_nobody_has_read() {
    play(async {
        for page in 0..Rig::new(PARITY, 3).shape.geometry().member_bytes() / crate::node::PAGE {
            for silent in [false, true] {
                let (rig, writer) = Rig::written(PARITY, 3).await;
                rig.world.with_node(2, |node| match silent {
                    true => node.content[(page * crate::node::PAGE) as usize] ^= 4,
                    false => drop(node.damaged.insert(page)),
                });
                let checked = cheetah_redundancy::Redundant::check(&writer.drive, &mut |_, _| {}).await.unwrap();
                assert!(checked.has_found() && checked.is_sound(), "page {page}, silent {silent}: {checked:?}");
                assert_eq!(silent, checked.damaged_units == 0);
                assert_eq!(writer.drive.members().stats().damage_healed > 0, !silent);
                let again = cheetah_redundancy::Redundant::check(&writer.drive, &mut |_, _| {}).await.unwrap();
                assert!(!again.has_found() && again.compared_bytes == rig.shape.size(), "{again:?}");
                rig.check(&writer, 1).await;
            }
        }
    });
}
