//! The Expert Witness Compression Format: E01, S01 and Ex01 images.
//!
//! An image is a set of segments, each a chain of sections. Opening reads and checks all section descriptors and chunk
//! tables, and refuses an incomplete or damaged image. Chunks are checked as they are read. Reads unpack chunks on all
//! processors, each chunk once; a read of one small chunk whose packed bytes are in the page cache is answered at once.

use std::path::Path;
use std::sync::Arc;

use cheetah_device::machine_memory::machine_memory;
use cheetah_device::{ByteRange, Data, Device, Error as DeviceError, Geometry, Io, Result as DeviceResult, try_io};

use self::chunk::Chunks;
use self::record::Index;
use self::remote::Remote;
use self::segments::{Files, Memory, Segment, Segments};
use crate::behind::FileBehind;
use crate::source::SourceFile;
use crate::unpack::cache::Work;
use crate::unpack::{Blocking, CHUNKS_TOGETHER_MAX, Chunked, Limits, Unpacking};
use cheetah_error::Result;

mod chunk;
mod defect;
mod info;
mod naming;
mod record;
mod remote;
mod sealed;
mod segments;
mod table;
mod text;
mod v1;
mod v2;
pub mod write;

pub use defect::{BadSegment, Defect};
pub use info::{EwfFormat, EwfInfo};
pub use naming::segment_name;

/// The size of the cache of unpacked chunks, in bytes; at least four chunks.
const CACHE_BYTES: u64 = 64 << 20;
/// The share of the available memory for chunks that are unpacked ahead, and its maximum in bytes.
const AHEAD_SHARE: u64 = 16;
const AHEAD_MAX: u64 = 1 << 30;
/// The largest chunk that is unpacked on the calling thread, which may serve other requests.
const AT_ONCE_MAX: u32 = 64 << 10;

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
    chunks: Arc<Unpacking<Packed>>,
}

/// The packed chunks.
struct Packed {
    segments: Box<dyn Segments>,
    index: Index,
    chunks: Chunks,
}

impl Ewf {
    /// Opens the image whose first segment is at `path`; the others are beside it. Blocks: reads and checks all section
    /// descriptors and chunk tables.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_segments(Box::new(Files::find(path)?), 0)
    }

    /// Opens it for reading here and there: chunks around small reads are unpacked in advance and kept, in a sixteenth of the
    /// memory that is available, 1 GiB at most.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_at_random(path: &Path) -> Result<Self> {
        let available = machine_memory().map_or(0, |memory| memory.available_bytes);
        Self::from_segments(Box::new(Files::find(path)?), (available / AHEAD_SHARE).min(AHEAD_MAX))
    }

    /// Opens an image whose segments are on another machine; `missing` names the one that would follow. Blocks.
    pub(crate) fn open_behind(segments: Vec<FileBehind>, missing: String) -> Result<Self> {
        Self::from_segments(Box::new(Remote { segments, missing }), 0)
    }

    /// Opens an image whose segments are in memory.
    pub fn from_memory(segments: Vec<Vec<u8>>) -> Result<Self> {
        Self::from_segments(Box::new(Memory(segments)), 0)
    }

    fn from_segments(segments: Box<dyn Segments>, ahead_bytes: u64) -> Result<Self> {
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
        let limits = Limits {
            cache_bytes: CACHE_BYTES.max(4 * u64::from(info.chunk_size)),
            ahead_bytes,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            at_once: if info.chunk_size <= AT_ONCE_MAX { 1 } else { 0 },
        };
        Ok(Self { info, chunks: Unpacking::new(Packed { segments, index, chunks }, limits) })
    }

    /// The segments, in order.
    pub fn files(&self) -> Vec<SourceFile> {
        let segments = &*self.chunks.image().segments;
        let paths = self.info.segments.iter().enumerate();
        paths.map(|(number, path)| SourceFile { path: path.clone(), size: segments.len(number) }).collect()
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
                device: self.chunks.image().segments.name(0).into(),
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

impl Chunked for Packed {
    fn size(&self) -> u64 {
        self.chunks.size
    }

    fn range(&self, chunk: u64) -> ByteRange {
        self.chunks.range(chunk)
    }

    fn holding(&self, range: ByteRange) -> std::ops::Range<u64> {
        self.chunks.holding(range)
    }

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
}

impl Device for Ewf {
    fn geometry(&self) -> Geometry {
        // Chunk sizes may be odd, and those above 1 MiB are too large for a request.
        let chunk_size = self.info.chunk_size;
        let block_preferred = if chunk_size.is_power_of_two() { chunk_size.clamp(512, 1 << 20) } else { 32 << 10 };
        Geometry { size: self.info.size, writable: false, block_preferred }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        try_io!(self.check(range).and_then(|()| self.check_readable(range)));
        if range.is_empty() {
            return Io::ok(Data::new());
        }
        match self.chunks.at_once(range) {
            Some(result) => Io::done(result),
            None => Io::later(self.chunks.fetch(range)),
        }
    }

    fn cache(&self, range: ByteRange) -> Io<'_, ()> {
        try_io!(self.check(range));
        // More would evict itself.
        let most = (CACHE_BYTES / 4).min(CHUNKS_TOGETHER_MAX * u64::from(self.info.chunk_size));
        let range = ByteRange::new(range.offset, range.len.min(most));
        if range.is_empty() {
            return Io::ok(());
        }
        Io::later(async move {
            self.chunks.start(range).await;
            Ok(())
        })
    }
}
