//! The blocks of a container, and the checksum of those that are objects.

use cheetah_device::le::{u32_at, u64_at};

use super::super::part::Part;
use super::super::{Flaw, Result};
use crate::checks::Checks;

/// The largest block, in bytes.
pub(super) const BLOCK_BYTES_MAX: u64 = 64 << 10;
/// The part of the type of an object that is its kind.
const KIND_MASK: u32 = 0xffff;
/// Fletcher's modulus.
const MODULUS: u64 = 0xffff_ffff;
/// Words whose sums fit without a remainder being taken.
const WORDS: usize = 1024;

/// The blocks of a container.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub part: Part<'a>,
    pub block_bytes: u64,
    pub checks: Checks,
}

impl Blocks<'_> {
    /// Reads blocks.
    pub async fn read(&self, first: u64, count: u64) -> Result<Vec<u8>> {
        let wrong = Flaw::Damaged("it names a place beyond its end");
        let place = first.checked_mul(self.block_bytes).zip(count.checked_mul(self.block_bytes));
        let (at, len) = place.ok_or(wrong)?;
        self.part.read(at, len).await
    }

    /// Reads an object of one of these kinds, which has a block.
    pub async fn object(&self, at: u64, kinds: &[u32]) -> Result<Vec<u8>> {
        let object = self.read(at, 1).await?;
        match kinds.contains(&kind(&object)) && self.is_whole(&object) {
            true => Ok(object),
            false => Err(Flaw::Damaged("a block of its metadata is not what it should be")),
        }
    }

    /// Whether an object has the checksum that it states.
    pub fn is_whole(&self, object: &[u8]) -> bool {
        self.checks == Checks::Ignored || u64_at(object, 0) == sum(object)
    }
}

/// The kind of an object.
pub(super) fn kind(object: &[u8]) -> u32 {
    u32_at(object, 24) & KIND_MASK
}

/// Returns the checksum of an object: Fletcher's with 64 bits, so that the sums of the whole, with it, are zero.
pub(super) fn sum(object: &[u8]) -> u64 {
    let (words, _) = object.get(8..).unwrap_or_default().as_chunks::<4>();
    let (mut low, mut high) = (0_u64, 0_u64);
    for some in words.chunks(WORDS) {
        for word in some {
            low += u64::from(u32::from_le_bytes(*word));
            high += low;
        }
        (low, high) = (low % MODULUS, high % MODULUS);
    }
    let first = MODULUS - (low + high) % MODULUS;
    let second = MODULUS - (low + first) % MODULUS;
    second << 32 | first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sums_over_an_object_and_its_checksum_are_zero() {
        let mut object: Vec<u8> = (0..4096_u32).map(|at| (at * 7 % 251) as u8).collect();
        let sum = sum(&object);
        object[..8].copy_from_slice(&sum.to_le_bytes());
        let words = object[8..].as_chunks::<4>().0.iter().chain(object[..8].as_chunks::<4>().0);
        let (mut low, mut high) = (0_u64, 0_u64);
        for word in words {
            low = (low + u64::from(u32::from_le_bytes(*word))) % MODULUS;
            high = (high + low) % MODULUS;
        }
        assert_eq!((low, high), (0, 0));
    }
}
