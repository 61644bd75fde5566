//! The erasure code of redundant drives and of Linux's arrays: the parity shards P and Q of RAID 6.
//!
//! A *stripe* is k equally long data shards D0, D1, … with one parity shard, P, or two, P and Q. Each byte of a parity
//! shard depends on the bytes at the same offset of the data shards:
//!
//! ```text
//! P = D0 + D1 + D2 + …
//! Q = D0 + 2 D1 + 4 D2 + …
//! ```
//!
//! in GF(2^8) with the polynomial 0x11D, as H. P. Anvin, "The mathematics of RAID-6", describes and Linux' md computes.
//! P restores any one missing shard, P and Q any two. Such a code does not detect wrong shards: the caller needs
//! digests of them.
//!
//! A stripe has at most [`DATA_SHARDS_MAX`] data shards: the field has no more distinct powers of 2, and two shards
//! with the same factor could not be distinguished.
//!
//! Nothing here does I/O, allocates or copies a shard. The kernel uses AVX2 where the processor has it, and words of 64
//! bits elsewhere. With four data shards of 64 KiB in the cache, AVX2 was 1.7 times as fast for P, 2.1 times for P and
//! Q, and 8 times for updates of Q and for two missing data shards. `examples/parity_speed.rs` measures the kernel in
//! use.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "AVX2, which is 1.6 to 8 times as fast: loads, stores, and the call after detection")]
mod combine;
mod field;

use combine::{Output, Sources, combine};

/// The most data shards of a stripe.
pub const DATA_SHARDS_MAX: usize = field::POWERS_MAX;
/// The most parity shards of a stripe.
pub const PARITY_SHARDS_MAX: usize = 2;

/// Why a call was refused. No byte was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParityError {
    /// The number of data shards.
    #[error("a stripe has 1 to {DATA_SHARDS_MAX} data shards, not {0}")]
    DataShards(usize),
    /// The number of parity shards.
    #[error("a stripe has 1 or {PARITY_SHARDS_MAX} parity shards, not {0}")]
    ParityShards(usize),
    /// The index of a data shard.
    #[error("there is no data shard {0}: a stripe has at most {DATA_SHARDS_MAX}")]
    DataIndex(usize),
    /// The index of a parity shard.
    #[error("there is no parity shard {0}: P is 0, and Q is 1")]
    ParityIndex(usize),
    /// The lengths of two shards.
    #[error("the shards of a stripe must be equally long: one has {0} bytes, another {1}")]
    Lengths(usize, usize),
    /// More shards are missing than the parity shards restore.
    #[error("{missing} shards are missing, and {parity} parity shards restore at most {parity}")]
    TooFewShards {
        /// Missing shards, data and parity.
        missing: usize,
        /// Parity shards of the stripe, present or not.
        parity: usize,
    },
    /// The index of a shard that was to be restored.
    #[error("shard {0} is not missing, so it cannot be restored")]
    NotMissing(usize),
}

/// The result of an operation on shards.
pub type Result<T> = std::result::Result<T, ParityError>;

/// Computes P, the XOR of the data shards.
pub fn xor(parity: &mut [u8], data: &[&[u8]]) -> Result<()> {
    encode(data, &mut [parity])
}

/// Computes P, or P and Q, from all data shards. The former content of the parity shards does not matter.
pub fn encode(data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<()> {
    check_counts(data.len(), parity.len())?;
    check_lengths(lengths(data).chain(parity.iter().map(|shard| shard.len())))?;
    let sources = Sources { data, p: None, q: None };
    let output = |bytes, factors| Output { bytes, factors, add: false };
    match parity {
        [p] => combine(&sources, &mut [output(p, (1, 0))]),
        [p, q] => combine(&sources, &mut [output(p, (1, 0)), output(q, (0, 1))]),
        _ => return Err(ParityError::ParityShards(parity.len())),
    }
    Ok(())
}

/// Restores missing shards from the present ones.
///
/// `data` and `parity` are all shards of the stripe, without bytes where missing. `restored` names the missing shards
/// to restore, each with its memory: an index below k = `data.len()` is that of a data shard, k is P and k + 1 is Q. Other
/// missing shards need no memory. A present shard may be passed as missing, so k shards suffice to restore one.
pub fn reconstruct(
    data: &[Option<&[u8]>],
    parity: &[Option<&[u8]>],
    restored: &mut [(usize, &mut [u8])],
) -> Result<()> {
    check_counts(data.len(), parity.len())?;
    let shards = || data.iter().chain(parity);
    check_lengths(shards().flatten().map(|shard| shard.len()).chain(restored.iter().map(|(_, bytes)| bytes.len())))?;
    let missing = || shards().enumerate().filter(|(_, shard)| shard.is_none()).map(|(index, _)| index);
    if missing().count() > parity.len() {
        return Err(ParityError::TooFewShards { missing: missing().count(), parity: parity.len() });
    }
    if let Some((present, _)) = restored.iter().find(|(index, _)| !missing().any(|missing| missing == *index)) {
        return Err(ParityError::NotMissing(*present));
    }
    let sources = Sources { data, p: parity.first().copied().flatten(), q: parity.get(1).copied().flatten() };
    let (p, q) = (data.len(), data.len() + 1);
    for outputs in restored.chunks_mut(2) {
        let mut outputs = outputs.iter_mut().map(|(shard, bytes)| {
            // If no other shard is missing, restore this one as if Q, or else P, were.
            let other = missing().find(|other| other != shard).unwrap_or(if *shard == q { p } else { q });
            Output { bytes, factors: factors(*shard, other, data.len()), add: false }
        });
        match (outputs.next(), outputs.next()) {
            (Some(first), Some(second)) => combine(&sources, &mut [first, second]),
            (Some(first), None) => combine(&sources, &mut [first]),
            _ => {}
        }
    }
    Ok(())
}

/// Adds one data shard to a parity shard.
///
/// Adding all data shards to zeros, one by one, gives the result of [`encode`]. If a data shard changes, adding
/// the XOR of its old and new bytes updates the parity shard.
pub fn accumulate(parity_index: usize, data_index: usize, data: &[u8], parity: &mut [u8]) -> Result<()> {
    add(parity_index, data_index, &[data], parity)
}

/// Updates a parity shard when a data shard, or a range of it, changes from `old` to `new`. `parity` is the same range of the parity
/// shard.
pub fn update(parity_index: usize, data_index: usize, old: &[u8], new: &[u8], parity: &mut [u8]) -> Result<()> {
    add(parity_index, data_index, &[old, new], parity)
}

/// Adds the sum of `data`, times the factor of the data shard at the index, to a parity shard.
fn add(parity_index: usize, data_index: usize, data: &[&[u8]], parity: &mut [u8]) -> Result<()> {
    if data_index >= DATA_SHARDS_MAX {
        return Err(ParityError::DataIndex(data_index));
    }
    let factor = match parity_index {
        0 => 1,
        1 => field::power(data_index),
        _ => return Err(ParityError::ParityIndex(parity_index)),
    };
    check_lengths(lengths(data).chain([parity.len()]))?;
    combine(&Sources { data, p: None, q: None }, &mut [Output { bytes: parity, factors: (factor, 0), add: true }]);
    Ok(())
}

/// The factors of the sums p and q whose combination is a missing shard, if this other one is missing, too.
///
/// p = p1 x + p2 y and q = q1 x + q2 y, where p1 and q1 are the factors of the shard x in the two sums, and p2 and q2
/// those of the other shard y; solved for x. The determinant is not 0 for any two shards.
fn factors(shard: usize, other: usize, data_shards: usize) -> (u8, u8) {
    let in_sums = |shard: usize| match shard.checked_sub(data_shards) {
        None => (1, field::power(shard)),
        Some(0) => (1, 0),
        Some(_) => (0, 1),
    };
    let ((p1, q1), (p2, q2)) = (in_sums(shard), in_sums(other));
    let determinant = field::multiply(p1, q2) ^ field::multiply(p2, q1);
    let inverse = field::invert(determinant);
    (field::multiply(q2, inverse), field::multiply(p2, inverse))
}

fn check_counts(data: usize, parity: usize) -> Result<()> {
    if !(1..=DATA_SHARDS_MAX).contains(&data) {
        return Err(ParityError::DataShards(data));
    }
    if !(1..=PARITY_SHARDS_MAX).contains(&parity) {
        return Err(ParityError::ParityShards(parity));
    }
    Ok(())
}

fn lengths<'a>(shards: &'a [&[u8]]) -> impl Iterator<Item = usize> + 'a {
    shards.iter().map(|shard| shard.len())
}

fn check_lengths(mut lengths: impl Iterator<Item = usize>) -> Result<()> {
    let Some(first) = lengths.next() else { return Ok(()) };
    match lengths.find(|len| *len != first) {
        Some(other) => Err(ParityError::Lengths(first, other)),
        None => Ok(()),
    }
}
