//! Names of an image's parts: `.001` or `.000` and on, or `.aa`, `.ab` and on as by split(1).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// The minimum number of digits, so that a year is no part number.
const DIGITS_MIN: usize = 3;

/// The minimum and maximum number of letters in an ending of letters. split(1) defaults to two.
const LETTERS: std::ops::RangeInclusive<usize> = 2..=4;

/// The name of a part: the common stem, and a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartName {
    stem: Vec<u8>,
    ending: Ending,
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Decimal digits, padded to this many.
    Digits(usize),
    /// This many letters, each a digit of base 26.
    Letters(usize),
}

impl PartName {
    /// Parses the file name of `path`; `None` if its ending is not a part's.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.as_bytes();
        let dot = name.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0)?;
        let (stem, ending) = (name[..dot].to_vec(), &name[dot + 1..]);
        let len = ending.len();
        if ending.iter().all(u8::is_ascii_digit) && (DIGITS_MIN..=9).contains(&len) {
            let number = ending.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
            // .1000 follows .999, so an ending that does not start with 0 may be an overflowed narrower one.
            let width = if ending[0] == b'0' { len } else { DIGITS_MIN };
            return Some(Self { stem, ending: Ending::Digits(width), number });
        }
        if ending.iter().all(u8::is_ascii_lowercase) && LETTERS.contains(&len) {
            let number = ending.iter().fold(0, |sum, letter| sum * 26 + u64::from(letter - b'a'));
            return Some(Self { stem, ending: Ending::Letters(len), number });
        }
        None
    }

    /// The part's number, relative to the image's first part.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it can be the first part: `.001`, `.000` or `.aa`. If a `.000` exists, `.001` is the second.
    pub fn is_first(&self) -> bool {
        match self.ending {
            Ending::Digits(_) => self.number <= 1,
            Ending::Letters(_) => self.number == 0,
        }
    }

    /// Possible names of the first part, the likeliest first.
    pub fn firsts(&self) -> Vec<OsString> {
        let of = |ending, number| Self { ending, number, ..self.clone() }.with_number(number);
        match self.ending {
            // A number that fills its ending does not determine the width of the first part's.
            Ending::Digits(_) => (DIGITS_MIN..=9)
                .flat_map(|width| [0, 1].map(|number| of(Ending::Digits(width), number)))
                .flatten()
                .collect(),
            letters @ Ending::Letters(_) => of(letters, 0).into_iter().collect(),
        }
    }

    /// The number of `.dd`: the usual ending of an image, and a part only if its neighbours exist.
    pub(super) fn original(&self) -> Option<u64> {
        const DD: u64 = 3 * 26 + 3;
        (self.ending == Ending::Letters(2)).then_some(DD)
    }

    /// Whether it is a part of the image that starts with `first`.
    pub fn same_image(&self, first: &Self) -> bool {
        self.stem == first.stem
            && match (self.ending, first.ending) {
                (Ending::Digits(width), Ending::Digits(of_first)) => {
                    width == of_first || width == DIGITS_MIN && self.number.to_string().len() >= of_first
                }
                (one, other) => one == other,
            }
    }

    /// The name of the part with another number; `None` if the ending is too short for it.
    pub fn with_number(&self, number: u64) -> Option<OsString> {
        let mut name = self.stem.clone();
        name.push(b'.');
        match self.ending {
            Ending::Digits(width) => name.extend(format!("{number:0width$}").into_bytes()),
            Ending::Letters(count) => {
                let places = (0..u32::try_from(count).ok()?).rev();
                let (base, end) = (26u64, 26u64.pow(u32::try_from(count).ok()?));
                if number >= end {
                    return None;
                }
                // Less than 26, so it fits a byte.
                name.extend(places.map(|place| b'a' + (number / base.pow(place) % base) as u8));
            }
        }
        Some(OsString::from_vec(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Option<PartName> {
        PartName::of(Path::new(text))
    }

    #[test]
    fn endings_are_parsed_as_numbers() {
        for (text, number) in [("d.001", 1), ("a/d.1000", 1000), ("d.0007", 7), ("d.aa", 0), ("d.ba", 26), ("d.aab", 1)]
        {
            assert_eq!(name(text).map(|name| name.number()), Some(number), "{text}");
        }
        for text in ["d", "d.", "d.01", "d.AA", "d.a", "d.1234567890", ".001", "d.00a", "/", ""] {
            assert_eq!(name(text), None, "{text}");
        }
    }

    #[test]
    fn a_set_may_outgrow_its_digits() {
        let first = name("d.001").unwrap();
        assert!(name("d.1000").unwrap().same_image(&first) && !name("d.0100").unwrap().same_image(&first));
        let wide = name("d.0001").unwrap();
        assert!(name("d.1000").unwrap().same_image(&wide) && !name("d.100").unwrap().same_image(&wide));
        assert!(!name("e.002").unwrap().same_image(&first) && !name("d.ab").unwrap().same_image(&first));
    }

    proptest! {
        #[test]
        fn a_generated_name_parses_to_itself(number in 0u64..2_000_000, wide in 3usize..7, letters in prop::bool::ANY) {
            let ending = if letters { Ending::Letters(4) } else { Ending::Digits(wide) };
            let first = PartName { stem: b"d".to_vec(), ending, number: 0 };
            if let Some(made) = first.with_number(number) {
                let read = PartName::of(Path::new(&made)).unwrap();
                prop_assert_eq!(read.number(), number);
                prop_assert!(read.same_image(&first));
            }
        }

        #[test]
        fn arbitrary_names_never_panic(text in ".{0,24}") {
            if let Some(name) = name(&text) {
                name.with_number(u64::MAX);
                name.firsts();
            }
        }
    }
}
