//! Raw images compressed with gzip, bzip2, xz or zstd, as read-only devices.
//!
//! A *frame* is a part of the file that can be decompressed by itself: a gzip member, a bzip2 stream, a block of an xz
//! stream, a zstd frame. If each frame holds at most [`FRAME_MAX`], reads decompress only the frames they touch. The
//! frames are found without decompressing where the format has an index: BGZF's members, the indexes of xz streams,
//! the table of seekable zstd and the headers of zstd frames. Otherwise the file is decompressed once when it is
//! opened; that finds the frames, measures the content and checks all of it.
//!
//! An image with a larger frame can be read only from start to end. It is checked as a whole before its first byte is
//! read, because the frame's checksum lies behind its content.
//!
//! A frame that is damaged is a corrupt range of the content if its place is certain, and with it that of the frames behind
//! it: an index says it, or the frame's own structure is sound. Otherwise all content from there on is corrupt, and a note
//! says that more is missing than that. Only the blocks of bzip2 have checksums of their own within a frame, so only there
//! the content before the damage is sound.

use std::sync::Arc;

use cheetah_device::{
    ByteRange, Data, Device, Error as DeviceError, Geometry, Io, Result as DeviceResult, Size, try_io,
};
use cheetah_error::{Error, Result, next};
use parking_lot::Mutex;

use crate::detect::{self, Compression, END_LEN, Format, START_LEN};
use crate::file::{InMemory, SharedFile};
use crate::note::ImageNote;
use crate::unpack::cache::Work;
use crate::unpack::{Blocking, Chunked, Limits, Unpacking};

mod bzip2;
mod decoder;
mod first_pass;
mod frames;
mod gzip;
mod in_order;
mod packed;
mod xz;
mod zstd;

use decoder::Decoder;
use first_pass::{Ends, Found};
use frames::{Frame, Frames};
use in_order::InOrder;
use packed::PackedReader;
use xz::BlockEnds;

/// The largest content of a frame that is decompressed as a whole, in bytes: several blocks of `xz -T0`.
pub const FRAME_MAX: u64 = 64 << 20;
/// The size of the cache of decompressed frames, in bytes; at least four frames.
const CACHE_BYTES: u64 = 64 << 20;
/// The memory for the frames that one read decompresses in parallel.
const AT_WORK_BYTES: u64 = 128 << 20;

/// A compressed raw image, as a read-only device.
pub struct Compressed {
    size: u64,
    sha256: Option<String>,
    note: Option<ImageNote>,
    reader: Reader,
}

enum Reader {
    AtRandom(Arc<Unpacking<Image>>),
    InOrder(Arc<Mutex<InOrder>>),
}

/// A compressed file with its frames.
struct Image {
    file: SharedFile,
    compression: Compression,
    /// The streams of an xz file.
    streams: xz::Streams,
    frames: Frames,
}

/// What decompressing the whole file found, besides the frames.
#[derive(Default)]
struct Checked {
    ends: Ends,
    sha256: Option<String>,
    note: Option<ImageNote>,
}

impl Compressed {
    /// Opens the image in a file. Blocks: reads the file's index, or the whole file. With `in_order`, the image will be read
    /// from start to end; otherwise one that can only be read so is refused.
    ///
    /// # Errors
    ///
    /// `Kind::Evidence` if the file is damaged or incomplete, `Kind::Misuse` if it must be read in order and
    /// `in_order` is not set, `Kind::Failed` if its content is not a raw image.
    pub(crate) fn open(file: SharedFile, compression: Compression, in_order: bool) -> Result<Self> {
        Self::of(file, compression, in_order, FRAME_MAX)
    }

    /// Opens an image whose compressed bytes are in memory. Frames with more than `frame_max` bytes are read in order.
    ///
    /// # Errors
    ///
    /// `Kind::Evidence` if the bytes are damaged or incomplete, `Kind::Misuse` if they must be read in order and
    /// `in_order` is not set, `Kind::Failed` if their content is not a raw image.
    pub fn from_memory(bytes: Vec<u8>, compression: Compression, in_order: bool, frame_max: u64) -> Result<Self> {
        Self::of(Arc::new(InMemory(bytes.into())), compression, in_order, frame_max)
    }

    fn of(file: SharedFile, compression: Compression, in_order: bool, frame_max: u64) -> Result<Self> {
        let (index, streams) = match compression {
            Compression::Gzip => (gzip::index(&*file, frame_max)?, xz::Streams::default()),
            Compression::Bzip2 => (None, xz::Streams::default()),
            Compression::Zstd => (zstd::index(&file, frame_max)?, xz::Streams::default()),
            Compression::Xz => {
                let (frames, streams) = xz::index(&file)?;
                (Some(frames), streams)
            }
        };
        let (frames, known) = match index {
            Some(frames) => (frames, None),
            None => {
                announce(&file, compression, "records no index");
                let found =
                    first_pass::find(&file, compression, if in_order { u64::MAX } else { frame_max }, frame_max)?;
                let Found { frames, ends, sha256, note } = found.ok_or_else(|| needs_order(&file, compression))?;
                (frames, Some(Checked { ends, sha256, note }))
            }
        };
        let mut image = Image { file, compression, streams, frames };
        let (size, largest) = (image.frames.size(), image.frames.largest());
        if size == 0 {
            return Err(Error::failed(format!(
                "{}: the image in it is empty; was it written completely?",
                image.file.name()
            )));
        }
        let is_random = largest <= frame_max;
        if !is_random && !in_order {
            return Err(needs_order(&image.file, compression));
        }
        let Checked { ends, sha256, note } = match known {
            Some(checked) => checked,
            None if is_random => Checked { ends: image.ends(), ..Checked::default() },
            None => {
                announce(&image.file, compression, "is compressed in one piece");
                Checked { ends: first_pass::check(&mut image)?, ..Checked::default() }
            }
        };
        image.check_content(&ends)?;
        let reader = match is_random {
            true => Reader::AtRandom(Unpacking::new(image, limits(largest))),
            false => Reader::InOrder(Arc::new(Mutex::new(InOrder::new(Arc::new(image), frame_max)))),
        };
        Ok(Self { size, sha256, note, reader })
    }

    /// What is in doubt about the size and the end of the image.
    pub fn note(&self) -> Option<&ImageNote> {
        self.note.as_ref()
    }

    /// The SHA-256 of the compressed file, if the whole file was read when it was opened.
    pub fn sha256(&self) -> Option<&str> {
        self.sha256.as_deref()
    }
}

/// Logs that opening takes as long as decompressing.
fn announce(file: &SharedFile, compression: Compression, why: &str) {
    tracing::warn!(
        "{} ({}) {why}: all of it is decompressed first, to check it and to learn its size",
        file.name(),
        compression.program()
    );
}

fn needs_order(file: &SharedFile, compression: Compression) -> Error {
    let (name, program) = (file.name(), compression.program());
    Error::misuse(format!(
        "{name}: its {program} data can be decompressed only from start to end, in pieces larger than {}, and this command \
         reads at random",
        Size(FRAME_MAX)
    ))
    .next(next::Source::AcquireOrRepack { name: name.to_owned(), command: compression.in_blocks().to_owned() })
}

fn limits(largest: u64) -> Limits {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let at_work = usize::try_from(AT_WORK_BYTES / largest.max(1)).unwrap_or(usize::MAX);
    // A frame is not unpacked on the calling thread: it may take as long as reading a disk.
    Limits {
        cache_bytes: CACHE_BYTES.max(4 * largest),
        ahead_bytes: 0,
        threads: at_work.clamp(1, processors),
        at_once: 0,
    }
}

impl Image {
    /// Returns the decoder of a frame.
    fn decoder(&self, frame: Frame) -> std::io::Result<Decoder> {
        let ends = match self.compression {
            Compression::Xz => self.streams.ends(frame),
            _ => BlockEnds::default(),
        };
        Decoder::new(self.compression, ends, PackedReader::new(&self.file, frame.packed))
    }

    /// Reads the first and last bytes of the content.
    fn ends(&self) -> Ends {
        let read = |range: ByteRange| {
            let mut data = Data::new();
            for number in self.frames.holding(range) {
                let frame = self.frames.at(number);
                let content = decoder::unpack(self, frame)?;
                let here = ByteRange::between(range.offset.max(frame.content.offset), range.end());
                data.append(content.slice(here.offset - frame.content.offset, here.len));
            }
            DeviceResult::Ok(data.into_bytes().to_vec())
        };
        let size = self.frames.size();
        let start = ByteRange::new(0, size.min(START_LEN as u64));
        let end = ByteRange::between(size.saturating_sub(END_LEN as u64), size);
        // A damaged frame is no reason to refuse the others: it will be found by the reads that touch it.
        Ends { start: read(start).unwrap_or_default(), end: read(end).unwrap_or_default() }
    }

    /// Refuses content that is not a raw image.
    fn check_content(&self, ends: &Ends) -> Result<()> {
        let what = match detect::detect(&ends.start, &ends.end, self.frames.size()) {
            _ if ends.start.get(257..262) == Some(b"ustar") => "a tar archive",
            Format::Unknown => return Ok(()),
            Format::Unsupported(unsupported) => unsupported.what,
            Format::Compressed(_) => "another compressed file",
            Format::Ewf => "an E01 image",
            Format::Zip => "a ZIP archive or an AFF4 image",
            Format::Qcow2 => "a QCOW2 image",
            Format::Vmdk => "a VMDK image",
            Format::Vhd => "a VHD image",
            Format::Vhdx => "a VHDX image",
        };
        let (name, program) = (self.file.name(), self.compression.program());
        Err(Error::failed(format!(
            "{name} holds {what}, not a raw image; decompress it first with {program} -d (its own bytes are read as raw:{name})"
        )))
    }
}

impl Chunked for Image {
    fn size(&self) -> u64 {
        self.frames.size()
    }

    fn range(&self, chunk: u64) -> ByteRange {
        // Chunk numbers come from `holding`.
        self.frames.at(chunk as usize).content
    }

    fn holding(&self, range: ByteRange) -> std::ops::Range<u64> {
        let frames = self.frames.holding(range);
        frames.start as u64..frames.end as u64
    }

    fn unpack(&self, work: &mut Work, blocking: Blocking) {
        if blocking == Blocking::Refused {
            return;
        }
        for number in work.runs().into_iter().flatten() {
            let frame = self.frames.at(number as usize);
            work.put(number, decoder::unpack(self, frame));
        }
    }
}

impl Device for Compressed {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, writable: false, block_preferred: 64 << 10 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        try_io!(self.check(range));
        if range.is_empty() {
            return Io::ok(Data::new());
        }
        match &self.reader {
            Reader::AtRandom(frames) => match frames.at_once(range) {
                Some(result) => Io::done(result),
                None => Io::later(frames.fetch(range)),
            },
            Reader::InOrder(reader) => {
                let reader = reader.clone();
                Io::later(async move {
                    let read = cheetah_device::supervise::spawn_blocking(move || reader.lock().read(range)).await;
                    read.unwrap_or_else(|error| Err(DeviceError::Invalid(error.to_string().into())))
                })
            }
        }
    }
}

#[cfg(test)]
mod tests;
