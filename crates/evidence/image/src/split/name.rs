//! The names of an image's parts: names that differ in one counter only.
//!
//! A counter is the run of digits or letters at the end of a name (`disk.001`, `disk.dd.00`, `xaa`), or the last run of
//! digits before that (`disk_01.dd`, `disk-1of3.raw`). No list of programs' habits decides: any counter counts.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use cheetah_kit::path::from_bytes;

/// The maximum number of digits or letters in a counter.
const COUNTER_LEN_MAX: usize = 9;

/// The maximum number of letters behind a dot that are a counter: longer endings are words.
const ENDING_LETTERS_MAX: usize = 4;

/// The notation of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// Decimal digits.
    Decimal,
    /// Digits and the letters `a` to `f`, as by `split -x`.
    Hexadecimal,
    /// The letters `a` to `z`.
    Lower,
    /// The letters `A` to `Z`.
    Upper,
}

impl Notation {
    const fn base(self) -> u64 {
        match self {
            Self::Decimal => 10,
            Self::Hexadecimal => 16,
            Self::Lower | Self::Upper => 26,
        }
    }

    fn digit(self, byte: u8) -> Option<u64> {
        let from = match self {
            Self::Decimal if byte.is_ascii_digit() => b'0',
            Self::Hexadecimal if byte.is_ascii_digit() => b'0',
            Self::Hexadecimal if matches!(byte, b'a'..=b'f') => b'a' - 10,
            Self::Lower if byte.is_ascii_lowercase() => b'a',
            Self::Upper if byte.is_ascii_uppercase() => b'A',
            _ => return None,
        };
        Some((byte - from).into())
    }

    /// The character of a digit below the base.
    fn character(self, digit: u64) -> u8 {
        // Below 26, so it fits.
        let digit = digit as u8;
        match self {
            Self::Decimal | Self::Hexadecimal if digit < 10 => b'0' + digit,
            Self::Decimal | Self::Hexadecimal => b'a' + digit - 10,
            Self::Lower => b'a' + digit,
            Self::Upper => b'A' + digit,
        }
    }

    /// The value of a counter; `None` if a character is not in this notation, or there are too many or none.
    fn value(self, counter: &[u8]) -> Option<u64> {
        if !(1..=COUNTER_LEN_MAX).contains(&counter.len()) {
            return None;
        }
        // Nine letters are less than 2^43.
        counter.iter().try_fold(0, |sum, byte| Some(sum * self.base() + self.digit(*byte)?))
    }
}

/// A name with a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartName {
    before: Vec<u8>,
    after: Vec<u8>,
    notation: Notation,
    /// The number of characters of the counter.
    width: usize,
    number: u64,
}

impl PartName {
    /// Returns the counters that the file name of `path` may have, the one at its end first.
    pub fn all_of(path: &Path) -> Vec<Self> {
        let Some(name) = path.file_name().map(OsStr::as_encoded_bytes) else { return Vec::new() };
        at_end(name).into_iter().chain(hexadecimal(name)).chain(inside(name)).collect()
    }

    /// The number that the counter stands for. The letter `a` stands for 0.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The notation of the counter.
    pub const fn notation(&self) -> Notation {
        self.notation
    }

    /// Whether it can be the first of a set: 0 or 1, or letters `a` only.
    pub const fn is_first(&self) -> bool {
        match self.notation {
            Notation::Decimal | Notation::Hexadecimal => self.number <= 1,
            Notation::Lower | Notation::Upper => self.number == 0,
        }
    }

    /// Whether the counter ends the name.
    pub const fn is_at_end(&self) -> bool {
        self.after.is_empty()
    }

    /// Whether nothing precedes the counter.
    pub const fn is_number_only(&self) -> bool {
        self.before.is_empty()
    }

    /// Whether the counter alone follows a dot.
    pub fn follows_dot(&self) -> bool {
        self.is_at_end() && self.before.ends_with(b".")
    }

    /// Whether the counter is filled up to a fixed width: `01`, `aa`.
    pub fn is_padded(&self) -> bool {
        let highest = self.notation.base().pow(self.width as u32 - 1);
        self.width > 1 && self.number < highest
    }

    /// The number of parts that the name says there are: 3 of `disk-1of3.raw`.
    pub fn total(&self) -> Option<u64> {
        const SEPARATORS: &[u8] = b"_- ";
        let skip = |text: &[u8]| usize::from(text.first().is_some_and(|one| SEPARATORS.contains(one)));
        let rest = &self.after[skip(&self.after)..];
        let (of, rest) = rest.split_at_checked(2)?;
        let rest = &rest[skip(rest)..];
        let digits = rest.iter().take_while(|one| one.is_ascii_digit()).count();
        Notation::Decimal.value(&rest[..digits]).filter(|_| of.eq_ignore_ascii_case(b"of"))
    }

    /// Whether the counter is the usual ending of a raw image, such as `raw` or `dd`: letters that are hardly ever a counter.
    pub fn is_usual_ending(&self) -> bool {
        const ENDINGS: [&[u8]; 6] = [b"bin", b"dd", b"dmg", b"img", b"iso", b"raw"];
        self.follows_dot() && ENDINGS.contains(&&self.counter().to_ascii_lowercase()[..])
    }

    /// Parses the name of another file that differs in the counter only.
    pub fn sibling(&self, name: &OsStr) -> Option<Self> {
        let middle = name.as_encoded_bytes().strip_prefix(&self.before[..])?.strip_suffix(&self.after[..])?;
        let number = self.notation.value(middle)?;
        Some(Self { width: middle.len(), number, ..self.clone() })
    }

    /// Whether the counter has decimal digits only.
    pub fn is_decimal(&self) -> bool {
        self.counter().iter().all(u8::is_ascii_digit)
    }

    /// The same counter, read in another notation; `None` if it is not in that notation.
    pub fn read_as(&self, notation: Notation) -> Option<Self> {
        let number = notation.value(&self.counter())?;
        Some(Self { notation, number, ..self.clone() })
    }

    /// The name of the part with another number, with a counter of the same width, or of more where that is too short;
    /// letters grow no longer.
    pub fn with_number(&self, number: u64) -> Option<Self> {
        let base = self.notation.base();
        let mut width = self.width;
        while number >= base.checked_pow(width as u32)? {
            width += 1;
        }
        let grows = self.notation == Notation::Decimal && width <= COUNTER_LEN_MAX;
        (width == self.width || grows).then(|| Self { width, number, ..self.clone() })
    }

    /// The name that follows in `split`, which makes counters of two characters longer before they are exhausted: `8 9`
    /// precedes `9 000`, and `yz` precedes `zaaa`, so that the names stay in alphabetical order.
    pub fn longer(&self) -> Option<Self> {
        let base = self.notation.base();
        let all_highest = |digits: u32| base.checked_pow(digits).map(|power| power - 1);
        // Each step adds the highest character in front, and two characters in all.
        let steps = u32::try_from(self.width.checked_sub(2)?).ok().filter(|more| more % 2 == 0)? / 2;
        let last = all_highest(2 * steps + 2)? - base.pow(steps + 1);
        (self.number == last && self.width + 2 <= COUNTER_LEN_MAX).then(|| {
            let number = all_highest(steps + 1).unwrap_or_default() * base.pow(steps + 3);
            Self { width: self.width + 2, number, ..self.clone() }
        })
    }

    /// Whether the counter has as many characters as that of `first`, or as many more as [`Self::longer`] adds.
    pub fn is_as_wide_as(&self, first: &Self) -> bool {
        let Some(more) = self.width.checked_sub(first.width).filter(|more| more % 2 == 0) else { return false };
        let base = self.notation.base();
        // At most nine characters.
        let added = (more / 2) as u32;
        self.number / base.pow(self.width as u32 - added) == base.pow(added) - 1
    }

    /// Whether `next` is the name that follows this one.
    pub fn precedes(&self, next: &Self) -> bool {
        self.with_number(self.number + 1).is_some_and(|plain| plain == *next)
            || self.longer().is_some_and(|longer| longer == *next)
    }

    /// The counter, as written.
    fn counter(&self) -> Vec<u8> {
        let base = self.notation.base();
        let mut rest = self.number;
        let mut counter: Vec<u8> = Vec::with_capacity(self.width);
        for _ in 0..self.width {
            counter.push(self.notation.character(rest % base));
            rest /= base;
        }
        counter.reverse();
        counter
    }

    /// The file name.
    pub fn file_name(&self) -> OsString {
        from_bytes([&self.before[..], &self.counter(), &self.after].concat())
    }
}

/// Returns the part of `name` up to its trailing characters that fit, and those.
fn cut_trailing(name: &[u8], fits: impl Fn(&u8) -> bool) -> (&[u8], &[u8]) {
    let at = name.iter().rposition(|byte| !fits(byte)).map_or(0, |last| last + 1);
    name.split_at(at)
}

/// The counter at the end of a name.
fn at_end(name: &[u8]) -> Option<PartName> {
    let digits = cut_trailing(name, u8::is_ascii_digit);
    let (before, counter, notation) = match digits.1 {
        [] => letters(name)?,
        counter => (digits.0, counter, Notation::Decimal),
    };
    // A dot at the beginning of a name hides the file; it is no separator.
    let number = notation.value(counter).filter(|_| before != b".")?;
    Some(PartName { before: before.to_vec(), after: Vec::new(), notation, width: counter.len(), number })
}

/// A counter at the end of a name with digits and letters, as by `split -x`.
fn hexadecimal(name: &[u8]) -> Option<PartName> {
    let notation = Notation::Hexadecimal;
    let (before, counter) = cut_trailing(name, |byte| notation.digit(*byte).is_some());
    let is_mixed = counter.iter().any(u8::is_ascii_digit) && counter.last().is_some_and(u8::is_ascii_lowercase);
    let number = notation.value(counter).filter(|_| is_mixed && before != b".")?;
    Some(PartName { before: before.to_vec(), after: Vec::new(), notation, width: counter.len(), number })
}

/// Letters of one case: all behind a dot; without one, those that make a first name (`xaa`), or two.
fn letters(name: &[u8]) -> Option<(&[u8], &[u8], Notation)> {
    let (notation, first) = match name.last()? {
        b'a'..=b'z' => (Notation::Lower, b'a'),
        b'A'..=b'Z' => (Notation::Upper, b'A'),
        _ => return None,
    };
    let (before, run) = cut_trailing(name, |byte| notation.digit(*byte).is_some());
    if before.ends_with(b".") && run.len() <= ENDING_LETTERS_MAX {
        return Some((before, run, notation));
    }
    let firsts = cut_trailing(name, |byte| *byte == first).1.len();
    let len = if firsts > 0 { firsts } else { run.len().min(2) }.min(COUNTER_LEN_MAX);
    let (before, counter) = name.split_at(name.len() - len);
    Some((before, counter, notation))
}

/// The last run of digits that does not end the name, and is not the total of `1of3`.
fn inside(name: &[u8]) -> Option<PartName> {
    let run = |name: &[u8]| {
        let end = name.iter().rposition(u8::is_ascii_digit)? + 1;
        Some((cut_trailing(&name[..end], u8::is_ascii_digit).0.len(), end))
    };
    let (mut start, mut end) = run(name)?;
    let lower = name[..start].to_ascii_lowercase();
    if [&b"of"[..], b"of_", b"of-", b"of "].iter().any(|of| lower.ends_with(of)) {
        (start, end) = run(&name[..start]).unwrap_or((start, end));
    }
    if end == name.len() {
        return None;
    }
    let (counter, notation) = (&name[start..end], Notation::Decimal);
    let number = notation.value(counter)?;
    Some(PartName {
        before: name[..start].to_vec(),
        after: name[end..].to_vec(),
        notation,
        width: counter.len(),
        number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Option<PartName> {
        PartName::all_of(Path::new(text)).into_iter().next()
    }

    fn shown(name: &PartName) -> String {
        name.file_name().into_string().unwrap()
    }

    #[test]
    fn counters_are_parsed_as_numbers() {
        for (text, number) in [
            ("d.001", 1),
            ("a/d.1000", 1000),
            ("d.01", 1),
            ("d.1", 1),
            ("x00", 0),
            ("d.aa", 0),
            ("d.BA", 26),
            ("d.aab", 1),
            ("xaa", 0),
            ("xab", 1),
            ("disk_02.dd", 3 * 26 + 3),
        ] {
            assert_eq!(name(text).map(|name| name.number()), Some(number), "{text}");
        }
        for (text, number) in [("disk_02.dd", 2), ("disk-2of3.raw", 2), ("p2.x3.raw", 3), ("2_of_10.img", 2)] {
            let all = PartName::all_of(Path::new(text));
            assert_eq!(all.last().map(|name| (name.number(), name.is_at_end())), Some((number, false)), "{text}");
        }
        for text in ["d.", "d.1234567890", ".001", "/", ""] {
            assert_eq!(name(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_may_say_how_many_parts_there_are() {
        for (text, total) in [
            ("disk-1of3.raw", Some(3)),
            ("d.1of2", Some(2)),
            ("2_of_10.img", Some(10)),
            ("d 2 OF 4.dd", Some(4)),
            ("disk_02.dd", None),
            ("1often.raw", None),
            ("1of.raw", None),
        ] {
            let all = PartName::all_of(Path::new(text));
            assert_eq!(all.last().and_then(PartName::total), total, "{text}");
        }
    }

    #[test]
    fn the_next_name_is_that_of_a_counter_or_of_split() {
        for (one, next) in [
            ("d.009", "d.010"),
            ("d.9", "d.10"),
            ("d.999", "d.1000"),
            ("x89", "x9000"),
            ("x9899", "x990000"),
            ("xyz", "xzaaa"),
            ("d.ay", "d.az"),
            ("d.az", "d.ba"),
            ("d.yz", "d.zaaa"),
        ] {
            let (one, sibling) = (name(one).unwrap(), name(one).unwrap().sibling(OsStr::new(next)).unwrap());
            assert!(one.precedes(&sibling), "{} and {next}", shown(&one));
            assert!(!sibling.precedes(&one));
        }
        let hex = name("d.09").unwrap().read_as(Notation::Hexadecimal).unwrap();
        assert_eq!(shown(&hex.with_number(10).unwrap()), "d.0a");
        assert!(name("d.zz").unwrap().with_number(26 * 26).is_none());
    }

    proptest! {
        #[test]
        fn a_generated_name_parses_to_itself(number in 0u64..2_000_000, wide in 1usize..7, letters in prop::bool::ANY) {
            let (notation, width) = if letters { (Notation::Lower, 4) } else { (Notation::Decimal, wide) };
            let first = PartName { before: b"d.".to_vec(), after: Vec::new(), notation, width, number: 0 };
            if let Some(made) = first.with_number(number) {
                let read = name(&shown(&made)).unwrap();
                prop_assert_eq!(read.number(), number);
                prop_assert_eq!(first.sibling(&made.file_name()), Some(made));
            }
        }

        #[test]
        fn arbitrary_names_never_panic(text in ".{0,24}") {
            for name in PartName::all_of(Path::new(&text)) {
                name.with_number(u64::MAX);
                name.longer();
                name.is_padded();
                prop_assert_eq!(Some(&*name.file_name()), Path::new(&text).file_name());
            }
        }
    }
}
