//! Words: their bytes in each encoding are patterns, which a [`Scanner`] finds.
//!
//! If case is ignored, the scanner ignores that of ASCII letters, and letters beyond ASCII are expanded to the bytes of
//! both cases. As every such letter doubles the number of patterns, only the beginning of a word with many of them is a
//! pattern, and the rest is compared where the beginning is found.

mod patterns;
mod sampled;
mod scanner;

use cheetah_error::{Error, Result};

use self::patterns::Patterns;
use self::scanner::Scanner;
use crate::encoding::TextEncoding;
use crate::found::{Found, MATCH_BYTES_MAX, number};
use crate::memory::{TooMuch, WORD_MEMORY};
use crate::order::Order;

/// The maximum number of patterns that one form of a word is expanded to.
const VARIANTS_MAX: usize = 16;

/// The words of an order, compiled.
pub struct Literals {
    scanner: Scanner,
    forms: Vec<Form>,
    /// The form of each pattern.
    form_of: Vec<u32>,
    /// The length of the longest form.
    pub bytes_max: usize,
    /// The bytes of all patterns together.
    pattern_bytes: usize,
}

/// A word in an encoding.
struct Form {
    word: u32,
    encoding: TextEncoding,
    /// The characters to compare where a pattern is found; `None` if a pattern is the whole word.
    compared: Option<Box<str>>,
}

/// A place of a form: the bytes that a character may have, for each of its cases.
type Place = Vec<Vec<u8>>;

impl Literals {
    /// Compiles the words of `order`; `None` if it has none. `searched` is told each word that is searched in an encoding.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if a word is too long, or all words together are: their forms have more than `pattern_bytes_max`.
    pub fn new(
        order: &Order,
        pattern_bytes_max: usize,
        mut searched: impl FnMut(usize, TextEncoding),
    ) -> Result<Option<Self>> {
        if order.words.is_empty() {
            return Ok(None);
        }
        let (mut forms, mut patterns, mut form_of, mut bytes_max) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let mut pattern_bytes = 0usize;
        for (word, text) in order.words.iter().enumerate() {
            let mut earlier: Vec<Vec<Place>> = Vec::new();
            for encoding in &order.encodings {
                let Some(places) = places(text, *encoding, order.ignore_case) else { continue };
                searched(word, *encoding);
                if earlier.contains(&places) {
                    continue;
                }
                let len = places.iter().filter_map(|place| place.iter().map(Vec::len).max()).sum();
                bytes_max = bytes_max.max(len);
                let (variants, is_whole) = variants(&places, order.ignore_case);
                pattern_bytes += variants.iter().map(Vec::len).sum::<usize>();
                if pattern_bytes > pattern_bytes_max {
                    let error = Error::misuse("the words are too much for one search: divide them");
                    return Err(error.because(TooMuch));
                }
                form_of.resize(form_of.len() + variants.len(), number(forms.len()));
                patterns.extend(variants);
                let compared = (!is_whole).then(|| text.as_str().into());
                forms.push(Form { word: number(word), encoding: *encoding, compared });
                earlier.push(places);
            }
            if bytes_max > MATCH_BYTES_MAX {
                let start: String = text.chars().take(40).collect();
                return Err(Error::misuse(format!(
                    "the word that begins with '{start}' has more than {MATCH_BYTES_MAX} bytes: shorten it"
                )));
            }
        }
        let scanner = Scanner::new(Patterns::new(patterns, order.ignore_case))
            .map_err(|error| Error::misuse(format!("the words are too much for one search: divide them ({error})")))?;
        Ok(Some(Self { scanner, forms, form_of, bytes_max, pattern_bytes }))
    }

    /// The most memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.pattern_bytes.saturating_mul(WORD_MEMORY)
    }

    /// Finds the words in `bytes`, and calls `found` for each.
    pub fn scan(&self, bytes: &[u8], mut found: impl FnMut(Found) -> Result<()>) -> Result<()> {
        self.scanner.scan(bytes, |pattern, start, len| {
            let form = self.form_of.get(pattern as usize).and_then(|form| self.forms.get(*form as usize));
            let Some(form) = form else { return Ok(()) };
            let len = match &form.compared {
                None => Some(len),
                Some(text) => bytes.get(start..).and_then(|rest| len_at_start(rest, text, form.encoding)),
            };
            len.map_or(Ok(()), |len| found(Found { start, len, pattern: form.word, encoding: form.encoding }))
        })
    }
}

/// The places of a word in an encoding; `None` if one of its characters has no bytes there.
fn places(text: &str, encoding: TextEncoding, ignore_case: bool) -> Option<Vec<Place>> {
    let place = |c| {
        let own = encoding.encode(c)?;
        let mut place = vec![own];
        if ignore_case {
            place.extend(cases(c).into_iter().skip(1).filter_map(|c| encoding.encode(c)));
        }
        Some(place)
    };
    text.chars().map(place).collect()
}

/// A character, and those that differ from it in case only: simple mappings of Unicode, from one character to one.
fn cases(c: char) -> Vec<char> {
    let mut found = vec![c];
    let mut at = 0;
    while let Some(c) = found.get(at).copied() {
        for other in [only(c.to_lowercase()), only(c.to_uppercase())].into_iter().flatten() {
            if !found.contains(&other) {
                found.push(other);
            }
        }
        at += 1;
    }
    found
}

/// The only element.
fn only(mut mapped: impl Iterator<Item = char>) -> Option<char> {
    mapped.next().filter(|_| mapped.next().is_none())
}

/// The patterns for a form, and whether each of their matches is a match of the whole word.
fn variants(places: &[Place], ignore_case: bool) -> (Vec<Vec<u8>>, bool) {
    let mut variants = vec![Vec::new()];
    let mut is_whole = true;
    for place in places {
        let mut folded = place.clone();
        if ignore_case {
            folded.iter_mut().for_each(|bytes| bytes.make_ascii_lowercase());
            folded.sort_unstable();
            folded.dedup();
            is_whole &= folded.iter().all(|bytes| is_exact(bytes, place));
        }
        if variants.len() * folded.len() > VARIANTS_MAX {
            return (variants, false);
        }
        variants = folded
            .iter()
            .flat_map(|bytes| variants.iter().map(move |before| [before.as_slice(), bytes].concat()))
            .collect();
    }
    (variants, is_whole)
}

/// Whether the scanner, which ignores the case of ASCII letters, takes no bytes for `folded` that are not of the place.
fn is_exact(folded: &[u8], place: &Place) -> bool {
    let letters: Vec<_> = folded.iter().enumerate().filter(|(_, byte)| byte.is_ascii_lowercase()).collect();
    match letters[..] {
        [] => true,
        [(at, _)] => {
            let mut upper = folded.to_vec();
            if let Some(byte) = upper.get_mut(at) {
                byte.make_ascii_uppercase();
            }
            place.iter().any(|bytes| bytes == folded) && place.contains(&upper)
        }
        _ => false,
    }
}

/// The length of `text`, in any case, at the start of `bytes`; `None` if something else stands there.
fn len_at_start(bytes: &[u8], text: &str, encoding: TextEncoding) -> Option<usize> {
    let mut len = 0;
    for c in text.chars() {
        let rest = bytes.get(len..)?;
        // No character's bytes begin with those of another, so at most one fits.
        let fits = cases(c).into_iter().filter_map(|c| encoding.encode(c)).find(|bytes| rest.starts_with(bytes))?;
        len += fits.len();
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_of_a_character_are_one_character_each() {
        assert_eq!(cases('k'), ['k', 'K']);
        assert_eq!(cases('Ü'), ['Ü', 'ü']);
        assert_eq!(cases('ß'), ['ß']);
        assert_eq!(cases('ς'), ['ς', 'Σ', 'σ']);
        assert_eq!(cases('7'), ['7']);
    }

    #[test]
    fn words_with_many_letters_beyond_ascii_are_found_by_their_beginning() {
        let places = |text: &str, encoding| places(text, encoding, true).unwrap();
        assert_eq!(variants(&places("secret", TextEncoding::Utf8), true), (vec![b"secret".to_vec()], true));
        assert_eq!(
            variants(&places("secret", TextEncoding::Utf16Le), true),
            (vec![b"s\0e\0c\0r\0e\0t\0".to_vec()], true)
        );
        let (patterns, is_whole) = variants(&places("Müller", TextEncoding::Utf8), true);
        assert_eq!((patterns.len(), is_whole), (2, true));
        let (patterns, is_whole) = variants(&places("пароль", TextEncoding::Utf8), true);
        assert_eq!((patterns.len(), is_whole), (16, false));
    }

    #[test]
    fn a_byte_that_is_no_letter_keeps_its_case() {
        // The second byte of this letter is that of an ASCII letter, whose case the scanner ignores.
        let order = Order {
            words: vec!["ア".into()],
            encodings: vec!["shift_jis".parse().unwrap()],
            ignore_case: true,
            ..Order::default()
        };
        let literals = Literals::new(&order, usize::MAX, |_, _| {}).unwrap().unwrap();
        let mut starts = Vec::new();
        let note = |found: Found| {
            starts.push(found.start);
            Ok(())
        };
        literals.scan(b"\x83\x61\x83\x41", note).unwrap();
        assert_eq!(starts, [2]);
    }
}
