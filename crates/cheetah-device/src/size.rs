//! Sizes as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes that reads and prints in IEC units (`64KiB`, `1.5GiB`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// A size that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a size; write a number and a unit, such as 4096, 64KiB, 1.5GiB (units: B, KiB, MiB, GiB, TiB, PiB)"
)]
pub struct BadSize(String);

impl FromStr for Size {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadSize(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit = match unit.trim() {
            "" => 0,
            unit => UNITS.iter().position(|u| *u == unit).ok_or_else(bad)?,
        };
        let scale = 1u64 << (10 * unit);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || (number.contains('.') && (fraction.is_empty() || fraction.len() > 9)) {
            return Err(bad());
        }
        let whole: u64 = whole.parse().map_err(|_| bad())?;
        let mut bytes = whole.checked_mul(scale).ok_or_else(bad)?;
        if !fraction.is_empty() {
            let parts: u64 = fraction.parse().map_err(|_| bad())?;
            let of = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| bad())?);
            let exact = u128::from(parts) * u128::from(scale);
            let part = u64::try_from(exact / of).map_err(|_| bad())?;
            bytes = bytes.checked_add(part).ok_or_else(bad)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = (0..UNITS.len()).rev().find(|unit| self.0 >= 1 << (10 * unit)).unwrap_or(0);
        let scale = 1u64 << (10 * unit);
        let text = if self.0.is_multiple_of(scale) {
            format!("{}{}", self.0 / scale, UNITS[unit])
        } else {
            format!("{:.1}{}", self.0 as f64 / scale as f64, UNITS[unit])
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [("0", 0), ("512", 512), ("64KiB", 65536), ("1.5 GiB", 3 << 29), ("12GiB", 12 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "KiB", "1GB", "1k", "-1", "1.", ".5MiB", "99999999PiB", "1e3"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_the_largest_unit_that_fits() {
        assert_eq!(Size(65536).to_string(), "64KiB");
        assert_eq!(Size(1000).to_string(), "1000B");
        assert_eq!(Size(3 << 29).to_string(), "1.5GiB");
    }
}
