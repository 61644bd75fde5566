//! An order, compiled.

use cheetah_device::ByteRange;
use cheetah_device::data::is_zero;
use cheetah_error::{Error, Result};

use crate::blocks::{BLOCK_BYTES, Blocks};
use crate::encoding::TextEncoding;
use crate::expression::{Expression, Parsed};
use crate::finder::{Finder, gps};
use crate::found::{Found, number};
use crate::hit::{HIT_BYTES, Hit};
use crate::literal::{Literals, Words};
use crate::memory::TooMuch;
use crate::order::{Order, atom_encoding};
use crate::seam::{Overlap, Window};
use crate::text::shown;

/// The maximum number of bytes that are shown before and after a hit.
pub const CONTEXT_BYTES_MAX: usize = 4096;
/// The bytes beside a match at which an assertion may look: those of one character.
const ASSERTED_BYTES: usize = 4;
/// The maximum number of hits of a window, and of atoms in it: more are of no use, and take memory.
const WINDOW_HITS_MAX: usize = 1 << 20;

/// What kind of pattern is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternKind {
    /// A word.
    Word,
    /// A regular expression.
    Expression,
    /// A well-known kind of data.
    Finder,
    /// The header of a format of files.
    Header,
    /// The beginning of compressed data, which is no result of a search.
    Compressed,
    /// A block of a known file.
    Block,
    /// The atoms of YARA rules, which are no result of a search.
    Atom,
    /// A YARA rule, which is tried on whole files and not searched for.
    Rule,
}

/// A pattern of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// What it is.
    pub kind: PatternKind,
    /// The word, the expression, or the name of the finder or of the rule.
    pub name: String,
    /// The encodings in which it is searched; none if it cannot be written in any of those that were chosen.
    pub encodings: Vec<TextEncoding>,
    /// Whether it is not searched in UTF-16, although that was chosen, because it has assertions.
    pub has_assertions: bool,
}

impl Pattern {
    /// One that is searched in no encoding yet.
    fn new(kind: PatternKind, name: &str) -> Self {
        Self { kind, name: name.to_owned(), encodings: Vec::new(), has_assertions: false }
    }
}

/// What an order may take, compiled.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The memory that all words together may take while they are compiled, in bytes: afterwards they take less.
    pub word_memory_bytes_max: usize,
    /// The bytes of the keys of all blocks, 24 each.
    pub block_bytes_max: usize,
    /// The memory of all expressions together, with what a thread learns of a search, in bytes.
    pub expression_bytes_max: usize,
}

impl Default for Limits {
    /// No limits beyond those of an order.
    fn default() -> Self {
        Self { word_memory_bytes_max: usize::MAX, block_bytes_max: usize::MAX, expression_bytes_max: usize::MAX }
    }
}

impl Limits {
    /// Refuses expressions that take too much.
    fn check(&self, expressions: &[Expression]) -> Result<()> {
        match self.left_bytes(expressions) {
            None => Err(Error::misuse("the expressions are too much for one search: divide them").because(TooMuch)),
            Some(_) => Ok(()),
        }
    }

    /// What is left for further expressions, in bytes: without a limit all that there is. `None` if these take too much.
    fn left_bytes(&self, expressions: &[Expression]) -> Option<usize> {
        if self.expression_bytes_max == usize::MAX {
            return Some(usize::MAX);
        }
        self.expression_bytes_max.checked_sub(expressions.iter().map(Expression::memory_bytes).sum())
    }
}

/// An order, compiled.
pub struct Search {
    patterns: Vec<Pattern>,
    words: usize,
    literals: Option<Literals>,
    expressions: Vec<Expression>,
    /// The blocks of known files, and the number of their pattern.
    blocks: Option<(u32, Blocks)>,
    /// The atoms of rules, and the number of their pattern.
    atoms: Option<(u32, Literals)>,
    context_bytes: usize,
    overlap: Overlap,
    matches_zeros: bool,
}

impl Search {
    /// Compiles an order.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if it asks for nothing, for too much (with [`TooMuch`] as the cause), or for an expression that is wrong or has no
    /// maximum length.
    pub fn new(order: &Order) -> Result<Self> {
        Self::within(order, Limits::default())
    }

    /// Compiles an order, if that takes no more than the limits.
    ///
    /// # Errors
    ///
    /// The same.
    pub fn within(order: &Order, limits: Limits) -> Result<Self> {
        let order = order.checked()?;
        let mut patterns: Vec<_> = order.words.iter().map(|word| Pattern::new(PatternKind::Word, word)).collect();
        let literals = Literals::new(Words::of(&order), limits.word_memory_bytes_max, |word, encoding| {
            patterns.get_mut(word).into_iter().for_each(|pattern| pattern.encodings.push(encoding));
        })?;
        let words = patterns.len();
        let mut expressions = Vec::new();
        for text in &order.expressions {
            let mut pattern = Pattern::new(PatternKind::Expression, text);
            compile_expression((&order, limits), &mut pattern, patterns.len() - words, &mut expressions)?;
            patterns.push(pattern);
        }
        for finder in &order.finders {
            patterns.push(compile_finder((&order, limits), *finder, patterns.len() - words, &mut expressions)?);
        }
        let blocks = Blocks::new(&order.blocks, limits.block_bytes_max)?;
        let blocks = blocks.map(|blocks| (number(patterns.len()), blocks));
        patterns.extend(blocks.iter().map(|_| Pattern {
            encodings: vec![TextEncoding::Utf8],
            ..Pattern::new(PatternKind::Block, "blocks of known files")
        }));
        // They have what the words leave.
        let taken_bytes = literals.as_ref().map_or(0, |literals| literals.memory_bytes);
        let left_bytes = limits.word_memory_bytes_max.saturating_sub(taken_bytes);
        let atoms = Literals::new(Words::atoms_of(&order, &[atom_encoding()]), left_bytes, |_, _| {})?;
        let atoms = atoms.map(|atoms| (number(patterns.len()), atoms));
        patterns.extend(atoms.iter().map(|_| Pattern {
            encodings: vec![atom_encoding()],
            ..Pattern::new(PatternKind::Atom, "atoms of rules")
        }));
        let longest = expressions.iter().map(|expression| expression.bytes_max);
        let literal = literals.iter().chain(atoms.iter().map(|(_, atoms)| atoms));
        let longest = longest.chain(literal.map(|literals| literals.bytes_max));
        let longest = longest.chain(blocks.iter().map(|_| BLOCK_BYTES)).max().unwrap_or(1).max(1);
        let context_bytes = order.context_bytes.min(CONTEXT_BYTES_MAX);
        let overlap = Overlap {
            before: context_bytes.max(longest - 1 + ASSERTED_BYTES),
            after: longest - 1 + context_bytes.max(ASSERTED_BYTES),
        };
        let search = Self {
            patterns,
            words,
            literals,
            expressions,
            blocks,
            atoms,
            context_bytes,
            overlap,
            matches_zeros: false,
        };
        let matches_zeros = search.has_match(&vec![0; 2 * longest + 2 * ASSERTED_BYTES])?;
        Ok(Self { matches_zeros, ..search })
    }

    /// The memory that it takes, whatever the number of threads that search, in bytes: of words, what they took while they were compiled.
    pub fn shared_bytes(&self) -> usize {
        let literals = self.literals.iter().chain(self.atoms.iter().map(|(_, atoms)| atoms));
        let words = literals.fold(0usize, |all, literals| all.saturating_add(literals.memory_bytes));
        let blocks = self.blocks.as_ref().map_or(0, |(_, blocks)| blocks.memory_bytes());
        let expressions: usize = self.expressions.iter().map(Expression::shared_bytes).sum();
        words.saturating_add(blocks).saturating_add(expressions)
    }

    /// The most that each thread that searches takes besides, in bytes.
    pub fn thread_bytes(&self) -> usize {
        self.expressions.iter().map(|expression| expression.memory_bytes() - expression.shared_bytes()).sum()
    }

    /// The search that looks for nothing.
    pub const fn for_nothing() -> Self {
        Self {
            patterns: Vec::new(),
            words: 0,
            literals: None,
            expressions: Vec::new(),
            blocks: None,
            atoms: None,
            context_bytes: 0,
            overlap: Overlap { before: ASSERTED_BYTES, after: ASSERTED_BYTES },
            matches_zeros: false,
        }
    }

    /// Whether it looks for nothing.
    pub const fn is_for_nothing(&self) -> bool {
        let is_without_words = self.literals.is_none() && self.atoms.is_none();
        is_without_words && self.expressions.is_empty() && self.blocks.is_none()
    }

    /// Whether it looks for nothing but rules and their atoms.
    pub fn is_for_rules_alone(&self) -> bool {
        self.patterns.iter().all(|pattern| matches!(pattern.kind, PatternKind::Atom | PatternKind::Rule))
    }

    /// The same search with rules of these names, which are tried on files elsewhere: their patterns, the last ones, name their hits.
    #[must_use]
    pub fn with_rules(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.patterns.extend(names.into_iter().map(|name| Pattern { name, ..Pattern::new(PatternKind::Rule, "") }));
        self
    }

    /// The patterns: words, expressions and finders, in the order in which they were given; then blocks, atoms and rules.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// The text of a hit: of positions, what they say, and of all else its bytes ([`Hit::text`]).
    pub fn text(&self, hit: &Hit) -> String {
        self.position(hit).unwrap_or_else(|| hit.text())
    }

    /// The text around a hit, itself included ([`Search::text`]).
    pub fn context(&self, hit: &Hit) -> String {
        let around = |position: String| {
            let [before, after] = [&hit.before, &hit.after].map(|bytes| shown(bytes, hit.encoding));
            [before, position, after].concat()
        };
        self.position(hit).map_or_else(|| hit.context(), around)
    }

    /// The position that a hit has, as text, if it is one.
    pub fn position(&self, hit: &Hit) -> Option<String> {
        let pattern = self.patterns.get(hit.pattern)?;
        let is_position = pattern.kind == PatternKind::Finder && pattern.name == Finder::Gps.name();
        is_position.then(|| gps::shown(&hit.bytes))?
    }

    /// The overlap that neighbouring windows need.
    pub const fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// Finds the hits in the [`core`](Overlap::core) of the range of `bytes`, which begins at `offset`, without its neighbours.
    ///
    /// # Errors
    ///
    /// If there are more than a million, atoms apart, or if they may take more than `room_bytes_max` ([`Hit::room_bytes`]).
    pub fn scan_alone(&self, offset: u64, bytes: &[u8], room_bytes_max: usize) -> Result<Vec<Hit>> {
        match self.overlap.core(ByteRange::new(offset, bytes.len() as u64)) {
            Some(own) => self.hits(offset, bytes, own, room_bytes_max),
            None => Ok(Vec::new()),
        }
    }

    /// Finds the hits that begin in the own range of a window, ordered by offset, length and pattern. The window reaches beyond
    /// that by the [`overlap`](Self::overlap), or to the end of what can be read.
    ///
    /// # Errors
    ///
    /// If there are more than a million.
    pub fn scan(&self, window: &Window) -> Result<Vec<Hit>> {
        self.hits(window.offset, &window.bytes, window.own, usize::MAX)
    }

    fn hits(&self, offset: u64, bytes: &[u8], own: ByteRange, room_bytes_max: usize) -> Result<Vec<Hit>> {
        if !self.matches_zeros && is_zero(bytes) {
            return Ok(Vec::new());
        }
        let (mut found, mut atoms, mut room_bytes) = (Vec::new(), 0usize, 0usize);
        self.each(offset, bytes, |match_| {
            let is_own = own.contains(ByteRange::new(offset + match_.start as u64, 1));
            if is_own {
                let context = self.context_of(match_.pattern);
                room_bytes = room_bytes.saturating_add(match_.len + 2 * context + HIT_BYTES);
                atoms += usize::from(self.is_atom(match_.pattern));
                found.push(match_);
            }
            // Atoms are counted apart: hits that are not too many are not made too many by rules.
            let count = atoms.max(found.len() - atoms);
            if count > WINDOW_HITS_MAX || room_bytes > room_bytes_max {
                return Err(Error::misuse(format!(
                    "more than {} hits begin in {own}: search for something longer or rarer",
                    count.saturating_sub(1)
                )));
            }
            Ok(())
        })?;
        let mut hits: Vec<_> = found.iter().filter_map(|found| self.hit(offset, bytes, found)).collect();
        hits.sort_by_cached_key(|hit| self.place(hit));
        Ok(hits)
    }

    /// What hits are ordered by.
    fn place(&self, hit: &Hit) -> (u64, usize, usize, Option<usize>) {
        let encodings = self.patterns.get(hit.pattern).map(|pattern| &pattern.encodings);
        let encoding = encodings.and_then(|all| all.iter().position(|encoding| *encoding == hit.encoding));
        (hit.offset, hit.bytes.len(), hit.pattern, encoding)
    }

    /// The bytes before and after a hit of this pattern that are kept. Only places are wanted of atoms.
    fn context_of(&self, pattern: u32) -> usize {
        if self.is_atom(pattern) { 0 } else { self.context_bytes }
    }

    fn is_atom(&self, pattern: u32) -> bool {
        self.atoms.as_ref().is_some_and(|(atoms, _)| *atoms == pattern)
    }

    fn hit(&self, offset: u64, bytes: &[u8], found: &Found) -> Option<Hit> {
        let end = found.start + found.len;
        // Characters of UTF-16 are whole.
        let context = self.context_of(found.pattern);
        let context = context - context % found.encoding.unit_bytes();
        let from = found.start.saturating_sub(context);
        let from = from + (found.start - from) % found.encoding.unit_bytes();
        let to = (end + context).min(bytes.len());
        Some(Hit {
            offset: offset + found.start as u64,
            pattern: found.pattern as usize,
            encoding: found.encoding,
            bytes: bytes.get(found.start..end)?.to_vec(),
            before: bytes.get(from..found.start)?.to_vec(),
            after: bytes.get(end..to)?.to_vec(),
        })
    }

    /// Calls `found` for each match in `bytes`, which begin at this offset, with the index of its pattern among all.
    fn each(&self, offset: u64, bytes: &[u8], mut found: impl FnMut(Found) -> Result<()>) -> Result<()> {
        if let Some(literals) = &self.literals {
            literals.scan(bytes, &mut found)?;
        }
        for expression in &self.expressions {
            expression.scan(bytes, |match_| found(Found { pattern: match_.pattern + number(self.words), ..match_ }))?;
        }
        if let Some((pattern, blocks)) = &self.blocks {
            blocks.scan(offset, bytes, |match_| found(Found { pattern: *pattern, ..match_ }))?;
        }
        if let Some((pattern, atoms)) = &self.atoms {
            atoms.scan(bytes, |match_| found(Found { pattern: *pattern, ..match_ }))?;
        }
        Ok(())
    }

    fn has_match(&self, bytes: &[u8]) -> Result<bool> {
        let mut any = false;
        self.each(0, bytes, |_| {
            any = true;
            Ok(())
        })?;
        Ok(any)
    }
}

/// Compiles an expression: as it is, and for the UTF-16 among the encodings. Together with those before, it is within the limits.
fn compile_expression(
    (order, limits): (&Order, Limits),
    pattern: &mut Pattern,
    index: usize,
    expressions: &mut Vec<Expression>,
) -> Result<()> {
    let left_bytes = limits.left_bytes(expressions).unwrap_or_default();
    let mut parsed = Parsed::within(&pattern.name, order.ignore_case, left_bytes)?;
    let wide = order.encodings.iter().copied().filter(|encoding| encoding.unit_bytes() > 1);
    for encoding in [TextEncoding::Utf8].into_iter().chain(wide) {
        parsed.memory_bytes_max = limits.left_bytes(expressions).unwrap_or_default();
        match parsed.compiled(number(index), encoding, None)? {
            Some(expression) => {
                expressions.push(expression);
                pattern.encodings.push(encoding);
                limits.check(expressions)?;
            }
            None => pattern.has_assertions |= parsed.has_assertions(),
        }
    }
    Ok(())
}

/// Compiles a well-known kind of data: in ASCII, and for the UTF-16 among the encodings. Together with those before, it is within the
/// limits. `index` is its number among expressions and finders.
fn compile_finder(
    (order, limits): (&Order, Limits),
    finder: Finder,
    index: usize,
    expressions: &mut Vec<Expression>,
) -> Result<Pattern> {
    let kind = match finder {
        Finder::Header(_) => PatternKind::Header,
        Finder::Compressed(_) => PatternKind::Compressed,
        _ => PatternKind::Finder,
    };
    let mut pattern = Pattern::new(kind, finder.name());
    let (text, check) = finder.rule();
    let mut parsed = Parsed::new(text, false)?;
    let encodings = match finder.is_text() {
        true => narrow_and_wide(&order.encodings),
        false => vec![TextEncoding::Utf8],
    };
    for encoding in encodings {
        parsed.memory_bytes_max = limits.left_bytes(expressions).unwrap_or_default();
        let compiled = parsed.compiled(number(index), encoding, Some(check))?;
        let compiled = compiled.map(|expression| expression.reaching(finder.reach_bytes()));
        expressions.extend(compiled.map(|expression| expression.led_by(finder.lead())));
        pattern.encodings.push(encoding);
    }
    limits.check(expressions)?;
    Ok(pattern)
}

/// The encodings of patterns over ASCII: they have the same bytes in all encodings but UTF-16.
fn narrow_and_wide(encodings: &[TextEncoding]) -> Vec<TextEncoding> {
    let is_narrow = |encoding: &TextEncoding| encoding.unit_bytes() == 1;
    let narrow = encodings.iter().any(is_narrow).then_some(TextEncoding::Utf8);
    narrow.into_iter().chain(encodings.iter().copied().filter(|encoding| !is_narrow(encoding))).collect()
}
