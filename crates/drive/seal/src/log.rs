//! What follows the record in its file: the stamps that changed since, and copies of units that a crash could tear.
//! Does no I/O.
//!
//! Each entry ends with a root of its own: the keyed hash over the root before it and the entry. A flush therefore
//! writes the stamps that it changed, and not those of the whole drive. An entry that was not stored completely ends the
//! log; only the last one can be such.

use std::collections::HashMap;

use bytes::Bytes;

use crate::error::SealError;
use crate::key::DriveKey;
use crate::record::{ROOT_BYTES, Record, root};
use crate::stamp::Stamp;
use crate::unit::FORMAT;

/// Bytes of an entry before its body: the body's length and the kind.
const HEAD_BYTES: usize = 8;
/// Bytes of a run of stamps.
const RUN_BYTES: usize = 24;
/// Bytes of an entry besides its body, of that of a unit also the index.
pub const ENTRY_BYTES: u64 = (HEAD_BYTES + 8 + ROOT_BYTES) as u64;
/// The stamps of units.
const KIND_STAMPS: u32 = 1;
/// A sealed unit that is about to be written.
const KIND_UNIT: u32 = 2;
/// The longest copies of units that a log holds, in bytes.
pub const COPIES_BYTES_MAX: u64 = 64 << 20;
/// The log of a small drive may grow to this many bytes.
const STAMPS_BYTES_MIN: u64 = 1 << 20;

/// The root that the next entry continues.
pub type Root = [u8; ROOT_BYTES];

/// A stored record and what follows it.
pub struct Stored {
    /// The record, with the stamps of the log.
    pub record: Record,
    /// The root of the last entry.
    pub root: Root,
    /// Copies of units, the newest of each: by index: ciphertext and trailer. Nothing vouches for them but their tags.
    pub copies: HashMap<u64, Bytes>,
}

/// The log that a record of this many bytes may have before the record is stored again, in bytes: as long as the record,
/// so that each byte of an entry is written again once on average.
pub const fn stamps_bytes_max(record_bytes: u64) -> u64 {
    if record_bytes > STAMPS_BYTES_MIN { record_bytes } else { STAMPS_BYTES_MIN }
}

/// The longest log of a record of this many bytes, copies of units included, in bytes.
pub const fn bytes_max(record_bytes: u64) -> u64 {
    stamps_bytes_max(record_bytes).saturating_add(COPIES_BYTES_MAX)
}

/// An entry with the stamps of units, which are in rising order. Returns it with its root.
pub fn stamps(
    previous: &Root,
    key: &DriveKey,
    record: &Record,
    units: impl Iterator<Item = u64>,
) -> Result<(Vec<u8>, Root), SealError> {
    let mut body: Vec<u8> = Vec::new();
    let mut last: Option<(u64, u64, Stamp)> = None;
    let mut end = |run: Option<(u64, u64, Stamp)>| {
        if let Some((first, count, stamp)) = run {
            body.extend_from_slice(&first.to_be_bytes());
            body.extend_from_slice(&count.to_be_bytes());
            body.extend_from_slice(&stamp.to_bytes());
        }
    };
    for unit in units {
        let stamp = usize::try_from(unit).ok().and_then(|at| record.stamps.get(at).copied()).unwrap_or_default();
        last = match last {
            Some((first, count, begin)) if first + count == unit && begin.after(count) == Some(stamp) => {
                Some((first, count + 1, begin))
            }
            other => {
                end(other);
                Some((unit, 1, stamp))
            }
        };
    }
    end(last);
    entry(previous, key, record, KIND_STAMPS, &[&body])
}

/// An entry with a copy of a sealed unit. Returns it with its root.
pub fn unit(
    previous: &Root,
    key: &DriveKey,
    record: &Record,
    index: u64,
    sealed: &[u8],
) -> Result<(Vec<u8>, Root), SealError> {
    entry(previous, key, record, KIND_UNIT, &[&index.to_be_bytes(), sealed])
}

fn entry(
    previous: &Root,
    key: &DriveKey,
    record: &Record,
    kind: u32,
    body: &[&[u8]],
) -> Result<(Vec<u8>, Root), SealError> {
    let len = body.iter().map(|part| part.len()).sum::<usize>();
    let mut out = Vec::with_capacity(HEAD_BYTES + len + ROOT_BYTES);
    let len = u32::try_from(len).map_err(|_| SealError::Exhausted("an entry of the seal record is too long"))?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    body.iter().for_each(|part| out.extend_from_slice(part));
    let root = root_of(previous, key, &record.drive, &out)?;
    out.extend_from_slice(&root);
    Ok((out, root))
}

/// The root of an entry, without its own root.
fn root_of(previous: &Root, key: &DriveKey, drive: &[u8], entry: &[u8]) -> Result<Root, SealError> {
    let key = key.derive(drive, &[b"log", FORMAT])?;
    let mut hasher = blake3::Hasher::new_keyed(&key);
    hasher.update(previous).update(entry);
    Ok(*hasher.finalize().as_bytes())
}

/// Decodes a record and its log, and checks the roots. The sequence of the record rises with each entry of stamps.
///
/// # Errors
///
/// If a root is wrong, unless it is that of the last entry, which a crash may have cut off.
pub fn decode(bytes: &[u8], key: &DriveKey) -> Result<Stored, SealError> {
    let len = Record::encoded_bytes(bytes).filter(|len| *len <= bytes.len()).unwrap_or(bytes.len());
    let (base, mut rest) = bytes.split_at(len);
    let mut stored =
        Stored { record: Record::decode(base, key)?, root: root(base).unwrap_or_default(), copies: HashMap::new() };
    while let Some((head, after)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let [len, kind] = [0, 4].map(|at| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let Some((body, after)) = after.split_at_checked(len) else { break };
        let Some((own, after)) = after.split_first_chunk::<ROOT_BYTES>() else { break };
        let entry = rest.get(..HEAD_BYTES + len).unwrap_or_default();
        if root_of(&stored.root, key, &stored.record.drive, entry)? != *own {
            if after.is_empty() {
                break;
            }
            return Err(SealError::NotAuthentic("the log of the seal record was changed"));
        }
        match kind {
            KIND_STAMPS => apply(&mut stored.record, body)?,
            KIND_UNIT => copy(&mut stored.copies, body),
            _ => return Err(SealError::Malformed("the log of the seal record is that of a newer version")),
        }
        (stored.root, rest) = (*own, after);
    }
    Ok(stored)
}

/// Takes stamps over. They are authentic, and still checked.
fn apply(record: &mut Record, body: &[u8]) -> Result<(), SealError> {
    const WRONG: SealError = SealError::Malformed("an entry of the seal record does not fit its drive");
    let (runs, rest) = body.as_chunks::<RUN_BYTES>();
    if !rest.is_empty() {
        return Err(WRONG);
    }
    for run in runs {
        let [first, count, stamp] = [0, 8, 16].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&run[at..at + 8]);
            word
        });
        let (first, count) = (u64::from_be_bytes(first), u64::from_be_bytes(count));
        let stamp = Stamp::from_bytes(stamp);
        let end = first.checked_add(count).filter(|end| *end <= record.units.count()).ok_or(WRONG)?;
        let known = stamp.is_hole() || stamp.is_valid() && record.has_epoch(stamp.epoch());
        let (Ok(first), Ok(end), true) = (usize::try_from(first), usize::try_from(end), known) else {
            return Err(WRONG);
        };
        for (n, slot) in (0..).zip(record.stamps.get_mut(first..end).ok_or(WRONG)?) {
            *slot = stamp.after(n).ok_or(WRONG)?;
        }
    }
    record.sequence = record.sequence.saturating_add(1);
    Ok(())
}

fn copy(copies: &mut HashMap<u64, Bytes>, body: &[u8]) {
    if let Some((index, sealed)) = body.split_first_chunk::<8>() {
        copies.insert(u64::from_be_bytes(*index), Bytes::copy_from_slice(sealed));
    }
}
