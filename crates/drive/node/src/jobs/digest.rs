//! Hashing units: the chaining value of each, as BLAKE3 has it at that place of the text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blake3::Hasher;
use blake3::hazmat::{HasherExt as _, max_subtree_len};
use cheetah_control::jobs::{Digest, JobLine, UnitPlace, Units, VALUE_BYTES};
use cheetah_device::{ByteRange, Error};
use cheetah_seal::Stamp;

use super::content::{Content, Unit};
use super::output::Cancelled;
use super::units::{Stopped, TEXT_BYTES_MAX};

/// The values of a line.
const LINE_VALUES_MAX: usize = 64;

/// Refuses, with the reason, texts beyond the limits.
pub(super) fn check(work: &Digest, units: &Units) -> Result<(), &'static str> {
    let is_text = |text: u64| text.is_power_of_two() && text > units.unit_bytes && text <= TEXT_BYTES_MAX;
    match work.text_bytes.is_none_or(is_text) {
        true => Ok(()),
        false => Err("a text is a power of two greater than a unit"),
    }
}

/// The value of a unit, and the stamp with which it was sealed, if it was; `None` if its key does not open it.
type Hashed = Option<([u8; VALUE_BYTES], Option<Stamp>)>;

/// Hashes the units, whose content is given, one by one, and has `emit` take the lines. Returns the number of units.
pub(super) fn run(
    work: Digest,
    units: &Units,
    mut content: Content<impl Fn(ByteRange, &mut [u8]) -> Result<(), Error>>,
    mut emit: impl FnMut(&JobLine) -> Result<(), Cancelled>,
) -> Result<u64, Stopped> {
    let mut hash = |place: UnitPlace| -> Result<Hashed, Error> {
        Ok(match content.unit(place)? {
            Unit::Plain(bytes) => Some((value(work, place, bytes), None)),
            Unit::Opened(bytes, stamp) => Some((value(work, place, bytes), Some(stamp))),
            Unit::Unopened => None,
        })
    };
    let (mut values, mut unit) = (Values::default(), 0);
    for place in units.places() {
        let alone = match hash(place) {
            Ok(Some(hashed)) => {
                values.push(hashed);
                None
            }
            Ok(None) => Some(JobLine::Unopened { unit }),
            Err(error @ Error::Corrupt { .. }) => Some(JobLine::Unreadable { unit, why: error.to_string() }),
            Err(error) => return Err(Stopped::Failed(error.to_string())),
        };
        unit += 1;
        if let Some(line) = alone {
            values.flush(unit, &mut emit)?;
            emit(&line)?;
        } else if values.bytes.len() == LINE_VALUES_MAX * VALUE_BYTES {
            values.flush(unit, &mut emit)?;
        }
    }
    values.flush(unit, &mut emit)?;
    Ok(unit)
}

/// The values of a line.
#[derive(Default)]
struct Values {
    /// The number of the first unit.
    from: u64,
    bytes: Vec<u8>,
    /// Of sealed units.
    stamps: Vec<u8>,
}

impl Values {
    fn push(&mut self, (value, stamp): ([u8; VALUE_BYTES], Option<Stamp>)) {
        self.bytes.extend_from_slice(&value);
        self.stamps.extend(stamp.into_iter().flat_map(Stamp::to_bytes));
    }

    /// Emits them, if there are any. The next line begins with unit `next`.
    fn flush(&mut self, next: u64, emit: &mut impl FnMut(&JobLine) -> Result<(), Cancelled>) -> Result<(), Cancelled> {
        let Self { from, bytes, stamps } = std::mem::replace(self, Self { from: next, ..Self::default() });
        if bytes.is_empty() {
            return Ok(());
        }
        let stamps = (!stamps.is_empty()).then(|| STANDARD.encode(stamps));
        emit(&JobLine::Values { from, base64: STANDARD.encode(bytes), stamps })
    }
}

/// The value of a unit that consists of these bytes.
fn value(work: Digest, place: UnitPlace, bytes: &[u8]) -> [u8; VALUE_BYTES] {
    let text = work.text_bytes.map_or(place.text, |bytes| place.text % bytes);
    let mut hasher = Hasher::new();
    hasher.set_input_offset(text);
    debug_assert!(max_subtree_len(text).is_none_or(|max| max >= bytes.len() as u64));
    hasher.update(bytes).finalize_non_root()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::content::tests::reading;
    use super::super::units::tests::{stretch, units};
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn texts_beyond_the_limits_are_refused() {
        let units = units(64 * KIB, vec![stretch(1, &[(0, 0)], 0, 0)]);
        let check = |text_bytes| check(&Digest { text_bytes }, &units);
        assert_eq!((check(None), check(Some(128 * KIB))), (Ok(()), Ok(())));
        for text in [0, 64 * KIB, 100_000, 1 << 63] {
            assert!(check(Some(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn the_values_of_the_units_of_a_text_make_up_its_hash() {
        let bytes: Vec<u8> = (0..64 * KIB).map(|at| (at / 7 % 251) as u8).collect();
        let half = 32 * KIB;
        let content = Content::new(reading(&bytes), half, None).unwrap();
        // The second half of the text lies first.
        let order = [stretch(1, &[(0, half)], 0, 0), stretch(1, &[(half, 0)], 0, 0)];
        let mut lines = Vec::new();
        let take = |line: &JobLine| {
            lines.push(line.clone());
            Ok(())
        };
        assert_eq!(run(Digest::default(), &units(half, order.to_vec()), content, take).unwrap(), 2);
        let [JobLine::Values { from: 0, base64, stamps: None }] = &lines[..] else { panic!("{lines:?}") };
        let values = STANDARD.decode(base64).unwrap();
        let (right, left): ([u8; 32], [u8; 32]) = (values[..32].try_into().unwrap(), values[32..].try_into().unwrap());
        let text = [&bytes[half as usize..], &bytes[..half as usize]].concat();
        let merged = blake3::hazmat::merge_subtrees_root(&left, &right, blake3::hazmat::Mode::Hash);
        assert_eq!(merged, blake3::hash(&text));
    }

    #[test]
    fn a_damaged_unit_is_a_line_of_its_own_and_a_lost_export_ends_the_job() {
        let unit = 4 * KIB;
        let units = units(unit, vec![stretch(100, &[(0, 0)], unit, unit)]);
        let work = Digest::default();
        let read = |range: ByteRange, _: &mut [u8]| match range.offset / unit {
            1 => Err(Error::Corrupt { device: Arc::from("e"), range }),
            _ => Ok(()),
        };
        let content = || Content::new(read, unit, None).unwrap();
        let mut seen = Vec::new();
        let take = |line: &JobLine| {
            seen.push(match line {
                JobLine::Values { from, base64, .. } => (*from, STANDARD.decode(base64).unwrap().len() as u64 / 32),
                JobLine::Unreadable { unit, .. } => (*unit, 0),
                other => panic!("{other:?}"),
            });
            Ok(())
        };
        assert_eq!(run(work, &units, content(), take).unwrap(), 100);
        assert_eq!(seen, [(0, 1), (1, 0), (2, 64), (66, 34)]);
        let why = "the export was deleted";
        let gone = |range, _: &mut [u8]| Err(Error::Lost { device: Arc::from("e"), range, why: why.into() });
        let gone = Content::new(gone, unit, None).unwrap();
        assert!(matches!(run(work, &units, gone, |_| Ok(())), Err(Stopped::Failed(_))));
        assert!(matches!(run(work, &units, content(), |_| Err(Cancelled)), Err(Stopped::Cancelled)));
    }
}
