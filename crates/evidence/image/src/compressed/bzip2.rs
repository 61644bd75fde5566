//! The blocks of a bzip2 stream. Each has a checksum of its own, so those before a damaged one are sound.

use std::io::{Cursor, Read, Result as IoResult};

use cheetah_device::ByteRange;

use super::packed::PackedReader;
use crate::file::SharedFile;

/// The 48 bits with which a block begins, at any bit of the file, and those with which a stream ends.
const BLOCK: u64 = 0x3141_5926_5359;
const END: u64 = 0x1772_4538_5090;
const MARK_BITS: u32 = 48;
/// The maximum size of a compressed block, in bytes: more than one of 900 kB can take.
const BLOCK_BYTES_MAX: usize = 2 << 20;

/// The sound beginning of a damaged stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sound {
    /// Its content, in bytes.
    pub content_len: u64,
    /// The offset in the file behind its last block.
    pub packed_end: u64,
}

/// Returns the sound blocks with which the stream at `start` begins.
pub(super) fn sound_blocks(file: &SharedFile, start: u64) -> IoResult<Sound> {
    let mut packed = PackedReader::new(file, ByteRange::between(start, file.len()));
    let mut sound = Sound { content_len: 0, packed_end: start };
    let mut head = [0; 4];
    if packed.read_exact(&mut head).is_err() || !head.starts_with(b"BZh") {
        return Ok(sound);
    }
    let mut block: Option<Bits> = None;
    let mut window = 0u64;
    while let Some(byte) = next_byte(&mut packed)? {
        for shift in (0..8).rev() {
            let bit = byte >> shift & 1;
            window = (window << 1 | u64::from(bit)) & ((1 << MARK_BITS) - 1);
            if let Some(block) = &mut block {
                block.push(bit);
            }
            if window != BLOCK && window != END {
                continue;
            }
            if let Some(block) = block.take() {
                match block.without(MARK_BITS).content_len(head) {
                    Some(len) => sound = Sound { content_len: sound.content_len + len, packed_end: packed.offset() },
                    None => return Ok(sound),
                }
            }
            if window == END {
                return Ok(sound);
            }
            block = Some(Bits::default());
        }
        if block.as_ref().is_some_and(|block| block.bytes.len() > BLOCK_BYTES_MAX) {
            break;
        }
    }
    Ok(sound)
}

fn next_byte(packed: &mut PackedReader) -> IoResult<Option<u8>> {
    let mut byte = [0];
    Ok((packed.read(&mut byte)? == 1).then_some(byte[0]))
}

/// The bits of a block, behind its mark.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    fn push(&mut self, bit: u8) {
        if self.count.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= bit << (7 - self.count % 8);
        }
        self.count += 1;
    }

    fn push_all(&mut self, value: u64, bits: u32) {
        (0..bits).rev().for_each(|shift| self.push((value >> shift & 1) as u8));
    }

    /// Without the last bits.
    fn without(mut self, bits: u32) -> Self {
        self.count = self.count.saturating_sub(bits as usize);
        self.bytes.truncate(self.count.div_ceil(8));
        let rest = self.count % 8;
        if let Some(last) = self.bytes.last_mut().filter(|_| rest > 0) {
            *last &= 0xff << (8 - rest);
        }
        self
    }

    /// Decompresses the block as a stream of its own, which begins with `head`; `None` if it is damaged.
    fn content_len(self, head: [u8; 4]) -> Option<u64> {
        let checksum = u32::from_be_bytes(*self.bytes.first_chunk()?);
        let mut stream = Self { bytes: head.to_vec(), count: 8 * head.len() };
        stream.push_all(BLOCK, MARK_BITS);
        for at in 0..self.count {
            stream.push(self.bytes.get(at / 8)? >> (7 - at % 8) & 1);
        }
        stream.push_all(END, MARK_BITS);
        // The checksum of a stream of one block is that of the block.
        stream.push_all(checksum.into(), 32);
        let mut decoder = ::bzip2::bufread::BzDecoder::new(Cursor::new(stream.bytes));
        std::io::copy(&mut decoder, &mut std::io::sink()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::InMemory;
    use std::io::Write as _;
    use std::sync::Arc;

    #[test]
    fn the_blocks_before_a_damaged_one_are_sound() {
        let mut state = 7u32;
        let noise = std::iter::from_fn(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some((state >> 24) as u8)
        });
        let content: Vec<u8> = noise.take(350_000).collect();
        let mut encoder = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
        encoder.write_all(&content).unwrap();
        let stream = encoder.finish().unwrap();
        let sound = |stream: &[u8]| {
            let file: SharedFile = Arc::new(InMemory([b"??", stream].concat().into()));
            sound_blocks(&file, 2).unwrap().content_len
        };
        assert_eq!(sound(&stream), 350_000);
        // The blocks of this level have at most 100 kB, and noise takes as much.
        for (place, blocks) in [(50_000, 0), (150_000, 1), (250_000, 2), (330_000, 3)] {
            let mut damaged = stream.clone();
            damaged[place] ^= 0x10;
            let len = sound(&damaged);
            assert!((blocks * 99_000..=blocks * 100_000).contains(&len), "{place}: {len}");
            assert!(sound(&stream[..place]) == len, "{place}");
        }
    }
}
