//! What is searched for.

use std::collections::HashSet;
use std::hash::Hash;

use cheetah_error::{Error, Result};

use crate::blocks::BlockKey;
use crate::encoding::TextEncoding;
use crate::finder::Finder;

/// The maximum number of words.
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
    /// The encodings of words and finders.
    pub encodings: Vec<TextEncoding>,
    /// Whether the case of letters is ignored.
    pub ignore_case: bool,
    /// The number of bytes before and after each hit to show.
    pub context_bytes: usize,
}

impl Order {
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
            encodings: once(&self.encodings),
            ..*self
        };
        let refuse = |why: &str| Err(Error::misuse(why));
        match () {
            () if order.asks_for_nothing() => {
                refuse("nothing is searched for: give words, expressions, kinds of data or known files")
            }
            () if order.encodings.is_empty() => refuse("no encoding is searched: name one, such as utf-8"),
            () if order.words.iter().any(String::is_empty) => refuse("a word is empty: leave it out"),
            () if order.words.len() > WORDS_MAX => {
                Err(Error::misuse(format!("{} words are more than {WORDS_MAX}: divide them", order.words.len())))
            }
            () if order.expressions.len() > EXPRESSIONS_MAX => Err(Error::misuse(format!(
                "{} expressions are more than {EXPRESSIONS_MAX}: divide them",
                order.expressions.len()
            ))),
            () => Ok(order),
        }
    }

    fn asks_for_nothing(&self) -> bool {
        self.words.is_empty() && self.expressions.is_empty() && self.finders.is_empty() && self.blocks.is_empty()
    }
}

/// The values in their order, each once.
fn once<T: Clone + Eq + Hash>(values: &[T]) -> Vec<T> {
    let mut seen = HashSet::new();
    values.iter().filter(|value| seen.insert(*value)).cloned().collect()
}
