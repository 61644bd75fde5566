//! AES with a key of any of its lengths, on many blocks at once.

use aes::cipher::{BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _};
use aes::{Aes128, Aes192, Aes256, Block};

use super::xts;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 16;

/// A key, expanded. Dropping it wipes it.
pub(crate) enum Aes {
    Bits128(Aes128),
    Bits192(Aes192),
    Bits256(Aes256),
}

impl Aes {
    /// Expands a key of 16, 24 or 32 bytes; `None` for one of another length.
    pub fn new(key: &[u8]) -> Option<Self> {
        match key.len() {
            16 => Aes128::new_from_slice(key).ok().map(Self::Bits128),
            24 => Aes192::new_from_slice(key).ok().map(Self::Bits192),
            32 => Aes256::new_from_slice(key).ok().map(Self::Bits256),
            _ => None,
        }
    }

    pub fn encrypt(&self, blocks: &mut [Block]) {
        match self {
            Self::Bits128(aes) => aes.encrypt_blocks(blocks),
            Self::Bits192(aes) => aes.encrypt_blocks(blocks),
            Self::Bits256(aes) => aes.encrypt_blocks(blocks),
        }
    }

    pub fn decrypt(&self, blocks: &mut [Block]) {
        match self {
            Self::Bits128(aes) => aes.decrypt_blocks(blocks),
            Self::Bits192(aes) => aes.decrypt_blocks(blocks),
            Self::Bits256(aes) => aes.decrypt_blocks(blocks),
        }
    }

    /// Decrypts sectors in XTS, each from its encrypted tweak on.
    pub fn decrypt_xts(&self, tweaks: &[Block], sectors: &mut [Block], sector_blocks: usize) {
        match self {
            Self::Bits128(aes) => xts::decrypt(aes, tweaks, sectors, sector_blocks),
            Self::Bits192(aes) => xts::decrypt(aes, tweaks, sectors, sector_blocks),
            Self::Bits256(aes) => xts::decrypt(aes, tweaks, sectors, sector_blocks),
        }
    }
}

/// Adds `value` to a block without carry.
#[inline(always)]
pub(super) fn xor(block: &mut Block, value: &[u8; BLOCK_BYTES]) {
    let sum = u128::from_ne_bytes(block.0) ^ u128::from_ne_bytes(*value);
    block.0 = sum.to_ne_bytes();
}
