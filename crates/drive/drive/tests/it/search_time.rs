//! Searches at nodes that have much to compile, or no time at all.
//!
//! The threads of these nodes run in turn with those of other programs, and are waited for: a busy machine makes the tests slower, and
//! changes nothing else.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::common::searches::{WORD, collected, expected, noise, order, put};
use crate::common::*;
use cheetah_control::ControlClient;
use cheetah_control::jobs::{NewJob, SearchOrder, Stretch, UnitPlace, Units, Work};
use cheetah_drive::search::{NearOptions, NearSearch, search_at_nodes};
use cheetah_drive::{Drive, DriveFile, Layout, WorkDone};
use cheetah_node::{Node, Scan};
use cheetah_search::{Hit, Order, Search};

/// Longer than a test takes on any machine.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// A lab with one node, which lends one thread.
fn lab() -> Lab {
    let node = start_node_with(12 * MIB, Some(Scan::ordinary(NonZeroUsize::MIN)));
    Lab { dir: tempfile::tempdir().unwrap(), nodes: vec![node] }
}

/// The hits in a drive, of which a node may take as long as `patience` until its next result, and where they were searched.
async fn found(file: &DriveFile, order: &Order, patience: Duration) -> (Vec<Hit>, WorkDone) {
    let drive = Drive::open(file, options(false)).await.unwrap();
    let search = Arc::new(Search::new(order).unwrap());
    let near = NearOptions { workers: 2, lend: None, within: None, patience };
    let NearSearch { batches, done } =
        search_at_nodes(file, &drive.device(), (order, &search), &session(), near).await.unwrap();
    let hits = collected(batches, file.size).await;
    drive.close().await.unwrap();
    let done = done.lock().clone();
    (hits, done)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_most_words_in_three_encodings_are_searched_at_the_node() {
    let word = |number: usize| format!("Taeter{number:06}");
    let order = Order {
        words: (0..100_000).map(word).collect(),
        encodings: ["utf-8", "utf-16le", "utf-16be"].map(|name| name.parse().unwrap()).to_vec(),
        ..Order::default()
    };
    let mut bytes = noise(MIB);
    let mut placed = Vec::new();
    for unit in 1..64 {
        let (place, number) = (unit * 16 * 1024 - unit % 20, 1583 * unit as usize % 100_000);
        for (nth, encoding) in order.encodings.iter().enumerate() {
            let form: Vec<u8> = word(number).chars().flat_map(|c| encoding.encode(c).unwrap()).collect();
            let at = place + 100 * nth as u64;
            // A zero beside UTF-16 would make it one of the other order, too.
            put(&mut bytes, at, 1, &[&b"."[..], &form, b"."].concat());
            placed.push((at, number, *encoding));
        }
    }
    let lab = lab();
    let file = lab.loaded(Layout::Linear, &bytes).await;
    let (hits, done) = found(&file, &order, PATIENCE).await;
    assert!(done.here_bytes.is_empty(), "{done:?}");
    let of_hits: Vec<_> = hits.iter().map(|hit| (hit.offset, hit.pattern, hit.encoding)).collect();
    assert_eq!(of_hits, placed);
}

/// Has the only thread of a node work on a job that does not end: its results are more than the node keeps, and nobody takes them.
async fn occupy(node: &Node) {
    let (unit, client) = (4 << 10, ControlClient::new(node.http_address(), None));
    let status = node.status();
    let export = &status.exports[0];
    // Its edges are a fourth of a unit: those of all units take more than a mebibyte.
    let order = SearchOrder {
        version: status.version.clone(),
        words: vec!["x".repeat(1000)],
        encodings: vec!["utf-8".into()],
        ..SearchOrder::default()
    };
    let units = vec![UnitPlace { export: 0, text: 0 }];
    let stretches = vec![Stretch { rounds: export.size_bytes / unit, units, export_step: unit, text_step: unit }];
    let units = Units { unit_bytes: unit, stretches };
    let work = Work::Search(order);
    let job = NewJob { instance: status.instance.clone(), export: export.name.clone(), units, work, key: None };
    let id = client.start_job(&job).await.unwrap().id;
    // A job whose results nobody asks for is ended.
    tokio::spawn(async move {
        while client.job_lines(&id, 0, 1).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_finds_no_time_for_is_read_with_the_same_hits() {
    let lab = lab();
    let mut bytes = noise(4 * MIB);
    (1..64).for_each(|unit| put(&mut bytes, unit * UNIT, unit % 20, WORD.as_bytes()));
    let file = lab.loaded(Layout::Linear, &bytes).await;
    let order = order(8);
    let (hits, at_node) = found(&file, &order, PATIENCE).await;
    assert_eq!((hits, at_node.here_bytes.len()), (expected(&bytes, &order).await, 0), "{at_node:?}");
    occupy(&lab.nodes[0]).await;
    let (hits, here) = found(&file, &order, Duration::ZERO).await;
    assert_eq!(hits, expected(&bytes, &order).await);
    let [why] = here.here_bytes.keys().collect::<Vec<_>>()[..] else { panic!("{here:?}") };
    assert_eq!(here, WorkDone::all_here(file.size, why.clone()));
}
