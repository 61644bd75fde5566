//! Columns of words, eight bytes at a time, for every processor.

use std::array::from_fn;

use super::{Output, Source, Sources};
use crate::field::POLYNOMIAL;

/// Four words, which compilers turn into vectors of 16 bytes.
const COLUMN_BYTES: usize = 32;
type Column = [u64; 4];

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = LOW_BITS << 7;

combine!();

fn zero() -> Column {
    [0; 4]
}

fn load_whole(bytes: &[u8; COLUMN_BYTES]) -> Column {
    let (words, _) = bytes.as_chunks();
    from_fn(|i| u64::from_ne_bytes(words[i]))
}

fn store_whole(column: Column, bytes: &mut [u8; COLUMN_BYTES]) {
    let (words, _) = bytes.as_chunks_mut();
    for (bytes, word) in words.iter_mut().zip(column) {
        *bytes = word.to_ne_bytes();
    }
}

fn add(a: Column, b: Column) -> Column {
    from_fn(|i| a[i] ^ b[i])
}

fn double(column: Column) -> Column {
    column.map(|word| {
        let high = word & HIGH_BITS;
        // 0xff in each byte that overflows.
        let overflows = (high << 1).wrapping_sub(high >> 7);
        ((word ^ high) << 1) ^ (overflows & (LOW_BITS * POLYNOMIAL as u64))
    })
}

fn multiply(column: Column, factor: u8) -> Column {
    // Horner's rule over the bits of the factor.
    (0..8).rev().fold(zero(), |product, bit| {
        let product = double(product);
        if factor >> bit & 1 == 1 { add(product, column) } else { product }
    })
}
