//! The diffuser of BitLocker's first versions, as "AES-CBC + Elephant diffuser" (N. Ferguson, 2006) defines it, in the direction of
//! decryption.

use super::SECTOR_BYTES_MAX;

const WORD_BYTES: usize = 4;
/// How often each half passes over the sector, and by how many bits it rotates, by the number of the word.
const CYCLES_A: usize = 5;
const ROTATIONS_A: [u32; 4] = [9, 0, 13, 0];
const CYCLES_B: usize = 3;
const ROTATIONS_B: [u32; 4] = [0, 10, 0, 25];

/// Undoes both halves on one sector.
pub(super) fn undo_diffusion(sector: &mut [u8]) {
    let mut words = [0; SECTOR_BYTES_MAX / WORD_BYTES];
    let (chunks, _) = sector.as_chunks_mut::<WORD_BYTES>();
    let words = &mut words[..chunks.len()];
    for (word, bytes) in words.iter_mut().zip(&*chunks) {
        *word = u32::from_le_bytes(*bytes);
    }
    // Sectors have a power of two of words, and at least 128.
    let mask = words.len() - 1;
    for _ in 0..CYCLES_B {
        for at in 0..words.len() {
            let rotated = words[(at + 5) & mask].rotate_left(ROTATIONS_B[at % 4]);
            words[at] = words[at].wrapping_add(words[(at + 2) & mask] ^ rotated);
        }
    }
    for _ in 0..CYCLES_A {
        for at in 0..words.len() {
            let rotated = words[at.wrapping_sub(5) & mask].rotate_left(ROTATIONS_A[at % 4]);
            words[at] = words[at].wrapping_add(words[at.wrapping_sub(2) & mask] ^ rotated);
        }
    }
    for (word, bytes) in words.iter().zip(chunks) {
        *bytes = word.to_le_bytes();
    }
}
