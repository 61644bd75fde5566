//! Groups of records: written as a whole, and read as results.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::iter::Peekable;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec;

use cheetah_device::ByteRange;
use cheetah_device::coverage::State as Reach;
use cheetah_error::{Error, Result};
use cheetah_search::{Batch, Hit, InnerHit, Search, SearchNode};

use super::errors::{altered, reading};
use super::lines::{Line, Lines, Source};
use super::record::{HitRow, NodeRow, RangePart, Record, SearchedRange, WHY_CHARS_MAX};
use super::state::{Place, Stretch};

/// What hits take before they are written as a record.
const FRAME_BYTES: usize = 512 << 10;
/// A group is written when it has this many bytes of the source, takes this much, has this many parts, or is this old. On fast sources, its
/// age is what counts: storing more often would cost time.
const GROUP_BYTES: u64 = 1 << 30;
const GROUP_ROOM_BYTES: usize = 32 << 20;
const GROUP_PARTS: usize = 16 << 10;
const GROUP_AGE: Duration = Duration::from_secs(1);
/// As many times the room and the parts of a group are the most that waits for a place where it may end.
const OVERDUE: usize = 4;
/// The groups that are kept while results are read: the pieces of some alternate.
const GROUPS_KEPT: usize = 3;

/// A group that is being collected: a range, what became of it, and its hits.
pub struct Group {
    pub range: ByteRange,
    /// The bytes of the range that are not skipped.
    done_bytes: u64,
    parts: Vec<RangePart>,
    nodes: Vec<NodeRow>,
    rows: Vec<HitRow>,
    rows_bytes: usize,
    room_bytes: usize,
    hits: u64,
    begun: Instant,
}

impl Group {
    /// Nothing, from this offset on.
    pub fn new(offset: u64) -> Self {
        Self {
            range: ByteRange::new(offset, 0),
            done_bytes: 0,
            parts: Vec::new(),
            nodes: Vec::new(),
            rows: Vec::new(),
            rows_bytes: 0,
            room_bytes: 0,
            hits: 0,
            begun: Instant::now(),
        }
    }

    /// Whether it is to be written now.
    pub fn is_due(&self) -> bool {
        self.done_bytes >= GROUP_BYTES
            || self.room_bytes >= GROUP_ROOM_BYTES
            || self.parts.len() >= GROUP_PARTS
            || !self.range.is_empty() && self.begun.elapsed() >= GROUP_AGE
    }

    /// Whether it is to be written wherever it ends.
    pub const fn is_overdue(&self) -> bool {
        self.room_bytes >= OVERDUE * GROUP_ROOM_BYTES || self.parts.len() >= OVERDUE * GROUP_PARTS
    }

    /// Leaves out bytes that follow, which are not searched again.
    pub fn skip(&mut self, len: u64) {
        self.parts.push(RangePart { len, state: None, why: None, node: None });
        self.range.len += len;
    }

    /// Adds a result that follows. Calls `frame` with records of hits.
    pub fn add(&mut self, batch: &Batch, search: &Search, mut frame: impl FnMut(Record) -> Result<()>) -> Result<()> {
        let why: Option<String> = batch.why.as_ref().map(|why| why.chars().take(WHY_CHARS_MAX).collect());
        let node = batch.node.as_deref().map(|node| self.node(node));
        let (len, state) = (batch.range.len, Some(batch.state));
        match self.parts.last_mut() {
            Some(last) if (last.state, &last.why, last.node) == (state, &why, node) => last.len += len,
            _ => self.parts.push(RangePart { len, state, why, node }),
        }
        self.range.len += len;
        self.done_bytes += len;
        for hit in &batch.hits {
            let row = HitRow::of(hit, search).ok_or_else(|| Error::failed("a hit is none of this search"))?;
            self.rows.push(row);
            (self.rows_bytes, self.room_bytes) =
                (self.rows_bytes.saturating_add(hit.room_bytes()), self.room_bytes.saturating_add(hit.room_bytes()));
            self.hits += 1;
            if self.rows_bytes >= FRAME_BYTES {
                self.rows_bytes = 0;
                frame(Record::Hits(std::mem::take(&mut self.rows)))?;
            }
        }
        Ok(())
    }

    /// The index of a node among those of the group.
    fn node(&mut self, node: &SearchNode) -> usize {
        let is_it = |row: &NodeRow| row.0.as_str() == &*node.name && row.1.as_str() == &*node.instance;
        self.nodes.iter().position(is_it).unwrap_or_else(|| {
            self.nodes.push(NodeRow(node.name.to_string(), node.instance.to_string()));
            self.nodes.len() - 1
        })
    }

    /// The last records of the group.
    pub fn finish(self) -> (Option<Record>, SearchedRange) {
        let rows = (!self.rows.is_empty()).then_some(Record::Hits(self.rows));
        let ByteRange { offset, len } = self.range;
        let (parts, nodes, hits) = (self.parts, self.nodes, self.hits);
        (rows, SearchedRange { offset, len, parts, nodes, hits, near: None })
    }
}

/// A group: its hits, those in compressed data, and the record that says what they are of.
pub type ReadRecords = (Vec<Hit>, Vec<InnerHit>, Record);

/// The records of a group, read again. `None` if they are no group.
pub fn read_group(journal: &dyn Source, place: Place, search: &Search) -> io::Result<Option<ReadRecords>> {
    let (mut hits, mut inner) = (Vec::new(), Vec::new());
    let mut lines = Lines::new(journal, place.at, place.before);
    loop {
        let Line::Record(record) = lines.read()? else { return Ok(None) };
        match *record {
            Record::Hits(rows) => {
                for row in &rows {
                    let Some(hit) = row.hit(search) else { return Ok(None) };
                    hits.push(hit);
                }
            }
            Record::InnerHits(rows) => {
                for row in &rows {
                    let Some(hit) = row.hit(search) else { return Ok(None) };
                    inner.push(hit);
                }
            }
            record => return Ok(Some((hits, inner, record))),
        }
    }
}

/// The results of a search, in order, without those that others took the place of.
pub struct Batches<'a> {
    pub(super) file: &'a File,
    pub(super) search: &'a Search,
    pub(super) stretches: std::collections::btree_map::Iter<'a, u64, Stretch>,
    pub(super) path: &'a Path,
    pub(super) ready: VecDeque<Batch>,
    /// The groups that were read last, the last one first.
    pub(super) groups: VecDeque<ReadGroup>,
}

impl Batches<'_> {
    fn read(&mut self, range: ByteRange, place: Place) -> Result<()> {
        let kept = self.groups.iter().position(|group| group.place == place);
        let mut group = match kept.and_then(|kept| self.groups.remove(kept)) {
            Some(group) => group,
            None => self.group(place)?,
        };
        self.ready.extend(group.batches(range));
        self.groups.push_front(group);
        self.groups.truncate(GROUPS_KEPT);
        Ok(())
    }

    fn group(&self, place: Place) -> Result<ReadGroup> {
        let read = read_group(self.file, place, self.search).map_err(|error| reading(self.path, &error))?;
        match read {
            Some((hits, _, Record::Searched(searched))) => Ok(ReadGroup::new(place, hits, searched)),
            _ => Err(altered(self.path)),
        }
    }
}

/// A group of a range, for which ranges within it are asked in their order.
pub struct ReadGroup {
    place: Place,
    /// The hits that were not taken yet.
    hits: Peekable<vec::IntoIter<Hit>>,
    parts: Vec<RangePart>,
    /// The offset of each part.
    offsets: Vec<u64>,
    nodes: Vec<Arc<SearchNode>>,
}

impl ReadGroup {
    fn new(place: Place, hits: Vec<Hit>, searched: SearchedRange) -> Self {
        let SearchedRange { offset, parts, nodes, .. } = searched;
        let node = |NodeRow(name, instance): &NodeRow| {
            Arc::new(SearchNode { name: name.as_str().into(), instance: instance.as_str().into() })
        };
        let nodes = nodes.iter().map(node).collect();
        let mut at = offset;
        let follow = |part: &RangePart| {
            let offset = at;
            at = at.saturating_add(part.len);
            offset
        };
        let offsets = parts.iter().map(follow).collect();
        Self { place, hits: hits.into_iter().peekable(), parts, offsets, nodes }
    }

    /// What it says of a range.
    fn batches(&mut self, range: ByteRange) -> Vec<Batch> {
        let first = self.offsets.partition_point(|offset| *offset <= range.offset).saturating_sub(1);
        let mut batches = Vec::new();
        let offsets = self.offsets.get(first..).unwrap_or_default();
        for (offset, part) in offsets.iter().zip(self.parts.get(first..).unwrap_or_default()) {
            if *offset >= range.end() {
                break;
            }
            let Some((state, range)) = part.state.zip(ByteRange::new(*offset, part.len).intersection(range)) else {
                continue;
            };
            let mut hits = Vec::new();
            if state == Reach::Read {
                while self.hits.next_if(|hit| hit.offset < range.offset).is_some() {}
                hits.extend(std::iter::from_fn(|| self.hits.next_if(|hit| hit.offset < range.end())));
            }
            let why = part.why.as_deref().map(Arc::from);
            let node = part.node.and_then(|node| self.nodes.get(node)).cloned();
            batches.push(Batch { range, state, why, hits, node });
        }
        batches
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some(Ok(batch));
            }
            let (at, stretch) = self.stretches.next().map(|(at, stretch)| (*at, *stretch))?;
            if let Err(error) = self.read(ByteRange::between(at, stretch.end), stretch.place) {
                return Some(Err(error));
            }
        }
    }
}
