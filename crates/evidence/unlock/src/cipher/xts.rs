//! XTS (IEEE 1619) on many sectors at once, of any cipher with blocks of 16 bytes.
//!
//! All of it runs in the code that the cipher chooses for this processor, so that the compiler uses its wide registers for the tweaks,
//! too. Sectors are decrypted together: with VAES, a cipher is fast with 64 blocks at a time, and a sector of 512 bytes has half as many.

use aes::Block;
use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockSizeUser};

/// Blocks that are decrypted together, at most: as many as fit into the processor's first cache beside their tweaks.
const TOGETHER: usize = super::SECTOR_BYTES_MAX / size_of::<Block>();
/// Tweaks that are computed together.
const LANES: usize = 8;

/// Decrypts sectors of `sector_blocks` blocks, 1 to 256, each from its encrypted tweak on.
pub(super) fn decrypt(
    cipher: &impl BlockCipherDecrypt<BlockSize = U16>,
    tweaks: &[Block],
    sectors: &mut [Block],
    sector_blocks: usize,
) {
    debug_assert!((1..=TOGETHER).contains(&sector_blocks) && sectors.len() == tweaks.len() * sector_blocks);
    cipher.decrypt_with_backend(Sectors { tweaks, sectors, sector_blocks });
}

/// Sectors to decrypt.
struct Sectors<'a> {
    tweaks: &'a [Block],
    sectors: &'a mut [Block],
    sector_blocks: usize,
}

impl BlockSizeUser for Sectors<'_> {
    type BlockSize = U16;
}

impl BlockCipherDecClosure for Sectors<'_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        let Self { tweaks, sectors, sector_blocks } = self;
        let mut masks = [Block::default(); TOGETHER];
        let count = TOGETHER / sector_blocks;
        for (tweaks, blocks) in tweaks.chunks(count).zip(sectors.chunks_mut(count * sector_blocks)) {
            for (tweak, masks) in tweaks.iter().zip(masks.chunks_exact_mut(sector_blocks)) {
                multiples(tweak, masks);
            }
            add(blocks, &masks);
            let (together, rest) = Array::<Block, B::ParBlocksSize>::slice_as_chunks_mut(blocks);
            together.iter_mut().for_each(|blocks| backend.decrypt_par_blocks_inplace(blocks));
            backend.decrypt_tail_blocks_inplace(rest);
            add(blocks, &masks);
        }
    }
}

#[inline(always)]
fn add(blocks: &mut [Block], masks: &[Block]) {
    // Byte by byte, which the compiler makes as wide as the processor's registers are.
    let masks = Block::slice_as_flattened(masks);
    Block::slice_as_flattened_mut(blocks).iter_mut().zip(masks).for_each(|(byte, mask)| *byte ^= mask);
}

/// Fills `masks` with the tweak times 1, x, x^2 … in the field of 2^128 elements.
#[inline(always)]
fn multiples(tweak: &Block, masks: &mut [Block]) {
    // The lower and the upper half of each multiple.
    let mut halves = [0_u64; 2 * LANES];
    let mut multiple = u128::from_le_bytes(tweak.0);
    for both in halves.as_chunks_mut::<2>().0 {
        *both = [multiple as u64, (multiple >> 64) as u64];
        multiple = (multiple << 1) ^ (0x87 * (multiple >> 127));
    }
    let (groups, rest) = masks.as_chunks_mut::<LANES>();
    for masks in groups {
        store(&halves, masks);
        // Times x^8: x^128 is x^7 + x^2 + x + 1, so the byte that leaves at the top returns as a multiple of that.
        let leaving: [u64; 2 * LANES] = std::array::from_fn(|at| halves[at ^ 1] >> 56);
        for (at, half) in halves.iter_mut().enumerate() {
            let multiple = leaving[at] << 1 ^ leaving[at] << 2 ^ leaving[at] << 7;
            *half = *half << 8 ^ leaving[at] ^ if at % 2 == 0 { multiple } else { 0 };
        }
    }
    store(&halves, rest);
}

#[inline(always)]
fn store(halves: &[u64; 2 * LANES], masks: &mut [Block]) {
    let places = Block::slice_as_flattened_mut(masks).as_chunks_mut().0;
    places.iter_mut().zip(halves).for_each(|(place, half)| *place = half.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_of_a_tweak_are_those_of_doubling_it_again_and_again() {
        for len in [1, 7, 28, 32, TOGETHER] {
            let mut tweak = 0xfedc_ba98_7654_3210_0f1e_2d3c_4b5a_6978_u128;
            let mut masks = vec![Block::default(); len];
            multiples(&Block::from(tweak.to_le_bytes()), &mut masks);
            for (nth, mask) in masks.iter().enumerate() {
                assert_eq!(u128::from_le_bytes(mask.0), tweak, "{nth} of {len}");
                tweak = (tweak << 1) ^ (0x87 * (tweak >> 127));
            }
        }
    }
}
