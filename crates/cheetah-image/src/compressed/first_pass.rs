//! Decompresses a whole file once, to find its frames, to measure its content, and to check it.

use std::io::{Error as IoError, ErrorKind, Read, Result as IoResult};

use cheetah_device::{ByteRange, Error as DeviceError};
use cheetah_error::{Error, Result};

use super::Image;
use super::decoder::{FrameDecoder, skip_to_frame};
use super::frames::Frames;
use super::packed::{File, PackedReader};
use super::xz::BlockEnds;
use crate::detect::{Compression, END_LEN, START_LEN};

/// The result of the pass.
pub(super) struct Found {
    pub frames: Frames,
    pub ends: Ends,
    /// The SHA-256 of the compressed file, if all of it was read.
    pub sha256: Option<String>,
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

/// Decompresses a file that has no index. `None` if a frame holds more than `frame_max` bytes. Smaller ones are recorded
/// together, with at most `together_max` bytes.
///
/// # Errors
///
/// [`Error::Evidence`] if the file is damaged, or its end is missing.
pub(super) fn find(file: &File, compression: Compression, frame_max: u64, together_max: u64) -> Result<Option<Found>> {
    let (mut frames, mut ends) = (Frames::together(together_max), Ends::default());
    let mut reader = PackedReader::hashing(file);
    loop {
        let at = reader.offset();
        let next = (|| {
            if !skip_to_frame(&mut reader, compression)? {
                return Ok(None);
            }
            let start = reader.offset();
            let mut decoder = FrameDecoder::new(compression, BlockEnds::default(), PackedReader::take(&mut reader))?;
            let len = drain(&mut decoder, frame_max, &mut ends)?;
            reader = decoder.into_packed();
            let packed = ByteRange::between(start, reader.offset());
            frames.push(packed, len).ok_or_else(|| Why::Wrong("it has more frames than the limit".into()))?;
            Ok(Some(()))
        })();
        match next {
            Ok(Some(())) => {}
            Ok(None) => return Ok(Some(Found { frames, ends, sha256: reader.sha256() })),
            Err(Why::TooLarge) => return Ok(None),
            Err(why) => return Err(refusal(file, compression, at, frames.size(), why)),
        }
    }
}

/// Decompresses all frames of a file that has an index.
///
/// # Errors
///
/// [`Error::Evidence`] if the file is damaged.
pub(super) fn check(image: &Image) -> Result<Ends> {
    let mut ends = Ends::default();
    for number in 0..image.frames.len() {
        let frame = image.frames.at(number);
        let checked = (|| {
            let mut decoder = image.decoder(frame)?;
            let len = drain(&mut decoder.by_ref().take(frame.content.len), u64::MAX, &mut ends)?;
            if len != frame.content.len {
                return Err(Why::Wrong("it holds less than its index says".into()));
            }
            Ok(decoder.finish()?)
        })();
        checked
            .map_err(|why| refusal(&image.file, image.compression, frame.packed.offset, frame.content.offset, why))?;
    }
    Ok(ends)
}

/// Reads to the end, and returns the number of bytes.
fn drain(decoder: &mut impl Read, most: u64, ends: &mut Ends) -> std::result::Result<u64, Why> {
    let mut buffer = vec![0; 128 << 10];
    let mut len = 0u64;
    loop {
        let read = read_or_retry(decoder, &mut buffer)?;
        if read == 0 {
            return Ok(len);
        }
        ends.note(&buffer[..read]);
        len = len.saturating_add(read as u64);
        if len > most {
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

fn refusal(file: &File, compression: Compression, offset: u64, content: u64, why: Why) -> Error {
    let name = file.name();
    let why = match why {
        Why::Io(error) => match error.get_ref().and_then(|error| error.downcast_ref::<DeviceError>()) {
            Some(error) => return Error::device(format!("reading {name}"))(error.clone()),
            None if error.kind() == ErrorKind::UnexpectedEof => "it ends in the middle: its end is missing".to_owned(),
            None => error.to_string(),
        },
        Why::Wrong(why) => why,
        Why::TooLarge => "a frame is too large".to_owned(),
    };
    let program = compression.program();
    Error::Evidence(format!(
        "{name} is damaged: {program} data at offset {offset} of the file, from byte {content} of the content on: {why}; \
         copy it again, or save what can be decompressed with {program} -dc, and open that"
    ))
}
