//! Drives that are searched at their nodes: the hits are those of a naive scan of the whole image, and of a search that reads it.

use std::sync::Arc;
use std::time::Duration;

use crate::common::searches::{MAIL, WORD, collected, expected, forms, noise, order, put};
use crate::common::*;
use cheetah_device::{ByteRange, Device as _, DynDevice, coalesce};
use cheetah_drive::create::{CreateRequest, create};
use cheetah_drive::lending::{KeyLending, LendRequest, LendTo, LendingRecord};
use cheetah_drive::load::load;
use cheetah_drive::sealed::SealRequest;
use cheetah_drive::search::{NearOptions, NearSearch, search_at_nodes};
use cheetah_drive::{Drive, DriveFile, DriveSize, Layout, WorkDone};
use cheetah_error::{Kind, next};
use cheetah_seal::age::Identity;
use cheetah_search::{Hit, Order, RunOptions, Search, run};
use futures::StreamExt as _;
use proptest::prelude::*;
use proptest::sample::select;

const KIB: u64 = 1 << 10;
/// Nodes that take long are waited for: which place searches is no matter of luck.
const NEAR: NearOptions =
    NearOptions { workers: 2, lend: None, within: None, patience: Duration::from_secs(24 * 60 * 60) };

/// The hits in a drive, searched at its nodes, and what was searched where.
async fn found(file: &DriveFile, device: &DynDevice, order: &Order) -> (Vec<Hit>, WorkDone) {
    let search = Arc::new(Search::new(order).unwrap());
    let NearSearch { batches, done } = search_at_nodes(file, device, (order, &search), &session(), NEAR).await.unwrap();
    let hits = collected(batches, file.size).await;
    let done = done.lock().clone();
    assert_eq!(done.node_bytes.values().chain(done.here_bytes.values()).sum::<u64>(), file.size, "{done:?}");
    (hits, done)
}

/// The hits that begin in ranges of a drive, searched at its nodes, and the ranges that were searched.
async fn found_within(
    file: &DriveFile,
    device: &DynDevice,
    order: &Order,
    ranges: Vec<ByteRange>,
) -> (Vec<Hit>, Vec<ByteRange>) {
    let search = Arc::new(Search::new(order).unwrap());
    let options = NearOptions { within: Some(ranges), ..NEAR };
    let begun = search_at_nodes(file, device, (order, &search), &session(), options).await.unwrap();
    let batches: Vec<_> = begun.batches.map(Result::unwrap).collect().await;
    let ranges = coalesce(batches.iter().map(|batch| batch.range).collect(), 0);
    (batches.into_iter().flat_map(|batch| batch.hits).collect(), ranges)
}

#[derive(Debug, Clone)]
struct Case {
    layout: Layout,
    nodes: usize,
    parts: usize,
    /// The first nodes that lend their processor.
    lending: usize,
    loses_one: bool,
    size: u64,
    /// How far before a seam hits begin, in turn.
    shifts: Vec<u64>,
    context_bytes: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let layouts = vec![
        (Layout::Stripe { unit: 16 * KIB }, 3, 1),
        (STRIPE, 3, 1),
        (Layout::Linear, 2, 1),
        (Layout::Mirror { unit: UNIT, copies: 2 }, 3, 1),
        (Layout::Mirror { unit: UNIT, copies: 2 }, 2, 2),
        (Layout::Parity { unit: UNIT, parities: 1 }, 3, 1),
        (Layout::Parity { unit: UNIT, parities: 1 }, 4, 2),
        (Layout::Parity { unit: 16 * KIB, parities: 2 }, 5, 1),
    ];
    let shifts = prop::collection::vec(0..=2 * WORD.len() as u64 + MAIL.len() as u64, 7);
    (select(layouts), 1usize..=5, any::<bool>(), MIB..5 * MIB, shifts, select(vec![0, 7, 32])).prop_map(
        |((layout, nodes, parts), lending, loses_one, size, shifts, context_bytes)| Case {
            layout,
            nodes,
            parts,
            lending: lending.min(nodes),
            loses_one,
            size,
            shifts,
            context_bytes,
        },
    )
}

/// Searches a drive with hits at each of its seams.
async fn check(case: Case) {
    let mut bytes = noise(case.size);
    let [narrow, wide] = forms();
    let mut shifts = case.shifts.iter().cycle();
    for (number, seam) in (0..case.size).step_by(4 << 10).enumerate() {
        let what = [&narrow[..], &wide[..], MAIL][number % 3];
        put(&mut bytes, seam, *shifts.next().unwrap(), what);
    }
    let mut lab = Lab::lending(&vec![12 * MIB; case.lending]);
    lab.nodes.extend((case.lending..case.nodes).map(|_| start_node(12 * MIB)));
    let request = CreateRequest { parts: case.parts, ..lab.request(case.layout, DriveSize::Bytes(case.size)).await };
    let mut file = create(request).await.unwrap();
    load(&mut file, device(&bytes), load_options(), |_| {}).await.unwrap();
    let survives = file.losses_max() > 0;
    if case.loses_one && survives {
        lab.nodes.remove(0).shutdown().await;
    }
    let drive = Drive::open(&file, options(false)).await.unwrap();
    let order = order(case.context_bytes);
    let (hits, done) = found(&file, &drive.device(), &order).await;
    assert_eq!(hits, expected(&bytes, &order).await, "{done:?}");
    assert!(hits.len() as u64 > case.size / (8 << 10));
    let ranges = vec![ByteRange::new(case.size / 3, case.size / 5), ByteRange::new(case.size - 5000, 5000)];
    let (within, begun) = found_within(&file, &drive.device(), &order, ranges.clone()).await;
    assert!(ranges.iter().all(|range| begun.iter().any(|begun| begun.contains(*range))), "{begun:?}");
    let begins_there = |hit: &&Hit| begun.iter().any(|range| range.contains(ByteRange::new(hit.offset, 1)));
    assert_eq!(within, hits.iter().filter(begins_there).cloned().collect::<Vec<_>>());
    let has_lenders = case.lending > usize::from(case.loses_one && survives);
    // A unit of a small linear drive may lie on both nodes.
    let is_linear = case.layout == Layout::Linear;
    assert!(is_linear || !has_lenders || !done.node_bytes.is_empty(), "{done:?}");
    drive.close().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn hits_at_every_seam_of_every_layout_are_those_of_a_naive_scan(case in case()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check(case));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_linear_drive_has_a_seam_where_a_node_ends() {
    let lab = Lab::lending(&[4 * MIB, 12 * MIB]);
    let mut bytes = noise(5 * MIB);
    // The first node ends somewhere here.
    (MIB / 4..3 * MIB / 4).for_each(|kib| put(&mut bytes, 4 * kib, 5, WORD.as_bytes()));
    let file = lab.loaded(Layout::Linear, &bytes).await;
    let drive = Drive::open(&file, options(false)).await.unwrap();
    let (hits, done) = found(&file, &drive.device(), &order(16)).await;
    assert_eq!(hits, expected(&bytes, &order(16)).await);
    assert_eq!(done.node_bytes.len(), 2, "{done:?}");
    drive.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn units_with_too_many_hits_and_patterns_with_long_hits_are_searched_here() {
    let lab = Lab::lending(&[12 * MIB; 3]);
    let mut bytes = noise(2 * MIB);
    bytes[MIB as usize + 5..][..3000].fill(b'x');
    let file = lab.loaded(STRIPE, &bytes).await;
    let drive = Drive::open(&file, options(false)).await.unwrap();
    let crowded = Order { words: vec!["xx".into()], ..order(0) };
    let (hits, done) = found(&file, &drive.device(), &crowded).await;
    let search = Arc::new(Search::new(&crowded).unwrap());
    assert_eq!(hits, collected(run(&search, &device(&bytes), &RunOptions::new(2)), 2 * MIB).await);
    assert_eq!(done.here_bytes, [("it has more hits than a node returns".into(), UNIT)].into());
    let long = Order { expressions: vec!["x[^y]{1,8191}".into()], ..crowded };
    let (_, done) = found(&file, &drive.device(), &long).await;
    let why = "hits may be so long that nodes would send most of each unit";
    assert_eq!(done, WorkDone::all_here(2 * MIB, why.into()));
    drive.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn words_by_the_thousand_in_four_encodings_are_searched_at_the_nodes() {
    let word = |number: usize| format!("Täter{number:07}");
    let order = Order {
        words: (0..2000).map(word).collect(),
        encodings: ["utf-8", "utf-16le", "utf-16be", "windows-1252"].map(|name| name.parse().unwrap()).to_vec(),
        ..Order::default()
    };
    let mut bytes = noise(MIB);
    let mut placed = Vec::new();
    for (place, number) in (1..64).map(|unit| (unit * 16 * KIB - unit % 20, 31 * unit as usize)) {
        for (nth, encoding) in order.encodings.iter().enumerate() {
            let form: Vec<u8> = word(number).chars().flat_map(|c| encoding.encode(c).unwrap()).collect();
            let at = place + 100 * nth as u64;
            // A zero beside UTF-16 would make it one of the other order, too.
            put(&mut bytes, at, 1, &[&b"."[..], &form, b"."].concat());
            placed.push((at, number, *encoding));
        }
    }
    let lab = Lab::lending(&[12 * MIB; 2]);
    let file = lab.loaded(STRIPE, &bytes).await;
    let drive = Drive::open(&file, options(false)).await.unwrap();
    let search = Arc::new(Search::new(&order).unwrap());
    let begun = search_at_nodes(&file, &drive.device(), (&order, &search), &session(), NEAR).await.unwrap();
    let hits = collected(begun.batches, file.size).await;
    assert!(begun.done.lock().here_bytes.is_empty(), "{:?}", begun.done);
    assert_eq!(hits, collected(run(&search, &device(&bytes), &RunOptions::new(2)), MIB).await);
    let of_hits: Vec<_> = hits.iter().map(|hit| (hit.offset, hit.pattern, hit.encoding)).collect();
    assert_eq!(of_hits, placed);
    drive.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hardly_a_byte_is_read_where_all_nodes_lend_their_processor() {
    for (layout, nodes) in [(STRIPE, 3), (Layout::Linear, 1), (Layout::Mirror { unit: UNIT, copies: 2 }, 3)] {
        let lab = Lab::lending(&vec![12 * MIB; nodes]);
        let file = lab.loaded(layout, &noise(4 * MIB)).await;
        let drive = Drive::open(&file, options(false)).await.unwrap();
        let sent = || lab.nodes.iter().flat_map(|node| node.exports().stats()).map(|(_, stats)| stats.read_bytes).sum();
        let before: u64 = sent();
        let (_, done) = found(&file, &drive.device(), &order(32)).await;
        assert_eq!((sent(), done.here_bytes.len()), (before, 0), "{layout:?}: {done:?}");
        drive.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_ends_in_the_middle_costs_a_redundant_drive_no_hit() {
    let layouts = [Layout::Mirror { unit: UNIT, copies: 2 }, Layout::Parity { unit: UNIT, parities: 1 }];
    for (layout, steps) in layouts.into_iter().flat_map(|layout| [0, 30, 200].map(|steps| (layout, steps))) {
        let mut lab = Lab::lending(&[12 * MIB; 3]);
        let mut bytes = noise(5 * MIB);
        (1..80).for_each(|unit| put(&mut bytes, unit * UNIT, unit % 20, WORD.as_bytes()));
        let file = lab.loaded(layout, &bytes).await;
        let drive = Drive::open(&file, options(false)).await.unwrap();
        let ending = async {
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            lab.nodes.remove(0).shutdown().await
        };
        let ((device, order), expected) = ((drive.device(), order(8)), expected(&bytes, &order(8)).await);
        let ((hits, done), _) = tokio::join!(found(&file, &device, &order), ending);
        assert_eq!(hits, expected, "{layout:?}: {done:?}");
        drive.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nodes_searched_of_a_drive_that_missed_writes_meanwhile_is_read_again() {
    let mut lab = Lab::lending(&[12 * MIB; 3]);
    let mut bytes = noise(4 * MIB);
    let file = lab.loaded(Layout::Parity { unit: UNIT, parities: 1 }, &bytes).await;
    let reader = Drive::open(&file, options(false)).await.unwrap();
    let order = order(8);
    let search = Arc::new(Search::new(&order).unwrap());
    // It asks the nodes, and searches nothing before its results are asked for.
    let begun = search_at_nodes(&file, &reader.device(), (&order, &search), &session(), NEAR).await.unwrap();
    let writer = Drive::open(&file, options(true)).await.unwrap();
    lab.nodes.remove(1).shutdown().await;
    for unit in 0..60 {
        put(&mut bytes, unit * UNIT, 0, WORD.as_bytes());
        writer.device().write(unit * UNIT, WORD.as_bytes().to_vec().into(), false).await.unwrap();
    }
    writer.device().flush().await.unwrap();
    assert_eq!(collected(begun.batches, file.size).await, expected(&bytes, &order).await);
    let why = "parts of the drive moved meanwhile, or missed writes";
    assert_eq!(*begun.done.lock(), WorkDone::all_here(file.size, why.into()));
    writer.close().await.unwrap();
    reader.close().await.unwrap();
}

/// A test in which nothing is lent.
#[derive(Debug)]
struct Nothing;

impl LendingRecord for Nothing {
    fn lent(&self, _: &DriveFile, lending: &KeyLending) -> cheetah_error::Result<()> {
        panic!("{lending:?}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_sealed_drive_is_not_lent_in_clear_and_that_of_another_drive_not_at_all() {
    let lab = Lab::lending(&[12 * MIB; 2]);
    let recipients = vec![Identity::generate().unwrap().recipient()];
    let seal = Some(SealRequest { unit: 64 * KIB, holes: false, recipients });
    let session = session();
    let request = CreateRequest { seal, session: session.clone(), ..lab.request(STRIPE, DriveSize::Bytes(MIB)).await };
    let sealed = create(request).await.unwrap();
    let order = order(0);
    let search = Arc::new(Search::new(&order).unwrap());
    let refusal = async |file: &DriveFile, to: LendTo| {
        let lend = LendRequest { to, purpose: "search", record: Arc::new(Nothing) };
        let options = NearOptions { lend: Some(lend), ..NEAR };
        search_at_nodes(file, &device(&[0; 4096]), (&order, &search), &session, options).await.err().unwrap()
    };
    for to in [LendTo::All, LendTo::Named(vec![sealed.nodes().next().unwrap().name.clone()])] {
        let error = refusal(&sealed, to).await;
        assert_eq!(error.kind(), Kind::Failed, "{error}");
        let step = next::Room::InviteWithRole { role: "trusted-node".into() };
        assert_eq!(error.steps(), [step.into()]);
    }
    let error = refusal(&sealed, LendTo::Named(vec!["elsewhere".into()])).await;
    assert_eq!(error.kind(), Kind::Misuse, "{error}");
    drop(lab);
    let lab = Lab::lending(&[12 * MIB]);
    let plain = lab.create(STRIPE, MIB).await;
    let error = refusal(&plain, LendTo::All).await;
    assert_eq!(error.kind(), Kind::Misuse, "{error}");
}
