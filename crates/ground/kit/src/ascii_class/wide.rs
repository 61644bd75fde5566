//! Masks with AVX2: a byte is of a class if the row of its high four bits and the column of its low four bits meet in the class, which
//! two shuffles look up ("Base64 encoding and decoding at almost the speed of a memory copy", Muła and Lemire, 2018, classifies bytes so).

use std::arch::x86_64::*;
use std::array::from_fn;

use super::{BLOCK_BYTES, Block, Class};

/// The rows of ASCII: the high four bits of its characters.
const ROWS: u8 = 8;

/// As the function of the same name, for whole blocks and then the last one; `None` if this processor lacks the instructions.
pub fn each_mask<const N: usize, E>(
    classes: [&Class; N],
    blocks: &[Block],
    last: &Block,
    take: &mut impl FnMut(usize, [u64; N]) -> Result<(), E>,
) -> Option<Result<(), E>> {
    // SAFETY: this processor has AVX2.
    is_x86_feature_detected!("avx2").then(|| unsafe { each(classes, blocks, last, take) })
}

#[target_feature(enable = "avx2")]
fn each<const N: usize, E>(
    classes: [&Class; N],
    blocks: &[Block],
    last: &Block,
    take: &mut impl FnMut(usize, [u64; N]) -> Result<(), E>,
) -> Result<(), E> {
    let rows = twice(&from_fn(|row| if row < usize::from(ROWS) { 1 << row } else { 0 }));
    let columns = classes.map(columns);
    let columns: [__m256i; N] = from_fn(|class| twice(&columns[class]));
    for (number, block) in blocks.iter().chain([last]).enumerate() {
        let halves = load(block);
        let rows = halves.map(|half| {
            // Bits of the neighbouring byte come in, and go.
            _mm256_shuffle_epi8(rows, _mm256_and_si256(_mm256_srli_epi16::<4>(half), _mm256_set1_epi8(0x0f)))
        });
        let masks = from_fn(|class| {
            let [low, high] = from_fn(|half| {
                // A byte beyond ASCII has no column: the shuffle returns zero.
                let column = _mm256_shuffle_epi8(columns[class], halves[half]);
                let met = _mm256_and_si256(column, rows[half]);
                !_mm256_movemask_epi8(_mm256_cmpeq_epi8(met, _mm256_setzero_si256())).cast_unsigned()
            });
            u64::from(low) | u64::from(high) << 32
        });
        take(number * BLOCK_BYTES, masks)?;
    }
    Ok(())
}

/// For each low four bits, the rows in which the class has the character: a bit for each.
fn columns(class: &Class) -> [u8; 16] {
    // Not truncated: less than 16.
    from_fn(|column| (0..ROWS).fold(0, |rows, row| rows | u8::from(class.has(row << 4 | column as u8)) << row))
}

/// The same 16 bytes in both halves of a register, as a shuffle wants them.
#[target_feature(enable = "avx2")]
#[inline]
fn twice(bytes: &[u8; 16]) -> __m256i {
    // SAFETY: there are the 16 bytes that are read, and the load needs no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(block: &Block) -> [__m256i; 2] {
    let (registers, _) = block.as_chunks::<32>();
    // SAFETY: each chunk has the 32 bytes of a register, and the load needs no alignment.
    from_fn(|half| unsafe { _mm256_loadu_si256(registers[half].as_ptr().cast()) })
}
