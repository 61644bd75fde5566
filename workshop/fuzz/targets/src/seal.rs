//! Sealed drives: parsing records, wrapped keys and units neither panics nor takes anything that was changed.
//!
//! The first byte chooses the parser, and whether the input is an edit of valid bytes, so that the fuzzer gets past the
//! checks at their start.

use std::sync::LazyLock;

use cheetah_seal::age::{Identity, Recipient, unwrap, wrap};
use cheetah_seal::lent::{self, LentKey};
use cheetah_seal::unit::{DriveBinding, EpochKey, stamp_of};
use cheetah_seal::units::{TRAILER_BYTES, UNIT_BYTES_SMALL, Units};
use cheetah_seal::{DriveKey, Epoch, Record, Stamp, log};

use crate::edited;

const INDEX: u64 = 3;

struct Valid {
    key: DriveKey,
    record: Vec<u8>,
    identity: Identity,
    wrapped: Vec<u8>,
    epoch: EpochKey,
    unit: Vec<u8>,
    /// What is in a lent key.
    lent: Vec<u8>,
}

static VALID: LazyLock<Valid> = LazyLock::new(|| make().expect("keys can be made"));

fn make() -> Option<Valid> {
    let key = DriveKey::from_bytes(&[7; 32]).ok()?;
    let mut record = Record::new([1; 16], Units::new(UNIT_BYTES_SMALL, 5 * UNIT_BYTES_SMALL)?, true);
    let epoch = record.begin_epoch([9; 32]).ok()?;
    let stamp = Stamp::new(epoch.number, 1)?;
    record.stamps[1] = stamp;
    let identity = Identity::generate().ok()?;
    let wrapped = wrap(b"a secret", &identity.recipient()).ok()?;
    let lent = lent::lend(&key, &record, &identity.recipient()).ok()??;
    let lent = unwrap(&lent, &identity).ok()??.to_vec();
    let binding = DriveBinding { drive: [1; 16], unit_bytes: UNIT_BYTES_SMALL };
    let epoch = EpochKey::derive(&key, binding, &Epoch { number: 1, random: [9; 32], open: false }).ok()?;
    let mut unit = vec![5; usize::try_from(UNIT_BYTES_SMALL + TRAILER_BYTES).ok()?];
    let (content, trailer) = unit.split_at_mut(usize::try_from(UNIT_BYTES_SMALL).ok()?);
    epoch.seal(INDEX, stamp, content, trailer).ok()?;
    Some(Valid { record: record.encode(&key).ok()?, key, identity, wrapped, epoch, unit, lent })
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let valid = &*VALID;
    let input = |whole: &[u8]| if choice & 1 == 0 { data.to_vec() } else { edited(whole, data) };
    match choice >> 1 & 7 {
        0 => record(&input(&valid.record)),
        1 => {
            let file = input(&valid.wrapped);
            let opened = unwrap(&file, &valid.identity);
            assert!(!matches!(opened, Ok(Some(_))) || file == valid.wrapped);
        }
        2 => unit(&input(&valid.unit)),
        3 => lent_key(&input(&valid.lent)),
        _ => {
            let Ok(text) = std::str::from_utf8(data) else { return };
            if let Ok(recipient) = text.parse::<Recipient>() {
                assert_eq!(recipient.to_string(), text.to_lowercase());
            }
            let _ = text.parse::<Identity>();
        }
    }
}

fn record(bytes: &[u8]) {
    let valid = &*VALID;
    assert!(Record::decode(bytes, &valid.key).is_err() || bytes == valid.record);
    // A log behind it may be cut off, and what it holds then is what was there before.
    if let Ok(stored) = log::decode(bytes, &valid.key) {
        assert_eq!(stored.record.units, Units::new(UNIT_BYTES_SMALL, 5 * UNIT_BYTES_SMALL).unwrap());
    }
    let followed = [&valid.record[..], bytes].concat();
    if let Ok(stored) = log::decode(&followed, &valid.key) {
        assert_eq!(stored.record.encode(&valid.key).unwrap(), valid.record);
    }
    // Without the root, which no input has by chance.
    let body = &bytes[..bytes.len().saturating_sub(32)];
    if let Ok(record) = Record::parse_unverified(body) {
        let again = record.encode(&valid.key).unwrap();
        assert_eq!(&again[..again.len() - 32], body);
    }
}

fn lent_key(secret: &[u8]) {
    let valid = &*VALID;
    let Ok(file) = wrap(secret, &valid.identity.recipient()) else { return };
    if let Ok(lent) = LentKey::unwrap(&file, &valid.identity) {
        let opened = lent.open(INDEX, &mut valid.unit.clone());
        assert!(opened.is_none() || opened == Stamp::new(1, 1));
    }
}

fn unit(bytes: &[u8]) {
    let valid = &*VALID;
    let at = bytes.len().saturating_sub(usize::try_from(TRAILER_BYTES).unwrap_or_default());
    let (content, trailer) = bytes.split_at(at);
    let mut content = content.to_vec();
    assert!(stamp_of(trailer).is_none_or(|stamp| !stamp.is_hole() && stamp.is_valid()));
    assert!(!valid.epoch.open(INDEX, &mut content, trailer) || bytes == valid.unit);
}
