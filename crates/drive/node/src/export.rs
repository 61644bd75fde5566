//! An export: a device in slots of the lent memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use cheetah_device::data::{Part, is_zero};
use cheetah_device::{ByteRange, Data, Device, Error, Extent, Fill, Geometry, Io, Result, Zeroing};
use smallvec::SmallVec;

use crate::arena::{PAGE_BYTES, SLOT_BYTES, Slot, ViewMut};
use crate::keys_lent::KeysLent;
use crate::pages::{self, BadPage};
use crate::store::{Reservation, Store};
use crate::table::{GROUP_CHUNKS, LEAF_SPAN_BYTES, Table};
use cheetah_control::api::Wiped;

const CHUNK_BYTES: u64 = SLOT_BYTES as u64;

/// The most bytes lent at once: more would delay writers, and fall out of the processor's cache before they are sent.
const LENT_BYTES_MAX: u64 = 1 << 20;
const LENT_GROUPS_MAX: usize = (LENT_BYTES_MAX / (GROUP_CHUNKS as u64 * CHUNK_BYTES)) as usize + 1;

/// Exports larger than this are wiped by several threads.
const WIPE_ALONE_BYTES: u64 = 256 << 20;
const WIPE_THREADS_MAX: usize = 4;

/// An export of a node: a writable device in memory. Every operation completes at once ([`Io::Done`]).
///
/// A chunk of zeros is a hole and takes no memory: initially, and again once zeros are written over all of it, or it is zeroed
/// or trimmed. After deletion, every operation fails with [`Error::Lost`].
pub struct Export {
    store: Arc<Store>,
    name: Arc<str>,
    size: u64,
    reserved: bool,
    digests: bool,
    reservation: Reservation,
    table: Table,
    deleted: AtomicBool,
    used_slots: AtomicU64,
    counters: Counters,
    keys_lent: KeysLent,
}

/// An export's counters.
#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    digest_errors: AtomicU64,
}

/// An export's counters.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ExportStats {
    /// Reads.
    pub reads: u64,
    /// Bytes read successfully.
    pub read_bytes: u64,
    /// Writes, including zeroing and trimming.
    pub writes: u64,
    /// Bytes of payload received for writes.
    pub written_bytes: u64,
    /// Pages that did not match their digest when read, or written in part.
    pub digest_errors: u64,
}

impl Export {
    /// Creates an export of `size` bytes, all holes.
    ///
    /// If it is `reserved`, its whole size is reserved; otherwise a write fails with [`Error::NoSpace`] once the store is
    /// full. With `digests`, each page has a digest that every read checks.
    ///
    /// # Errors
    ///
    /// If the size is 0, or the store lacks space.
    pub fn new(store: &Arc<Store>, name: &str, size: u64, reserved: bool, digests: bool) -> Result<Arc<Self>> {
        if size == 0 {
            return Err(Error::Invalid("an export of 0 bytes is of no use".into()));
        }
        let whole = |part: u64| if reserved { part } else { 0 };
        let reservation = Reservation {
            slots: whole(size.div_ceil(CHUNK_BYTES)),
            leaves: whole(size.div_ceil(LEAF_SPAN_BYTES)),
            span_bytes: size,
        };
        store.reserve(reservation)?;
        Ok(Arc::new(Self {
            store: Arc::clone(store),
            name: name.into(),
            size,
            reserved,
            digests,
            reservation,
            table: Table::new(size),
            deleted: AtomicBool::new(false),
            used_slots: AtomicU64::new(0),
            counters: Counters::default(),
            keys_lent: KeysLent::default(),
        }))
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Memory used by its content, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used_slots.load(Ordering::Relaxed) * CHUNK_BYTES
    }

    /// Whether its whole size is reserved.
    pub fn reserved(&self) -> bool {
        self.reserved
    }

    /// Whether its pages carry digests.
    pub fn digests(&self) -> bool {
        self.digests
    }

    /// Its counters.
    pub fn stats(&self) -> ExportStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ExportStats {
            reads: get(&self.counters.reads),
            read_bytes: get(&self.counters.read_bytes),
            writes: get(&self.counters.writes),
            written_bytes: get(&self.counters.written_bytes),
            digest_errors: get(&self.counters.digest_errors),
        }
    }

    /// Deletes the export: wipes its memory, reads it back, and returns it to the store. Clients that have it open get errors
    /// from then on. Deleting it again wipes nothing.
    pub fn delete(&self) -> Wiped {
        let (export, size_bytes) = (self.name.to_string(), self.size);
        let keys_lent = self.keys_lent.all();
        let mut wiped = Wiped { export, size_bytes, wiped_bytes: 0, verified_zero: true, keys_lent };
        if self.deleted.swap(true, Ordering::AcqRel) {
            return wiped;
        }
        // `drain` waits for an operation that already holds a chunk; a later operation sees the flag.
        self.table.close();
        let threads = match self.used_bytes() {
            0..WIPE_ALONE_BYTES => 1,
            _ => thread::available_parallelism().map_or(1, usize::from).min(WIPE_THREADS_MAX),
        };
        let wipe = |from| {
            self.table.drain(from, threads).fold((0, true), |(slots, clean), slot| (slots + 1, self.free(slot) & clean))
        };
        let (slots, clean) = thread::scope(|scope| {
            let start = |from| (from, thread::Builder::new().spawn_scoped(scope, move || wipe(from)));
            let others: Vec<_> = (1..threads).map(start).collect();
            others.into_iter().fold(wipe(0), |(slots, clean), (from, other)| {
                // If no thread can be started, this one does the work.
                let (more, also) = other.map_or_else(|_| wipe(from), |other| other.join().unwrap_or((0, false)));
                (slots + more, clean & also)
            })
        });
        wiped.wiped_bytes = slots * CHUNK_BYTES;
        wiped.verified_zero = clean;
        if !self.reserved {
            self.store.return_leaves(self.table.leaves());
        }
        self.store.release(self.reservation);
        wiped
    }

    /// Flips the lowest bit of the byte at `offset` in memory, without updating its digest. False in a hole.
    #[doc(hidden)]
    pub fn corrupt(&self, offset: u64) -> bool {
        let Some(place) = self.table.place(offset / CHUNK_BYTES) else { return false };
        match &mut place.group.write()[place.index] {
            // Not truncated: less than a chunk.
            Some(slot) => self.store.arena().view_mut(slot).bytes[(offset % CHUNK_BYTES) as usize] ^= 1,
            None => return false,
        }
        true
    }

    fn live(&self, range: ByteRange) -> Result<()> {
        if self.deleted.load(Ordering::Acquire) {
            let (device, why) = (Arc::clone(&self.name), "the export was deleted".into());
            return Err(Error::Lost { device, range, why });
        }
        Ok(())
    }

    fn checked(&self, range: ByteRange) -> Result<()> {
        self.check(range)?;
        self.live(range)
    }

    fn read_now(&self, range: ByteRange) -> Result<Data> {
        self.checked(range)?;
        let (mut out, mut run) = (Data::new(), Vec::new());
        for piece in range.split_at_multiples(CHUNK_BYTES) {
            // Before any lock is held: the forecast takes the same locks, and a writer that waits for one would block the
            // second reader, which is this thread.
            let room = if run.is_empty() { self.run_len(piece, range.end()) } else { 0 };
            let place = self.table.place(piece.offset / CHUNK_BYTES);
            let slots = place.map(|place| (place.group.read(), place.index));
            self.live(range)?;
            match slots.as_ref().and_then(|(slots, index)| slots[*index].as_ref()) {
                Some(slot) => {
                    if run.is_empty() {
                        run = Vec::with_capacity(room);
                    }
                    let at = ByteRange::new(piece.offset % CHUNK_BYTES, piece.len);
                    let view = self.store.arena().view(slot);
                    pages::read(&view, at, self.digests, &mut run).map_err(|page| self.corrupt_page(piece, &page))?;
                }
                None => {
                    out.append(std::mem::take(&mut run).into());
                    out.push_part(Part::Zeros(piece.len));
                }
            }
        }
        out.append(run.into());
        Ok(out)
    }

    /// See [`Device::lend`]: for short ranges without holes.
    fn lend_now(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        if let Err(error) = self.checked(range) {
            return Some(Err(error));
        }
        if range.len > LENT_BYTES_MAX {
            return None;
        }
        // Readers lock in ascending order; writers hold one lock at a time.
        let mut groups: SmallVec<[_; LENT_GROUPS_MAX]> = SmallVec::new();
        for piece in range.split_at_multiples(GROUP_CHUNKS as u64 * CHUNK_BYTES) {
            groups.push(self.table.place(piece.offset / CHUNK_BYTES)?.group.read());
        }
        if let Err(error) = self.live(range) {
            return Some(Err(error));
        }
        // Not truncated: less than a group.
        let first = (range.offset / CHUNK_BYTES % GROUP_CHUNKS as u64) as usize;
        let slots = groups.iter().flat_map(|group| group.iter()).skip(first);
        let mut runs: SmallVec<[&[u8]; LENT_GROUPS_MAX * GROUP_CHUNKS]> = SmallVec::new();
        for (piece, slot) in range.split_at_multiples(CHUNK_BYTES).zip(slots) {
            let view = self.store.arena().view(slot.as_ref()?);
            let at = ByteRange::new(piece.offset % CHUNK_BYTES, piece.len);
            match pages::show(view, at, self.digests) {
                Ok(bytes) => runs.push(bytes),
                Err(page) => return Some(Err(self.corrupt_page(piece, &page))),
            }
        }
        show(&runs);
        Some(Ok(()))
    }

    /// Bytes from the start of `piece` to the next hole or `end`, if `piece` is in a slot. A forecast, because of concurrent
    /// writers. Must be called without holding a chunk.
    fn run_len(&self, piece: ByteRange, end: u64) -> usize {
        let more = ByteRange::between(piece.end(), end).split_at_multiples(CHUNK_BYTES);
        let more = more.take_while(|piece| {
            self.table.place(piece.offset / CHUNK_BYTES).is_some_and(|place| place.group.read()[place.index].is_some())
        });
        // Not truncated: a read's bytes fit in memory, or it fails anyhow.
        more.fold(piece.len, |len, piece| len + piece.len) as usize
    }

    /// The keys of its sealed content that the node was lent.
    pub(crate) fn keys_lent(&self) -> &KeysLent {
        &self.keys_lent
    }

    /// Reads into a buffer of the range's length, for a job of this node. It counts as no read of a client.
    pub(crate) fn read_here(&self, range: ByteRange, out: &mut [u8]) -> Result<()> {
        self.checked(range)?;
        if out.len() as u64 != range.len {
            return Err(Error::Invalid("a buffer has another length than the range to read".into()));
        }
        let mut rest = out;
        for piece in range.split_at_multiples(CHUNK_BYTES) {
            let place = self.table.place(piece.offset / CHUNK_BYTES);
            let slots = place.map(|place| (place.group.read(), place.index));
            self.live(range)?;
            // Not truncated: it is within the buffer.
            let (copy, after) = rest.split_at_mut(piece.len as usize);
            rest = after;
            match slots.as_ref().and_then(|(slots, index)| slots[*index].as_ref()) {
                Some(slot) => {
                    let at = ByteRange::new(piece.offset % CHUNK_BYTES, piece.len);
                    let view = self.store.arena().view(slot);
                    pages::copy(&view, at, self.digests, copy).map_err(|page| self.corrupt_page(piece, &page))?;
                }
                None => copy.fill(0),
            }
        }
        Ok(())
    }

    fn write_now(&self, offset: u64, data: &Data) -> Result<()> {
        let range = ByteRange::new(offset, data.len());
        self.checked(range)?;
        range.split_at_multiples(CHUNK_BYTES).try_for_each(|piece| {
            let part = data.slice(piece.offset - offset, piece.len);
            let zero = part.is_zero();
            if zero && self.is_whole(piece) { self.punch(piece) } else { self.write_chunk(piece, part, !zero) }
        })
    }

    /// See [`Device::lend_mut`]: for whole pages under one lock.
    fn lend_mut_now(&self, range: ByteRange, fill: &mut Fill<'_>) -> Option<Result<()>> {
        if let Err(error) = self.checked(range) {
            return Some(Err(error));
        }
        let is_of_pages = range.offset.is_multiple_of(PAGE_BYTES as u64) && range.len.is_multiple_of(PAGE_BYTES as u64);
        let group = GROUP_CHUNKS as u64 * CHUNK_BYTES;
        if range.is_empty() || !is_of_pages || range.offset / group != (range.end() - 1) / group {
            return None;
        }
        let place = self.table.place_or_grow(range.offset / CHUNK_BYTES, || self.reserve_leaf()).ok()??;
        let mut slots = place.group.write();
        if let Err(error) = self.live(range) {
            return Some(Err(error));
        }
        let pieces: SmallVec<[ByteRange; GROUP_CHUNKS]> = range.split_at_multiples(CHUNK_BYTES).collect();
        let slots = &mut slots[place.index..][..pieces.len()];
        let mut is_new = [false; GROUP_CHUNKS];
        for index in 0..slots.len() {
            if slots[index].is_none() {
                // Where memory is short, a write may still find that it needs none.
                let Ok(slot) = self.allocate() else {
                    self.free_zeros(slots, |index| is_new[index]);
                    return None;
                };
                (slots[index], is_new[index]) = (Some(slot), true);
            }
        }
        let mut views: SmallVec<[ViewMut<'_>; GROUP_CHUNKS]> =
            slots.iter_mut().flatten().map(|slot| self.store.arena().view_mut(slot)).collect();
        let mut rest = {
            let mut runs: SmallVec<[&mut [u8]; GROUP_CHUNKS]> = SmallVec::new();
            for (piece, view) in pieces.iter().zip(&mut views) {
                runs.push(&mut view.bytes[within_chunk(*piece)]);
            }
            fill(&mut runs).min(as_len(range))
        };
        for (piece, view) in pieces.iter().zip(&mut views) {
            let filled = rest.min(as_len(*piece));
            rest -= filled;
            if self.digests {
                pages::digest_whole(view, within_chunk(*piece).start, filled);
            }
        }
        drop(views);
        self.free_zeros(slots, |index| is_new[index] || self.is_whole(pieces[index]));
        Some(Ok(()))
    }

    /// Makes those chunks holes that are all zero.
    fn free_zeros(&self, slots: &mut [Option<Slot>], which: impl Fn(usize) -> bool) {
        for (index, entry) in slots.iter_mut().enumerate() {
            if which(index)
                && entry.as_ref().is_some_and(|slot| is_zero(self.store.arena().view(slot).bytes))
                && let Some(slot) = entry.take()
            {
                self.free(slot);
            }
        }
    }

    fn zero_now(&self, range: ByteRange, keep_allocated: bool) -> Result<()> {
        self.checked(range)?;
        range.split_at_multiples(CHUNK_BYTES).try_for_each(|piece| {
            let punch = self.is_whole(piece) && !keep_allocated;
            if punch { self.punch(piece) } else { self.write_chunk(piece, Data::zeros(piece.len), keep_allocated) }
        })
    }

    /// Writes to one chunk. A hole takes memory only if asked to.
    fn write_chunk(&self, piece: ByteRange, data: Data, fill_hole: bool) -> Result<()> {
        let chunk = piece.offset / CHUNK_BYTES;
        let place = match fill_hole {
            true => self.table.place_or_grow(chunk, || self.reserve_leaf())?,
            false => self.table.place(chunk),
        };
        let Some(place) = place else { return self.live(piece) };
        let mut slots = place.group.write();
        self.live(piece)?;
        let slot = match &mut slots[place.index] {
            Some(slot) => slot,
            None if !fill_hole => return Ok(()),
            hole => hole.insert(self.allocate()?),
        };
        let bytes = data.into_bytes();
        let mut view = self.store.arena().view_mut(slot);
        let written = pages::write(&mut view, piece.offset % CHUNK_BYTES, &bytes, self.digests);
        written.map_err(|page| self.corrupt_page(piece, &page))
    }

    /// Makes a chunk a hole, and frees its memory.
    fn punch(&self, piece: ByteRange) -> Result<()> {
        let Some(place) = self.table.place(piece.offset / CHUNK_BYTES) else { return Ok(()) };
        // Wiped under the lock, so that a deletion's receipt covers every wipe.
        let mut slots = place.group.write();
        self.live(piece)?;
        if let Some(slot) = slots[place.index].take() {
            self.free(slot);
        }
        Ok(())
    }

    /// Whether `piece` is a whole chunk. The last chunk may be short.
    fn is_whole(&self, piece: ByteRange) -> bool {
        piece.offset.is_multiple_of(CHUNK_BYTES) && (piece.len == CHUNK_BYTES || piece.end() == self.size)
    }

    fn extents_now(&self, range: ByteRange) -> Result<Vec<Extent>> {
        self.checked(range)?;
        let mut extents = Vec::new();
        for piece in range.split_at_multiples(CHUNK_BYTES) {
            let place = self.table.place(piece.offset / CHUNK_BYTES);
            let data = place.is_some_and(|place| place.group.read()[place.index].is_some());
            let extent = if data { Extent::data(piece.len) } else { Extent::hole(piece.len) };
            extent.push(&mut extents);
        }
        self.live(range)?;
        Ok(extents)
    }

    fn reserve_leaf(&self) -> Result<()> {
        if self.reserved { Ok(()) } else { self.store.reserve_leaves(1) }
    }

    fn allocate(&self) -> Result<Slot> {
        let slot = self.store.allocate(self.reserved)?;
        self.used_slots.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }

    fn free(&self, slot: Slot) -> bool {
        self.used_slots.fetch_sub(1, Ordering::Relaxed);
        self.store.free(slot, self.reserved)
    }

    fn count_read(&self, range: ByteRange, well: bool) {
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        if well {
            self.counters.read_bytes.fetch_add(range.len, Ordering::Relaxed);
        }
    }

    /// Counts, logs and reports a page that does not match its digest.
    fn corrupt_page(&self, piece: ByteRange, BadPage(page): &BadPage) -> Error {
        let chunk = piece.offset - piece.offset % CHUNK_BYTES;
        let range = ByteRange::new(chunk + (page * PAGE_BYTES) as u64, PAGE_BYTES as u64);
        self.counters.digest_errors.fetch_add(1, Ordering::Relaxed);
        self.store.count_digest_error();
        tracing::error!(export = %self.name, %range, "the page does not match its digest: its content is refused");
        Error::Corrupt { device: Arc::clone(&self.name), range }
    }
}

/// The indices of a part of a chunk in its slot.
fn within_chunk(piece: ByteRange) -> std::ops::Range<usize> {
    // Not truncated: less than a chunk.
    let start = (piece.offset % CHUNK_BYTES) as usize;
    start..start + as_len(piece)
}

/// The length of a part of a group of chunks.
fn as_len(piece: ByteRange) -> usize {
    // Not truncated: at most a group.
    piece.len as usize
}

impl Device for Export {
    fn geometry(&self) -> Geometry {
        // Not truncated: 4096.
        Geometry { size: self.size, writable: true, block_preferred: PAGE_BYTES as u32 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        let data = self.read_now(range);
        self.count_read(range, data.is_ok());
        Io::done(data)
    }

    fn lend(&self, range: ByteRange, show: &mut dyn FnMut(&[&[u8]])) -> Option<Result<()>> {
        let lent = self.lend_now(range, show)?;
        self.count_read(range, lent.is_ok());
        Some(lent)
    }

    fn lend_mut(&self, range: ByteRange, fill: &mut Fill<'_>) -> Option<Result<()>> {
        let mut written = 0;
        let lent = self.lend_mut_now(range, &mut |runs| {
            written = fill(runs);
            written
        })?;
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(written as u64, Ordering::Relaxed);
        Some(lent)
    }

    fn write(&self, offset: u64, data: Data, _fua: bool) -> Io<'_, ()> {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(data.len(), Ordering::Relaxed);
        Io::done(self.write_now(offset, &data))
    }

    fn zero(&self, range: ByteRange, how: Zeroing) -> Io<'_, ()> {
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        Io::done(self.zero_now(range, how.keep_allocated))
    }

    /// The same as zeroing, which frees the memory.
    fn trim(&self, range: ByteRange) -> Io<'_, ()> {
        self.zero(range, Zeroing::default())
    }

    fn flush(&self) -> Io<'_, ()> {
        Io::done(self.live(ByteRange::new(0, self.size)))
    }

    fn extents(&self, range: ByteRange) -> Io<'_, Vec<Extent>> {
        Io::done(self.extents_now(range))
    }

    fn answers_at_once(&self) -> bool {
        true
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.delete();
    }
}
