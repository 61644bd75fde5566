//! Words: their bytes in each encoding are patterns, which a [`Scanner`] finds.
//!
//! If case is ignored, the scanner ignores that of ASCII letters, and letters beyond ASCII are expanded to the bytes of
//! both cases. As every such letter doubles the number of patterns, only the beginning of a word with many of them is a
//! pattern, and the rest is compared where the beginning is found. Words with the same beginning share its patterns.

mod patterns;
mod sampled;
mod scanner;
mod together;

use cheetah_error::{Error, Result};

use self::patterns::{Origins, Patterns};
use self::scanner::Scanner;
use crate::encoding::TextEncoding;
use crate::found::{Found, MATCH_BYTES_MAX, number};
use crate::memory::{GROWING, Memory};
use crate::order::Order;

/// The maximum number of patterns that one form of a word is expanded to.
const VARIANTS_MAX: usize = 16;

/// The texts of a word: in the request and its body, in the order and its two copies, and as the name of its pattern.
const WORD_TEXTS: usize = 6;
/// What each of these takes beside its characters: its place, and the least that is allocated for it.
const TEXT_BYTES: usize = 64;
/// What a word takes beside: its pattern, and its place in the set that finds words that come twice.
const WORD_BYTES: usize = 160;
/// What an encoding of a word takes: its name, in a growing list of at least four.
const ENCODING_BYTES: usize = 64;
/// What a character of a word takes in each encoding while its forms are made: lists of its cases, and their bytes.
const CHARACTER_BYTES: usize = 256;

/// Words that are compiled together.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    /// The words.
    texts: &'a [String],
    /// The encodings in which each is searched.
    encodings: &'a [TextEncoding],
    /// Whether the case of letters is ignored.
    ignore_case: bool,
}

impl<'a> Words<'a> {
    /// Those of an order.
    pub fn of(order: &'a Order) -> Self {
        Self { texts: &order.words, encodings: &order.encodings, ignore_case: order.ignore_case }
    }

    /// The atoms of rules in an order. `encodings` has theirs.
    pub fn atoms_of(order: &'a Order, encodings: &'a [TextEncoding; 1]) -> Self {
        Self { texts: &order.atoms.words, encodings, ignore_case: order.atoms.ignore_case }
    }
}

/// Words, compiled.
pub struct Literals {
    scanner: Scanner,
    forms: Vec<Form>,
    /// The forms of each pattern.
    forms_of: Origins,
    /// The length of the longest form.
    pub bytes_max: usize,
    /// The most memory that they took while they were compiled, in bytes.
    pub memory_bytes: usize,
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
    /// Compiles words; `None` if there are none. `searched` is told each word that is searched in an encoding.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if a word is too long, or if all words together may take more than `memory_bytes_max` while they are compiled.
    pub fn new(
        words: Words<'_>,
        memory_bytes_max: usize,
        mut searched: impl FnMut(usize, TextEncoding),
    ) -> Result<Option<Self>> {
        if words.texts.is_empty() {
            return Ok(None);
        }
        let mut memory = Memory::of(memory_bytes_max);
        take_words(words, &mut memory)?;
        let (mut forms, mut patterns, mut form_of) = (Vec::new(), Patterns::new(words.ignore_case), Vec::new());
        let mut bytes_max = 0usize;
        for (word, text) in words.texts.iter().enumerate() {
            let mut earlier: Vec<Vec<Place>> = Vec::new();
            for encoding in words.encodings {
                let Some(places) = places(text, *encoding, words.ignore_case) else { continue };
                searched(word, *encoding);
                if earlier.contains(&places) {
                    continue;
                }
                let len: usize = places.iter().filter_map(|place| place.iter().map(Vec::len).max()).sum();
                bytes_max = bytes_max.max(len);
                let (variants, is_whole) = variants(&places, words.ignore_case);
                memory.take(GROWING * size_of::<Form>() + if is_whole { 0 } else { text.len() + TEXT_BYTES })?;
                for variant in &variants {
                    memory.take(Patterns::memory_bytes(variant.len()))?;
                    patterns.push(variant);
                    form_of.push(number(forms.len()));
                }
                let compared = (!is_whole).then(|| text.as_str().into());
                forms.push(Form { word: number(word), encoding: *encoding, compared });
                earlier.push(places);
            }
            check_length(text, bytes_max)?;
        }
        let (distinct, forms_of) = patterns.distinct(&form_of);
        drop((patterns, form_of));
        let scanner = Scanner::new(distinct, &mut memory)?;
        Ok(Some(Self { scanner, forms, forms_of, bytes_max, memory_bytes: memory.taken_bytes() }))
    }

    /// Finds the words in `bytes`, and calls `found` for each.
    pub fn scan(&self, bytes: &[u8], mut found: impl FnMut(Found) -> Result<()>) -> Result<()> {
        self.scanner.scan(bytes, |pattern, start, len| {
            for form in self.forms_of.of(pattern).iter().filter_map(|form| self.forms.get(*form as usize)) {
                let len = match &form.compared {
                    None => Some(len),
                    Some(text) => bytes.get(start..).and_then(|rest| len_at_start(rest, text, form.encoding)),
                };
                if let Some(len) = len {
                    found(Found { start, len, pattern: form.word, encoding: form.encoding })?;
                }
            }
            Ok(())
        })
    }
}

/// Counts what the words take in the order, in its copies, and while the forms of the longest one are made.
fn take_words(words: Words<'_>, memory: &mut Memory) -> Result<()> {
    let (mut all, mut longest) = (0usize, 0usize);
    for text in words.texts {
        all = all.saturating_add(WORD_TEXTS * (text.len() + TEXT_BYTES) + WORD_BYTES);
        all = all.saturating_add(words.encodings.len() * ENCODING_BYTES);
        longest = longest.max(text.len());
    }
    memory.take(all)?;
    memory.take(longest.saturating_mul(words.encodings.len()).saturating_mul(CHARACTER_BYTES))
}

/// Refuses a word if its longest form has more than [`MATCH_BYTES_MAX`] bytes.
fn check_length(text: &str, bytes: usize) -> Result<()> {
    if bytes <= MATCH_BYTES_MAX {
        return Ok(());
    }
    let start: String = text.chars().take(40).collect();
    Err(Error::misuse(format!("the word that begins with '{start}' has more than {MATCH_BYTES_MAX} bytes: shorten it")))
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
        if let [only] = &folded[..] {
            variants.iter_mut().for_each(|variant| variant.extend_from_slice(only));
            continue;
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
        let literals = Literals::new(Words::of(&order), usize::MAX, |_, _| {}).unwrap().unwrap();
        assert!(literals.memory_bytes > 0);
        let mut starts = Vec::new();
        let note = |found: Found| {
            starts.push(found.start);
            Ok(())
        };
        literals.scan(b"\x83\x61\x83\x41", note).unwrap();
        assert_eq!(starts, [2]);
    }

    fn order_of(words: Vec<String>, encodings: &[&str], ignore_case: bool) -> Order {
        let encodings = encodings.iter().map(|name| name.parse().unwrap()).collect();
        Order { words, encodings, ignore_case, ..Order::default() }
    }

    #[test]
    fn words_that_share_the_patterns_of_their_beginning_are_each_found() {
        let words = ["парольная", "паролище", "пароль"].map(str::to_owned).to_vec();
        let order = order_of(words, &["utf-8", "utf-16le"], true);
        let literals = Literals::new(Words::of(&order), usize::MAX, |_, _| {}).unwrap().unwrap();
        let mut found = Vec::new();
        let note = |match_: Found| {
            found.push((match_.start, match_.pattern, match_.len));
            Ok(())
        };
        literals.scan("ПАРОЛИЩЕ ПарольНая".as_bytes(), note).unwrap();
        found.sort_unstable();
        assert_eq!(found, [(0, 1, 16), (17, 0, 18), (17, 2, 12)]);
    }

    #[test]
    fn words_that_take_more_memory_than_there_is_are_refused_before_it_is_taken() {
        let order = order_of((0..1000).map(|word| format!("word{word}")).collect(), &["utf-8", "utf-16le"], false);
        let needed = Literals::new(Words::of(&order), usize::MAX, |_, _| {}).unwrap().unwrap().memory_bytes;
        assert!(Literals::new(Words::of(&order), needed, |_, _| {}).unwrap().is_some());
        assert!(Literals::new(Words::of(&order), needed - 1, |_, _| {}).is_err());
        let mut told = 0;
        let refused = Literals::new(Words::of(&order), 1000 * WORD_BYTES, |_, _| told += 1);
        assert!(refused.is_err());
        assert_eq!(told, 0);
    }
}
