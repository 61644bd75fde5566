//! Hits across fragments, compared with a search of each whole file.

use std::collections::BTreeSet;
use std::sync::Arc;

use cheetah_device::{ByteRange, DynDevice};
use cheetah_search::{FileRun, NewFile, Order, PlaceLimits, Places, PlacesBuilder, RunOptions, Search};
use proptest::prelude::*;

use crate::support::{Disk, searched, words};

const CLUSTER: usize = 16;

fn listed(size: usize, valid_bytes: u64, runs: &[FileRun]) -> Places {
    let mut builder = PlacesBuilder::new(size as u64, PlaceLimits::default());
    builder.volume(0, ByteRange::new(0, size as u64));
    let file = NewFile {
        path: "/file",
        is_deleted: false,
        is_metadata: false,
        is_resident: false,
        is_mapped: true,
        valid_bytes,
    };
    builder.file(0, &file).unwrap();
    runs.iter().for_each(|run| builder.run(*run));
    builder.finish()
}

/// Hits by their offsets in the file, their lengths and their patterns; the bytes of the fragments of each; and the number of joints that
/// could not be read.
type Found = (BTreeSet<(u64, u64, usize)>, Vec<Vec<u8>>, u64);

/// The hits across the fragments of the only file.
fn across(order: &Order, disk: Disk, places: &Places) -> Found {
    let search = Arc::new(Search::new(order).unwrap());
    let bytes = disk.bytes.clone();
    let device: DynDevice = Arc::new(disk);
    let Some(joints) = places.joints_of(0, search.overlap()) else { return Default::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let found = runtime.block_on(joints.search(&device, &search)).unwrap();
    let content = found.hits.iter().map(|hit| {
        let pieces = hit.fragments.iter().map(|range| &bytes[range.offset as usize..range.end() as usize]);
        assert_eq!(hit.fragments[0].offset, hit.hit.offset);
        pieces.collect::<Vec<_>>().concat()
    });
    let content: Vec<_> = content.collect();
    assert!(found.hits.iter().zip(&content).all(|(hit, content)| hit.hit.bytes == *content));
    let hits = found.hits.iter().map(|hit| (hit.file_offset, hit.hit.len(), hit.hit.pattern)).collect();
    (hits, content, found.unreadable)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hits_across_fragments_are_those_of_the_whole_file_that_are_not_in_one_piece(
        clusters in prop::collection::vec(prop::collection::vec(prop::sample::select(b"ab".to_vec()), CLUSTER), 1..12),
        order in prop::collection::vec((0usize..12, 1usize..=CLUSTER), 1..12),
        cut in 0u64..20,
        long in 2usize..60,
    ) {
        let bytes = clusters.concat();
        // Runs may be shorter than a cluster, as resident content is, and may repeat.
        let (mut runs, mut content) = (Vec::new(), Vec::new());
        for (cluster, len) in order {
            let at = cluster % clusters.len() * CLUSTER;
            runs.push(FileRun { file_offset: content.len() as u64, range: ByteRange::new(at as u64, len as u64) });
            content.extend_from_slice(&bytes[at..at + len]);
        }
        let valid = (content.len() as u64).saturating_sub(cut);
        content.truncate(valid as usize);
        let word: String = String::from_utf8(content.iter().copied().take(long).collect()).unwrap();
        let mut wanted = vec!["aab", "abba"];
        if !word.is_empty() {
            wanted.push(&word);
        }
        let search_order = words(&wanted);
        let places = listed(bytes.len(), valid, &runs);
        let (found, _, unreadable) = across(&search_order, Disk::whole(bytes.clone()), &places);
        prop_assert_eq!(unreadable, 0);
        let physical = |at: u64| runs.iter().rev().find(|run| run.file_offset <= at)
            .map(|run| (run.range.offset + at - run.file_offset) as usize);
        let search = Search::new(&search_order).unwrap();
        let names: Vec<_> = search.patterns().iter().map(|pattern| pattern.name.clone()).collect();
        let mut expected = BTreeSet::new();
        for (pattern, name) in names.iter().enumerate() {
            for at in 0..content.len().saturating_sub(name.len() - 1) {
                let start = physical(at as u64).unwrap();
                let in_one_piece = bytes[start..].starts_with(name.as_bytes());
                if content[at..].starts_with(name.as_bytes()) && !in_one_piece {
                    expected.insert((at as u64, name.len() as u64, pattern));
                }
            }
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_joint_beside_an_unreadable_sector_is_counted_and_the_others_are_searched() {
    let mut bytes = vec![b'.'; 8192];
    bytes[1022..1024].copy_from_slice(b"se");
    bytes[4096..4100].copy_from_slice(b"cret");
    bytes[4606..4608].copy_from_slice(b"se");
    bytes[2048..2052].copy_from_slice(b"cret");
    bytes[2558..2560].copy_from_slice(b"se");
    bytes[6144..6148].copy_from_slice(b"cret");
    let run = |file_offset, offset, len| FileRun { file_offset, range: ByteRange::new(offset, len) };
    let runs = [run(0, 512, 512), run(512, 4096, 512), run(1024, 2048, 512), run(1536, 6144, 512)];
    let places = listed(8192, 2048, &runs);
    let disk = Disk { bad: vec![ByteRange::new(6144, 512)], ..Disk::whole(bytes.clone()) };
    let (found, _, unreadable) = across(&words(&["secret"]), disk, &places);
    assert_eq!(found.into_iter().map(|(at, _, _)| at).collect::<Vec<_>>(), [510, 1022]);
    assert_eq!(unreadable, 1);
    let none = searched(&words(&["secret"]), Disk::whole(bytes), &RunOptions::new(1));
    assert_eq!(none.hits, [], "none of them is in one piece");
}

#[test]
fn a_hit_whose_bytes_are_no_hit_where_they_follow_each_other_is_found_across() {
    let mut bytes = vec![b' '; 4096];
    // In the file, the word ends at the joint and one more character; on the disk, more letters follow the same character.
    bytes[1020..1024].copy_from_slice(b"secr");
    bytes[1024..1030].copy_from_slice(b"etting");
    bytes[2048..2050].copy_from_slice(b"et");
    let run = |file_offset, offset, len| FileRun { file_offset, range: ByteRange::new(offset, len) };
    let places = listed(4096, 1024, &[run(0, 512, 512), run(512, 2048, 512)]);
    let order = Order { expressions: vec![r"\bsecret\b".to_owned()], ..words(&[]) };
    let none = searched(&order, Disk::whole(bytes.clone()), &RunOptions::new(1));
    assert_eq!(none.hits, []);
    let (found, _, _) = across(&order, Disk::whole(bytes), &places);
    assert_eq!(found.into_iter().map(|(at, len, _)| (at, len)).collect::<Vec<_>>(), [(508, 6)]);
}
