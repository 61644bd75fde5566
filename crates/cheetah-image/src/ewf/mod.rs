//! The Expert Witness Compression Format: E01, S01 and Ex01 images.
//!
//! An image is a set of segments, each a chain of sections. Opening reads and checks all section descriptors and chunk
//! tables, and refuses an incomplete or damaged image. Chunks are checked as they are read. Reads unpack chunks on all
//! processors, each chunk once; a read of one small chunk whose packed bytes are in the page cache is answered at once.

use std::path::Path;
use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device, Error as DeviceError, Geometry, Io, Result as DeviceResult};
use tokio::sync::Semaphore;

use self::cache::{Cache, Claim, Slot, Work};
use self::chunk::Chunks;
use self::record::Index;
use self::segments::{Blocking, Files, Memory, Segment, Segments};
use cheetah_error::Result;

mod cache;
mod chunk;
mod info;
mod le;
mod naming;
mod record;
mod segments;
mod table;
mod text;
mod v1;
mod v2;
pub mod write;

pub use info::{EwfFormat, EwfInfo};

/// The size of the cache of unpacked chunks, in bytes; at least four chunks.
const CACHE_BYTES: u64 = 64 << 20;
/// The largest chunk that is unpacked on the calling thread, which may serve other requests.
const AT_ONCE_MAX: u32 = 64 << 10;
/// The minimum number of bytes that are worth another thread.
const PIECE_MIN: u64 = 64 << 10;

/// The signature of files encrypted by AccessData's programs.
const SIGNATURE_ENCRYPTED: [u8; 8] = *b"ADCRYPT\0";

/// Whether [`Ewf::open`] reads, or refuses with a clear error, a file that starts with `head`.
pub fn is_ewf(head: &[u8]) -> bool {
    let signatures = [v1::SIGNATURE, v1::SIGNATURE_LOGICAL, v2::SIGNATURE, v2::SIGNATURE_LOGICAL, SIGNATURE_ENCRYPTED];
    signatures.iter().any(|signature| head.starts_with(signature))
}

/// An E01, S01 or Ex01 image with all its segments, as a read-only device.
///
/// Reads that touch a range the image records as unreadable fail with [`DeviceError::Unreadable`]: the zeros stored
/// there are not evidence. A chunk that does not match its checksum fails with [`DeviceError::Corrupt`].
pub struct Ewf {
    info: EwfInfo,
    inner: Arc<Inner>,
}

struct Inner {
    segments: Box<dyn Segments>,
    index: Index,
    chunks: Chunks,
    cache: Arc<Cache>,
    /// Limits the number of concurrent jobs, so that many reads do not create many threads.
    threads: Arc<Semaphore>,
    processors: usize,
}

impl Ewf {
    /// Opens the image whose first segment is at `path`; the others are beside it. Blocks: reads and checks all section
    /// descriptors and chunk tables.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_segments(Box::new(Files::find(path)?))
    }

    /// Opens an image whose segments are in memory.
    pub fn from_memory(segments: Vec<Vec<u8>>) -> Result<Self> {
        Self::from_segments(Box::new(Memory(segments)))
    }

    fn from_segments(segments: Box<dyn Segments>) -> Result<Self> {
        let all = &*segments;
        let record = match signature(all)? {
            v2::SIGNATURE | v2::SIGNATURE_LOGICAL => v2::read(all),
            SIGNATURE_ENCRYPTED => {
                let first = Segment { all, number: 0 };
                Err(first.refusal("the image is encrypted by a program of AccessData's; decrypt it with FTK Imager"))
            }
            _ => v1::read(all),
        }?;
        let (info, index) = record.finish(all)?;
        let chunks = Chunks { size: info.size, chunk_size: info.chunk_size };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let inner = Inner {
            segments,
            index,
            chunks,
            cache: Arc::new(Cache::new(CACHE_BYTES.max(4 * u64::from(info.chunk_size)))),
            threads: Arc::new(Semaphore::new(2 * processors)),
            processors,
        };
        Ok(Self { info, inner: Arc::new(inner) })
    }

    /// The image's metadata.
    pub fn info(&self) -> &EwfInfo {
        &self.info
    }

    /// Fails if a part of `range` was unreadable when the image was made.
    fn check_readable(&self, range: ByteRange) -> DeviceResult<()> {
        let after = self.info.unreadable.partition_point(|bad| bad.end() <= range.offset);
        match self.info.unreadable.get(after).and_then(|bad| bad.intersection(range)) {
            None => Ok(()),
            Some(range) => Err(DeviceError::Unreadable {
                device: self.inner.segments.name(0).into(),
                range,
                why: "the image records that it could not be read when it was made".into(),
            }),
        }
    }
}

fn signature(segments: &dyn Segments) -> Result<[u8; 8]> {
    let first = Segment { all: segments, number: 0 };
    let mut signature = [0; 8];
    if segments.count() == 0 || first.len() < 8 {
        return Err(first.refusal("this is not an E01 image: it is too short"));
    }
    first.read(0, &mut signature, "the file header")?;
    if is_ewf(&signature) { Ok(signature) } else { Err(first.refusal("this is not an E01 or Ex01 image")) }
}

impl Inner {
    /// Reads the range, if that is possible without blocking and with little work.
    fn at_once(&self, range: ByteRange) -> Option<DeviceResult<Data>> {
        let most = if self.chunks.chunk_size <= AT_ONCE_MAX { 1 } else { 0 };
        let mut claim = self.cache.claim(self.chunks.holding(range), most)?;
        self.unpack(&mut claim.work, Blocking::Refused);
        claim.slots.iter().all(|slot| matches!(slot.get(), Some(Some(_)))).then(|| self.join(range, &claim.slots))
    }

    /// Reads the range, with as many threads as needed.
    async fn fetch(self: &Arc<Self>, range: ByteRange) -> DeviceResult<Data> {
        // Another round is needed only if another reader released a chunk, which each does at most once.
        loop {
            let slots = self.start(self.chunks.holding(range)).await;
            for slot in &slots {
                slot.wait().await;
            }
            if slots.iter().all(|slot| matches!(slot.get(), Some(Some(_)))) {
                return self.join(range, &slots);
            }
        }
    }

    /// Starts jobs that unpack `chunks`.
    async fn start(self: &Arc<Self>, chunks: std::ops::Range<u64>) -> Vec<Slot> {
        let bytes = (chunks.end - chunks.start).saturating_mul(u64::from(self.chunks.chunk_size));
        // At most the number of processors, and at least one.
        let pieces = (bytes / PIECE_MIN).clamp(1, self.processors as u64) as usize;
        // Acquired before the claim: otherwise readers could wait for a chunk whose claimant waits here and is dropped.
        // The semaphore is never closed, so this does not fail.
        let mut permits = self.threads.clone().acquire_many_owned(pieces as u32).await.ok();
        let Some(Claim { slots, mut work }) = self.cache.claim(chunks, usize::MAX) else { return Vec::new() };
        let each = work.len().div_ceil(pieces);
        work = work.commit();
        while !work.is_done() {
            let (rest, inner) = (work.split_off(each), self.clone());
            let permit = permits.as_mut().and_then(|permits| permits.split(1));
            cheetah_device::supervise::spawn_blocking(move || {
                inner.unpack(&mut work, Blocking::Allowed);
                drop(permit);
            });
            work = rest;
        }
        slots
    }

    /// Unpacks the claimed chunks, as far as possible without blocking where required.
    fn unpack(&self, work: &mut Work, blocking: Blocking) {
        for run in work.runs() {
            match self.index.locate(&*self.segments, run, blocking) {
                Ok(Some(located)) => {
                    let put = |chunk, result| work.put(chunk, result);
                    if !self.chunks.unpack(&*self.segments, &located, blocking, put) {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return work.fail(&error),
            }
        }
    }

    /// Assembles the range from its unpacked chunks.
    fn join(&self, range: ByteRange, slots: &[Slot]) -> DeviceResult<Data> {
        let (mut data, first) = (Data::new(), self.chunks.holding(range).start);
        for (chunk, slot) in (first..).zip(slots) {
            if let Some(Some(result)) = slot.get() {
                let content = result.as_ref().map_err(Clone::clone)?;
                let at = self.chunks.range(chunk).offset;
                let here = ByteRange::between(range.offset.max(at), range.end());
                data.append(content.slice(here.offset - at, here.len));
            }
        }
        Ok(data)
    }
}

impl Device for Ewf {
    fn geometry(&self) -> Geometry {
        // Chunk sizes may be odd, and those above 1 MiB are too large for a request.
        let chunk_size = self.info.chunk_size;
        let block_preferred = if chunk_size.is_power_of_two() { chunk_size.clamp(512, 1 << 20) } else { 32 << 10 };
        Geometry { size: self.info.size, writable: false, block_preferred }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        if let Err(error) = self.check(range).and_then(|()| self.check_readable(range)) {
            return Io::fail(error);
        }
        if range.is_empty() {
            return Io::ok(Data::new());
        }
        match self.inner.at_once(range) {
            Some(result) => Io::done(result),
            None => Io::later(self.inner.fetch(range)),
        }
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        if let Err(error) = self.check(range) {
            return Io::fail(error);
        }
        // More would evict itself.
        let range = ByteRange::new(range.offset, range.len.min(CACHE_BYTES / 4));
        if range.is_empty() {
            return Io::ok(());
        }
        Io::later(async move {
            self.inner.start(self.inner.chunks.holding(range)).await;
            Ok(())
        })
    }
}
