//! Folding with AVX2 and VPCLMULQDQ.
//!
//! Bits are reflected: bit 63 of a word is the coefficient of x⁰, and the first byte of the content has the highest powers.

use std::arch::x86_64::*;
use std::array::from_fn;

use crc_fast::{CrcAlgorithm, Digest};

const BLOCK_BYTES: usize = 128;
/// The polynomial of CRC-64/NVME without x⁶⁴, reflected.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;
/// What a register's two halves are multiplied with when they are moved over a block: the products of reflected words
/// are shifted by one bit, so each power is one less.
const OVER_BLOCK: [u64; 2] = [power(8 * BLOCK_BYTES as u32 + 64 - 1), power(8 * BLOCK_BYTES as u32 - 1)];
type Block = [__m256i; 4];

/// Returns x to the power of `exponent`, modulo the polynomial.
const fn power(exponent: u32) -> u64 {
    let mut value = 1 << 63;
    let mut done = 0;
    while done < exponent {
        value = (value >> 1) ^ if value & 1 == 1 { POLYNOMIAL } else { 0 };
        done += 1;
    }
    value
}

/// Returns the CRC of `bytes`; `None` if they are too few, or this processor lacks the instructions.
pub fn fold(bytes: &[u8]) -> Option<u64> {
    if bytes.len() < 2 * BLOCK_BYTES || !is_x86_feature_detected!("avx2") || !is_x86_feature_detected!("vpclmulqdq") {
        return None;
    }
    let (blocks, rest) = bytes.as_chunks();
    // SAFETY: this processor has AVX2 and VPCLMULQDQ.
    let folded = unsafe { fold_blocks(blocks) };
    // The register's beginning, all ones, is in the folded block.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc64Nvme, 0);
    digest.update(&folded);
    digest.update(rest);
    Some(digest.finalize())
}

/// Returns a block whose CRC, from a register of zeros, is that of `blocks` from a register of ones.
#[target_feature(enable = "avx2,vpclmulqdq")]
fn fold_blocks(blocks: &[[u8; BLOCK_BYTES]]) -> [u8; BLOCK_BYTES] {
    let [low, high] = OVER_BLOCK.map(u64::cast_signed);
    let factors = _mm256_set_epi64x(high, low, high, low);
    let Some((first, blocks)) = blocks.split_first() else { return [0; BLOCK_BYTES] };
    let mut sum = load(first);
    sum[0] = _mm256_xor_si256(sum[0], _mm256_set_epi64x(0, 0, 0, -1));
    for block in blocks {
        let block = load(block);
        sum = from_fn(|i| {
            let low = _mm256_clmulepi64_epi128::<0x00>(sum[i], factors);
            let high = _mm256_clmulepi64_epi128::<0x11>(sum[i], factors);
            _mm256_xor_si256(_mm256_xor_si256(low, high), block[i])
        });
    }
    let mut folded = [0; BLOCK_BYTES];
    let (registers, _) = folded.as_chunks_mut::<32>();
    for (bytes, register) in registers.iter_mut().zip(sum) {
        // SAFETY: each chunk has the 32 bytes of a register, and the store needs no alignment.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), register) };
    }
    folded
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(block: &[u8; BLOCK_BYTES]) -> Block {
    let (registers, _) = block.as_chunks::<32>();
    // SAFETY: each chunk has the 32 bytes of a register, and the load needs no alignment.
    from_fn(|i| unsafe { _mm256_loadu_si256(registers[i].as_ptr().cast()) })
}
