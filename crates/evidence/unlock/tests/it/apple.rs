//! What encrypts volumes of Apple's systems: AES-XTS (IEEE 1619), keys that are wrapped (RFC 3394), and keys of passwords. It shares no
//! code with what is tested.

use aes::cipher::{Block, BlockCipherEncrypt as _, KeyInit as _};
use aes::{Aes128, Aes256};
use pbkdf2::pbkdf2_hmac;
use sha2::Sha256;

fn encrypt(key: &[u8], block: [u8; 16]) -> [u8; 16] {
    let mut block = Block::<Aes128>::from(block);
    match key.len() {
        16 => Aes128::new_from_slice(key).unwrap().encrypt_block(&mut block),
        _ => Aes256::new_from_slice(key).unwrap().encrypt_block(&mut block),
    }
    block.into()
}

/// Encrypts a unit of whole blocks.
pub fn encrypt_unit(data: &[u8], tweak: &[u8], number: u64, unit: &mut [u8]) {
    let mut tweak = u128::from_le_bytes(encrypt(tweak, u128::from(number).to_le_bytes()));
    for block in unit.as_chunks_mut::<16>().0 {
        let sum = u128::from_le_bytes(*block) ^ tweak;
        *block = (u128::from_le_bytes(encrypt(data, sum.to_le_bytes())) ^ tweak).to_le_bytes();
        tweak = if tweak >> 127 == 1 { tweak << 1 ^ 0x87 } else { tweak << 1 };
    }
}

/// Wraps a key with another one.
pub fn wrap(by: &[u8], key: &[u8]) -> Vec<u8> {
    let (mut check, mut halves) = (0xa6a6_a6a6_a6a6_a6a6_u64, key.as_chunks::<8>().0.to_vec());
    let mut step = 0;
    for _ in 0..6 {
        for half in &mut halves {
            let mut block = [0; 16];
            block[..8].copy_from_slice(&check.to_be_bytes());
            block[8..].copy_from_slice(half);
            let block = encrypt(by, block);
            step += 1;
            check = u64::from_be_bytes(block[..8].try_into().unwrap()) ^ step;
            half.copy_from_slice(&block[8..]);
        }
    }
    [&check.to_be_bytes()[..], &halves.concat()].concat()
}

/// The key of a password.
pub fn derive(password: &[u8], salt: &[u8], iterations: u32, bytes: usize) -> Vec<u8> {
    let mut key = vec![0; bytes];
    pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut key);
    key
}

pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
