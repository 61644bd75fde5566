//! Keys of a sealed drive that are lent to a node, so that it opens units for a job. Does no I/O.
//!
//! What is lent is the least that opens units: the keys of the epochs that the drive's units have. They do not lead to the drive's key,
//! nor to the keys of its record, its log or another epoch, and open no wrapped key. As the cipher is symmetric, they could also seal
//! units of these epochs: a node that is lent them is trusted not to.
//!
//! They travel in the [`age`] format, for an identity that the node makes for one run. So the buffers of connections and of
//! requests, which nothing wipes, hold no key.

use zeroize::Zeroizing;

use crate::age::{self, Identity, Recipient};
use crate::error::SealError;
use crate::key::{DriveKey, KEY_BYTES};
use crate::record::Record;
use crate::stamp::Stamp;
use crate::unit::{DriveBinding, EpochKey, HEAD_BYTES, stamp_of};
use crate::units::TRAILER_BYTES;

/// The name of the format and its version.
const FORMAT: &[u8; 16] = b"cheetah-lend-v01";
/// The most epochs whose keys are lent at once: they fit in one short secret.
pub const EPOCHS_LENT_MAX: usize = 24;
const NUMBER_BYTES: usize = 4;
const ENTRY_BYTES: usize = NUMBER_BYTES + KEY_BYTES;
const _: () = assert!(FORMAT.len() + HEAD_BYTES + EPOCHS_LENT_MAX * ENTRY_BYTES <= age::PAYLOAD_BYTES_MAX);

const NO_KEY: SealError = SealError::Malformed("what was lent is no key, or one of another version");

/// The keys of the epochs that the units of a drive have, wrapped for a node; `None` if these are too many.
///
/// # Errors
///
/// If a key cannot be derived or wrapped.
pub fn lend(key: &DriveKey, record: &Record, recipient: &Recipient) -> Result<Option<Vec<u8>>, SealError> {
    let epochs = record.epochs_in_use();
    if epochs.len() > EPOCHS_LENT_MAX {
        return Ok(None);
    }
    let mut secret = Zeroizing::new(Vec::with_capacity(age::PAYLOAD_BYTES_MAX));
    secret.extend_from_slice(FORMAT);
    secret.extend_from_slice(&record.binding().head());
    for epoch in epochs {
        secret.extend_from_slice(&epoch.number.to_be_bytes());
        secret.extend_from_slice(&*EpochKey::secret(key, record.binding(), epoch)?);
    }
    age::wrap(&secret, recipient).map(Some)
}

/// Keys that were lent, in locked memory, which is wiped when this is dropped.
#[derive(Debug)]
pub struct LentKey {
    binding: DriveBinding,
    keys: Vec<EpochKey>,
}

impl LentKey {
    /// Unwraps what [`lend`] made.
    ///
    /// # Errors
    ///
    /// If it is for another identity, or is no such key.
    pub fn unwrap(file: &[u8], identity: &Identity) -> Result<Self, SealError> {
        let secret = age::unwrap(file, identity)?.ok_or(SealError::NotAuthentic("the key was lent to another"))?;
        let rest = secret.strip_prefix(FORMAT).ok_or(NO_KEY)?;
        let (head, rest) = rest.split_first_chunk::<HEAD_BYTES>().ok_or(NO_KEY)?;
        let binding = DriveBinding::of_head(head).ok_or(NO_KEY)?;
        let (entries, []) = rest.as_chunks::<ENTRY_BYTES>() else { return Err(NO_KEY) };
        if entries.len() > EPOCHS_LENT_MAX {
            return Err(NO_KEY);
        }
        let keys = entries.iter().map(|entry| {
            let (number, key) = entry.split_first_chunk::<NUMBER_BYTES>().ok_or(NO_KEY)?;
            EpochKey::from_secret(key.try_into().map_err(|_| NO_KEY)?, binding, u32::from_be_bytes(*number))
        });
        Ok(Self { binding, keys: keys.collect::<Result<_, _>>()? })
    }

    /// Bytes of content in a unit.
    pub fn unit_bytes(&self) -> u64 {
        self.binding.unit_bytes
    }

    /// Opens the unit at `index` of the drive, content and trailer, in place. Returns the stamp with which it was sealed, for the
    /// lender to judge; that of a hole for zeros. `None` if these keys do not open it: its bytes are then unusable.
    pub fn open(&self, index: u64, sealed: &mut [u8]) -> Option<Stamp> {
        let content_bytes = sealed.len().checked_sub(usize::try_from(TRAILER_BYTES).ok()?)?;
        if content_bytes as u64 != self.binding.unit_bytes {
            return None;
        }
        if sealed.iter().all(|byte| *byte == 0) {
            return Some(Stamp::HOLE);
        }
        let (content, trailer) = sealed.split_at_mut(content_bytes);
        let stamp = stamp_of(trailer)?;
        let key = self.keys.iter().find(|key| key.epoch() == stamp.epoch())?;
        key.open(index, content, trailer).then_some(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::units::Units;

    const UNIT: usize = 4096;

    fn sealed(key: &DriveKey, record: &Record, epoch: &Epoch, index: u64, stamp: Stamp) -> Vec<u8> {
        let mut bytes = vec![7; UNIT + 24];
        let (content, trailer) = bytes.split_at_mut(UNIT);
        EpochKey::derive(key, record.binding(), epoch).unwrap().seal(index, stamp, content, trailer).unwrap();
        bytes
    }

    /// A record of three epochs, of which units have the first and the last.
    fn drive() -> (DriveKey, Record, [Epoch; 3]) {
        let mut record = Record::new([5; 16], Units::new(UNIT as u64, 4 * UNIT as u64).unwrap(), false);
        let epochs = [1, 2, 3].map(|number| record.begin_epoch([number; 32]).unwrap());
        record.stamps[1] = Stamp::new(1, 1).unwrap();
        record.stamps[2] = Stamp::new(3, 9).unwrap();
        (DriveKey::from_bytes(&[9; 32]).unwrap(), record, epochs)
    }

    #[test]
    fn lent_keys_open_units_of_the_epochs_in_use_at_their_places_and_nothing_else() {
        let (key, record, epochs) = drive();
        let node = Identity::generate().unwrap();
        let file = lend(&key, &record, &node.recipient()).unwrap().unwrap();
        let lent = LentKey::unwrap(&file, &node).unwrap();
        assert_eq!(lent.unit_bytes(), UNIT as u64);
        let stamps = [Stamp::new(1, 1), Stamp::new(2, 1), Stamp::new(3, 9)].map(Option::unwrap);
        let opened = |epoch: usize, at| {
            let mut bytes = sealed(&key, &record, &epochs[epoch], 1, stamps[epoch]);
            lent.open(at, &mut bytes).filter(|_| bytes[..UNIT] == [7; UNIT])
        };
        assert_eq!((opened(0, 1), opened(1, 1), opened(2, 1)), (Some(stamps[0]), None, Some(stamps[2])));
        assert_eq!(opened(0, 2), None, "at another place");
        assert_eq!(lent.open(0, &mut [0; UNIT + 24]), Some(Stamp::HOLE));
        let mut changed = sealed(&key, &record, &epochs[0], 1, stamps[0]);
        changed[100] ^= 1;
        assert_eq!(lent.open(1, &mut changed), None);
        for len in [0, 24, UNIT, UNIT + 23, UNIT + 25] {
            assert_eq!(lent.open(0, &mut vec![0; len]), None);
        }
        let other = LentKey::unwrap(&file, &Identity::generate().unwrap());
        assert!(matches!(other, Err(SealError::NotAuthentic(_))));
    }

    #[test]
    fn what_is_lent_contains_neither_the_drives_key_nor_more_epochs_than_fit() {
        let (key, mut record, _) = drive();
        let node = Identity::generate().unwrap();
        let secret = age::unwrap(&lend(&key, &record, &node.recipient()).unwrap().unwrap(), &node).unwrap().unwrap();
        assert!(!secret.windows(KEY_BYTES).any(|window| window == key.bytes()));
        let size = (EPOCHS_LENT_MAX + 1) * UNIT;
        record.enlarge(size as u64).unwrap();
        while record.epochs.len() <= EPOCHS_LENT_MAX {
            record.begin_epoch([0; 32]).unwrap();
        }
        let mut numbers = 1..;
        record.stamps.fill_with(|| Stamp::new(numbers.next().unwrap(), 1).unwrap());
        assert_eq!(lend(&key, &record, &node.recipient()).unwrap(), None);
        record.stamps[0] = Stamp::HOLE;
        let file = lend(&key, &record, &node.recipient()).unwrap().unwrap();
        assert!(file.len() <= age::FILE_BYTES_MAX);
        assert_eq!(LentKey::unwrap(&file, &node).unwrap().keys.len(), EPOCHS_LENT_MAX);
    }

    #[test]
    fn a_secret_that_is_no_lent_key_is_refused() {
        let (key, record, _) = drive();
        let node = Identity::generate().unwrap();
        let good = age::unwrap(&lend(&key, &record, &node.recipient()).unwrap().unwrap(), &node).unwrap().unwrap();
        let mut other_unit = good.to_vec();
        other_unit[FORMAT.len() + 17] = 13;
        let other_version = [&b"cheetah-lend-v02"[..], &good[16..]].concat();
        for secret in [&good[..1], &good[..55], &good[..57], &good[..good.len() - 1], &other_unit, &other_version] {
            let file = age::wrap(secret, &node.recipient()).unwrap();
            LentKey::unwrap(&file, &node).unwrap_err();
        }
    }
}
