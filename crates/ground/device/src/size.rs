//! Sizes as people type them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. It reads IEC and SI units in either case (`64KiB`, `64k`, `1.5G`, `12GB`) and prints IEC units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// The smallest number of bytes that is believed without a unit. Below it, the unit was probably forgotten.
const BARE_BYTES_MIN: u64 = 4096;

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSize {
    /// It is not a number with a known unit, or too large.
    #[error(
        "'{0}' is not a size; write a number and a unit, such as 64KiB, 1.5G or 12GB (K, M, G, T, P = KiB …; KB, MB … = powers of 1000)"
    )]
    Unreadable(String),
    /// It is a small number without a unit.
    #[error("'{0}' would be {0} bytes; write the unit, such as {0}MiB, or {0}B for bytes")]
    Bare(String),
}

/// The bytes in one `unit`.
fn scale(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (prefix, binary) = match unit.as_str() {
        "" | "b" => return Some(1),
        unit => match unit.strip_suffix("ib") {
            Some(prefix) => (prefix, true),
            None => unit.strip_suffix('b').map_or((unit, true), |prefix| (prefix, false)),
        },
    };
    let power = ["k", "m", "g", "t", "p"].iter().position(|known| *known == prefix)?;
    let base = if binary { 1024u64 } else { 1000 };
    Some(base.pow(u32::try_from(power).ok()? + 1))
}

impl FromStr for Size {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadSize::Unreadable(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit = unit.trim();
        let scale = scale(unit).ok_or_else(bad)?;
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
        if unit.is_empty() && (1..BARE_BYTES_MIN).contains(&bytes) {
            return Err(BadSize::Bare(trimmed.to_owned()));
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
    fn sizes_are_read_as_people_type_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512B", 512),
            ("4096", 4096),
            ("64KiB", 65536),
            ("64k", 65536),
            ("64kib", 65536),
            ("1.5 GiB", 3 << 29),
            ("12G", 12 << 30),
            ("12gib", 12 << 30),
            ("12GB", 12_000_000_000),
            ("1.5tb", 1_500_000_000_000),
            ("2P", 2 << 50),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "KiB", "1ib", "1GiBB", "1x", "-1", "1.", ".5MiB", "99999999PiB", "1e3", "1 G B"] {
            assert_eq!(text.parse::<Size>(), Err(BadSize::Unreadable(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn small_number_without_a_unit_is_refused() {
        for text in ["1", "64", "512", "4095"] {
            let refused = text.parse::<Size>().unwrap_err();
            assert_eq!(refused, BadSize::Bare(text.to_owned()));
            assert!(refused.to_string().contains(&format!("{text}MiB")), "{refused}");
        }
    }

    #[test]
    fn every_size_is_read_back_as_printed_if_it_is_a_whole_number_of_units() {
        for exponent in 0..60 {
            let size = Size(1 << exponent);
            assert_eq!(size.to_string().parse(), Ok(size));
        }
    }

    #[test]
    fn prints_the_largest_unit_that_fits() {
        assert_eq!(Size(65536).to_string(), "64KiB");
        assert_eq!(Size(1000).to_string(), "1000B");
        assert_eq!(Size(3 << 29).to_string(), "1.5GiB");
    }
}
