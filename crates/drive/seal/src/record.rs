//! The record of a sealed drive: its epochs, the stamp of each unit, and the root over them. Does no I/O.
//!
//! The root is the keyed BLAKE3 of everything before it. BLAKE3 is a Merkle tree over chunks of 1 KiB.

use std::fmt;

use crate::epoch::Epoch;
use crate::error::SealError;
use crate::key::DriveKey;
use crate::stamp::{EPOCH_MAX, Stamp};
use crate::unit::{DriveBinding, FORMAT, ID_BYTES, SUITE};
use crate::units::Units;

/// The most epochs that a record lists.
pub const EPOCHS_MAX: usize = 1 << 14;
/// Bytes of the head, before the epochs.
const HEAD_BYTES: usize = 64;
const EPOCH_BYTES: usize = 40;
const STAMP_BYTES: usize = 8;
/// Bytes of a root.
pub const ROOT_BYTES: usize = 32;
/// Holes are kept as holes.
const FLAG_HOLES: u8 = 1;
/// The epoch was begun and not closed.
const STATE_OPEN: u32 = 1;

const CUT_OFF: SealError = SealError::Malformed("the seal record is cut off or damaged");

/// The record of a sealed drive, as of a flush.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The drive's id.
    pub drive: [u8; ID_BYTES],
    /// Its units.
    pub units: Units,
    /// Whether holes are kept as holes, so that nodes know where they are.
    pub holes: bool,
    /// Rises with each record of the drive.
    pub sequence: u64,
    /// The epochs that units may have, in order of their numbers.
    pub epochs: Vec<Epoch>,
    /// The stamp of each unit.
    pub stamps: Vec<Stamp>,
}

impl Record {
    /// The record of a new drive, all of whose units are holes.
    pub fn new(drive: [u8; ID_BYTES], units: Units, holes: bool) -> Self {
        // Memory for it was checked by `Units`.
        let stamps = vec![Stamp::HOLE; units.count() as usize];
        Self { drive, units, holes, sequence: 0, epochs: Vec::new(), stamps }
    }

    /// The binding of its units.
    pub fn binding(&self) -> DriveBinding {
        DriveBinding { drive: self.drive, unit_bytes: self.units.bytes() }
    }

    /// The length of the longest record of a drive with these units, in bytes.
    pub const fn bytes_max(units: &Units) -> u64 {
        Self::stamps_bytes(units).saturating_add((HEAD_BYTES + EPOCHS_MAX * EPOCH_BYTES + ROOT_BYTES) as u64)
    }

    /// The bytes that the stamps of all units take in a record.
    pub const fn stamps_bytes(units: &Units) -> u64 {
        units.count().saturating_mul(STAMP_BYTES as u64)
    }

    /// The length of the record that begins with these bytes, in bytes, by its head, of which nothing is checked yet.
    pub fn encoded_bytes(bytes: &[u8]) -> Option<usize> {
        let epochs = u32::from_be_bytes(array(bytes, 20).ok()?) as usize;
        let stamps = usize::try_from(u64::from_be_bytes(array(bytes, 56).ok()?)).ok()?;
        let stamps = stamps.checked_mul(STAMP_BYTES)?;
        stamps.checked_add(epochs.checked_mul(EPOCH_BYTES)?)?.checked_add(HEAD_BYTES + ROOT_BYTES)
    }

    /// Whether it lists an epoch.
    pub fn has_epoch(&self, number: u32) -> bool {
        self.epoch(number).is_some()
    }

    /// An epoch by its number.
    pub fn epoch(&self, number: u32) -> Option<&Epoch> {
        let at = self.epochs.binary_search_by_key(&number, |epoch| epoch.number).ok()?;
        self.epochs.get(at)
    }

    /// Encodes it, with its root.
    pub fn encode(&self, key: &DriveKey) -> Result<Vec<u8>, SealError> {
        let bytes = HEAD_BYTES + self.epochs.len() * EPOCH_BYTES + self.stamps.len() * STAMP_BYTES + ROOT_BYTES;
        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(FORMAT);
        let unit_bits = self.units.bytes().trailing_zeros() as u8;
        out.extend_from_slice(&[SUITE, unit_bits, if self.holes { FLAG_HOLES } else { 0 }, 0]);
        out.extend_from_slice(&(self.epochs.len() as u32).to_be_bytes());
        out.extend_from_slice(&self.drive);
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.units.size().to_be_bytes());
        out.extend_from_slice(&(self.stamps.len() as u64).to_be_bytes());
        for epoch in &self.epochs {
            out.extend_from_slice(&epoch.number.to_be_bytes());
            out.extend_from_slice(&if epoch.open { STATE_OPEN } else { 0 }.to_be_bytes());
            out.extend_from_slice(&epoch.random);
        }
        for stamp in &self.stamps {
            out.extend_from_slice(&stamp.to_bytes());
        }
        let root = keyed_root(&out, key)?;
        out.extend_from_slice(root.as_bytes());
        Ok(out)
    }

    /// Decodes a record, and checks its root.
    pub fn decode(bytes: &[u8], key: &DriveKey) -> Result<Self, SealError> {
        let Some((body, stored)) = bytes.split_last_chunk::<ROOT_BYTES>() else { return Err(CUT_OFF) };
        if body.get(..FORMAT.len()) != Some(FORMAT.as_slice()) {
            return Err(SealError::Malformed("this is no seal record, or that of a newer version"));
        }
        // Before anything is believed. Constant time.
        if keyed_root(body, key)? != *stored {
            return Err(SealError::NotAuthentic(
                "the seal record does not match its root, so it was changed, or is that of another drive",
            ));
        }
        Self::parse_unverified(body)
    }

    /// Parses a record without its root, of which nothing may be believed: for [`Record::decode`] and tests.
    pub fn parse_unverified(body: &[u8]) -> Result<Self, SealError> {
        let (head, rest) = body.split_at_checked(HEAD_BYTES).ok_or(CUT_OFF)?;
        let byte = |at: usize| head.get(at).copied().unwrap_or_default();
        let (suite, unit_bits, flags) = (byte(16), byte(17), byte(18));
        if !head.starts_with(FORMAT) || suite != SUITE || flags & !FLAG_HOLES != 0 || byte(19) != 0 {
            return Err(SealError::Malformed("the seal record is that of a newer version"));
        }
        let epochs_len = u32::from_be_bytes(array(head, 20)?) as usize;
        let (sequence, size) = (u64::from_be_bytes(array(head, 40)?), u64::from_be_bytes(array(head, 48)?));
        let count = u64::from_be_bytes(array(head, 56)?);
        let unit_bytes = 1u64.checked_shl(unit_bits.into()).unwrap_or_default();
        let units = Units::new(unit_bytes, size).filter(|units| units.count() == count).ok_or(CUT_OFF)?;
        if epochs_len > EPOCHS_MAX {
            return Err(CUT_OFF);
        }
        let (epochs, stamps) = rest.split_at_checked(epochs_len * EPOCH_BYTES).ok_or(CUT_OFF)?;
        // The length of the input limits the allocation.
        if stamps.len() as u64 != count.saturating_mul(STAMP_BYTES as u64) {
            return Err(CUT_OFF);
        }
        let epochs = epochs.chunks_exact(EPOCH_BYTES).map(parse_epoch).collect::<Result<Vec<_>, _>>()?;
        let rising = epochs.windows(2).all(|pair| pair[0].number < pair[1].number);
        let stamps: Vec<Stamp> =
            stamps.as_chunks::<STAMP_BYTES>().0.iter().map(|bytes| Stamp::from_bytes(*bytes)).collect();
        let known = |stamp: &Stamp| {
            stamp.is_hole()
                || stamp.is_valid() && epochs.binary_search_by_key(&stamp.epoch(), |epoch| epoch.number).is_ok()
        };
        if !rising || !stamps.iter().all(known) {
            return Err(CUT_OFF);
        }
        Ok(Self { drive: array(head, 24)?, units, holes: flags & FLAG_HOLES != 0, sequence, epochs, stamps })
    }

    /// The root of an encoded record, as text.
    pub fn root_text(encoded: &[u8]) -> String {
        let root = encoded.last_chunk::<ROOT_BYTES>().copied().unwrap_or_default();
        blake3::Hash::from_bytes(root).to_hex().to_string()
    }

    /// Begins an epoch, and returns its number.
    pub fn begin_epoch(&mut self, random: [u8; 32]) -> Result<Epoch, SealError> {
        let number = self.epochs.last().map_or(0, |epoch| epoch.number) + 1;
        if number > EPOCH_MAX || self.epochs.len() >= EPOCHS_MAX {
            return Err(SealError::Exhausted(
                "the drive was opened for writing as often as its format allows; copy it to a new drive",
            ));
        }
        let epoch = Epoch { number, random, open: true };
        self.epochs.push(epoch.clone());
        Ok(epoch)
    }

    /// Enlarges the content to `size` bytes. New units are holes.
    ///
    /// # Errors
    ///
    /// If the content has more bytes already, or the format does not allow as many.
    pub fn enlarge(&mut self, size: u64) -> Result<(), SealError> {
        let units = Units::new(self.units.bytes(), size).filter(|units| units.size() >= self.units.size());
        self.units = units.ok_or(SealError::Malformed("the seal record is that of a drive of another size"))?;
        // Memory for it was checked by `Units`.
        self.stamps.resize(self.units.count() as usize, Stamp::HOLE);
        Ok(())
    }

    /// The epochs that units have.
    pub fn epochs_in_use(&self) -> Vec<&Epoch> {
        self.numbers_in_use().into_iter().filter_map(|number| self.epoch(number)).collect()
    }

    /// The numbers of the epochs that units have, rising; 0 if there are holes.
    fn numbers_in_use(&self) -> Vec<u32> {
        let mut used: Vec<u32> = Vec::new();
        let mut last = None;
        for stamp in &self.stamps {
            // Neighbours mostly have one epoch.
            if last != Some(stamp.epoch()) {
                last = Some(stamp.epoch());
                if let Err(at) = used.binary_search(&stamp.epoch()) {
                    used.insert(at, stamp.epoch());
                }
            }
        }
        used
    }

    /// Forgets closed epochs that no unit has. The last one stays, since numbers are not used again.
    pub fn prune(&mut self) {
        let used = self.numbers_in_use();
        let newest = self.epochs.last().map_or(0, |epoch| epoch.number);
        self.epochs.retain(|epoch| epoch.open || epoch.number == newest || used.binary_search(&epoch.number).is_ok());
    }
}

/// Shows no stamps: there may be millions.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Record");
        shown.field("units", &self.units).field("sequence", &self.sequence).field("epochs", &self.epochs.len());
        shown.finish_non_exhaustive()
    }
}

fn parse_epoch(bytes: &[u8]) -> Result<Epoch, SealError> {
    let (number, state) = (u32::from_be_bytes(array(bytes, 0)?), u32::from_be_bytes(array(bytes, 4)?));
    if number == 0 || number > EPOCH_MAX || state > STATE_OPEN {
        return Err(CUT_OFF);
    }
    Ok(Epoch { number, random: array(bytes, 8)?, open: state == STATE_OPEN })
}

/// The root at the end of an encoded record.
pub(crate) fn root(encoded: &[u8]) -> Option<[u8; ROOT_BYTES]> {
    encoded.last_chunk::<ROOT_BYTES>().copied()
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], SealError> {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().ok_or(CUT_OFF)
}

fn keyed_root(body: &[u8], key: &DriveKey) -> Result<blake3::Hash, SealError> {
    let drive = body.get(24..40).unwrap_or_default();
    Ok(blake3::keyed_hash(&*key.derive(drive, &[b"record", FORMAT])?, body))
}
