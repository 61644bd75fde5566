//! Columns of AVX2 registers. Functions are compiled for AVX2, so calling `combine` is the only unsafe step besides
//! loads and stores.

use std::arch::x86_64::*;
use std::array::from_fn;

use super::{Output, Source, Sources};
use crate::field::{POLYNOMIAL, PRODUCTS};

/// Two sums of four registers leave half the registers for operands.
const COLUMN_BYTES: usize = 128;
type Column = [__m256i; 4];

combine!(#[target_feature(enable = "avx2")]);

#[target_feature(enable = "avx2")]
fn zero() -> Column {
    [_mm256_setzero_si256(); 4]
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_whole(bytes: &[u8; COLUMN_BYTES]) -> Column {
    let (registers, _) = bytes.as_chunks::<32>();
    // SAFETY: each chunk has the 32 bytes of a register, and the load needs no alignment.
    from_fn(|i| unsafe { _mm256_loadu_si256(registers[i].as_ptr().cast()) })
}

#[target_feature(enable = "avx2")]
#[inline]
fn store_whole(column: Column, bytes: &mut [u8; COLUMN_BYTES]) {
    let (registers, _) = bytes.as_chunks_mut::<32>();
    for (bytes, register) in registers.iter_mut().zip(column) {
        // SAFETY: each chunk has the 32 bytes of a register, and the store needs no alignment.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), register) };
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn add(a: Column, b: Column) -> Column {
    from_fn(|i| _mm256_xor_si256(a[i], b[i]))
}

#[target_feature(enable = "avx2")]
#[inline]
fn double(column: Column) -> Column {
    let polynomial = _mm256_set1_epi8(POLYNOMIAL as i8);
    from_fn(|i| {
        // 0xff in each byte that overflows: those are negative as signed bytes.
        let overflows = _mm256_cmpgt_epi8(_mm256_setzero_si256(), column[i]);
        let shifted = _mm256_add_epi8(column[i], column[i]);
        _mm256_xor_si256(shifted, _mm256_and_si256(overflows, polynomial))
    })
}

#[target_feature(enable = "avx2")]
#[inline]
fn multiply(column: Column, factor: u8) -> Column {
    let products = &PRODUCTS[usize::from(factor)];
    let [low, high] = [products.low, products.high].map(|half| {
        let half = u128::from_ne_bytes(half);
        let (first, second) = (half as i64, (half >> 64) as i64);
        _mm256_set_epi64x(second, first, second, first)
    });
    let nibble = _mm256_set1_epi8(15);
    from_fn(|i| {
        let low = _mm256_shuffle_epi8(low, _mm256_and_si256(column[i], nibble));
        let high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16::<4>(column[i]), nibble));
        _mm256_xor_si256(low, high)
    })
}
