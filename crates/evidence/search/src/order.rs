//! What is searched for.

use std::collections::HashSet;
use std::hash::Hash;

use cheetah_error::{Error, Result};
use encoding_rs::WINDOWS_1252;

use crate::blocks::BlockKey;
use crate::encoding::TextEncoding;
use crate::finder::Finder;

/// The maximum number of words, and of atoms of rules together with them.
pub const WORDS_MAX: usize = 100_000;
/// The maximum number of expressions: each is a search of its own.
const EXPRESSIONS_MAX: usize = 1000;

/// What is searched for, as an examiner says it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// Words: any text, with the blanks in it.
    pub words: Vec<String>,
    /// Regular expressions over bytes. Expressions that can be are searched in the UTF-16 among the encodings, too.
    pub expressions: Vec<String>,
    /// Well-known kinds of data.
    pub finders: Vec<Finder>,
    /// Blocks of known files.
    pub blocks: Vec<BlockKey>,
    /// Atoms of YARA rules.
    pub atoms: Atoms,
    /// The encodings of words and finders.
    pub encodings: Vec<TextEncoding>,
    /// Whether the case of letters is ignored.
    pub ignore_case: bool,
    /// The number of bytes before and after each hit to show.
    pub context_bytes: usize,
}

/// Literal bytes of which at least one occurs wherever a YARA rule matches. They are no results of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Atoms {
    /// The bytes, as words in windows-1252, in which each byte is a character.
    pub words: Vec<String>,
    /// Whether the case of letters is ignored: more is found then.
    pub ignore_case: bool,
}

/// The encoding of the atoms of rules.
pub(crate) fn atom_encoding() -> TextEncoding {
    TextEncoding::CodePage(WINDOWS_1252)
}

impl Order {
    /// Whether nothing is searched for.
    pub const fn is_empty(&self) -> bool {
        let Self { words, expressions, finders, blocks, atoms, .. } = self;
        let is_without_words = words.is_empty() && atoms.words.is_empty();
        is_without_words && expressions.is_empty() && finders.is_empty() && blocks.is_empty()
    }

    /// The same order, with each word, expression, finder and encoding once.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if it asks for nothing, or for too much.
    pub(crate) fn checked(&self) -> Result<Self> {
        let order = Self {
            words: once(&self.words),
            expressions: once(&self.expressions),
            finders: once(&self.finders),
            blocks: once(&self.blocks),
            atoms: Atoms { words: once(&self.atoms.words), ignore_case: self.atoms.ignore_case },
            encodings: once(&self.encodings),
            ..*self
        };
        let refuse = |why: &str| Err(Error::misuse(why));
        let words = order.words.len().saturating_add(order.atoms.words.len());
        match () {
            () if order.is_empty() => {
                refuse("nothing is searched for: give words, expressions, kinds of data or known files")
            }
            () if order.encodings.is_empty() => refuse("no encoding is searched: name one, such as utf-8"),
            () if order.words.iter().chain(&order.atoms.words).any(String::is_empty) => {
                refuse("a word is empty: leave it out")
            }
            () if words > WORDS_MAX => Err(Error::misuse(format!(
                "{words} words, with the atoms of rules, are more than {WORDS_MAX}: divide them"
            ))),
            () if order.expressions.len() > EXPRESSIONS_MAX => Err(Error::misuse(format!(
                "{} expressions are more than {EXPRESSIONS_MAX}: divide them",
                order.expressions.len()
            ))),
            () => Ok(order),
        }
    }
}

/// The values in their order, each once.
fn once<T: Clone + Eq + Hash>(values: &[T]) -> Vec<T> {
    let mut seen = HashSet::new();
    values.iter().filter(|value| seen.insert(*value)).cloned().collect()
}
