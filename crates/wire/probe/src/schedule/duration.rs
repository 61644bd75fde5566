//! Short times as people write them: `250ns`, `10us`, `1.5ms`, `1s`, `0`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::SPAN_MAX;

/// Units, longest first, and how many nanoseconds each is.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A time of up to an hour, to the nanosecond, which is printed in the notation that it is parsed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortDuration(pub Duration);

/// The error for a text that is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time: use a number and ns, us, ms or s, as in 10us or 1.5ms, up to an hour")]
pub struct DurationError(String);

impl FromStr for ShortDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let refused = || DurationError(text.chars().take(40).collect());
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refused)?;
        let (number, unit) = text.split_at(digits);
        let unit = if unit == "µs" { "us" } else { unit };
        let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
        let time = Duration::from_nanos(nanoseconds(number, *unit_ns).ok_or_else(refused)?);
        if time > SPAN_MAX { Err(refused()) } else { Ok(Self(time)) }
    }
}

/// Converts a decimal number of units, which must be a whole number of nanoseconds.
fn nanoseconds(number: &str, unit_ns: u64) -> Option<u64> {
    let (whole, part) = match number.split_once('.') {
        Some((whole, part)) if !part.is_empty() => (whole, part.trim_end_matches('0')),
        Some(_) => return None,
        None => (number, ""),
    };
    let scale = 10_u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    if !unit_ns.is_multiple_of(scale) {
        return None;
    }
    let part = if part.is_empty() { 0 } else { part.parse::<u64>().ok()? };
    whole.parse::<u64>().ok()?.checked_mul(unit_ns)?.checked_add(part * (unit_ns / scale))
}

impl fmt::Display for ShortDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        let Some((unit, unit_ns)) = UNITS.iter().find(|(_, unit_ns)| ns >= *unit_ns) else { return f.write_str("0") };
        write!(f, "{}", ns / unit_ns)?;
        if ns % unit_ns != 0 {
            let width = unit_ns.ilog10() as usize;
            let part = format!("{:0width$}", ns % unit_ns);
            write!(f, ".{}", part.trim_end_matches('0'))?;
        }
        f.write_str(unit)
    }
}
