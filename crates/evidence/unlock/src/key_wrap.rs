//! Keys that are wrapped with another key (RFC 3394), which also confirms it.

use aes::Block;
use cheetah_kit::locked::LockedBytes;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::cipher::Aes;
use crate::refusal::Result;

/// What a right key unwraps before the wrapped one.
const INITIAL: [u8; HALF_BYTES] = [0xa6; HALF_BYTES];
const HALF_BYTES: usize = 8;
/// Bytes of the shortest key.
const KEY_BYTES_MIN: usize = 16;
const ROUNDS: u64 = 6;

/// Returns the key that is wrapped; `None` if `by` is not what wraps it, or `wrapped` is none.
///
/// # Errors
///
/// If no memory can be had for it.
pub(crate) fn unwrap(by: &Aes, wrapped: &[u8]) -> Result<Option<LockedBytes>> {
    let (Some((first, halves)), []) = (wrapped.split_first_chunk::<HALF_BYTES>(), wrapped.as_chunks::<HALF_BYTES>().1)
    else {
        return Ok(None);
    };
    if halves.len() < KEY_BYTES_MIN {
        return Ok(None);
    }
    let mut key = LockedBytes::copy_of(halves)?;
    let count = (halves.len() / HALF_BYTES) as u64;
    let mut check = Zeroizing::new(*first);
    let mut block = Zeroizing::new([0; 2 * HALF_BYTES]);
    for round in (0..ROUNDS).rev() {
        for (index, half) in key.as_chunks_mut::<HALF_BYTES>().0.iter_mut().enumerate().rev() {
            let step = u64::from_be_bytes(*check) ^ (round * count + index as u64 + 1);
            block[..HALF_BYTES].copy_from_slice(&step.to_be_bytes());
            block[HALF_BYTES..].copy_from_slice(half);
            let mut decrypted = Block::from(*block);
            by.decrypt(std::slice::from_mut(&mut decrypted));
            *block = decrypted.0;
            check.copy_from_slice(&block[..HALF_BYTES]);
            half.copy_from_slice(&block[HALF_BYTES..]);
        }
    }
    Ok(bool::from(check[..].ct_eq(&INITIAL[..])).then_some(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    fn unwrapped(by: &[u8], wrapped: &[u8]) -> Option<Vec<u8>> {
        unwrap(&Aes::new(by).unwrap(), wrapped).unwrap().map(|key| key.to_vec())
    }

    /// Sections 4.1, 4.3, 4.5 and 4.6.
    #[test]
    fn the_vectors_of_rfc_3394_are_unwrapped() {
        let all = hex("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
        let key = hex("00112233445566778899aabbccddeeff000102030405060708090a0b0c0d0e0f");
        let vectors = [
            (16, 16, "1fa68b0a8112b447aef34bd8fb5a7b829d3e862371d2cfe5"),
            (32, 16, "64e8c3f9ce0f5ba263e9777905818a2a93c8191e7d6e8ae7"),
            (32, 24, "a8f9bc1612c68b3ff6e6f4fbe30e71e4769c8b80a32cb8958cd5d17d6b254da1"),
            (32, 32, "28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43bfb988b9b7a02dd21"),
        ];
        for (by, len, wrapped) in vectors {
            let mut wrapped = hex(wrapped);
            assert_eq!(unwrapped(&all[..by], &wrapped), Some(key[..len].to_vec()), "{by} {len}");
            for at in 0..wrapped.len() {
                wrapped[at] ^= 1;
                assert_eq!(unwrapped(&all[..by], &wrapped), None);
                wrapped[at] ^= 1;
            }
        }
    }

    #[test]
    fn what_is_too_short_or_no_whole_number_of_halves_is_no_key() {
        for len in [0, 7, 8, 15, 16, 23, 25] {
            assert_eq!(unwrapped(&[1; 16], &vec![2; len]), None, "{len}");
        }
    }
}
