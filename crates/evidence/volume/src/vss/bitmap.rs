//! Which blocks of a volume were not in use.

use super::BLOCK_BYTES;

/// One bit for each block of the volume, the lowest of a byte first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bitmap(Vec<u8>);

impl Bitmap {
    /// The largest one, in bytes: that of a volume of 16 TiB.
    pub const BYTES_MAX: u64 = 128 << 20;

    /// The length of one for a volume of this size, in bytes.
    pub fn bytes_for(volume_bytes: u64) -> u64 {
        volume_bytes.div_ceil(BLOCK_BYTES).div_ceil(8)
    }

    /// Adds bits, as they are stored.
    pub fn append(&mut self, bits: &[u8]) {
        self.0.extend_from_slice(bits);
    }

    /// Its length, in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    /// Whether it has the bit of a block. It has none beyond its end.
    pub fn has(&self, number: u64) -> bool {
        let byte = usize::try_from(number / 8).ok().and_then(|at| self.0.get(at));
        byte.is_some_and(|byte| byte >> (number % 8) & 1 == 1)
    }

    /// The number of bits that it has of this many blocks, from the first one on.
    pub fn count(&self, blocks: u64) -> u64 {
        let whole = usize::try_from(blocks / 8).map_or(self.0.len(), |bytes| bytes.min(self.0.len()));
        let bits: u64 = self.0.iter().take(whole).map(|byte| u64::from(byte.count_ones())).sum();
        bits + (blocks - blocks % 8..blocks).map(|number| u64::from(self.has(number))).sum::<u64>()
    }

    /// Keeps the bits that another one has, too.
    pub fn retain(&mut self, other: &Self) {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        self.0.iter_mut().zip(others).for_each(|(byte, other)| *byte &= other);
    }
}
