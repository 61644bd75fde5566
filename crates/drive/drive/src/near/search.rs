//! Searching a drive at its nodes: each searches the units that it holds, each alone, and this process the seams between them.
//!
//! A node returns the hits that the bytes of a unit decide, and the edges of the unit. What no node searches is read. The result is
//! that of a search that reads everything ([`run_parts`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::jobs::{JobHit, JobLine, OrderAtoms, SearchOrder, Work, hits_bytes_max};
use cheetah_device::around::read_around;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result};
use cheetah_seal::{Record, Stamp};
use cheetah_search::{
    Batch, BlockKey, CONTEXT_BYTES_MAX, Extent, Hit, MATCH_BYTES_MAX, Order, PatternKind, RunOptions, Search,
    SearchNode, SearchedPart, SourcePart, run, run_parts,
};
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, Stream, StreamExt as _};
use parking_lot::Mutex;
use tokio::task::JoinSet;

pub use super::job::PATIENCE;
use super::lending::{self, KeyLending, LendRequest, is_of_record, other_version};
use super::node_work::{NodeWork, Results};
use super::not_done::NotDone;
use super::units::Nodes;
use super::work_done::{DoneBy, WorkDone};
use crate::file::{DriveFile, SetNode};
use crate::node::export::KeptExports;
use crate::session::Session;
use crate::set::newest::{is_newest, refresh};

/// The largest unit, and the most that is read at once, in bytes.
const UNIT_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a part of the drive for each node: as many times this as its order has steps of this size, but no more than that, so that
/// orders are a small part of what is sent, and few results are in memory at once.
const PART_BYTES_OF_NODE: u64 = 32 << 20;
const ORDER_STEP_BYTES: usize = 256 << 10;
const ORDER_STEPS_MAX: usize = 8;
/// The least number of edges that fit in a unit: of a smaller one, most would be sent.
const EDGES_MIN: u64 = 4;
/// The most units that are taken as one part: their seams are searched by one thread, and further ones by another.
const TAKEN_MAX: usize = 256;
/// Reads in flight.
const READS: usize = 8;

/// A search under way.
pub struct NearSearch {
    /// Its results, as those of [`run()`].
    pub batches: BoxStream<'static, Result<Batch>>,
    /// What was searched where, so far.
    pub done: Arc<Mutex<WorkDone>>,
}

/// How a drive is searched.
#[derive(Debug, Clone)]
pub struct NearOptions {
    /// The searches in this process at once.
    pub workers: usize,
    /// The nodes that are lent the key of a sealed drive. Without, it is searched in this process.
    pub lend: Option<LendRequest>,
    /// The ranges in which hits may begin; `None`: everywhere.
    pub within: Option<Vec<ByteRange>>,
    /// How long a node may take until its next result. This process then reads in its place. [`PATIENCE`] is right for examiners.
    pub patience: Duration,
}

/// Begins to search the drive that `file` describes, and that `device` reads: at its nodes where they lend their processor, and in
/// this process for the rest. `search` is `order`, compiled.
///
/// # Errors
///
/// If the drive's maps cannot be had, or a node that was named cannot be lent the key.
pub async fn search_at_nodes(
    file: &DriveFile,
    device: &DynDevice,
    (order, search): (&Order, &Arc<Search>),
    session: &Session,
    options: NearOptions,
) -> Result<NearSearch> {
    let workers = options.workers;
    let done = Arc::<Mutex<WorkDone>>::default();
    let file = refresh(file, session).await?;
    let nodes = match nodes(&file, search, &options, session).await? {
        Ok((nodes, key_lent)) => {
            done.lock().key_lent = key_lent;
            nodes
        }
        Err(why) => {
            let (counted, by) = (done.clone(), DoneBy::Here(why));
            let count = move |batch: &Result<Batch>| {
                batch.iter().for_each(|batch| counted.lock().add(&by, batch.range.len));
            };
            let options = RunOptions { within: options.within, ..RunOptions::new(workers) };
            let batches = run(search, device, &options).inspect(count).boxed();
            return Ok(NearSearch { batches, done });
        }
    };
    let extent = Extent::new(options.within.as_deref(), search.overlap(), nodes.unit_bytes, file.size);
    let near = Near {
        patterns: Patterns { order: request(order), search: search.clone(), seal: nodes.seal.clone() },
        nodes,
        named: named(&file),
        file,
        exports: KeptExports::default(),
        session: session.clone(),
        has_moved: AtomicBool::new(false),
        device: device.clone(),
        done: done.clone(),
    };
    let parts = Arc::new(near).parts(extent.reads().to_vec());
    Ok(NearSearch { batches: extent.clip(run_parts(search, parts, workers)), done })
}

/// The nodes that search, and the key that they were lent; or why this process reads everything.
async fn nodes(
    file: &DriveFile,
    search: &Search,
    options: &NearOptions,
    session: &Session,
) -> Result<std::result::Result<(Nodes, Option<KeyLending>), Arc<str>>> {
    if file.fill.is_some() {
        return Ok(Err("it is still being filled".into()));
    }
    let unit_bytes = match &file.sealed {
        Some(seal) => seal.unit,
        None => file.sets.iter().filter_map(|set| set.unit).fold(UNIT_BYTES_MAX, u64::min),
    };
    let are_long = search.overlap().edge() as u64 * EDGES_MIN > unit_bytes;
    // A key is lent only if it is used.
    if are_long && (file.sealed.is_none() || options.lend.is_some()) {
        return Ok(Err("hits may be so long that nodes would send most of each unit".into()));
    }
    let found = lending::nodes(file, unit_bytes, options.lend.as_ref(), session).await?;
    Ok(found.map(|(nodes, lent)| (Nodes { patience: options.patience, ..nodes }, lent)))
}

/// The order, for nodes.
fn request(order: &Order) -> SearchOrder {
    SearchOrder {
        version: env!("CARGO_PKG_VERSION").into(),
        words: order.words.clone(),
        expressions: order.expressions.clone(),
        finders: order.finders.iter().map(|finder| finder.name().to_owned()).collect(),
        blocks: STANDARD.encode(BlockKey::to_bytes(&order.blocks)),
        atoms: OrderAtoms { words: order.atoms.words.clone(), ignore_case: order.atoms.ignore_case },
        encodings: order.encodings.iter().map(|encoding| encoding.name()).collect(),
        ignore_case: order.ignore_case,
        context_bytes: order.context_bytes,
    }
}

/// The bytes of a part of the drive for each node, which is sent the order for each part.
fn part_bytes_of_node(order: &SearchOrder) -> u64 {
    let texts = order.words.iter().chain(&order.expressions).chain(&order.atoms.words).map(|text| text.len() + 3);
    let steps = (texts.sum::<usize>() + order.blocks.len()).div_ceil(ORDER_STEP_BYTES);
    PART_BYTES_OF_NODE * steps.clamp(1, ORDER_STEPS_MAX) as u64
}

/// The nodes of a drive by their names. One that searches has the instance that the drive file names.
fn named(file: &DriveFile) -> HashMap<Arc<str>, Arc<SearchNode>> {
    let node = |node: &SetNode| {
        let name: Arc<str> = node.name.as_str().into();
        let instance = node.instance.as_deref().unwrap_or_default().into();
        (name.clone(), Arc::new(SearchNode { name, instance }))
    };
    file.nodes().map(node).collect()
}

/// A drive that is searched at its nodes.
struct Near {
    patterns: Patterns,
    nodes: Nodes,
    named: HashMap<Arc<str>, Arc<SearchNode>>,
    file: DriveFile,
    exports: KeptExports,
    session: Session,
    /// Whether parts of the drive moved, or missed writes: the nodes do not hold what they are said to hold.
    has_moved: AtomicBool,
    device: DynDevice,
    done: Arc<Mutex<WorkDone>>,
}

/// What to do with a range of the drive.
enum Todo {
    /// The nodes of these names have searched parts of it that follow each other.
    Take(Vec<(Arc<str>, SearchedPart)>),
    /// It is to be read, for this reason.
    Read(Arc<str>, ByteRange),
    Fail(Error),
}

impl Near {
    /// The parts of these ranges of the drive, in order: searched, or read.
    fn parts(self: Arc<Self>, ranges: Vec<ByteRange>) -> impl Stream<Item = SourcePart> + Send + 'static {
        let part_bytes = self.nodes.part_bytes(part_bytes_of_node(&self.patterns.order));
        let windows = ranges.into_iter().flat_map(move |range| range.split_at_multiples(part_bytes));
        let (near, at_once) = (self.clone(), self.nodes.parts());
        let searched = stream::iter(windows).map(move |window| in_task(near.clone(), window).boxed()).buffered(at_once);
        // Reads begin here, after the window's search, so that few bytes are in memory at once.
        searched.flat_map(stream::iter).map(move |todo| self.clone().carry_out(todo).boxed()).buffered(READS)
    }

    async fn search(self: Arc<Self>, window: ByteRange) -> Vec<Todo> {
        let ranges: Vec<ByteRange> = window.split_at_multiples(self.nodes.unit_bytes).collect();
        let mut found = Vec::new();
        if !self.has_moved.load(Ordering::Relaxed) {
            found = self.nodes.run(&ranges, &self.patterns).await;
            // Asked afterwards: what the nodes searched was theirs then.
            if !is_newest(&self.file, &self.exports, &self.session).await {
                self.has_moved.store(true, Ordering::Relaxed);
                found.clear();
            }
        }
        let moved: Arc<str> = "parts of the drive moved meanwhile, or missed writes".into();
        found.resize_with(ranges.len(), || Err(moved.clone()));
        let mut todo: Vec<Todo> = Vec::new();
        for (range, found) in ranges.into_iter().zip(found) {
            match (found, todo.last_mut()) {
                (Ok(part), Some(Todo::Take(parts))) if parts.len() < TAKEN_MAX => parts.push(part),
                (Ok(part), _) => todo.push(Todo::Take(vec![part])),
                (Err(why), Some(Todo::Read(same, last))) if *same == why && last.len + range.len <= UNIT_BYTES_MAX => {
                    last.len += range.len;
                }
                (Err(why), _) => todo.push(Todo::Read(why, range)),
            }
        }
        todo
    }

    async fn carry_out(self: Arc<Self>, todo: Todo) -> SourcePart {
        match todo {
            Todo::Take(parts) => {
                let mut done = self.done.lock();
                let of_node = |(name, part): (Arc<str>, SearchedPart)| {
                    let node = self.named.get(&name).cloned();
                    done.add(&DoneBy::Node(name), part.range.len);
                    SearchedPart { node, ..part }
                };
                SourcePart::Searched(parts.into_iter().map(of_node).collect())
            }
            Todo::Read(why, range) => match read_around(&self.device, range).await {
                Ok(pieces) => {
                    self.done.lock().add(&DoneBy::Here(why), range.len);
                    SourcePart::Read(pieces)
                }
                Err(error) => SourcePart::Failed(Error::device("reading the drive")(error)),
            },
            Todo::Fail(error) => SourcePart::Failed(error),
        }
    }
}

/// Has a window searched in a task of its own, so that it goes on while the bytes of others are read. It ends when this is dropped.
async fn in_task(near: Arc<Near>, window: ByteRange) -> Vec<Todo> {
    let mut task = JoinSet::new();
    task.spawn(near.search(window).boxed());
    match task.join_next().await {
        Some(Ok(todo)) => todo,
        _ => vec![Todo::Fail(Error::failed(format!("searching {window}: the task ended")))],
    }
}

/// The patterns of a search, as work for nodes.
struct Patterns {
    order: SearchOrder,
    search: Arc<Search>,
    /// The seal record, if nodes open the units.
    seal: Option<Arc<Record>>,
}

impl NodeWork for Patterns {
    type Found = SearchedPart;

    fn work(&self) -> Work {
        Work::Search(self.order.clone())
    }

    fn read(&self, line: JobLine, ranges: &[ByteRange]) -> std::result::Result<(u64, Results<SearchedPart>), NotDone> {
        let JobLine::Searched { unit, head, tail, hits, stamp } = line else { return Err(NotDone::Malformed) };
        let range = usize::try_from(unit).ok().and_then(|unit| ranges.get(unit)).copied().ok_or(NotDone::Malformed)?;
        let part = self.part(range, [head, tail], hits).ok_or(NotDone::Malformed)?;
        let stamp = stamp.map(|text| Stamp::from_hex(&text).ok_or(NotDone::Malformed)).transpose()?;
        let is_right = is_of_record(self.seal.as_deref(), range, stamp);
        Ok((unit, vec![is_right.then_some(part).ok_or_else(other_version)]))
    }
}

impl Patterns {
    /// What a node sent about a unit; `None` if it makes no sense.
    fn part(&self, range: ByteRange, edges: [String; 2], hits: Vec<JobHit>) -> Option<SearchedPart> {
        let edge = |text| STANDARD.decode(text).ok().filter(|bytes| bytes.len() == self.search.overlap().edge());
        let [head, tail] = edges.map(edge);
        let core = self.search.overlap().core(range)?;
        let hits: Vec<Hit> = hits.into_iter().map(|hit| self.hit(hit, core)).collect::<Option<_>>()?;
        let room_bytes: usize = hits.iter().map(Hit::room_bytes).sum();
        let are_hits = room_bytes <= hits_bytes_max(range.len) && hits.is_sorted_by_key(|hit| hit.offset);
        are_hits.then_some(SearchedPart { range, head: head?, tail: tail?, hits, node: None })
    }

    /// A hit that begins in this range.
    fn hit(&self, hit: JobHit, within: ByteRange) -> Option<Hit> {
        let around = STANDARD.decode(hit.base64).ok()?;
        let (before, rest) = around.split_at_checked(hit.before)?;
        let (bytes, after) = rest.split_at_checked(hit.len)?;
        let encoding = hit.encoding.parse().ok()?;
        let pattern = self.search.patterns().get(hit.pattern)?;
        let is_known = pattern.encodings.contains(&encoding)
            && (pattern.kind != PatternKind::Block || BlockKey::in_hit(bytes).is_some());
        let is_hit = (within.offset..within.end()).contains(&hit.at)
            && (1..=MATCH_BYTES_MAX).contains(&bytes.len())
            && before.len().max(after.len()) <= CONTEXT_BYTES_MAX;
        let [bytes, before, after] = [bytes, before, after].map(<[u8]>::to_vec);
        (is_known && is_hit).then_some(Hit { offset: hit.at, pattern: hit.pattern, encoding, bytes, before, after })
    }
}

#[cfg(test)]
mod tests {
    use cheetah_seal::Units;
    use cheetah_search::BLOCK_BYTES;

    use super::super::job::tests::noted;
    use super::*;

    const UNIT: u64 = 4096;

    #[test]
    fn of_a_sealed_drive_only_versions_that_the_seal_record_names_are_taken() {
        let mut record = Record::new([0; 16], Units::new(UNIT, 3 * UNIT).unwrap(), false);
        record.stamps[1] = Stamp::new(2, 7).unwrap();
        let patterns = Patterns { seal: Some(Arc::new(record)), ..patterns() };
        let text = STANDARD.encode(vec![7; patterns.search.overlap().edge()]);
        let taken = |unit: u64, stamp: Option<&str>| {
            let (head, tail, stamp) = (text.clone(), text.clone(), stamp.map(str::to_owned));
            let line = JobLine::Searched { unit: 0, head, tail, hits: Vec::new(), stamp };
            noted([line], &[ByteRange::new(unit * UNIT, UNIT)], &patterns).unwrap()[0].is_ok()
        };
        let [hole, right, other] =
            [Stamp::HOLE, Stamp::new(2, 7).unwrap(), Stamp::new(2, 6).unwrap()].map(Stamp::to_hex);
        assert!(taken(0, Some(&hole)) && taken(1, Some(&right)));
        for (unit, stamp) in [(0, Some(&right)), (1, Some(&hole)), (1, Some(&other)), (1, None), (3, Some(&hole))] {
            assert!(!taken(unit, stamp.map(String::as_str)), "{unit} {stamp:?}");
        }
        let left = noted([JobLine::Unopened { unit: 0 }], &[ByteRange::new(UNIT, UNIT)], &patterns).unwrap();
        assert_eq!(left[0].as_ref().unwrap_err().as_ref(), "the key that node a was lent does not open it");
    }

    #[test]
    fn a_node_gets_larger_parts_for_a_longer_order() {
        let bytes = |words| {
            let words = vec!["a word of 17 bytes".to_owned(); words];
            part_bytes_of_node(&SearchOrder { words, ..SearchOrder::default() })
        };
        assert_eq!([0, 1, 100_000].map(bytes), [1, 1, 8].map(|steps| steps * PART_BYTES_OF_NODE));
    }

    fn patterns() -> Patterns {
        let order =
            Order { words: vec!["secret".into()], encodings: vec!["utf-8".parse().unwrap()], ..Order::default() };
        Patterns { order: request(&order), search: Arc::new(Search::new(&order).unwrap()), seal: None }
    }

    fn hit(at: u64) -> JobHit {
        let base64 = STANDARD.encode(b"a secret!");
        JobHit { at, len: 6, pattern: 0, encoding: "utf-8".into(), before: 2, base64 }
    }

    #[test]
    fn a_block_of_a_known_file_that_has_no_key_is_refused() {
        let key = BlockKey::of(&[7; BLOCK_BYTES]);
        let blocks = vec![key];
        let order = Order { blocks, encodings: vec!["utf-8".parse().unwrap()], ..Order::default() };
        let patterns = Patterns { search: Arc::new(Search::new(&order).unwrap()), ..patterns() };
        let hit = |bytes: &[u8]| {
            let base64 = STANDARD.encode(bytes);
            let hit = JobHit { at: 100, len: bytes.len(), pattern: 0, encoding: "utf-8".into(), before: 0, base64 };
            patterns.hit(hit, ByteRange::new(0, 4 * UNIT))
        };
        assert!(hit(&BlockKey::to_bytes(&[key])).is_some() && hit(&[7; BLOCK_BYTES]).is_some());
        assert!(hit(b"secret").is_none());
    }

    #[test]
    fn the_hits_of_a_unit_are_read_and_results_that_are_none_are_refused() {
        let patterns = patterns();
        let edge = patterns.search.overlap().edge();
        let line = |unit, edge, hits| {
            let text = STANDARD.encode(vec![7; edge]);
            JobLine::Searched { unit, head: text.clone(), tail: text, hits, stamp: None }
        };
        let ranges = [ByteRange::new(0, UNIT), ByteRange::new(4 * UNIT, UNIT)];
        let noted = |line| noted([line], &ranges, &patterns);
        let found = noted(line(1, edge, vec![hit(4 * UNIT + 100), hit(4 * UNIT + 100)])).unwrap();
        let part = found[1].clone().unwrap();
        assert!(found[0].is_err());
        assert_eq!((part.range, part.hits.len(), part.head.len(), part.tail.len()), (ranges[1], 2, edge, edge));
        let hits = &part.hits[0];
        assert_eq!((&hits.before[..], &hits.bytes[..], &hits.after[..]), (&b"a "[..], &b"secret"[..], &b"!"[..]));
        for hostile in [
            line(2, edge, Vec::new()),
            line(u64::MAX, edge, Vec::new()),
            line(0, edge - 1, Vec::new()),
            line(0, edge, vec![hit(0)]),
            line(0, edge, vec![hit(UNIT - 1)]),
            line(0, edge, vec![hit(4 * UNIT + 100)]),
            line(0, edge, vec![hit(u64::MAX)]),
            line(0, edge, vec![hit(200), hit(100)]),
            line(0, edge, vec![JobHit { pattern: 1, ..hit(100) }]),
            line(0, edge, vec![JobHit { encoding: "utf-16le".into(), ..hit(100) }]),
            line(0, edge, vec![JobHit { encoding: "?".into(), ..hit(100) }]),
            line(0, edge, vec![JobHit { len: 0, ..hit(100) }]),
            line(0, edge, vec![JobHit { len: usize::MAX, ..hit(100) }]),
            line(0, edge, vec![JobHit { before: 10, ..hit(100) }]),
            line(0, edge, vec![JobHit { base64: "?".into(), ..hit(100) }]),
            line(0, edge, vec![hit(100); 100]),
            JobLine::Values { from: 0, base64: String::new(), stamps: None },
        ] {
            assert!(noted(hostile).is_err());
        }
        let left = noted(JobLine::TooManyHits { unit: 0 }).unwrap();
        assert_eq!(left[0].as_ref().unwrap_err().as_ref(), "it has more hits than a node returns");
    }
}
