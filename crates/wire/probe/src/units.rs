//! Rates and times in readable form.

use std::fmt;

/// A rate in bits a second, which prints as `94.2 Mbit/s`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct BitRate(pub f64);

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0 {
            rate if rate >= 1e9 => (1e9, "Gbit/s"),
            rate if rate >= 1e6 => (1e6, "Mbit/s"),
            rate if rate >= 1e3 => (1e3, "kbit/s"),
            _ => (1.0, "bit/s"),
        };
        let number = self.0 / scale;
        // Three digits: no figure here is more precise.
        let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
        f.pad(&format!("{number:.digits$} {unit}"))
    }
}

/// A time in seconds, which prints as `2 h 13 min`, with the two units that matter.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Span(pub f64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 10.0 {
            return f.pad(&format!("{:.1} s", self.0.max(0.0)));
        }
        // A cast of a float saturates at the largest integer, which exceeds the duration of any transfer.
        let rounded = |unit: f64| (self.0 / unit).round() as u64;
        let (seconds, minutes, hours) = (rounded(1.0), rounded(60.0), rounded(3600.0));
        let (large, name, small, rest) = match () {
            () if seconds < 60 => (seconds, "s", 0, ""),
            () if minutes < 60 => (seconds / 60, "min", seconds % 60, "s"),
            () if hours < 48 => (minutes / 60, "h", minutes % 60, "min"),
            () => (hours / 24, "days", hours % 24, "h"),
        };
        if small == 0 { f.pad(&format!("{large} {name}")) } else { f.pad(&format!("{large} {name} {small} {rest}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        for (rate, text) in [
            (0.0, "0.00 bit/s"),
            (9_412.0, "9.41 kbit/s"),
            (94.23e6, "94.2 Mbit/s"),
            (941e6, "941 Mbit/s"),
            (2.5e9, "2.50 Gbit/s"),
        ] {
            assert_eq!(BitRate(rate).to_string(), text);
        }
    }

    #[test]
    fn times_have_two_units() {
        for (seconds, text) in [
            (0.25, "0.2 s"),
            (59.4, "59 s"),
            (61.0, "1 min 1 s"),
            (3_600.0, "1 h"),
            (8_000.0, "2 h 13 min"),
            (1e6, "11 days 14 h"),
        ] {
            assert_eq!(Span(seconds).to_string(), text);
        }
        assert!(!Span(f64::INFINITY).to_string().is_empty() && !Span(f64::NAN).to_string().is_empty());
    }
}
