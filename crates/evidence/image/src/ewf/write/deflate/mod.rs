//! A deflate encoder (RFC 1950, RFC 1951) for one purpose: it compresses chunks of evidence as fast as disks are read,
//! to about the size that zlib's level 1 achieves.
//!
//! libdeflate's fastest level takes about 1.5 times the time, too much for two processors that must also hash. For
//! speed, this encoder tries one candidate a position, has no matches across 32 KiB of evidence (the usual chunk), writes
//! one block for each 32 KiB, and searches ever fewer positions where nothing repeats ([`tokens`]). Mispredicted branches
//! cost most, so literals are written in pairs, and a pair, a literal and a match in the same way ([`block`]).

use libdeflater::adler32;

mod bits;
mod block;
mod huffman;
mod tokens;

use bits::Bits;
use tokens::{Tokens, WINDOW};

/// Header of a zlib stream: deflate, 32 KiB, fastest.
const ZLIB: [u8; 2] = [0x78, 0x01];

/// The encoder; each thread has its own. Its output depends on its input alone.
#[derive(Default)]
pub struct Deflater {
    tokens: Box<Tokens>,
}

impl Deflater {
    /// Writes `data` to `out` as a zlib stream and returns its length, or `None` if there is not enough room.
    pub fn zlib(&mut self, data: &[u8], out: &mut [u8]) -> Option<usize> {
        let (head, rest) = out.split_at_mut_checked(ZLIB.len())?;
        head.copy_from_slice(&ZLIB);
        let mut bits = Bits::new(rest);
        // A stream has at least one block.
        let mut left = data;
        loop {
            let (window, after) = left.split_at(left.len().min(WINDOW));
            self.tokens.find(window);
            bits = block::write(self.tokens.all(), after.is_empty(), bits)?;
            if after.is_empty() {
                break;
            }
            left = after;
        }
        let end = ZLIB.len() + bits.finish()?;
        out.get_mut(end..end + 4)?.copy_from_slice(&adler32(data).to_be_bytes());
        Some(end + 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libdeflater::Decompressor;
    use proptest::prelude::*;

    /// Packs and unpacks; returns the packed length.
    fn there_and_back(deflater: &mut Deflater, data: &[u8]) -> usize {
        let mut packed = vec![0; data.len() * 9 / 8 + 1000];
        let len = deflater.zlib(data, &mut packed).unwrap();
        let mut unpacked = vec![0; data.len()];
        let unpacked_len = Decompressor::new().zlib_decompress(&packed[..len], &mut unpacked).unwrap();
        assert!(unpacked_len == data.len() && unpacked == data);
        // The same input fits in a buffer of exactly this size, and not in a smaller one.
        let mut exact = vec![0; len + 8];
        assert_eq!(deflater.zlib(data, &mut exact), Some(len));
        assert!(exact[..len] == packed[..len]);
        assert_eq!(deflater.zlib(data, &mut exact[..len - 1]), None);
        len
    }

    /// Runs, repeats from anywhere before, and noise over few or many values.
    fn data() -> impl Strategy<Value = Vec<u8>> {
        let piece = (0u8..4, any::<u8>(), any::<u16>(), 1usize..700);
        (prop::collection::vec(piece, 1..400), any::<u64>()).prop_map(|(pieces, mut state)| {
            let mut data = Vec::new();
            for (kind, value, back, len) in pieces {
                for _ in 0..len {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let noise = (state >> 40) as u8;
                    data.push(match kind {
                        0 => value,
                        1 => data.len().checked_sub(1 + usize::from(back)).map_or(value, |at| data[at]),
                        2 => noise % (value % 16 + 1),
                        _ => noise,
                    });
                }
            }
            data
        })
    }

    proptest! {
        #[test]
        fn compressed_data_inflates_to_the_input(first in data(), second in data()) {
            let mut deflater = Deflater::default();
            there_and_back(&mut deflater, &first);
            let len = there_and_back(&mut deflater, &second);
            // The encoder keeps no state between chunks.
            prop_assert_eq!(there_and_back(&mut Deflater::default(), &second), len);
        }
    }

    #[test]
    fn zeros_and_varied_data_of_critical_lengths_inflate_to_the_input() {
        let mut deflater = Deflater::default();
        for len in [0, 1, 2, 3, 4, 5, 11, 12, 13, 20, 258, 259, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW] {
            there_and_back(&mut deflater, &vec![0; len]);
            there_and_back(&mut deflater, &(0..len).map(|at| ((at / 256) ^ (at * 7)) as u8).collect::<Vec<_>>());
            // Frequencies like Fibonacci's numbers, which produce the longest codes.
            let mut fibonacci = Vec::new();
            let (mut now, mut next) = (1, 1);
            for value in 0u8.. {
                fibonacci.resize((fibonacci.len() + now).min(len), value.wrapping_mul(37));
                (now, next) = (next, now + next);
                if fibonacci.len() == len {
                    break;
                }
            }
            // Interleaved, so that they become literals.
            let dealt: Vec<_> = (0..len).map(|at| fibonacci[at * 12_289 % len.max(1)]).collect();
            there_and_back(&mut deflater, &dealt);
        }
        assert!(there_and_back(&mut deflater, &[7; WINDOW]) < 300);
    }

    #[test]
    fn noise_does_not_shrink_and_repeats_after_it_are_found() {
        let mut state = 1u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let mut data: Vec<_> = (0..WINDOW).map(|_| noise()).collect();
        let mut deflater = Deflater::default();
        assert_eq!(deflater.zlib(&data, &mut vec![0; WINDOW - 1]), None);
        assert!(there_and_back(&mut deflater, &data) < WINDOW + 300);
        // The search goes on where noise ends.
        data[WINDOW / 2..].fill(b'x');
        assert!(there_and_back(&mut deflater, &data) < WINDOW / 2 + 500);
    }
}
