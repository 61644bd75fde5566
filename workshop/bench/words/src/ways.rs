//! The ways in which words are found.

use std::time::Duration;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use cheetah_search::{Order, Search};
use daachorse::DoubleArrayAhoCorasick;
use memchr::memmem::Finder;

use crate::found::number;
use crate::lists::List;
use crate::memory::Memory;
use crate::patterns::Patterns;
use crate::sampled::Sampled;
use crate::together::Together;
use crate::{Fallible, processor_time};

/// The names, in the order of the columns.
pub const NAMES: [&str; 9] = [
    "cheetah",
    "together",
    "samples of 3",
    "samples of 4",
    "samples of 5",
    "aho-corasick, NFA",
    "aho-corasick, DFA",
    "daachorse",
    "memmem",
];
/// As many patterns may have the same window in the product.
const ALIKE_MAX: u32 = 16;
/// What is made small at once, where a library cannot ignore case: it stays in a processor's cache.
const PIECE_BYTES: usize = 64 << 10;

/// Counts the hits in bytes.
type Find = Box<dyn Fn(&[u8]) -> Fallible<usize>>;
/// Prepares a way; `None` if it cannot find the words of the list.
type Prepare = fn(&List) -> Fallible<Option<Find>>;

/// A way to find the words of a list.
pub struct Way {
    /// Its name.
    pub name: &'static str,
    /// Counts the hits.
    pub find: Find,
    /// In what processor time the words were prepared.
    pub prepared: Duration,
    /// MiB/s, of each round.
    pub rates: Vec<f64>,
}

/// Prepares each way that can find the words of a list.
pub fn of(list: &List) -> Fallible<Vec<Way>> {
    let prepare: [Prepare; NAMES.len()] = [
        product,
        together,
        |list| sampled(list, 3),
        |list| sampled(list, 4),
        |list| sampled(list, 5),
        |list| automaton(list, AhoCorasickKind::ContiguousNFA),
        |list| automaton(list, AhoCorasickKind::DFA),
        double_array,
        memmem,
    ];
    let mut ways = Vec::new();
    for (name, prepare) in NAMES.into_iter().zip(prepare) {
        let begun = processor_time();
        if let Some(find) = prepare(list)? {
            ways.push(Way { name, find, prepared: processor_time() - begun, rates: Vec::new() });
        }
    }
    Ok(ways)
}

/// The product's search.
fn product(list: &List) -> Fallible<Option<Find>> {
    let order = Order {
        words: list.words.clone(),
        encodings: vec!["utf-8".parse()?],
        ignore_case: list.ignore_case,
        ..Order::default()
    };
    let search = Search::new(&order)?;
    Ok(Some(Box::new(move |bytes| Ok(search.scan_alone(0, bytes, usize::MAX)?.len()))))
}

/// The patterns of a list as the product has them, and their numbers.
fn collected(list: &List) -> (Patterns, Vec<u32>) {
    let mut patterns = Patterns::new(list.ignore_case);
    list.patterns().iter().for_each(|pattern| patterns.push(pattern));
    let chosen = (0..number(patterns.len())).collect();
    (patterns, chosen)
}

/// The product's way for few patterns alone.
fn together(list: &List) -> Fallible<Option<Find>> {
    let (patterns, chosen) = collected(list);
    let Some(together) = Together::new(&patterns, &chosen, &mut Memory::of(usize::MAX))? else { return Ok(None) };
    Ok(Some(Box::new(move |bytes| {
        let mut hits = 0;
        let count = |_, _| {
            hits += 1;
            Ok(())
        };
        together.scan(&patterns, bytes, count)?;
        Ok(hits)
    })))
}

/// The product's way for many patterns alone, with blocks of that length, if it can find all of them.
fn sampled(list: &List, block_bytes: usize) -> Fallible<Option<Find>> {
    let (patterns, chosen) = collected(list);
    let (Some(sampled), left_out) = Sampled::new(&patterns, &chosen, block_bytes, ALIKE_MAX) else { return Ok(None) };
    if !left_out.is_empty() {
        return Ok(None);
    }
    Ok(Some(Box::new(move |bytes| {
        let mut hits = 0;
        let count = |_, _| {
            hits += 1;
            Ok(())
        };
        sampled.scan(&patterns, bytes, count)?;
        Ok(hits)
    })))
}

/// The automaton of Aho and Corasick, as a table of all bytes for each state or without.
fn automaton(list: &List, kind: AhoCorasickKind) -> Fallible<Option<Find>> {
    let mut builder = AhoCorasick::builder();
    builder.match_kind(MatchKind::Standard).ascii_case_insensitive(list.ignore_case).kind(Some(kind));
    let automaton = builder.build(list.patterns())?;
    Ok(Some(Box::new(move |bytes| Ok(automaton.find_overlapping_iter(bytes).count()))))
}

/// The same automaton as a double array. It cannot ignore case, so that a copy of the bytes is made small.
fn double_array(list: &List) -> Fallible<Option<Find>> {
    let patterns = list.patterns();
    let longest = patterns.iter().map(Vec::len).max().unwrap_or_default();
    let automaton = DoubleArrayAhoCorasick::<u32>::new(patterns).map_err(|error| error.to_string())?;
    if !list.ignore_case {
        return Ok(Some(Box::new(move |bytes| Ok(automaton.find_overlapping_iter(bytes).count()))));
    }
    Ok(Some(Box::new(move |bytes| {
        let (mut hits, mut piece) = (0, Vec::new());
        for from in (0..bytes.len()).step_by(PIECE_BYTES) {
            // With what a word that began before has at most.
            let begin = from.saturating_sub(longest - 1);
            let own = from - begin;
            piece.clear();
            piece.extend_from_slice(&bytes[begin..(from + PIECE_BYTES).min(bytes.len())]);
            piece.make_ascii_lowercase();
            hits += automaton.find_overlapping_iter(&piece).filter(|found| found.end() > own).count();
        }
        Ok(hits)
    })))
}

/// A single word.
fn memmem(list: &List) -> Fallible<Option<Find>> {
    let [word] = &list.words[..] else { return Ok(None) };
    if list.ignore_case {
        return Ok(None);
    }
    let finder = Finder::new(word.as_bytes()).into_owned();
    Ok(Some(Box::new(move |bytes| Ok(finder.find_iter(bytes).count()))))
}
