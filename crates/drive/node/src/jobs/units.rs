//! The units that a job works on.

use cheetah_control::jobs::{JOB_PLACES_MAX, UnitPlace, Units};
use cheetah_seal::units::TRAILER_BYTES;

use super::output::Cancelled;

/// The limits of a unit, in bytes.
const UNIT_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 20;
/// The end of the longest text.
pub(super) const TEXT_BYTES_MAX: u64 = 1 << 62;

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

/// Refuses, with the reason, units that are beyond the limits for an export of `export_bytes`. Sealed ones are followed by their
/// trailers.
pub(super) fn check(units: &Units, is_sealed: bool, export_bytes: u64) -> Result<(), &'static str> {
    let unit = units.unit_bytes;
    if !unit.is_power_of_two() || !UNIT_BYTES.contains(&unit) {
        return Err("a unit is a power of two from 4 KiB to 1 MiB");
    }
    // They are kept until the job ends, and a body has room for many.
    if units.stretches.iter().fold(0usize, |sum, stretch| sum.saturating_add(stretch.units.len())) > JOB_PLACES_MAX {
        return Err("a job names at most 1,000 places: divide it");
    }
    match units.count().and_then(|count| count.checked_mul(unit)) {
        Some(1..) if units.stretches.iter().all(|stretch| stretch.rounds > 0 && !stretch.units.is_empty()) => {}
        _ => return Err("there are no units, or too many"),
    }
    if units.count().is_none_or(|count| count.saturating_mul(unit) > export_bytes) {
        return Err("a job reads no more bytes than the export has");
    }
    for stretch in &units.stretches {
        let fits = |last: UnitPlace| {
            last.export.checked_add(stored_bytes(unit, is_sealed)).is_some_and(|end| end <= export_bytes)
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

/// The bytes of an export that a unit takes.
pub(super) const fn stored_bytes(unit_bytes: u64, is_sealed: bool) -> u64 {
    if is_sealed { unit_bytes + TRAILER_BYTES } else { unit_bytes }
}

#[cfg(test)]
pub(super) mod tests {
    use cheetah_control::jobs::Stretch;

    use super::*;

    const KIB: u64 = 1 << 10;

    pub fn stretch(rounds: u64, units: &[(u64, u64)], export_step: u64, text_step: u64) -> Stretch {
        let units = units.iter().map(|(export, text)| UnitPlace { export: *export, text: *text }).collect();
        Stretch { rounds, units, export_step, text_step }
    }

    pub fn units(unit_bytes: u64, stretches: Vec<Stretch>) -> Units {
        Units { unit_bytes, stretches }
    }

    fn check(units: &Units, export_bytes: u64) -> Result<(), &'static str> {
        super::check(units, false, export_bytes)
    }

    #[test]
    fn a_sealed_unit_has_its_trailer_in_the_export() {
        let one = units(4 * KIB, vec![stretch(1, &[(0, 0)], 0, 0)]);
        let check = |export_bytes| super::check(&one, true, export_bytes).is_ok();
        assert_eq!((check(4 * KIB), check(4 * KIB + 23), check(4 * KIB + 24)), (false, false, true));
    }

    #[test]
    fn units_beyond_the_limits_are_refused() {
        let one = |unit| units(unit, vec![stretch(1, &[(0, 0)], 0, 0)]);
        assert_eq!(check(&one(64 * KIB), 64 * KIB), Ok(()));
        for unit in [0, 2 * KIB, 5000, 2048 * KIB, u64::MAX] {
            assert!(check(&one(unit), 1 << 40).is_err(), "{unit}");
        }
        let unit = 4 * KIB;
        let refused = |stretches: Vec<Stretch>| assert!(check(&units(unit, stretches), 8 * unit).is_err());
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
        let places = |count: usize| vec![stretch(1, &vec![(0, 0); count], 0, 0)];
        assert_eq!(check(&units(unit, places(JOB_PLACES_MAX)), 1 << 40), Ok(()));
        let over = [places(JOB_PLACES_MAX), places(1)].concat();
        assert!(check(&units(unit, over), 1 << 40).is_err());
        let two_each = stretch(4, &[(0, 0), (unit, unit)], 2 * unit, 2 * unit);
        assert_eq!(check(&units(unit, vec![two_each]), 8 * unit), Ok(()));
    }
}
