//! Hits inside compressed data, whose beginnings a search found.

use std::sync::Arc;

use cheetah_carve::{End, Packing, unpack};
use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result};
use cheetah_search::seam::Window;
use cheetah_search::{Batch, Compressed, Finder, Hit, InnerHit, PatternKind, Search};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::task::JoinError;

/// The most places that are remembered: more are no use, and take memory.
const PLACES_MAX: usize = 10_000_000;
/// The most bytes that are unpacked of one stream. As many are in memory for each stream that is searched, and each depth.
const STREAM_BYTES_MAX: usize = 64 << 20;
/// The most bytes that are unpacked of one place in the source: of its stream, and of those within it.
const PLACE_BYTES_MAX: u64 = 512 << 20;
/// How deep compressed data are looked for in compressed data.
const DEPTH_MAX: usize = 4;

/// The compressed data that a search has found.
pub struct Streams {
    /// What each pattern finds.
    compressed: Arc<[Option<Compressed>]>,
    found: Vec<Place>,
    /// Places that were found when there was no room.
    left_out: u64,
}

/// Where compressed data begin.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The offset of what tells them: their header, or for a stream of a PDF the word before it.
    offset: u64,
    /// The bytes from there to where unpacking begins.
    before: u64,
    kind: Compressed,
}

/// What became of compressed data.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Streams that were unpacked and searched.
    pub streams: u64,
    /// The bytes that they hold.
    pub bytes: u64,
    /// Hits in them.
    pub hits: u64,
    /// Streams that were searched up to a limit of size, growth or depth.
    pub cut: u64,
    /// Streams that were searched up to where they are damaged, or whose checksum is wrong.
    pub damaged: u64,
    /// Places where nothing can be unpacked.
    pub invalid: u64,
    /// Streams that were searched up to where the source cannot be read.
    pub unreadable: u64,
}

/// What was found at a place in the source.
#[derive(Default)]
pub struct Inside {
    /// The hits.
    pub hits: Vec<InnerHit>,
    /// What became of the data.
    pub counts: Counts,
}

impl Counts {
    /// Adds those of another place.
    pub const fn add(&mut self, other: &Self) {
        let Self { streams, bytes, hits, cut, damaged, invalid, unreadable } = other;
        self.streams += *streams;
        self.bytes += *bytes;
        self.hits += *hits;
        self.cut += *cut;
        self.damaged += *damaged;
        self.invalid += *invalid;
        self.unreadable += *unreadable;
    }
}

impl Streams {
    /// None yet.
    pub fn new(search: &Search) -> Self {
        let compressed = search.patterns().iter().map(|pattern| match pattern.kind {
            PatternKind::Compressed => match pattern.name.parse() {
                Ok(Finder::Compressed(kind)) => Some(kind),
                _ => None,
            },
            _ => None,
        });
        Self { compressed: compressed.collect(), found: Vec::new(), left_out: 0 }
    }

    /// The places that are not searched: there were too many.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The number of places that will be searched.
    pub const fn places(&self) -> usize {
        self.found.len()
    }

    /// Takes the beginnings of compressed data out of the hits of a batch.
    pub fn take(&mut self, batch: &mut Batch) {
        let hits = std::mem::take(&mut batch.hits);
        let (places, hits) = parted(&self.compressed, hits);
        batch.hits = hits;
        let room = PLACES_MAX.saturating_sub(self.found.len());
        self.left_out += places.len().saturating_sub(room) as u64;
        self.found.extend(places.into_iter().take(room));
    }

    /// Searches what the places in the device hold, several side by side. The results are in the order of the places.
    pub fn search(
        self,
        device: &DynDevice,
        search: &Arc<Search>,
        workers: usize,
    ) -> BoxStream<'static, Result<Inside>> {
        let (device, search, compressed) = (device.clone(), search.clone(), self.compressed);
        let each = move |place| {
            let inside = inside(device.clone(), place, search.clone(), compressed.clone());
            // A task of its own, so that processors unpack side by side.
            async move { tokio::spawn(inside).await.map_err(ended)? }
        };
        stream::iter(self.found).map(each).buffered(workers.max(1)).boxed()
    }
}

/// Compressed data that are to be unpacked.
struct Next {
    device: DynDevice,
    place: Place,
    /// The offset in the device that is searched.
    offset: u64,
    /// The way to the data, with their own kind, such as `ZIP-70-GZIP`.
    way: String,
    depth: usize,
}

/// Searches what lies at a place of the source.
async fn inside(
    device: DynDevice,
    place: Place,
    search: Arc<Search>,
    compressed: Arc<[Option<Compressed>]>,
) -> Result<Inside> {
    let mut found = Inside::default();
    let mut left_bytes = PLACE_BYTES_MAX;
    let mut next = vec![Next { device, place, offset: place.offset, way: kind_name(place.kind), depth: 1 }];
    while let Some(Next { device, place, offset, way, depth }) = next.pop() {
        let bytes_max = usize::try_from(left_bytes).unwrap_or(usize::MAX).min(STREAM_BYTES_MAX);
        if bytes_max == 0 {
            found.counts.cut += 1;
            continue;
        }
        let Some(unpacked) = unpack(&device, place.offset + place.before, packing(place.kind), bytes_max).await else {
            found.counts.invalid += 1;
            continue;
        };
        match unpacked.end {
            End::Whole => {}
            End::Cut => found.counts.cut += 1,
            End::Damaged => found.counts.damaged += 1,
            End::Unreadable => found.counts.unreadable += 1,
        }
        let len = unpacked.bytes.len() as u64;
        left_bytes -= len;
        found.counts.streams += 1;
        found.counts.bytes += len;
        let own = ByteRange::new(0, len);
        let (window, scanner) = (Window { offset: 0, bytes: unpacked.bytes.into(), own }, search.clone());
        let scanning = tokio::task::spawn_blocking(move || (scanner.scan(&window), window.bytes));
        let (hits, bytes) = scanning.await.map_err(ended)?;
        let (places, mut hits) = parted(&compressed, hits?);
        // Blocks of known files lie at sectors of a disk.
        hits.retain(|hit| search.patterns().get(hit.pattern).is_some_and(|pattern| pattern.kind != PatternKind::Block));
        found.counts.hits += hits.len() as u64;
        let of_hit = |hit: Hit| InnerHit { offset, inside: format!("{way}-{}", hit.offset), hit };
        found.hits.extend(hits.into_iter().map(of_hit));
        if places.is_empty() {
            continue;
        }
        if depth == DEPTH_MAX {
            found.counts.cut += 1;
        } else {
            let device: DynDevice = Arc::new(Memory::new(bytes.into()));
            let within = |place: Place| {
                let way = format!("{way}-{}-{}", place.offset, kind_name(place.kind));
                Next { device: device.clone(), place, offset, way, depth: depth + 1 }
            };
            // The first is taken first.
            next.extend(places.into_iter().rev().map(within));
        }
    }
    Ok(found)
}

/// The error of a task that did not come to its end.
fn ended(error: JoinError) -> Error {
    Error::failed(format!("searching compressed data: {error}"))
}

/// Divides hits into beginnings of compressed data, and the others.
fn parted(compressed: &[Option<Compressed>], hits: Vec<Hit>) -> (Vec<Place>, Vec<Hit>) {
    let (mut places, mut others) = (Vec::new(), Vec::new());
    for hit in hits {
        match compressed.get(hit.pattern).copied().flatten() {
            Some(kind) => places.push(Place { offset: hit.offset, before: before(kind, &hit), kind }),
            None => others.push(hit),
        }
    }
    (places, others)
}

/// The bytes of a beginning that do not belong to the data.
fn before(kind: Compressed, hit: &Hit) -> u64 {
    /// The first bytes of zlib, which the match ends with.
    const ZLIB_HEADER_BYTES: u64 = 2;
    match kind {
        Compressed::Gzip | Compressed::Zip => 0,
        Compressed::Pdf => hit.len().saturating_sub(ZLIB_HEADER_BYTES),
    }
}

const fn packing(kind: Compressed) -> Packing {
    match kind {
        Compressed::Gzip => Packing::Gzip,
        Compressed::Zip => Packing::Zip,
        Compressed::Pdf => Packing::Zlib,
    }
}

/// The name of the kind in a forensic path.
fn kind_name(kind: Compressed) -> String {
    kind.name().to_uppercase()
}
