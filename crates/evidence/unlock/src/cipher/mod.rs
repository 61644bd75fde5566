//! The ciphers of volumes: AES in the modes XTS, CBC and ECB, BitLocker's diffuser, and VeraCrypt's cascades, in the caller's buffer.
//!
//! No I/O. A sector is decrypted by itself: its number goes into its first value (IV, tweak). What differs between formats is
//! how that number is counted and made into a block ([`Numbering`], [`Iv`]).

mod aes;
#[cfg(test)]
mod block_by_block;
mod cascade;
mod diffuser;
#[cfg(test)]
mod tests;
mod xts;

use ::aes::Block;

pub(crate) use self::aes::Aes;
use self::aes::{BLOCK_BYTES, xor};
pub(crate) use self::cascade::{Algorithm, CIPHERS_MAX, Cascade, KEY_BYTES};
use self::diffuser::undo_diffusion;

/// Sectors that are decrypted together, and whose first values are encrypted together: a processor is faster with several blocks at a
/// time than with one, with VAES up to 64.
const GROUP_SECTORS: usize = 64;
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
        for (nth, group) in sectors.chunks_mut(GROUP_SECTORS * self.sector_bytes).enumerate() {
            let mut numbers = [0; GROUP_SECTORS];
            // Only those of the sectors that are there: a division takes as long as the decryption of some blocks.
            let numbers = &mut numbers[..group.len() / self.sector_bytes];
            for (at, number) in numbers.iter_mut().enumerate() {
                let before = (nth * GROUP_SECTORS + at) * self.sector_bytes;
                let unit = offset.wrapping_add(before as u64) / self.numbering.unit_bytes;
                *number = unit.wrapping_add(self.numbering.first);
            }
            self.decrypt_group(numbers, group);
        }
    }

    /// Decrypts the sectors with these numbers.
    fn decrypt_group(&self, numbers: &[u64], sectors: &mut [u8]) {
        let (mut room, sector_blocks) = ([Block::default(); GROUP_SECTORS], self.sector_bytes / BLOCK_BYTES);
        let first = &mut room[..numbers.len()];
        match &self.mode {
            Mode::Ecb(data) => data.decrypt(blocks(sectors)),
            Mode::Xts { data, tweak, iv } => {
                iv.fill(first, numbers);
                tweak.encrypt(first);
                data.decrypt_xts(first, blocks(sectors), sector_blocks);
            }
            Mode::Cbc { data, iv } => {
                iv.fill(first, numbers);
                cbc(data, first, blocks(sectors), sector_blocks);
            }
            Mode::CbcDiffused { data, iv, sector_key } => {
                iv.fill(first, numbers);
                cbc(data, first, blocks(sectors), sector_blocks);
                for (sector, number) in sectors.chunks_exact_mut(self.sector_bytes).zip(numbers) {
                    undo_diffusion(sector);
                    add_sector_key(sector_key, *number, blocks(sector));
                }
            }
            Mode::Cascade(cascade) => {
                fill(first, numbers);
                cascade.decrypt(first, blocks(sectors), sector_blocks);
            }
        }
    }
}

/// The whole blocks of some bytes.
fn blocks(bytes: &mut [u8]) -> &mut [Block] {
    Block::slice_as_chunks_mut(bytes).0
}

impl Iv {
    /// Fills `first` with the first values of the sectors with these numbers.
    fn fill(&self, first: &mut [Block], numbers: &[u64]) {
        fill(first, numbers);
        match self {
            Self::Plain32 => first.iter_mut().for_each(|block| block.0[4..].fill(0)),
            Self::Plain64 => {}
            Self::Encrypted(key) => key.encrypt(first),
        }
    }
}

/// Fills `first` with numbers as blocks.
fn fill(first: &mut [Block], numbers: &[u64]) {
    for (block, number) in first.iter_mut().zip(numbers) {
        *block = numbered_block(*number);
    }
}

/// A number as a block, its lowest byte first.
fn numbered_block(number: u64) -> Block {
    Block::from(u128::from(number).to_le_bytes())
}

/// CBC on sectors, each from its first value on.
fn cbc(key: &Aes, first: &[Block], sectors: &mut [Block], sector_blocks: usize) {
    const TOGETHER: usize = SECTOR_BYTES_MAX / BLOCK_BYTES;
    let count = TOGETHER / sector_blocks;
    let mut encrypted = [Block::default(); TOGETHER];
    for (first, blocks) in first.chunks(count).zip(sectors.chunks_mut(count * sector_blocks)) {
        let encrypted = &mut encrypted[..blocks.len()];
        encrypted.copy_from_slice(blocks);
        key.decrypt(blocks);
        let sectors = blocks.chunks_exact_mut(sector_blocks).zip(encrypted.chunks_exact(sector_blocks));
        for ((sector, encrypted), first) in sectors.zip(first) {
            for (block, previous) in sector.iter_mut().zip(std::iter::once(first).chain(encrypted)) {
                xor(block, &previous.0);
            }
        }
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
