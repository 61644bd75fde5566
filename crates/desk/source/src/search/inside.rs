//! Hits inside compressed data, whose beginnings a search found.

use std::sync::Arc;

use bytes::Bytes;
use cheetah_carve::{End, Packing, unpack};
use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_error::{Error, Result};
use cheetah_search::seam::Window;
use cheetah_search::{
    Batch, Compressed, Finder, Hit, InnerHit, PatternKind, RunOptions, Search, SearchLimit, Truncation,
};
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, future};
use tokio::task::JoinError;

/// The most places that are remembered: more are no use, and take memory.
const PLACES_MAX: usize = 10_000_000;
/// The most bytes that are unpacked of one stream. As many are in memory for each stream that is searched, and each depth.
const STREAM_BYTES_MAX: usize = 64 << 20;
/// The most bytes that are unpacked of one place in the source: of its stream, and of those within it.
const PLACE_BYTES_MAX: u64 = 512 << 20;
/// How deep compressed data are looked for in compressed data.
const DEPTH_MAX: usize = 4;
/// The most memory that the hits of one place in the source take, and the most places within it that wait.
const HITS_BYTES_MAX: usize = 256 << 20;
const PLACES_WITHIN_MAX: usize = 1 << 20;
/// As many times the size of the source are read and unpacked for all places in it, and this beside it. Compressed data do not lie in
/// each other in the source, and text grows by 3 to 20.
const WORK: u64 = 32;
const WORK_FREE_BYTES: u64 = 1 << 30;

/// The compressed data that a search has found.
pub struct Streams {
    /// What each pattern finds.
    compressed: Arc<[Option<Compressed>]>,
    found: Vec<Place>,
    /// The number of places that were found when there was no room, and the range in which they lie.
    left_out: u64,
    left_out_range: Option<ByteRange>,
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
    /// Streams that were searched up to a limit of size, growth, depth or hits.
    pub cut: u64,
    /// Streams that were searched up to where they are damaged, or whose checksum is wrong.
    pub damaged: u64,
    /// Places that were not searched: there are too many, or too much was read and unpacked for those before.
    pub given_up: u64,
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
    /// The bytes that were read and unpacked for that.
    pub work_bytes: u64,
    /// What of the source was searched only partly, because a limit was reached.
    pub truncated: Vec<Truncation>,
}

/// How far a search of compressed data has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Searched {
    /// The places that were searched.
    pub places: u64,
    /// The bytes that were read and unpacked for them.
    pub work_bytes: u64,
}

impl Counts {
    /// Adds those of another place.
    pub const fn add(&mut self, other: &Self) {
        let Self { streams, bytes, hits, cut, damaged, given_up, invalid, unreadable } = other;
        self.streams += *streams;
        self.bytes += *bytes;
        self.hits += *hits;
        self.cut += *cut;
        self.damaged += *damaged;
        self.given_up += *given_up;
        self.invalid += *invalid;
        self.unreadable += *unreadable;
    }

    /// Counts a place, and the stream of this length that ends like this.
    fn note(&mut self, end: End, len: u64) {
        self.streams += u64::from(end != End::Nothing);
        self.bytes += len;
        match end {
            End::Whole => {}
            End::Cut => self.cut += 1,
            End::Damaged => self.damaged += 1,
            End::Unreadable => self.unreadable += 1,
            End::Nothing => self.invalid += 1,
        }
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
        Self { compressed: compressed.collect(), found: Vec::new(), left_out: 0, left_out_range: None }
    }

    /// The number of places that are not searched: there were too many.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Where these lie, if there are any.
    pub fn truncated(&self) -> Option<Truncation> {
        self.left_out_range.map(|range| Truncation { range, limit: SearchLimit::Places })
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
        let left_out = places.get(room.min(places.len())..).unwrap_or_default();
        self.left_out += left_out.len() as u64;
        self.left_out_range = range_of(left_out.iter().copied(), self.left_out_range);
        self.found.extend(places.into_iter().take(room));
    }

    /// Searches what the places in the device hold, several side by side, after those that are searched. The results are in the order of
    /// the places. If those cost more than the limit for all of them, the last result counts the rest as given up.
    pub fn search(
        self,
        device: &DynDevice,
        search: &Arc<Search>,
        (workers, searched): (usize, Searched),
    ) -> BoxStream<'static, Result<Inside>> {
        let (device, search, compressed) = (device.clone(), search.clone(), self.compressed);
        let device_bytes = device.geometry().size;
        let each = move |place| {
            let inside = inside(device.clone(), place, search.clone(), compressed.clone());
            // A task of its own, so that processors unpack side by side.
            async move { tokio::spawn(inside).await.map_err(ended)? }
        };
        let found = Arc::new(self.found);
        let (places, rest) = (found.len() as u64, found.clone());
        let left = (work_bytes_max(device_bytes).saturating_sub(searched.work_bytes), searched.places);
        let skipped = usize::try_from(searched.places).unwrap_or(usize::MAX);
        let within_limits = move |(left_bytes, done): &mut (u64, u64), inside: Result<Inside>| {
            // The results come in order, so it does not depend on the workers where the limit is.
            let next = (*left_bytes > 0).then(|| {
                inside.map(|mut inside| {
                    *done += 1;
                    *left_bytes = left_bytes.saturating_sub(inside.work_bytes);
                    if *left_bytes == 0 && places > *done {
                        inside.counts.given_up += places - *done;
                        let done = usize::try_from(*done).unwrap_or(usize::MAX);
                        let rest = range_of(rest.iter().skip(done).copied(), None);
                        let limit = SearchLimit::Work;
                        inside.truncated.extend(rest.map(|range| Truncation { range, limit }));
                    }
                    inside
                })
            });
            future::ready(next)
        };
        stream::iter((skipped..found.len()).filter_map(move |nth| found.get(nth).copied()))
            .map(each)
            .buffered(workers.max(1))
            .scan(left, within_limits)
            .boxed()
    }
}

/// The most bytes that are read and unpacked for all places in a source of this size.
const fn work_bytes_max(source_bytes: u64) -> u64 {
    source_bytes.saturating_mul(WORK).saturating_add(WORK_FREE_BYTES)
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

impl Place {
    /// Where what tells the data ends.
    const fn end(&self) -> u64 {
        self.offset.saturating_add(self.before).saturating_add(1)
    }
}

/// The range in which these places lie, and an earlier one.
fn range_of(places: impl Iterator<Item = Place>, earlier: Option<ByteRange>) -> Option<ByteRange> {
    let ranges = places.map(|place| ByteRange::between(place.offset, place.end()));
    ranges.chain(earlier).reduce(|all, next| ByteRange::between(all.offset.min(next.offset), all.end().max(next.end())))
}

/// What became of the data at a place of the source, of which some may have been left out.
#[derive(Default)]
struct Truncating {
    /// The bytes that were read of the data in the source.
    read_bytes: Option<u64>,
    /// The limit that was reached first.
    limit: Option<SearchLimit>,
}

impl Truncating {
    /// Data were read: those that lie in the source come first.
    fn read(&mut self, bytes: u64) {
        self.read_bytes = self.read_bytes.or(Some(bytes));
    }

    fn reached_if(&mut self, is_reached: bool, limit: SearchLimit) {
        self.limit = self.limit.or(is_reached.then_some(limit));
    }

    /// What was searched only partly, in a source of this size.
    fn of(self, place: Place, source_bytes: u64) -> Option<Truncation> {
        let read = place.offset.saturating_add(place.before).saturating_add(self.read_bytes.unwrap_or_default());
        let range = ByteRange::between(place.offset, read.max(place.end()).min(source_bytes));
        self.limit.map(|limit| Truncation { range, limit })
    }
}

/// Searches what lies at a place of the source.
async fn inside(
    device: DynDevice,
    place: Place,
    search: Arc<Search>,
    compressed: Arc<[Option<Compressed>]>,
) -> Result<Inside> {
    let mut found = Inside::default();
    let (source_place, source_bytes, mut truncating) = (place, device.geometry().size, Truncating::default());
    let (mut left_bytes, mut left_room) = (PLACE_BYTES_MAX, HITS_BYTES_MAX);
    let mut next = vec![Next { device, place, offset: place.offset, way: kind_name(place.kind), depth: 1 }];
    while let Some(Next { device, place, offset, way, depth }) = next.pop() {
        let bytes_max = usize::try_from(left_bytes).unwrap_or(usize::MAX).min(STREAM_BYTES_MAX);
        if bytes_max == 0 {
            found.counts.cut += 1;
            truncating.reached_if(true, SearchLimit::Size);
            continue;
        }
        let unpacked = unpack(&device, place.offset + place.before, packing(place.kind), bytes_max).await;
        let unpacked = unpacked.map_err(Error::device("searching compressed data"))?;
        let (end, len) = (unpacked.end, unpacked.bytes.len() as u64);
        left_bytes -= len;
        found.work_bytes = found.work_bytes.saturating_add(unpacked.read_bytes).saturating_add(len);
        found.counts.note(end, len);
        truncating.read(unpacked.read_bytes);
        truncating.reached_if(end == End::Cut, SearchLimit::Size);
        if end == End::Nothing {
            continue;
        }
        let (scanner, kinds, bytes) = (search.clone(), compressed.clone(), Bytes::from(unpacked.bytes));
        let scanning = tokio::task::spawn_blocking(move || (scanned(&scanner, &kinds, &bytes, left_room), bytes));
        let (result, bytes) = scanning.await.map_err(ended)?;
        let Scanned { mut places, hits, room_bytes, is_cut } = result?;
        left_room = left_room.saturating_sub(room_bytes);
        let left_out = places.len().saturating_sub(PLACES_WITHIN_MAX.saturating_sub(next.len()));
        places.truncate(places.len() - left_out);
        found.counts.cut += left_out as u64 + u64::from(is_cut && end != End::Cut);
        truncating.reached_if(left_out > 0 || is_cut, SearchLimit::Hits);
        found.counts.hits += hits.len() as u64;
        let of_hit = |hit: Hit| InnerHit { offset, inside: format!("{way}-{}", hit.offset), hit };
        found.hits.extend(hits.into_iter().map(of_hit));
        if places.is_empty() {
            continue;
        }
        if depth == DEPTH_MAX {
            found.counts.cut += 1;
            truncating.reached_if(true, SearchLimit::Depth);
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
    found.truncated.extend(truncating.of(source_place, source_bytes));
    Ok(found)
}

/// The error of a task that did not come to its end.
fn ended(error: JoinError) -> Error {
    Error::failed(format!("searching compressed data: {error}"))
}

/// What was found in unpacked bytes.
#[derive(Default)]
struct Scanned {
    places: Vec<Place>,
    hits: Vec<Hit>,
    /// What the hits take.
    room_bytes: usize,
    /// Whether the hits have no more room, so that the rest was not searched.
    is_cut: bool,
}

/// Searches unpacked bytes, a part at a time as the source: then the same number of hits is too many, whatever holds the bytes.
fn scanned(
    search: &Search,
    compressed: &[Option<Compressed>],
    bytes: &Bytes,
    room_bytes_max: usize,
) -> Result<Scanned> {
    let (mut found, overlap) = (Scanned::default(), search.overlap());
    for own in ByteRange::new(0, bytes.len() as u64).split_at_multiples(RunOptions::PART_BYTES) {
        if found.room_bytes >= room_bytes_max {
            found.is_cut = true;
            break;
        }
        let offset = own.offset.saturating_sub(overlap.before as u64);
        let end = own.end().saturating_add(overlap.after as u64).min(bytes.len() as u64);
        // Not truncated: indices of the bytes.
        let part = bytes.slice(offset as usize..end as usize);
        let (places, mut hits) = parted(compressed, search.scan(&Window { offset, bytes: part, own })?);
        hits.retain(|hit| is_wanted_inside(search, hit));
        found.room_bytes = hits.iter().map(Hit::room_bytes).fold(found.room_bytes, usize::saturating_add);
        found.places.extend(places);
        found.hits.extend(hits);
    }
    Ok(found)
}

/// Whether a hit is one in unpacked bytes, too. Blocks of known files lie at sectors of a disk, and rules are tried on files as they are
/// stored.
fn is_wanted_inside(search: &Search, hit: &Hit) -> bool {
    let kind = search.patterns().get(hit.pattern).map(|pattern| pattern.kind);
    !matches!(kind, None | Some(PatternKind::Block | PatternKind::Atom))
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

#[cfg(test)]
mod tests {
    use cheetah_search::Order;

    use super::*;

    fn search(word: &str, context_bytes: usize) -> Search {
        let encodings = vec!["utf-8".parse().unwrap()];
        Search::new(&Order { words: vec![word.into()], encodings, context_bytes, ..Order::default() }).unwrap()
    }

    #[test]
    fn unpacked_bytes_have_the_hits_of_a_search_that_sees_all_of_them_at_once() {
        let search = search("Geheimnis", 20);
        let part = RunOptions::PART_BYTES as usize;
        let mut bytes = vec![b'.'; 3 * part + 7];
        for at in [0, 100, part - 4, 2 * part - 9, 2 * part, 3 * part - 2] {
            bytes[at..at + 9].copy_from_slice(b"Geheimnis");
        }
        let (bytes, own) = (Bytes::from(bytes), ByteRange::new(0, 3 * RunOptions::PART_BYTES + 7));
        let at_once = search.scan(&Window { offset: 0, bytes: bytes.clone(), own }).unwrap();
        let found = scanned(&search, &[], &bytes, usize::MAX).unwrap();
        assert_eq!((found.hits.len(), found.hits == at_once, found.is_cut), (6, true, false));
        let cut = scanned(&search, &[], &bytes, 1).unwrap();
        assert_eq!((cut.hits.len(), cut.is_cut), (3, true), "those of the first part");
    }

    #[test]
    fn more_hits_in_unpacked_bytes_than_a_part_of_the_source_may_have_are_found() {
        let search = search("x", 0);
        let bytes = Bytes::from(b"x.".repeat((1 << 20) + 10));
        let own = ByteRange::new(0, bytes.len() as u64);
        assert!(search.scan(&Window { offset: 0, bytes: bytes.clone(), own }).is_err());
        assert_eq!(scanned(&search, &[], &bytes, usize::MAX).unwrap().hits.len(), (1 << 20) + 10);
    }

    #[test]
    fn places_that_are_left_out_lie_in_one_range_whatever_their_order() {
        let place = |offset, before| Place { offset, before, kind: Compressed::Gzip };
        let range = range_of([place(500, 0), place(100, 20), place(100, 0)].into_iter(), None);
        assert_eq!(range, Some(ByteRange::between(100, 501)));
        assert_eq!(range_of([place(700, 9)].into_iter(), range), Some(ByteRange::between(100, 710)));
        assert_eq!((range_of([].into_iter(), range), range_of([].into_iter(), None)), (range, None));
        // A place alone is no empty range, which no record could name.
        assert_eq!(range_of([place(7, 0)].into_iter(), None), Some(ByteRange::new(7, 1)));
    }

    #[tokio::test]
    async fn what_was_searched_only_partly_is_named_by_its_place_and_the_first_limit() {
        let packed = |bytes: &[u8]| {
            // A gzip file with one stored block; a checksum of zeros is wrong, which is damage and no limit.
            let len = u16::try_from(bytes.len()).unwrap();
            let head = [&b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x01"[..], &len.to_le_bytes(), &(!len).to_le_bytes()].concat();
            [&head[..], bytes, &[0; 8]].concat()
        };
        let order = Order {
            words: vec!["secret".into()],
            finders: vec![Finder::Compressed(Compressed::Gzip)],
            encodings: vec!["utf-8".parse().unwrap()],
            ..Order::default()
        };
        let search = Arc::new(Search::new(&order).unwrap());
        let truncated = async |depth: usize| {
            let content = (0..depth).fold(b"a secret".to_vec(), |bytes, _| packed(&bytes));
            let bytes = [&[b'.'; 4096][..], &content, &[b'.'; 4096]].concat();
            let device: DynDevice = Arc::new(Memory::new(bytes.clone()));
            let mut streams = Streams::new(&search);
            let hits = search.scan_alone(0, &bytes, usize::MAX).unwrap();
            let range = ByteRange::new(0, bytes.len() as u64);
            let state = cheetah_device::coverage::State::Read;
            streams.take(&mut Batch { range, state, why: None, hits, node: None });
            let found: Vec<_> = streams.search(&device, &search, (1, Searched::default())).collect().await;
            found.into_iter().flat_map(|inside| inside.unwrap().truncated).collect::<Vec<_>>()
        };
        assert_eq!(truncated(DEPTH_MAX - 1).await, []);
        let deep = truncated(DEPTH_MAX + 1).await;
        assert!(deep.iter().any(|found| found.limit == SearchLimit::Depth && found.range.offset == 4096), "{deep:?}");
    }
}
