//! Ciphers with keys of 256 bits, alone or one after the other, each in XTS with a tweak of its own: what VeraCrypt uses.

use aes::cipher::{BlockCipherEncrypt as _, KeyInit as _};
use aes::{Aes256, Block};
use camellia::Camellia256;
use kuznyechik::Kuznyechik;
use serpent::Serpent;
use twofish::Twofish;

use super::xts;

/// The most ciphers of a cascade.
pub(crate) const CIPHERS_MAX: usize = 3;
/// Bytes of one key.
pub(crate) const KEY_BYTES: usize = 32;

/// A cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Aes,
    Camellia,
    Kuznyechik,
    Serpent,
    Twofish,
}

impl Algorithm {
    /// Its name, as VeraCrypt shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes => "AES",
            Self::Camellia => "Camellia",
            Self::Kuznyechik => "Kuznyechik",
            Self::Serpent => "Serpent",
            Self::Twofish => "Twofish",
        }
    }
}

/// A key, expanded. Dropping it wipes it.
enum Expanded {
    Aes(Aes256),
    Camellia(Camellia256),
    Kuznyechik(Kuznyechik),
    Serpent(Serpent),
    Twofish(Twofish),
}

impl Expanded {
    fn new(algorithm: Algorithm, key: &[u8; KEY_BYTES]) -> Option<Self> {
        Some(match algorithm {
            Algorithm::Aes => Self::Aes(Aes256::new_from_slice(key).ok()?),
            Algorithm::Camellia => Self::Camellia(Camellia256::new_from_slice(key).ok()?),
            Algorithm::Kuznyechik => Self::Kuznyechik(Kuznyechik::new_from_slice(key).ok()?),
            Algorithm::Serpent => Self::Serpent(Serpent::new_from_slice(key).ok()?),
            Algorithm::Twofish => Self::Twofish(Twofish::new_from_slice(key).ok()?),
        })
    }

    fn encrypt(&self, blocks: &mut [Block]) {
        match self {
            Self::Aes(key) => key.encrypt_blocks(blocks),
            Self::Camellia(key) => key.encrypt_blocks(blocks),
            Self::Kuznyechik(key) => key.encrypt_blocks(blocks),
            Self::Serpent(key) => key.encrypt_blocks(blocks),
            Self::Twofish(key) => key.encrypt_blocks(blocks),
        }
    }

    fn decrypt_xts(&self, tweaks: &[Block], sectors: &mut [Block], sector_blocks: usize) {
        match self {
            Self::Aes(key) => xts::decrypt(key, tweaks, sectors, sector_blocks),
            Self::Camellia(key) => xts::decrypt(key, tweaks, sectors, sector_blocks),
            Self::Kuznyechik(key) => xts::decrypt(key, tweaks, sectors, sector_blocks),
            Self::Serpent(key) => xts::decrypt(key, tweaks, sectors, sector_blocks),
            Self::Twofish(key) => xts::decrypt(key, tweaks, sectors, sector_blocks),
        }
    }
}

/// Ciphers in the order in which they encrypt, each with its keys of the data and of the tweaks.
pub(crate) struct Cascade {
    ciphers: [Option<(Expanded, Expanded)>; CIPHERS_MAX],
}

impl Cascade {
    /// Expands the keys of `algorithms`: those of the data, in order, and then those of the tweaks. `None` if there are too few
    /// bytes or too many algorithms.
    pub fn new(algorithms: &[Algorithm], keys: &[u8]) -> Option<Self> {
        let (keys, _) = keys.as_chunks::<KEY_BYTES>();
        let mut ciphers = [None, None, None];
        for (nth, algorithm) in algorithms.iter().enumerate() {
            let (data, tweak) = (keys.get(nth)?, keys.get(algorithms.len() + nth)?);
            *ciphers.get_mut(nth)? = Some((Expanded::new(*algorithm, data)?, Expanded::new(*algorithm, tweak)?));
        }
        Some(Self { ciphers })
    }

    /// Decrypts a header: unit 0. Its length is known to the compiler, which refuses one that is no whole blocks or longer than a sector.
    pub fn decrypt_header<const BYTES: usize>(&self, header: &mut [u8; BYTES]) {
        const { assert!(BYTES > 0 && BYTES / super::BLOCK_BYTES * super::BLOCK_BYTES == BYTES) };
        const { assert!(BYTES <= super::SECTOR_BYTES_MAX) };
        let header = super::blocks(header);
        self.decrypt(&[Block::default()], header, header.len());
    }

    /// Decrypts data units of `unit_blocks` blocks; `numbers` are theirs as blocks, at most 64.
    pub fn decrypt(&self, numbers: &[Block], units: &mut [Block], unit_blocks: usize) {
        for (data, tweak) in self.ciphers.iter().rev().flatten() {
            let mut tweaks = [Block::default(); super::GROUP_SECTORS];
            let tweaks = &mut tweaks[..numbers.len()];
            tweaks.copy_from_slice(numbers);
            tweak.encrypt(tweaks);
            data.decrypt_xts(tweaks, units, unit_blocks);
        }
    }
}
