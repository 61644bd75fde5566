//! Reads an image that can be decompressed only from start to end.

use std::collections::VecDeque;
use std::io::Read as _;
use std::sync::Arc;

use bytes::Bytes;
use cheetah_device::{ByteRange, Data, Result};

use super::Image;
use super::decoder::{Decoder, corrupt, lost};
use super::frames::FrameState;

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
        // At once, so that it moves no decoder.
        if let Some(frame) = self.image.frames.damaged_in(range) {
            return Err(lost(&*self.image.file, frame));
        }
        let frame = self.image.frames.holding(ByteRange::new(range.offset, 1)).start;
        let kept_from = self.kept.front().map_or(self.at, |(offset, _)| *offset);
        if range.offset < kept_from {
            self.kept.clear();
            self.go_to(frame);
        } else if frame > self.frame {
            // What was kept stays: a read of it may follow.
            self.go_to(frame);
        }
        let (mut data, mut next) = (Data::new(), range.offset);
        while next < range.end() {
            let piece = self.kept.partition_point(|(offset, _)| *offset <= next).saturating_sub(1);
            let kept =
                self.kept.get(piece).filter(|(offset, bytes)| (*offset..offset + bytes.len() as u64).contains(&next));
            let Some((offset, bytes)) = kept else {
                match self.at {
                    at if next >= at => self.step()?,
                    // A later frame was read before the end of this one.
                    _ => {
                        self.kept.clear();
                        self.go_to(self.image.frames.holding(ByteRange::new(next, 1)).start);
                    }
                }
                continue;
            };
            // Within the piece, which is in memory.
            let from = (next - offset) as usize;
            let until = (range.end() - offset).min(bytes.len() as u64) as usize;
            data.append(bytes.slice(from..until).into());
            next = offset + until as u64;
        }
        Ok(data)
    }

    fn go_to(&mut self, frame: usize) {
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
                // The rest of a stream that is cut is damaged, which is known.
                && frame.state == FrameState::Whole
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
                self.kept.clear();
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
