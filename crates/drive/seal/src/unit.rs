//! Sealing and opening one unit. Does no I/O.

use std::fmt;

use cheetah_kit::locked::Locked;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use zeroize::Zeroizing;

use crate::epoch::Epoch;
use crate::error::SealError;
use crate::key::{DriveKey, KEY_BYTES};
use crate::stamp::Stamp;
use crate::units::{TRAILER_BYTES, UNIT_BYTES_LARGE, UNIT_BYTES_SMALL};

/// The name of the format and its version; part of everything that is derived or authenticated.
pub(crate) const FORMAT: &[u8; 16] = b"cheetah-seal-v01";
/// The only suite: AES-256-GCM, HKDF-SHA256, keyed BLAKE3.
pub const SUITE: u8 = 1;
/// Bytes of a drive's id.
pub const ID_BYTES: usize = 16;
/// Bytes of the head of the associated data.
pub(crate) const HEAD_BYTES: usize = 40;
/// Bytes of the associated data.
const AAD_BYTES: usize = HEAD_BYTES + 16;
const STAMP_BYTES: usize = 8;
const TRAILER: usize = TRAILER_BYTES as usize;

/// The drive that units belong to; bound to each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriveBinding {
    /// The drive's id.
    pub drive: [u8; ID_BYTES],
    /// Bytes of content in a unit, a power of two.
    pub unit_bytes: u64,
}

impl DriveBinding {
    /// The head of the associated data: format, suite, unit, drive.
    pub(crate) fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..16].copy_from_slice(FORMAT);
        head[16] = SUITE;
        // At most 63.
        head[17] = self.unit_bytes.trailing_zeros() as u8;
        head[24..].copy_from_slice(&self.drive);
        head
    }

    /// The binding that has this head; `None` if none of this version has it.
    pub(crate) fn of_head(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let (unit_bits, id) = (*head.get(17)?, head.last_chunk::<ID_BYTES>()?);
        let binding = Self { drive: *id, unit_bytes: 1u64.checked_shl(unit_bits.into())? };
        let is_unit = matches!(binding.unit_bytes, UNIT_BYTES_SMALL | UNIT_BYTES_LARGE);
        (is_unit && binding.head() == *head).then_some(binding)
    }

    fn associated(&self, index: u64, stamp: Stamp) -> [u8; AAD_BYTES] {
        let mut data = [0; AAD_BYTES];
        data[..HEAD_BYTES].copy_from_slice(&self.head());
        data[HEAD_BYTES..48].copy_from_slice(&index.to_be_bytes());
        data[48..].copy_from_slice(&stamp.to_bytes());
        data
    }
}

/// The key of one writer's epoch, in locked memory.
pub struct EpochKey {
    key: Locked<LessSafeKey>,
    binding: DriveBinding,
    epoch: u32,
}

impl EpochKey {
    /// Derives the key of `epoch`.
    pub fn derive(key: &DriveKey, binding: DriveBinding, epoch: &Epoch) -> Result<Self, SealError> {
        Self::from_secret(&*Self::secret(key, binding, epoch)?, binding, epoch.number)
    }

    /// The bytes of the key of `epoch`, for lending.
    pub(crate) fn secret(
        key: &DriveKey,
        binding: DriveBinding,
        epoch: &Epoch,
    ) -> Result<Zeroizing<[u8; KEY_BYTES]>, SealError> {
        key.derive(&epoch.random, &[b"unit", &binding.head(), &epoch.number.to_be_bytes()])
    }

    /// The key of the epoch with this number, from its bytes.
    pub(crate) fn from_secret(bytes: &[u8; KEY_BYTES], binding: DriveBinding, epoch: u32) -> Result<Self, SealError> {
        let unbound = UnboundKey::new(&AES_256_GCM, bytes);
        let unbound = unbound.map_err(|_| SealError::Malformed("the key of an epoch has the wrong length"))?;
        let locked = Locked::new(LessSafeKey::new(unbound));
        let key = locked.map_err(|error| SealError::system("mapping memory for a key", &error))?;
        Ok(Self { key, binding, epoch })
    }

    /// The number of its epoch.
    pub(crate) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Encrypts `content` in place, and writes the trailer. No stamp may be used for two contents.
    ///
    /// # Errors
    ///
    /// If the stamp is not of this epoch.
    pub fn seal(&self, index: u64, stamp: Stamp, content: &mut [u8], trailer: &mut [u8]) -> Result<(), SealError> {
        if stamp.epoch() != self.epoch || trailer.len() != TRAILER {
            return Err(SealError::Malformed("a unit was to be sealed with the key of another epoch"));
        }
        let associated = Aad::from(self.binding.associated(index, stamp));
        let tag = self.key.seal_in_place_separate_tag(nonce(stamp), associated, content);
        let tag = tag.map_err(|_| SealError::Malformed("a unit is too long to be sealed"))?;
        trailer[..STAMP_BYTES].copy_from_slice(&stamp.to_bytes());
        trailer[STAMP_BYTES..].copy_from_slice(tag.as_ref());
        Ok(())
    }

    /// Decrypts `content` in place. False if it is not what was sealed at this place with the stamp of the trailer;
    /// `content` is then unusable.
    pub fn open(&self, index: u64, content: &mut [u8], trailer: &[u8]) -> bool {
        let (Some(stamp), Some(tag)) = (stamp_of(trailer), trailer.get(STAMP_BYTES..)) else { return false };
        let Ok(tag) = Tag::try_from(tag) else { return false };
        let associated = Aad::from(self.binding.associated(index, stamp));
        stamp.epoch() == self.epoch
            && self.key.open_in_place_separate_tag(nonce(stamp), associated, tag, content, 0..).is_ok()
    }
}

/// Shows nothing of the key.
impl fmt::Debug for EpochKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpochKey").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// The stamp that a trailer claims; `None` if it is no trailer, or claims a hole.
pub fn stamp_of(trailer: &[u8]) -> Option<Stamp> {
    let bytes = trailer.get(..STAMP_BYTES)?.try_into().ok()?;
    let stamp = Stamp::from_bytes(bytes);
    (trailer.len() == TRAILER && stamp.is_valid() && !stamp.is_hole()).then_some(stamp)
}

/// The counter, behind four zero bytes.
fn nonce(stamp: Stamp) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&stamp.counter().to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}
