//! Sealed drives that are searched at nodes that are lent the key: hits and coverage are those of a search that reads the drive.

use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock, Mutex};

use cheetah_device::{ByteRange, Device as _, DynDevice};
use cheetah_drive::create::{CreateRequest, create};
use cheetah_drive::destroy::{WipeOutcome, destroy};
use cheetah_drive::lending::{KeyLending, LendRequest, LendTo, LendingRecord};
use cheetah_drive::load::load;
use cheetah_drive::sealed::SealRequest;
use cheetah_drive::search::{NearOptions, NearSearch, PATIENCE, search_at_nodes};
use cheetah_drive::verify::{VerifyOptions, verify};
use cheetah_drive::{Drive, DriveFile, DriveSize, Layout, Session, WorkDone};
use cheetah_error::next;
use cheetah_nbd::server::Exports as _;
use cheetah_node::{Node, NodeConfig, Scan};
use cheetah_seal::age::Identity;
use cheetah_search::{Batch, Hit, Order, Outcome, RunOptions, Search, run};
use cheetah_tls::testing::Room;
use cheetah_tls::{CredentialSet, Role};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use proptest::prelude::*;
use proptest::sample::select;

use super::common::searches::{MAIL, WORD, expected, forms, noise, order, put};
use super::common::*;

const KIB: u64 = 1 << 10;

/// The room of all tests.
static ROOM: LazyLock<Room> = LazyLock::new(Room::new);

/// The session of its examiner.
pub static SESSION: LazyLock<Session> = LazyLock::new(|| {
    let examiner = ROOM.credential("desk", Role::Examiner);
    Session::new(CredentialSet::new(Some(examiner), []), Arc::default(), TIMEOUT)
});

/// What was recorded before keys were lent.
#[derive(Debug, Default)]
struct Recorded(Mutex<Vec<KeyLending>>);

impl LendingRecord for Recorded {
    fn lent(&self, _: &DriveFile, lending: &KeyLending) -> cheetah_error::Result<()> {
        self.0.lock().unwrap().push(lending.clone());
        Ok(())
    }
}

/// A lab whose nodes have these roles, and lend their processors.
fn lab(roles: &[Role]) -> Lab {
    let start = |(number, role): (usize, &Role)| {
        let name = format!("pc{number}");
        let credential = Some(ROOM.credential(&name, *role));
        let scan = NonZeroUsize::new(2).map(Scan::ordinary);
        let config = NodeConfig::new(16 * MIB, "127.0.0.1:0".parse().unwrap());
        Node::start(NodeConfig { name, credential, scan, ..config }).unwrap()
    };
    Lab { dir: tempfile::tempdir().unwrap(), nodes: roles.iter().enumerate().map(start).collect() }
}

/// Creates a sealed drive of the size of these bytes, and loads them.
async fn loaded(lab: &Lab, layout: Layout, (unit, holes): (u64, bool), parts: usize, bytes: &[u8]) -> DriveFile {
    let recipients = vec![Identity::generate().unwrap().recipient()];
    let seal = Some(SealRequest { unit, holes, recipients });
    let size = DriveSize::Bytes(bytes.len() as u64);
    let mut file = create(CreateRequest { seal, parts, ..lab.request(layout, size).await }).await.unwrap();
    load(&mut file, device(bytes), load_options(), |_| {}).await.unwrap();
    file
}

fn request(to: LendTo, purpose: &'static str) -> LendRequest {
    LendRequest { to, purpose, record: Arc::<Recorded>::default() }
}

fn lend(to: LendTo) -> NearOptions {
    NearOptions { workers: 2, lend: Some(request(to, "search")), within: None, patience: PATIENCE }
}

async fn begin(file: &DriveFile, device: &DynDevice, order: &Order, to: LendTo) -> NearSearch {
    let search = Arc::new(Search::new(order).unwrap());
    search_at_nodes(file, device, (order, &search), &SESSION, lend(to)).await.unwrap()
}

/// The hits, and what was searched and why not.
async fn outcome(mut batches: BoxStream<'static, cheetah_error::Result<Batch>>, size: u64) -> (Vec<Hit>, Outcome) {
    let (mut hits, mut outcome) = (Vec::new(), Outcome::new(size, 16));
    while let Some(batch) = batches.next().await {
        let batch = batch.unwrap();
        outcome.add(&batch);
        hits.extend(batch.hits);
    }
    (hits, outcome)
}

/// Searches a drive at nodes that are lent the key, and compares hits and coverage with those of a search that reads it. Returns
/// them, and what was searched where.
async fn same_as_read(file: &DriveFile, device: &DynDevice, order: &Order) -> (Vec<Hit>, Outcome, WorkDone) {
    let NearSearch { batches, done } = begin(file, device, order, LendTo::All).await;
    let (hits, near) = outcome(batches, file.size).await;
    let search = Arc::new(Search::new(order).unwrap());
    let (read_hits, read) = outcome(run(&search, device, &RunOptions::new(2)), file.size).await;
    let done = done.lock().clone();
    assert_eq!(hits, read_hits, "{done:?}");
    assert_eq!(near.coverage(), read.coverage(), "{done:?}");
    (hits, near, done)
}

#[derive(Debug, Clone)]
struct Case {
    layout: Layout,
    nodes: usize,
    parts: usize,
    seal: (u64, bool),
    /// The first nodes that may be lent the key.
    trusted: usize,
    loses_one: bool,
    size: u64,
    /// How far before a seam hits begin, in turn.
    shifts: Vec<u64>,
    /// A unit of the seal that the first node alters.
    altered: Option<u64>,
}

fn case() -> impl Strategy<Value = Case> {
    let wide = 4 * UNIT;
    let layouts = vec![
        (Layout::Stripe { unit: UNIT }, 3, 1, 4 * KIB),
        (Layout::Stripe { unit: wide }, 3, 1, UNIT),
        (Layout::Linear, 2, 1, UNIT),
        (Layout::Mirror { unit: wide, copies: 2 }, 3, 1, UNIT),
        (Layout::Mirror { unit: UNIT, copies: 2 }, 2, 2, 4 * KIB),
        (Layout::Parity { unit: wide, parities: 1 }, 3, 1, UNIT),
        (Layout::Parity { unit: UNIT, parities: 1 }, 4, 2, 4 * KIB),
    ];
    let shifts = prop::collection::vec(0..=2 * WORD.len() as u64 + MAIL.len() as u64, 7);
    let altered = prop::option::of(0u64..8);
    let seal_and_loss = (select(layouts), any::<bool>(), any::<bool>());
    (seal_and_loss, 1usize..=4, MIB..2 * MIB, shifts, altered).prop_map(
        |(((layout, nodes, parts, unit), holes, loses_one), trusted, size, shifts, altered)| Case {
            layout,
            nodes,
            parts,
            seal: (unit, holes),
            trusted: trusted.min(nodes),
            loses_one,
            size,
            shifts,
            altered,
        },
    )
}

/// Words alone, whose edges are small enough for the smallest unit.
fn words() -> Order {
    Order { expressions: Vec::new(), finders: Vec::new(), ..order(16) }
}

/// Searches a sealed drive with hits at each of its seams.
async fn check(case: Case) {
    let mut bytes = noise(case.size);
    let [narrow, wide] = forms();
    let mut shifts = case.shifts.iter().cycle();
    for (number, seam) in (0..case.size).step_by(4 << 10).enumerate() {
        put(&mut bytes, seam, *shifts.next().unwrap(), [&narrow[..], &wide[..]][number % 2]);
    }
    let mut roles = vec![Role::TrustedNode; case.trusted];
    roles.resize(case.nodes, Role::Node);
    let mut lab = lab(&roles);
    let file = loaded(&lab, case.layout, case.seal, case.parts, &bytes).await;
    if let Some(unit) = case.altered {
        alter(&lab.nodes[0], unit * (case.seal.0 + 24) + 77).await;
    }
    let loses_one = case.loses_one && file.losses_max() > 0;
    // One of several that may be lent the key, so that one is left.
    if loses_one && case.trusted > 1 {
        lab.nodes.remove(0).shutdown().await;
    }
    let drive = Drive::open(&file, options(false)).await.unwrap();
    let (hits, outcome, done) = same_as_read(&file, &drive.device(), &words()).await;
    if outcome.coverage().is_whole() {
        assert_eq!(hits, expected(&bytes, &words()).await, "{done:?}");
    }
    assert!(case.altered.is_some() || outcome.coverage().is_whole());
    assert!(case.layout == Layout::Linear || !done.node_bytes.is_empty(), "{done:?}");
    assert_eq!(done.node_bytes.values().chain(done.here_bytes.values()).sum::<u64>(), file.size, "{done:?}");
    drive.close().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 5, ..ProptestConfig::default() })]

    #[test]
    fn hits_and_coverage_of_a_sealed_drive_are_those_of_a_search_that_reads_it(case in case()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check(case));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn few_bytes_are_read_where_all_nodes_are_lent_the_key_and_their_receipts_name_the_task() {
    let lab = lab(&[Role::TrustedNode; 3]);
    let file = loaded(&lab, Layout::Stripe { unit: MIB }, (UNIT, false), 1, &noise(4 * MIB)).await;
    let drive = Drive::open(&file, options(false)).await.unwrap();
    let recorded = Arc::<Recorded>::default();
    let lend = LendRequest { record: recorded.clone(), ..request(LendTo::All, "search") };
    let options = NearOptions { workers: 2, lend: Some(lend), within: None, patience: PATIENCE };
    let (order, device) = (order(32), drive.device());
    let search = Arc::new(Search::new(&order).unwrap());
    let begun = search_at_nodes(&file, &device, (&order, &search), &SESSION, options).await.unwrap();
    outcome(begun.batches, file.size).await;
    let done = begun.done.lock().clone();
    let read: u64 = done.here_bytes.values().sum();
    assert!(read <= file.size / 8, "{done:?}");
    let lent = done.key_lent.unwrap();
    assert_eq!(*recorded.0.lock().unwrap(), std::slice::from_ref(&lent));
    let members: Vec<_> = lent.nodes.iter().map(|node| node.member.as_str()).collect();
    assert_eq!(members, ["pc0 (trusted-node)", "pc1 (trusted-node)", "pc2 (trusted-node)"]);
    drop(device);
    drive.close().await.unwrap();
    let destroyed = destroy(&file, destroy_options(false)).await.unwrap();
    for node in destroyed.nodes {
        let WipeOutcome::Wiped { receipt, .. } = node.outcome else { panic!("{node:?}") };
        let [key] = &receipt.statement.keys_lent[..] else { panic!("{receipt:?}") };
        assert_eq!((&key.task, key.by.as_str(), key.wiped), (&lent.task, "desk (examiner)", true), "{key:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_a_node_altered_is_unreadable_or_read_from_the_others_and_never_skipped() {
    let bytes = noise(2 * MIB);
    for (layout, is_whole) in
        [(Layout::Stripe { unit: 4 * UNIT }, false), (Layout::Parity { unit: 4 * UNIT, parities: 1 }, true)]
    {
        let lab = lab(&[Role::TrustedNode; 3]);
        let file = loaded(&lab, layout, (UNIT, false), 1, &bytes).await;
        // On the first node only: the first unit of the drive.
        alter(&lab.nodes[0], 77).await;
        let drive = Drive::open(&file, options(false)).await.unwrap();
        let (_, outcome, done) = same_as_read(&file, &drive.device(), &words()).await;
        assert_eq!(outcome.coverage().is_whole(), is_whole, "{layout:?} {done:?}");
        let first = &file.nodes().next().unwrap().name;
        let unopened = done.here_bytes.get(format!("the key that node {first} was lent does not open it").as_str());
        assert_eq!(unopened, Some(&UNIT), "{layout:?} {done:?}");
        if !is_whole {
            assert_eq!(outcome.gaps().iter().map(|gap| gap.range.len).sum::<u64>(), UNIT, "{:?}", outcome.gaps());
        }
        drive.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_drive_is_verified_at_nodes_that_are_lent_the_key_with_the_verdict_of_one_that_is_read() {
    let bytes = noise(4 * MIB);
    for layout in [Layout::Stripe { unit: MIB }, Layout::Parity { unit: MIB, parities: 1 }] {
        let lab = lab(&[Role::TrustedNode; 3]);
        let file = loaded(&lab, layout, (UNIT, false), 1, &bytes).await;
        for alters in [false, true] {
            if alters {
                alter(&lab.nodes[0], 77).await;
            }
            let plain = verified(&file).await;
            let options = VerifyOptions { lend: Some(request(LendTo::All, "verify")), ..verify_options(true) };
            let near = verify(&file, options, |_| {}).await.unwrap();
            assert_eq!(near.hashes.blake3, plain.hashes.blake3);
            assert_eq!((near.ok_bytes, &near.unreadable), (plain.ok_bytes, &plain.unreadable));
            assert_eq!(near.altered_units, plain.altered_units);
            assert_eq!(near.is_ok(), !alters, "{near:?}");
            let work = near.at_nodes.unwrap().work;
            assert!(work.node_bytes.values().sum::<u64>() > file.size / 2, "{work:?}");
            assert_eq!(work.key_lent.unwrap().purpose, "verify");
        }
    }
}

/// Alters a byte that a node holds.
async fn alter(node: &Node, at: u64) {
    let export = node.exports().list().remove(0);
    let device = node.exports().open(&export, &[]).unwrap().device;
    let byte = device.read(ByteRange::new(at, 1)).await.unwrap().into_bytes()[0];
    device.write(at, vec![byte ^ 1].into(), false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn units_that_were_written_since_are_found_as_they_are_now() {
    let lab = lab(&[Role::TrustedNode; 2]);
    let mut bytes = noise(2 * MIB);
    let file = loaded(&lab, Layout::Stripe { unit: 4 * UNIT }, (UNIT, false), 1, &bytes).await;
    let reader = Drive::open(&file, options(false)).await.unwrap();
    let begun = begin(&file, &reader.device(), &words(), LendTo::All).await;
    let writer = Drive::open(&file, options(true)).await.unwrap();
    for unit in [1, 5, 20] {
        put(&mut bytes, unit * UNIT, 3, WORD.as_bytes());
        writer.device().write(unit * UNIT - 3, WORD.as_bytes().to_vec().into(), false).await.unwrap();
    }
    writer.device().flush().await.unwrap();
    let (hits, found) = outcome(begun.batches, file.size).await;
    assert!(found.coverage().is_whole());
    assert_eq!(hits, expected(&bytes, &words()).await);
    writer.close().await.unwrap();
    reader.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_is_lent_to_those_nodes_that_the_room_trusts_with_it_and_that_were_chosen() {
    let lab = lab(&[Role::TrustedNode, Role::Node, Role::TrustedNode]);
    let file = loaded(&lab, Layout::Stripe { unit: 4 * UNIT }, (UNIT, false), 1, &noise(2 * MIB)).await;
    let drive = Drive::open(&file, options(false)).await.unwrap();
    let device = drive.device();
    let names: Vec<String> = file.nodes().map(|node| node.name.clone()).collect();
    let named = |numbers: &[usize]| LendTo::Named(numbers.iter().map(|number| names[*number].clone()).collect());
    for (to, lent) in [(LendTo::All, vec![&names[0], &names[2]]), (named(&[2]), vec![&names[2]])] {
        let begun = begin(&file, &device, &words(), to).await;
        outcome(begun.batches, file.size).await;
        let done = begun.done.lock().clone();
        let lent_to: Vec<_> = done.key_lent.as_ref().unwrap().nodes.iter().map(|node| &node.node).collect();
        assert_eq!(lent_to, lent);
        let searched: Vec<String> = done.node_bytes.keys().map(ToString::to_string).collect();
        assert!(searched.iter().all(|name| lent.contains(&name)) && searched.len() == lent.len(), "{done:?}");
        let why = format!("node {} has the role node, and a key is lent to the role trusted-node only", names[1]);
        assert_eq!(done.here_bytes.contains_key(why.as_str()), lent.len() == 2, "{done:?}");
    }
    let search = Arc::new(Search::new(&words()).unwrap());
    let refused =
        search_at_nodes(&file, &device, (&words(), &search), &SESSION, lend(named(&[0, 1]))).await.err().unwrap();
    assert_eq!(refused.steps(), [next::Room::InviteWithRole { role: "trusted-node".into() }.into()]);
    drive.close().await.unwrap();
}
