//! Regular expressions over bytes, whose matches have a maximum length.

mod class;
mod lead;
mod text;

use cheetah_error::{Error, Result};
use regex_automata::meta::{Config, Regex};
use regex_automata::{Anchored, Input, util::syntax};
use regex_syntax::hir::{Hir, Look};

pub use self::class::Class;
use self::lead::Leader;
pub use self::lead::{Lead, Sign};
use self::text::Text;
use crate::encoding::TextEncoding;
use crate::found::{Found, MATCH_BYTES_MAX};
use crate::memory::TooMuch;
use crate::wide::widened;

/// The maximum size of a compiled expression, in bytes.
const COMPILED_BYTES_MAX: usize = 32 << 20;
/// The maximum size of the memory in which one expression keeps what it learned of a search, in bytes.
const CACHE_BYTES_MAX: usize = 4 << 20;
/// The automata of an expression: one that reads forward, and one that reads backward.
const AUTOMATA: usize = 2;
/// What a byte of an expression's text takes while it is parsed.
const PARSED_BYTES: usize = 512;
/// The same where classes are those of Unicode: `\w`, in any case, has thousands of ranges before they are united.
const PARSED_UNICODE_BYTES: usize = 16 << 10;
/// The depth of nested groups.
const DEPTH_MAX: u32 = 100;

/// Decides about a match of a finder's expression: returns the length of the hit, in characters. It is a part of `text`, or of `reach` if
/// that is longer.
pub type Check = fn(&Candidate<'_>) -> Option<usize>;

/// A match of a finder's expression, in ASCII.
pub struct Candidate<'a> {
    /// The match.
    pub text: &'a [u8],
    /// The character before it; `None` if it is none of ASCII.
    pub before: Option<u8>,
    /// The character after it.
    pub after: Option<u8>,
    /// The bytes from the beginning of the match on, as they are stored, as far as a hit may reach and they can be read.
    pub reach: &'a [u8],
}

impl Candidate<'_> {
    /// The character after the first `len`.
    pub fn follower(&self, len: usize) -> Option<u8> {
        self.text.get(len).copied().or(self.after)
    }

    /// Whether a letter or a digit stands before it.
    pub fn continues_a_word(&self) -> bool {
        self.before.is_some_and(|byte| byte.is_ascii_alphanumeric())
    }
}

/// An expression in an encoding, compiled.
pub struct Expression {
    pattern: u32,
    encoding: TextEncoding,
    regex: Regex,
    check: Option<Check>,
    /// Where matches are tried; everywhere without.
    leader: Option<Leader>,
    /// The most memory in which a thread keeps what it learned of a search.
    cache_bytes_max: usize,
    /// The length of the longest match, or how far from the beginning of a match its check reads, if that is more.
    pub bytes_max: usize,
}

/// An expression that was parsed and has a maximum length.
pub struct Parsed<'a> {
    text: &'a str,
    hir: Hir,
    /// The most memory that it may take, compiled for an encoding.
    pub memory_bytes_max: usize,
}

/// Why an expression cannot be searched for: a clause about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum BadExpression {
    /// It is none.
    #[error("is none: {0}")]
    Syntax(String),
    /// It holds at an end of the whole text.
    #[error("begins or ends at an end of the whole text, and evidence has none: begin it with (?m), for lines")]
    WholeText,
    /// It matches no text.
    #[error("can match nothing: correct it")]
    Nothing,
    /// It matches the empty text.
    #[error("matches the empty text, which is everywhere: let it begin with a character")]
    Empty,
    /// Its matches have no maximum length.
    #[error(
        "can match without limit: give the greatest number of repetitions, as in {{1,64}} in place of + or {{0,64}} in place of *"
    )]
    NoLimit,
    /// Its matches may have this number of bytes.
    #[error("can match {0} bytes, which is more than {MATCH_BYTES_MAX}: repeat less")]
    TooLong(usize),
}

impl<'a> Parsed<'a> {
    /// Parses an expression.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if it is none, if its matches have no maximum length, or if it matches nothing at all.
    pub fn new(text: &'a str, ignore_case: bool) -> Result<Self> {
        let refuse = |why: BadExpression| Err(Error::misuse(format!("the expression '{text}' {why}")).because(why));
        let config =
            syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignore_case).nest_limit(DEPTH_MAX);
        let hir = match syntax::parse_with(text, &config) {
            Ok(hir) => hir,
            Err(error) => return refuse(BadExpression::Syntax(first_line(&error))),
        };
        let properties = hir.properties();
        let looks = properties.look_set();
        match (properties.minimum_len(), properties.maximum_len()) {
            _ if looks.contains(Look::Start) || looks.contains(Look::End) => refuse(BadExpression::WholeText),
            (None, _) => refuse(BadExpression::Nothing),
            (Some(0), _) => refuse(BadExpression::Empty),
            (_, None) => refuse(BadExpression::NoLimit),
            (_, Some(len)) if len > MATCH_BYTES_MAX => refuse(BadExpression::TooLong(len)),
            _ => Ok(Self { text, hir, memory_bytes_max: usize::MAX }),
        }
    }

    /// Parses an expression that may take as much memory.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); also if parsing it may take more, with [`TooMuch`] as the cause.
    pub fn within(text: &'a str, ignore_case: bool, memory_bytes_max: usize) -> Result<Self> {
        if parsed_bytes(text) > memory_bytes_max {
            let why =
                format!("the expression '{text}' may take too much memory: shorten it, or divide the expressions");
            return Err(Error::misuse(why).because(TooMuch));
        }
        Ok(Self { memory_bytes_max, ..Self::new(text, ignore_case)? })
    }

    /// Compiles it for an encoding; `None` if it cannot be searched there. In any but UTF-16, it is searched as it is.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if it is too large.
    pub fn compiled(&self, pattern: u32, encoding: TextEncoding, check: Option<Check>) -> Result<Option<Expression>> {
        let hir = match encoding {
            TextEncoding::Utf16Le | TextEncoding::Utf16Be => match widened(&self.hir, encoding) {
                Some(hir) => hir,
                None => return Ok(None),
            },
            TextEncoding::Utf8 | TextEncoding::CodePage(_) => self.hir.clone(),
        };
        let text = self.text;
        let bytes_max = hir.properties().maximum_len().filter(|len| *len <= MATCH_BYTES_MAX).ok_or_else(|| {
            Error::misuse(format!(
                "the expression '{text}' can match more than {MATCH_BYTES_MAX} bytes of {encoding}: repeat less"
            ))
        })?;
        let automaton_bytes_max = self.memory_bytes_max.saturating_sub(CACHE_BYTES_MAX) / AUTOMATA;
        // Each automaton may learn as much. Without a limit, they learn more together.
        let is_limited = self.memory_bytes_max < usize::MAX;
        let learned_bytes_max = if is_limited { CACHE_BYTES_MAX / AUTOMATA } else { CACHE_BYTES_MAX };
        let config = Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(automaton_bytes_max.min(COMPILED_BYTES_MAX)))
            .hybrid_cache_capacity(learned_bytes_max);
        let regex = Regex::builder().configure(config).build_from_hir(&hir).map_err(|error| {
            let refused = Error::misuse(format!("the expression '{text}' is too large: repeat less ({error})"));
            // It is no matter of what is left if no expression may be as large.
            let is_of_memory = error.size_limit().is_some() && automaton_bytes_max < COMPILED_BYTES_MAX;
            if is_of_memory { refused.because(TooMuch) } else { refused }
        })?;
        let cache_bytes_max = regex.create_cache().memory_usage() + AUTOMATA * learned_bytes_max;
        Ok(Some(Expression { pattern, encoding, regex, check, leader: None, cache_bytes_max, bytes_max }))
    }

    /// Whether it is text with assertions, which are not searched in UTF-16.
    pub fn has_assertions(&self) -> bool {
        !self.hir.properties().look_set().is_empty()
    }
}

/// What parsing an expression takes at most, in bytes.
fn parsed_bytes(text: &str) -> usize {
    // Flags stand behind a question mark. Other text that looks like them is taken for them.
    let is_flag = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'-';
    let has_flag = |rest: &str| rest.bytes().take_while(is_flag).any(|byte| byte == b'u');
    let has_unicode = text.split('?').skip(1).any(has_flag);
    text.len().saturating_mul(if has_unicode { PARSED_UNICODE_BYTES } else { PARSED_BYTES })
}

/// What an error of the parser says, without the drawing before it.
fn first_line(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(error) => error.kind().to_string(),
        regex_syntax::Error::Translate(error) => error.kind().to_string(),
        other => other.to_string(),
    }
}

impl Expression {
    /// The memory that it takes, with the most of what a thread learns of a search.
    pub fn memory_bytes(&self) -> usize {
        self.shared_bytes() + self.cache_bytes_max
    }

    /// The part of it that all threads share.
    pub fn shared_bytes(&self) -> usize {
        self.regex.memory_usage()
    }

    /// The same, tried only where the lead says that a hit may begin: where its check refuses the matches at all other places.
    #[must_use]
    pub fn led_by(self, lead: Option<&'static Lead>) -> Self {
        Self { leader: lead.map(|lead| Leader::new(lead, self.encoding)), ..self }
    }

    /// The same, with a check that reads, and may take, as many bytes from the beginning of a match on.
    #[must_use]
    pub fn reaching(self, bytes: usize) -> Self {
        Self { bytes_max: self.bytes_max.max(bytes), ..self }
    }

    /// Finds its matches in `bytes`, and calls `found` for each that does not lie within one that begins before it. What a hit takes beyond
    /// its match hides none: metadata lead anywhere, and other metadata may lie there.
    pub fn scan(&self, bytes: &[u8], mut found: impl FnMut(Found) -> Result<()>) -> Result<()> {
        let mut furthest = 0;
        let mut take = |start: usize, end: usize| match self.accepted(bytes, start, end) {
            Some(len) if end.min(start + len) > furthest => {
                furthest = end.min(start + len);
                found(Found { start, len, pattern: self.pattern, encoding: self.encoding })
            }
            _ => Ok(()),
        };
        if let Some(leader) = &self.leader {
            return leader.each(bytes, |start| {
                let here = Input::new(bytes).range(start..).anchored(Anchored::Yes);
                self.regex.search(&here).map_or(Ok(()), |matched| take(start, matched.end()))
            });
        }
        let mut at = 0;
        while let Some(matched) = self.regex.search(&Input::new(bytes).range(at..)) {
            at = matched.start() + 1;
            take(matched.start(), matched.end())?;
        }
        Ok(())
    }

    /// The length of the hit in a match, if there is one.
    fn accepted(&self, bytes: &[u8], start: usize, end: usize) -> Option<usize> {
        let Some(check) = self.check else { return Some(end - start) };
        let around = Text { bytes, encoding: self.encoding };
        let unit = around.unit_bytes();
        let narrow: Vec<u8>;
        let text = match self.encoding {
            TextEncoding::Utf16Le => {
                narrow = bytes.get(start..end)?.iter().step_by(2).copied().collect();
                &narrow[..]
            }
            TextEncoding::Utf16Be => {
                narrow = bytes.get(start..end)?.iter().skip(1).step_by(2).copied().collect();
                &narrow[..]
            }
            TextEncoding::Utf8 | TextEncoding::CodePage(_) => bytes.get(start..end)?,
        };
        let before = start.checked_sub(unit).and_then(|before| around.ascii(before));
        let reach = bytes.get(start..(start + self.bytes_max).min(bytes.len()))?;
        check(&Candidate { text, before, after: around.ascii(end), reach }).map(|len| len * unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_that_takes_more_memory_than_it_may_is_refused_before_it_is_taken() {
        const MIB: usize = 1 << 20;
        let is_taken = |text: &str, memory_bytes_max| {
            let parsed = Parsed::within(text, false, memory_bytes_max);
            match parsed.and_then(|parsed| parsed.compiled(0, TextEncoding::Utf8, None)) {
                Ok(_) => true,
                Err(error) => {
                    assert_eq!(error.cause::<TooMuch>(), Some(&TooMuch), "{text}");
                    false
                }
            }
        };
        // Parsing alone may take it.
        let classes = "(?u:".to_owned() + &"\\w".repeat(40) + ")";
        assert_eq!([MIB, 128 * MIB].map(|most| is_taken(&classes, most)), [false, true]);
        let letters = "[a-z]".repeat(200);
        assert_eq!([MIB / 4, 16 * MIB].map(|most| is_taken(&letters, most)), [false, true]);
        // An automaton takes it.
        let repeated = "(?u:\\w{20})";
        assert_eq!([4 * MIB, 128 * MIB].map(|most| is_taken(repeated, most)), [false, true]);
    }

    #[test]
    fn an_expression_whose_matches_have_no_maximum_length_is_refused() {
        for (text, why) in [
            ("a+", BadExpression::NoLimit),
            ("a.*b", BadExpression::NoLimit),
            ("a{0,3}", BadExpression::Empty),
            ("^a", BadExpression::WholeText),
            ("a\\z", BadExpression::WholeText),
            ("a{9000}", BadExpression::TooLong(9000)),
            ("[^\\x00-\\xff]", BadExpression::Nothing),
            ("(", BadExpression::Syntax("unclosed group".to_owned())),
        ] {
            let refusal = Parsed::new(text, false).err().unwrap();
            assert!(refusal.is_misuse() && refusal.cause() == Some(&why), "{refusal}");
        }
        for text in ["a{1,64}", "(?m)^a$", "\\bfoo\\b", "\\xff\\x00[^\\x00]{1,9}", "(?u:ü)"] {
            assert!(Parsed::new(text, false).is_ok(), "{text}");
        }
    }

    #[test]
    fn matches_within_an_earlier_one_are_left_out_and_others_may_overlap() {
        let expression =
            |text| Parsed::new(text, false).unwrap().compiled(0, TextEncoding::Utf8, None).unwrap().unwrap();
        let matches = |text, bytes: &[u8]| {
            let mut all = Vec::new();
            let note = |found: Found| {
                all.push((found.start, found.len));
                Ok(())
            };
            expression(text).scan(bytes, note).unwrap();
            all
        };
        assert_eq!(matches("a{2,3}", b"aaaa b aa"), [(0, 3), (1, 3), (7, 2)]);
        assert_eq!(matches("ab?", b"ab a"), [(0, 2), (3, 1)]);
        assert_eq!(matches("(?-u:\\b)a{1,9}(?-u:\\b)", b"aaa baaa aa"), [(0, 3), (9, 2)]);
    }
}
