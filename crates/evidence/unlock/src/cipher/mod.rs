//! The ciphers of volumes: AES in the modes XTS, CBC and ECB, BitLocker's diffuser, and VeraCrypt's cascades, in the caller's buffer.
//!
//! No I/O. A sector is decrypted by itself: its number goes into its first value (IV, tweak). What differs between formats is
//! how that number is counted and made into a block ([`Numbering`], [`Iv`]).

mod aes;
mod cascade;
mod diffuser;
#[cfg(test)]
mod tests;

use ::aes::Block;

pub(crate) use self::aes::Aes;
use self::aes::{BATCH, BLOCK_BYTES, xor};
pub(crate) use self::cascade::{Algorithm, CIPHERS_MAX, Cascade, KEY_BYTES};
use self::diffuser::undo_diffusion;

/// Sectors whose tweaks are encrypted together.
const TWEAKS: usize = 8;
/// The largest sector, in bytes.
pub(crate) const SECTOR_BYTES_MAX: usize = 4096;

/// How sectors are counted: in units of `unit_bytes` from the start of the volume, and from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbering {
    pub unit_bytes: u64,
    pub first: u64,
}

/// How the number of a sector becomes its first value.
#[expect(clippy::large_enum_variant, reason = "a box would lie outside the locked memory")]
pub(crate) enum Iv {
    /// Its lower 32 bits, with zeros.
    Plain32,
    /// It, with zeros.
    Plain64,
    /// It, with zeros, encrypted with this key.
    Encrypted(Aes),
}

/// A mode with its keys.
#[expect(clippy::large_enum_variant, reason = "a box would lie outside the locked memory")]
pub(crate) enum Mode {
    Ecb(Aes),
    Cbc {
        data: Aes,
        iv: Iv,
    },
    Xts {
        data: Aes,
        tweak: Aes,
        iv: Iv,
    },
    /// BitLocker's: CBC, the diffuser in both directions, and a key of the sector.
    CbcDiffused {
        data: Aes,
        iv: Iv,
        sector_key: Aes,
    },
    /// VeraCrypt's: one to three ciphers, each in XTS.
    Cascade(Cascade),
}

/// What decrypts the sectors of one volume.
pub(crate) struct SectorCipher {
    mode: Mode,
    numbering: Numbering,
    sector_bytes: usize,
}

impl SectorCipher {
    /// A cipher of sectors of `sector_bytes`: 512, 1024, 2048 or 4096; `None` for others.
    pub fn new(mode: Mode, numbering: Numbering, sector_bytes: u64) -> Option<Self> {
        let sector_bytes = usize::try_from(sector_bytes).ok()?;
        let is_known = sector_bytes.is_power_of_two() && (512..=SECTOR_BYTES_MAX).contains(&sector_bytes);
        (is_known && numbering.unit_bytes > 0).then_some(Self { mode, numbering, sector_bytes })
    }

    /// Bytes of a sector.
    pub fn sector_bytes(&self) -> u64 {
        self.sector_bytes as u64
    }

    /// Decrypts whole sectors that begin `offset` bytes after the start of the volume.
    pub fn decrypt(&self, offset: u64, sectors: &mut [u8]) {
        debug_assert!(sectors.len().is_multiple_of(self.sector_bytes));
        let number = |nth: usize| {
            let at = offset.wrapping_add((nth * self.sector_bytes) as u64);
            (at / self.numbering.unit_bytes).wrapping_add(self.numbering.first)
        };
        match &self.mode {
            Mode::Ecb(data) => blocks(sectors).chunks_mut(BATCH).for_each(|batch| data.decrypt(batch)),
            Mode::Xts { data, tweak, iv } => {
                for (nth, group) in sectors.chunks_mut(TWEAKS * self.sector_bytes).enumerate() {
                    // Together, since the processor is faster with several blocks than with one.
                    let mut tweaks: [Block; TWEAKS] = std::array::from_fn(|at| iv.of(number(nth * TWEAKS + at)));
                    tweak.encrypt(&mut tweaks);
                    for (sector, tweak) in group.chunks_exact_mut(self.sector_bytes).zip(&tweaks) {
                        xts(|blocks| data.decrypt(blocks), u128::from_le_bytes(tweak.0), blocks(sector));
                    }
                }
            }
            Mode::Cbc { data, iv } => {
                for (nth, sector) in sectors.chunks_exact_mut(self.sector_bytes).enumerate() {
                    cbc(data, iv.of(number(nth)), blocks(sector));
                }
            }
            Mode::CbcDiffused { data, iv, sector_key } => {
                for (nth, sector) in sectors.chunks_exact_mut(self.sector_bytes).enumerate() {
                    cbc(data, iv.of(number(nth)), blocks(sector));
                    undo_diffusion(sector);
                    add_sector_key(sector_key, number(nth), blocks(sector));
                }
            }
            Mode::Cascade(cascade) => {
                for (nth, sector) in sectors.chunks_exact_mut(self.sector_bytes).enumerate() {
                    cascade.decrypt(numbered_block(number(nth)), blocks(sector));
                }
            }
        }
    }
}

/// The whole blocks of some bytes.
fn blocks(bytes: &mut [u8]) -> &mut [Block] {
    Block::slice_as_chunks_mut(bytes).0
}

impl Iv {
    fn of(&self, number: u64) -> Block {
        let number = if matches!(self, Self::Plain32) { number & 0xffff_ffff } else { number };
        let mut block = numbered_block(number);
        if let Self::Encrypted(key) = self {
            key.encrypt(std::slice::from_mut(&mut block));
        }
        block
    }
}

/// A number as a block, its lowest byte first.
fn numbered_block(number: u64) -> Block {
    Block::from(u128::from(number).to_le_bytes())
}

/// XTS (IEEE 1619) on one sector of whole blocks, from its encrypted tweak on.
fn xts(decrypt: impl Fn(&mut [Block]), mut tweak: u128, sector: &mut [Block]) {
    for blocks in sector.chunks_mut(BATCH) {
        let mut tweaks = [[0; BLOCK_BYTES]; BATCH];
        for (block, place) in blocks.iter_mut().zip(&mut tweaks) {
            *place = tweak.to_le_bytes();
            xor(block, place);
            // Times x in the field of 2^128 elements.
            tweak = (tweak << 1) ^ (0x87 * (tweak >> 127));
        }
        decrypt(blocks);
        for (block, tweak) in blocks.iter_mut().zip(&tweaks) {
            xor(block, tweak);
        }
    }
}

/// CBC on one sector.
fn cbc(key: &Aes, iv: Block, sector: &mut [Block]) {
    let mut before = iv;
    for blocks in sector.chunks_mut(BATCH) {
        let mut encrypted = [Block::default(); BATCH];
        let count = blocks.len();
        encrypted[..count].copy_from_slice(blocks);
        key.decrypt(blocks);
        for (nth, block) in blocks.iter_mut().enumerate() {
            let previous = if nth == 0 { &before } else { &encrypted[nth - 1] };
            xor(block, &previous.0);
        }
        before = encrypted[count - 1];
    }
}

/// Adds the key of a sector, two blocks, again and again.
fn add_sector_key(key: &Aes, number: u64, sector: &mut [Block]) {
    let mut halves = [numbered_block(number); 2];
    halves[1].0[BLOCK_BYTES - 1] = 0x80;
    key.encrypt(&mut halves);
    for (nth, block) in sector.iter_mut().enumerate() {
        xor(block, &halves[nth % 2].0);
    }
}
