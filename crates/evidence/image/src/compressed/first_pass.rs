//! Decompresses a whole file once, to find its frames, to measure its content, and to check it.

use std::io::{Error as IoError, ErrorKind, Read, Result as IoResult};

use cheetah_device::{ByteRange, Error as DeviceError};
use cheetah_error::{Error, Result};

use super::decoder::{FrameDecoder, skip_to_frame};
use super::frames::Frames;
use super::packed::PackedReader;
use super::xz::BlockEnds;
use super::{Image, bzip2, gzip, zstd};
use crate::detect::{Compression, END_LEN, START_LEN};
use crate::file::SharedFile;
use crate::note::ImageNote;

/// The result of the pass.
pub(super) struct Found {
    pub frames: Frames,
    pub ends: Ends,
    /// The SHA-256 of the compressed file, if all of it was read.
    pub sha256: Option<String>,
    /// What is unknown about the end of the content.
    pub note: Option<ImageNote>,
}

/// The first and last bytes of the content, by which its format is recognised.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub start: Vec<u8>,
    pub end: Vec<u8>,
}

impl Ends {
    fn note(&mut self, bytes: &[u8]) {
        let missing = START_LEN - self.start.len();
        self.start.extend_from_slice(&bytes[..missing.min(bytes.len())]);
        self.end.extend_from_slice(&bytes[bytes.len().saturating_sub(END_LEN)..]);
        self.end.drain(..self.end.len().saturating_sub(END_LEN));
    }
}

/// Why a pass ended early.
enum Why {
    /// A frame is larger than random access allows.
    TooLarge,
    Io(IoError),
    Wrong(String),
}

impl From<IoError> for Why {
    fn from(error: IoError) -> Self {
        Self::Io(error)
    }
}

/// Disks and images of them have whole sectors of this many bytes.
const SECTOR_BYTES: u64 = 512;
/// The maximum number of damaged frames that are gone around: each costs a look at the file.
const DAMAGED_MAX: usize = 10_000;
/// The number of bytes decompressed at a time.
const BUFFER_BYTES: usize = 128 << 10;

/// Decompresses a file that has no index. `None` if a frame holds more than `frame_max` bytes. Smaller ones are recorded
/// together, with at most `together_max` bytes.
///
/// # Errors
///
/// `Kind::Evidence` if no frame of the file is sound.
pub(super) fn find(
    file: &SharedFile,
    compression: Compression,
    frame_max: u64,
    together_max: u64,
) -> Result<Option<Found>> {
    let mut found = Found { frames: Frames::together(together_max), ends: Ends::default(), sha256: None, note: None };
    let mut reader = PackedReader::hashing(file);
    // The first damage, and the number of damaged frames.
    let (mut first, mut damaged, mut buffer) = (None, 0, vec![0; BUFFER_BYTES]);
    loop {
        let (mut start, mut len) = (reader.offset(), 0);
        let next = (|| {
            if !skip_to_frame(&mut reader, compression)? {
                return Ok(None);
            }
            start = reader.offset();
            let mut decoder = FrameDecoder::new(compression, BlockEnds::default(), PackedReader::take(&mut reader))?;
            drain(&mut decoder, (frame_max, &mut buffer), &mut found.ends, &mut len)?;
            reader = decoder.into_packed();
            let packed = ByteRange::between(start, reader.offset());
            found.frames.push(packed, len).ok_or_else(too_many)?;
            Ok(Some(()))
        })();
        let why = match next {
            Ok(Some(())) => continue,
            Ok(None) => {
                let lost = first.filter(|_| found.frames.is_lost());
                return lost.map_or_else(|| Ok(Some(Found { sha256: reader.sha256(), ..found })), Err);
            }
            Err(Why::TooLarge) => return Ok(None),
            Err(why) => why,
        };
        let refused = refusal(file, compression, start, found.frames.size(), why);
        if !refused.is_evidence() {
            return Err(refused);
        }
        damaged += 1;
        match go_around(file, compression, (start, len, damaged > DAMAGED_MAX), &mut found.frames) {
            Ok(Some(end)) => {
                reader = PackedReader::new(file, ByteRange::between(end, file.len()));
                first.get_or_insert(refused);
            }
            Ok(None) if found.frames.is_lost() => return Err(first.unwrap_or(refused)),
            Ok(None) => {
                let note = ImageNote::EndUnknown { refused, from: found.frames.damaged_from() };
                return Ok(Some(Found { note: Some(note), ..found }));
            }
            Err(why) => return Err(refusal(file, compression, start, found.frames.size(), why)),
        }
    }
}

fn too_many() -> Why {
    Why::Wrong("it has more frames than the limit".into())
}

/// Records the damaged frame at an offset of the file, of which `len` bytes of content came out. Returns its end in the file if
/// its extent is certain, unless `is_over`. Otherwise all that follows is recorded as damaged, with the content that came out, up to a whole
/// sector.
fn go_around(
    file: &SharedFile,
    compression: Compression,
    (start, len, is_over): (u64, u64, bool),
    frames: &mut Frames,
) -> std::result::Result<Option<u64>, Why> {
    let extent = match compression {
        _ if is_over => None,
        Compression::Gzip => gzip::extent(file, start)?,
        Compression::Zstd => zstd::extent(file, start).map_err(IoError::other)?,
        Compression::Bzip2 | Compression::Xz => None,
    };
    if let Some((end, content_len)) = extent {
        let packed = ByteRange::between(start, end);
        frames.push_damaged(packed, content_len).ok_or_else(too_many)?;
        return Ok(Some(end));
    }
    let (mut rest, before) = (start, frames.size());
    if compression == Compression::Bzip2 {
        let sound = bzip2::sound_blocks(file, start)?;
        frames.push_cut(ByteRange::between(start, sound.packed_end), sound.content_len).ok_or_else(too_many)?;
        rest = sound.packed_end;
    }
    let came_out = len.saturating_sub(frames.size() - before).max(1);
    let size = frames.size();
    let whole = size.checked_add(came_out).and_then(|size| size.checked_next_multiple_of(SECTOR_BYTES));
    let missing = whole.ok_or_else(too_many)? - size;
    frames.push_damaged(ByteRange::between(rest, file.len()), missing).ok_or_else(too_many)?;
    Ok(None)
}

/// Decompresses all frames of a file that has an index, and marks those that are damaged.
///
/// # Errors
///
/// `Kind::Evidence` if all of them are damaged.
pub(super) fn check(image: &mut Image) -> Result<Ends> {
    let (mut ends, mut buffer) = (Ends::default(), vec![0; BUFFER_BYTES]);
    for number in 0..image.frames.len() {
        let frame = image.frames.at(number);
        let checked = (|| {
            let mut decoder = image.decoder(frame)?;
            let mut len = 0;
            drain(&mut decoder.by_ref().take(frame.content.len), (u64::MAX, &mut buffer), &mut ends, &mut len)?;
            if len != frame.content.len {
                return Err(Why::Wrong("it holds less than its index says".into()));
            }
            Ok(decoder.finish()?)
        })();
        let Err(why) = checked else { continue };
        let refused = refusal(&image.file, image.compression, frame.packed.offset, frame.content.offset, why);
        image.frames.mark_damaged(number);
        if !refused.is_evidence() || image.frames.is_lost() {
            return Err(refused);
        }
    }
    Ok(ends)
}

/// Reads to the end, and adds the number of bytes to `len`.
fn drain(
    decoder: &mut impl Read,
    (most, buffer): (u64, &mut [u8]),
    ends: &mut Ends,
    len: &mut u64,
) -> std::result::Result<(), Why> {
    loop {
        let read = read_or_retry(decoder, buffer)?;
        if read == 0 {
            return Ok(());
        }
        ends.note(&buffer[..read]);
        *len = len.saturating_add(read as u64);
        if *len > most {
            return Err(Why::TooLarge);
        }
    }
}

fn read_or_retry(reader: &mut impl Read, buffer: &mut [u8]) -> IoResult<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn refusal(file: &SharedFile, compression: Compression, offset: u64, content: u64, why: Why) -> Error {
    let name = file.name();
    let (why, cause) = match why {
        Why::Io(error) => match error.get_ref().and_then(|error| error.downcast_ref::<DeviceError>()) {
            Some(error) => return Error::device(format!("reading {name}"))(error.clone()),
            None if error.kind() == ErrorKind::UnexpectedEof => {
                ("it ends in the middle: its end is missing".to_owned(), Some(error))
            }
            None => (error.to_string(), Some(error)),
        },
        Why::Wrong(why) => (why, None),
        Why::TooLarge => ("a frame is too large".to_owned(), None),
    };
    let program = compression.program();
    let refused = Error::evidence(format!(
        "{name} is damaged: {program} data at offset {offset} of the file, from byte {content} of the content on: {why}; \
         copy it again, or save what can be decompressed with {program} -dc, and open that"
    ));
    match cause {
        Some(cause) => refused.because(cause),
        None => refused,
    }
}
