//! Hashing units: the chaining value of each, as BLAKE3 has it at that place of the text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blake3::Hasher;
use blake3::hazmat::{HasherExt as _, max_subtree_len};
use cheetah_control::jobs::{Digest, JobLine, UnitPlace, VALUE_BYTES};
use cheetah_device::{ByteRange, Data, Error};

use super::output::Cancelled;

/// The limits of a unit, in bytes.
const UNIT_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 20;
/// The values of a line.
const LINE_VALUES_MAX: usize = 64;
/// The end of the longest text.
const TEXT_BYTES_MAX: u64 = 1 << 62;

/// Why a job ended before its time.
#[derive(Debug)]
pub(super) enum Stopped {
    Cancelled,
    Failed(String),
}

impl From<Cancelled> for Stopped {
    fn from(Cancelled: Cancelled) -> Self {
        Self::Cancelled
    }
}

/// Refuses, with the reason, work that is beyond the limits for an export of `export_bytes`.
pub(super) fn check(work: &Digest, export_bytes: u64) -> Result<(), &'static str> {
    let unit = work.unit_bytes;
    let is_unit = unit.is_power_of_two() && UNIT_BYTES.contains(&unit);
    let is_text = work.text_bytes.is_none_or(|text| text.is_power_of_two() && text > unit && text <= TEXT_BYTES_MAX);
    if !is_unit || !is_text {
        return Err("a unit is a power of two from 4 KiB to 1 MiB, and a text a greater one");
    }
    match work.count().and_then(|count| count.checked_mul(unit)) {
        Some(1..) if work.stretches.iter().all(|stretch| stretch.rounds > 0 && !stretch.units.is_empty()) => {}
        _ => return Err("there are no units, or too many"),
    }
    if work.count().is_none_or(|count| count.saturating_mul(unit) > export_bytes) {
        return Err("a job reads no more bytes than the export has");
    }
    for stretch in &work.stretches {
        let fits = |last: UnitPlace| {
            last.export.checked_add(unit).is_some_and(|end| end <= export_bytes)
                && last.text <= TEXT_BYTES_MAX
                && last.text.is_multiple_of(unit)
        };
        let begins = |first: &UnitPlace| first.text.is_multiple_of(unit);
        if !stretch.units.iter().all(begins) || !stretch.last_round().all(fits) {
            return Err("a unit lies beyond the export, or at no multiple of its size in the text");
        }
        if stretch.rounds > 1 && !stretch.text_step.is_multiple_of(unit) {
            return Err("a unit lies at no multiple of its size in the text");
        }
    }
    Ok(())
}

/// Hashes the units, which `read` reads, and has `emit` take the lines. Returns the number of units.
pub(super) fn run(
    work: &Digest,
    read: impl Fn(ByteRange) -> Result<Data, Error>,
    mut emit: impl FnMut(&JobLine) -> Result<(), Cancelled>,
) -> Result<u64, Stopped> {
    let (mut values, mut from, mut units) = (Vec::with_capacity(LINE_VALUES_MAX * VALUE_BYTES), 0, 0);
    for place in work.places() {
        match read(ByteRange::new(place.export, work.unit_bytes)) {
            Ok(data) => values.extend_from_slice(&value(work, place, &data)),
            Err(error @ Error::Corrupt { .. }) => {
                flush(&mut values, from, &mut emit)?;
                from = units + 1;
                emit(&JobLine::Unreadable { unit: units, why: error.to_string() })?;
            }
            Err(error) => return Err(Stopped::Failed(error.to_string())),
        }
        units += 1;
        if values.len() == LINE_VALUES_MAX * VALUE_BYTES {
            flush(&mut values, from, &mut emit)?;
            from = units;
        }
    }
    flush(&mut values, from, &mut emit)?;
    Ok(units)
}

fn flush(
    values: &mut Vec<u8>,
    from: u64,
    emit: &mut impl FnMut(&JobLine) -> Result<(), Cancelled>,
) -> Result<(), Cancelled> {
    if values.is_empty() {
        return Ok(());
    }
    let line = JobLine::Values { from, base64: STANDARD.encode(&values) };
    values.clear();
    emit(&line)
}

fn value(work: &Digest, place: UnitPlace, data: &Data) -> [u8; VALUE_BYTES] {
    let text = work.text_bytes.map_or(place.text, |bytes| place.text % bytes);
    debug_assert!(max_subtree_len(text).is_none_or(|len| len >= work.unit_bytes));
    let mut hasher = Hasher::new();
    hasher.set_input_offset(text);
    data.runs().for_each(|run| {
        hasher.update(run);
    });
    hasher.finalize_non_root()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cheetah_control::jobs::Stretch;

    use super::*;

    const KIB: u64 = 1 << 10;

    fn place(export: u64, text: u64) -> UnitPlace {
        UnitPlace { export, text }
    }

    fn stretch(rounds: u64, units: &[(u64, u64)], export_step: u64, text_step: u64) -> Stretch {
        let units = units.iter().map(|(export, text)| place(*export, *text)).collect();
        Stretch { rounds, units, export_step, text_step }
    }

    fn work(unit_bytes: u64, text_bytes: Option<u64>, stretches: Vec<Stretch>) -> Digest {
        Digest { unit_bytes, text_bytes, stretches }
    }

    #[test]
    fn work_beyond_the_limits_is_refused() {
        let one = |unit, text| work(unit, text, vec![stretch(1, &[(0, 0)], 0, 0)]);
        assert_eq!(check(&one(64 * KIB, None), 64 * KIB), Ok(()));
        assert_eq!(check(&one(64 * KIB, Some(128 * KIB)), 64 * KIB), Ok(()));
        for (unit, text) in [
            (0, None),
            (2 * KIB, None),
            (5000, None),
            (2048 * KIB, None),
            (u64::MAX, None),
            (64 * KIB, Some(64 * KIB)),
            (64 * KIB, Some(0)),
            (64 * KIB, Some(100_000)),
            (64 * KIB, Some(1 << 63)),
        ] {
            assert!(check(&one(unit, text), 1 << 40).is_err(), "{unit} {text:?}");
        }
        let unit = 4 * KIB;
        let refused = |stretches: Vec<Stretch>| assert!(check(&work(unit, None, stretches), 8 * unit).is_err());
        refused(Vec::new());
        refused(vec![stretch(0, &[(0, 0)], 0, 0)]);
        refused(vec![stretch(1, &[], 0, 0)]);
        // Of these, only the number is too large: they read one unit again and again.
        refused(vec![stretch(9, &[(0, 0)], 0, 0)]);
        refused(vec![stretch(u64::MAX, &[(0, 0)], 0, 0)]);
        refused(vec![stretch(u64::MAX, &[(0, 0), (0, 0)], 0, 0)]);
        refused(vec![stretch(8, &[(0, 0)], 0, 0), stretch(1, &[(0, 0)], 0, 0)]);
        refused(vec![stretch(1, &[(7 * unit + 1, 0)], 0, 0)]);
        refused(vec![stretch(1, &[(u64::MAX, 0)], 0, 0)]);
        refused(vec![stretch(2, &[(0, 0)], u64::MAX, 0)]);
        refused(vec![stretch(2, &[(0, 0)], 0, u64::MAX)]);
        refused(vec![stretch(2, &[(0, 0)], 0, 1)]);
        refused(vec![stretch(1, &[(0, 1)], 0, 0)]);
        refused(vec![stretch(1, &[(0, u64::MAX - (u64::MAX % unit))], 0, 0)]);
        assert_eq!(
            check(&work(unit, None, vec![stretch(4, &[(0, 0), (unit, unit)], 2 * unit, 2 * unit)]), 8 * unit),
            Ok(())
        );
    }

    #[test]
    fn the_values_of_the_units_of_a_text_make_up_its_hash() {
        let bytes: Vec<u8> = (0..64 * KIB).map(|at| (at / 7 % 251) as u8).collect();
        let read = |range: ByteRange| Ok(Data::from(bytes[range.offset as usize..range.end() as usize].to_vec()));
        // The second half of the text lies first.
        let half = 32 * KIB;
        let order = [stretch(1, &[(0, half)], 0, 0), stretch(1, &[(half, 0)], 0, 0)];
        let mut lines = Vec::new();
        let take = |line: &JobLine| {
            lines.push(line.clone());
            Ok(())
        };
        assert_eq!(run(&work(half, None, order.to_vec()), read, take).unwrap(), 2);
        let [JobLine::Values { from: 0, base64 }] = &lines[..] else { panic!("{lines:?}") };
        let values = STANDARD.decode(base64).unwrap();
        let (right, left): ([u8; 32], [u8; 32]) = (values[..32].try_into().unwrap(), values[32..].try_into().unwrap());
        let text = [&bytes[half as usize..], &bytes[..half as usize]].concat();
        let merged = blake3::hazmat::merge_subtrees_root(&left, &right, blake3::hazmat::Mode::Hash);
        assert_eq!(merged, blake3::hash(&text));
    }

    #[test]
    fn a_damaged_unit_is_a_line_of_its_own_and_a_lost_export_ends_the_job() {
        let unit = 4 * KIB;
        let order = work(unit, None, vec![stretch(100, &[(0, 0)], unit, unit)]);
        let read = |range: ByteRange| match range.offset / unit {
            1 => Err(Error::Corrupt { device: Arc::from("e"), range }),
            _ => Ok(Data::zeros(unit)),
        };
        let mut seen = Vec::new();
        let take = |line: &JobLine| {
            seen.push(match line {
                JobLine::Values { from, base64 } => (*from, STANDARD.decode(base64).unwrap().len() as u64 / 32),
                JobLine::Unreadable { unit, .. } => (*unit, 0),
                other => panic!("{other:?}"),
            });
            Ok(())
        };
        assert_eq!(run(&order, read, take).unwrap(), 100);
        assert_eq!(seen, [(0, 1), (1, 0), (2, 64), (66, 34)]);
        let gone = |range| Err(Error::Lost { device: Arc::from("e"), range, why: "the export was deleted".into() });
        assert!(matches!(run(&order, gone, |_| Ok(())), Err(Stopped::Failed(_))));
        assert!(matches!(run(&order, read, |_| Err(Cancelled)), Err(Stopped::Cancelled)));
    }
}
