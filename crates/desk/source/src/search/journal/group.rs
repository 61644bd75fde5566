//! Groups of records: written as a whole, and read as results.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cheetah_device::ByteRange;
use cheetah_device::coverage::State as Reach;
use cheetah_error::{Error, Result};
use cheetah_search::{Batch, Hit, InnerHit, Search, SearchNode};

use super::errors::{altered, reading};
use super::lines::{Line, Lines};
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

/// A group that is being collected: a range, what became of it, and its hits.
pub struct Group {
    pub range: ByteRange,
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
        self.range.len >= GROUP_BYTES
            || self.room_bytes >= GROUP_ROOM_BYTES
            || self.parts.len() >= GROUP_PARTS
            || !self.range.is_empty() && self.begun.elapsed() >= GROUP_AGE
    }

    /// Adds a result that follows. Calls `frame` with records of hits.
    pub fn add(&mut self, batch: &Batch, search: &Search, mut frame: impl FnMut(Record) -> Result<()>) -> Result<()> {
        let why: Option<String> = batch.why.as_ref().map(|why| why.chars().take(WHY_CHARS_MAX).collect());
        let node = batch.node.as_deref().map(|node| self.node(node));
        match self.parts.last_mut() {
            Some(last) if (last.state, &last.why, last.node) == (batch.state, &why, node) => {
                last.len += batch.range.len;
            }
            _ => self.parts.push(RangePart { len: batch.range.len, state: batch.state, why, node }),
        }
        self.range.len += batch.range.len;
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

/// The records of a group, read again: hits, up to the record that says what they are of.
pub fn read_group(file: &File, place: Place, search: &Search) -> io::Result<Option<(Vec<Hit>, Vec<InnerHit>, Record)>> {
    let (mut hits, mut inner) = (Vec::new(), Vec::new());
    let mut lines = Lines::new(file, place.at, place.before);
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
}

impl Batches<'_> {
    fn read(&mut self, range: ByteRange, place: Place) -> Result<()> {
        let read = read_group(self.file, place, self.search).map_err(|error| reading(self.path, &error))?;
        let Some((hits, _, Record::Searched(searched))) = read else { return Err(altered(self.path)) };
        self.ready.extend(batches(hits, &searched, range));
        Ok(())
    }
}

/// What a group says of a range.
fn batches(hits: Vec<Hit>, searched: &SearchedRange, range: ByteRange) -> Vec<Batch> {
    let mut hits = hits.into_iter().peekable();
    let node = |NodeRow(name, instance): &NodeRow| {
        Arc::new(SearchNode { name: name.as_str().into(), instance: instance.as_str().into() })
    };
    let nodes: Vec<_> = searched.nodes.iter().map(node).collect();
    let (mut at, mut batches) = (searched.offset, Vec::new());
    for part in &searched.parts {
        let part_range = ByteRange::new(at, part.len);
        at = part_range.end();
        let Some(range) = part_range.intersection(range) else { continue };
        let mut own = Vec::new();
        if part.state == Reach::Read {
            while hits.next_if(|hit| hit.offset < range.offset).is_some() {}
            own.extend(std::iter::from_fn(|| hits.next_if(|hit| hit.offset < range.end())));
        }
        let why = part.why.as_deref().map(Arc::from);
        let node = part.node.and_then(|node| nodes.get(node)).cloned();
        batches.push(Batch { range, state: part.state, why, hits: own, node });
    }
    batches
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
