//! Reads an image that can be decompressed only from start to end.

use std::collections::VecDeque;
use std::io::Read as _;
use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::{ByteRange, Data, Result};

use super::Image;
use super::decoder::{Decoder, corrupt};

/// The number of bytes decompressed at a time.
const STEP_BYTES: u64 = 1 << 20;

/// The decoder of the whole, at its position. A read before the kept content starts again at the frame's beginning.
pub(super) struct InOrder {
    image: Arc<Image>,
    /// The frame that is being decompressed.
    frame: usize,
    decoder: Option<Decoder>,
    /// The content up to here was decompressed.
    at: u64,
    /// The latest content, with its offsets.
    kept: VecDeque<(u64, Bytes)>,
    kept_bytes: u64,
}

impl InOrder {
    /// Returns the reader, at the start. It keeps `kept_bytes` of content behind the decoder's position, since
    /// concurrent reads arrive out of order.
    pub fn new(image: Arc<Image>, kept_bytes: u64) -> Self {
        Self { image, frame: 0, decoder: None, at: 0, kept: VecDeque::new(), kept_bytes }
    }

    /// Reads a range of the content. Blocks.
    pub fn read(&mut self, range: ByteRange) -> Result<Data> {
        let frame = self.image.frames.holding(ByteRange::new(range.offset, 1)).start;
        let kept_from = self.kept.front().map_or(self.at, |(offset, _)| *offset);
        if range.offset < kept_from || frame > self.frame {
            self.go_to(frame);
        }
        let (mut data, mut next) = (Data::new(), range.offset);
        while next < range.end() {
            if next >= self.at {
                self.step()?;
                continue;
            }
            let piece = self.kept.partition_point(|(offset, _)| *offset <= next).saturating_sub(1);
            let Some((offset, bytes)) = self.kept.get(piece) else { break };
            // Within the piece, which is in memory.
            let from = (next - offset) as usize;
            let until = (range.end() - offset).min(bytes.len() as u64) as usize;
            data.append(bytes.slice(from..until).into());
            next = offset + until as u64;
        }
        Ok(data)
    }

    fn go_to(&mut self, frame: usize) {
        self.kept.clear();
        self.decoder = None;
        self.frame = frame;
        self.at = self.image.frames.at(frame).content.offset;
    }

    /// Decompresses the next bytes.
    fn step(&mut self) -> Result<()> {
        let frame = self.image.frames.at(self.frame);
        let mut run = || {
            let decoder = match &mut self.decoder {
                Some(decoder) => decoder,
                none => none.insert(self.image.decoder(frame)?),
            };
            let wanted = STEP_BYTES.min(frame.content.end() - self.at);
            let mut bytes = Vec::with_capacity(wanted as usize);
            decoder.take(wanted).read_to_end(&mut bytes)?;
            if bytes.len() as u64 != wanted {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if self.at + wanted == frame.content.end()
                && let Some(decoder) = self.decoder.take()
            {
                decoder.finish()?;
            }
            Ok(bytes)
        };
        match run() {
            Ok(bytes) => {
                let start = self.at;
                self.at += bytes.len() as u64;
                self.kept.push_back((start, bytes.into()));
                if self.at == frame.content.end() {
                    self.frame += 1;
                }
            }
            Err(error) => {
                // The next read starts the frame again.
                self.go_to(self.frame);
                return Err(corrupt(&*self.image.file, frame, &error));
            }
        }
        while self.kept.front().is_some_and(|(offset, _)| self.at - offset > self.kept_bytes.max(STEP_BYTES)) {
            self.kept.pop_front();
        }
        Ok(())
    }
}
