//! Unpacking the chunks of an image on several threads, each chunk once, however many readers want it.

use std::ops::Range;
use std::sync::Arc;

use bytes::BytesMut;
use cheetah_device::{ByteRange, Data, Result};
use tokio::sync::Semaphore;

mod ahead;
pub(crate) mod cache;

use ahead::Ahead;
use cache::{Cache, Claim, Keep, Slot, Work};

/// The minimum number of bytes that are worth another thread.
const PIECE_MIN: u64 = 64 << 10;

/// The largest read that counts as small, in bytes. Reads of a file from start to end are larger: the kernel reads ahead.
const SMALL_MAX: u64 = 64 << 10;

/// The maximum number of chunks that are claimed together.
pub(crate) const CHUNKS_TOGETHER_MAX: u64 = 4096;

/// Whether a read may wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// It may.
    Allowed,
    /// Only bytes in memory are returned.
    Refused,
}

/// An image in chunks that are unpacked one by one.
pub(crate) trait Chunked: Send + Sync + 'static {
    /// The size of the content, in bytes.
    fn size(&self) -> u64;

    /// The content of a chunk.
    fn range(&self, chunk: u64) -> ByteRange;

    /// The chunks of a non-empty range.
    fn holding(&self, range: ByteRange) -> Range<u64>;

    /// Unpacks the claimed chunks, as far as possible without blocking where required.
    fn unpack(&self, work: &mut Work, blocking: Blocking);
}

/// The limits of unpacking.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of unpacked chunks of large reads that are kept; those of all reads if `ahead_bytes` is 0.
    pub cache_bytes: u64,
    /// Bytes of unpacked chunks of small reads, and of those around them, that are kept. If 0, nothing is unpacked ahead.
    pub ahead_bytes: u64,
    /// Threads for one read. Twice as many run for all reads together.
    pub threads: usize,
    /// The chunks that the calling thread may unpack for one read, if it need not wait for a disk.
    pub at_once: usize,
}

/// An image whose chunks are unpacked as they are read.
pub(crate) struct Unpacking<C> {
    image: C,
    cache: Arc<Cache>,
    limits: Limits,
    /// Limits the number of concurrent jobs, so that many reads do not create many threads.
    threads: Arc<Semaphore>,
    ahead: Ahead,
}

impl<C: Chunked> Unpacking<C> {
    /// Returns the reader of `image`.
    pub fn new(image: C, limits: Limits) -> Arc<Self> {
        let limits = Limits { threads: limits.threads.max(1), ..limits };
        let cache = Arc::new(Cache::new(limits.cache_bytes, limits.ahead_bytes));
        let threads = Arc::new(Semaphore::new(2 * limits.threads));
        Arc::new(Self { image, cache, limits, threads, ahead: Ahead::default() })
    }

    /// The image.
    pub fn image(&self) -> &C {
        &self.image
    }

    /// Reads the range, if that is possible without blocking and with little work.
    pub fn at_once(self: &Arc<Self>, range: ByteRange) -> Option<Result<Data>> {
        let mut claim = self.cache.claim(self.image.holding(range), self.limits.at_once, keep(range))?;
        let is_cached = claim.work.is_done();
        self.image.unpack(&mut claim.work, Blocking::Refused);
        let is_whole = claim.slots.iter().all(|slot| matches!(slot.get(), Some(Some(_))));
        // A read that must wait for a disk looks ahead when it starts its jobs.
        if is_whole && !is_cached {
            self.look_ahead(range);
        }
        is_whole.then(|| self.join(range, &claim.slots))
    }

    /// Reads the range, with as many threads as needed.
    pub async fn fetch(self: &Arc<Self>, range: ByteRange) -> Result<Data> {
        let chunks = self.image.holding(range);
        if chunks.end - chunks.start <= CHUNKS_TOGETHER_MAX {
            return self.fetch_few(range).await;
        }
        // A piece of content in memory takes some hundred bytes more: many tiny ones become one.
        let mut content = BytesMut::new();
        let mut at = range.offset;
        while at < range.end() {
            let first = self.image.holding(ByteRange::new(at, 1)).start;
            let last = (first + CHUNKS_TOGETHER_MAX).min(chunks.end) - 1;
            let end = self.image.range(last).end().min(range.end());
            content.extend_from_slice(&self.fetch_few(ByteRange::between(at, end)).await?.into_bytes());
            at = end;
        }
        Ok(content.freeze().into())
    }

    async fn fetch_few(self: &Arc<Self>, range: ByteRange) -> Result<Data> {
        // Another round is needed only if another reader released a chunk, which each does at most once.
        loop {
            let slots = self.start(range).await;
            for slot in &slots {
                slot.wait().await;
            }
            if slots.iter().all(|slot| matches!(slot.get(), Some(Some(_)))) {
                return self.join(range, &slots);
            }
        }
    }

    /// Starts jobs that unpack the chunks of a range.
    pub async fn start(self: &Arc<Self>, range: ByteRange) -> Vec<Slot> {
        let chunks = self.image.holding(range);
        let bytes = self.image.range(chunks.end - 1).end() - self.image.range(chunks.start).offset;
        // At most the number of threads, and at least one.
        let pieces = (bytes / PIECE_MIN).clamp(1, self.limits.threads as u64) as usize;
        // Acquired before the claim: otherwise readers could wait for a chunk whose claimant waits here and is dropped.
        // The semaphore is never closed, so this does not fail.
        let mut permits = self.threads.clone().acquire_many_owned(pieces as u32).await.ok();
        let claim = self.cache.claim(chunks, usize::MAX, keep(range));
        let Some(Claim { slots, mut work }) = claim else { return Vec::new() };
        if !work.is_done() {
            self.look_ahead(range);
        }
        let each = work.len().div_ceil(pieces);
        work = work.commit();
        while !work.is_done() {
            let (rest, this) = (work.split_off(each), self.clone());
            let permit = permits.as_mut().and_then(|permits| permits.split(1));
            cheetah_device::supervise::spawn_blocking(move || {
                this.image.unpack(&mut work, Blocking::Allowed);
                drop(permit);
            });
            work = rest;
        }
        slots
    }

    /// Has the chunks around a small read unpacked, if that is wanted.
    fn look_ahead(self: &Arc<Self>, range: ByteRange) {
        if self.limits.ahead_bytes > 0 && keep(range) == Keep::Long {
            self.ahead.look_around(self, range);
        }
    }

    /// Unpacks the chunks of a range that are neither there nor in flight, on this thread. Blocks.
    fn unpack_here(self: &Arc<Self>, range: ByteRange) {
        if let Some(Claim { mut work, .. }) = self.cache.claim(self.image.holding(range), usize::MAX, Keep::Long) {
            self.image.unpack(&mut work, Blocking::Allowed);
        }
    }

    /// Assembles the range from its unpacked chunks.
    fn join(&self, range: ByteRange, slots: &[Slot]) -> Result<Data> {
        let (mut data, first) = (Data::new(), self.image.holding(range).start);
        for (chunk, slot) in (first..).zip(slots) {
            if let Some(Some(result)) = slot.get() {
                let content = result.as_ref().map_err(Clone::clone)?;
                let at = self.image.range(chunk).offset;
                let here = ByteRange::between(range.offset.max(at), range.end());
                data.append(content.slice(here.offset - at, here.len));
            }
        }
        Ok(data)
    }
}

/// How long the chunks of a read are kept.
const fn keep(range: ByteRange) -> Keep {
    if range.len <= SMALL_MAX { Keep::Long } else { Keep::Briefly }
}
