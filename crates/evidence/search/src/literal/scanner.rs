//! The way in which patterns are searched, by their number and lengths.
//!
//! Up to some dozens of patterns are found by their first bytes, sixteen and more places at a time ([`Together`]). More of them are
//! found by samples ([`Sampled`]), those of like lengths together: the shortest one decides how far samples are apart. Where too many of them
//! look alike, an automaton finds the others (Aho and Corasick 1975), which takes the same time for any bytes.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use cheetah_error::{Error, Result};

use super::patterns::Patterns;
use super::sampled::Sampled;
use super::together::Together;
use crate::found::number;
use crate::memory::{GROWING, Memory};

/// How patterns are searched.
struct Choice<W> {
    /// The lengths in bytes from which on patterns are searched together: up to the next one.
    lengths: &'static [usize],
    /// The way for patterns of like lengths, by their number and the length of the shortest in bytes.
    way: W,
    /// The most patterns that are compared where the bytes look like them.
    alike_max: u32,
}

/// How patterns of like lengths are searched.
struct Way {
    /// Whether they are found by their first bytes, where that can be.
    is_together: bool,
    /// Else, the most bytes of a block. Longer ones tell more of the bytes around them, and are fewer in a window.
    block_bytes: usize,
}

/// An automaton with more states is not made a table of all bytes for each state.
const TABLE_STATES_MAX: usize = 4096;
/// What a state takes at most while an automaton is made, of version 1.1 of the library: a state (20), two transitions if case is ignored (9
/// each), and its compact form (24), in growing lists, with its places in the lists of states to visit.
const STATE_BYTES: usize = GROWING * (20 + 2 * 9 + 24) + 64;
/// What a match of a state takes: its entry (8), and its number in the compact form (4), in growing lists.
const MATCH_BYTES: usize = GROWING * (8 + 4);
/// What the tables of all bytes take for the first states, or for all of an automaton with few.
const TABLES_BYTES: usize = 16 << 20;

/// Patterns of up to three bytes are searched apart, as these have all blocks sampled.
const LENGTHS: &[usize] = &[1, 4];
/// Of many patterns, those that are long are searched apart if most are: a few short ones would let samples of all lie close together. Else
/// the short ones decide, and a second search would cost more.
const LENGTHS_OF_LONG: &[usize] = &[1, 4, LONG_BYTES];
/// More patterns than this are many.
const FEW_MAX: usize = 256;
/// The length in bytes from which on patterns are long.
const LONG_BYTES: usize = 8;
/// Most patterns are long if there are as many times more of them than of shorter ones.
const MOSTLY: usize = 4;
const ALIKE_MAX: u32 = 16;

/// Patterns, to be found wherever they stand.
pub struct Scanner {
    patterns: Patterns,
    engines: Vec<Engine>,
}

/// What finds some of the patterns.
enum Engine {
    Together(Together),
    Sampled(Sampled),
    /// With the number of each of its patterns.
    Automaton(AhoCorasick, Vec<u32>),
}

impl Scanner {
    /// Prepares to find the patterns, which are numbered from 0 on.
    ///
    /// # Errors
    ///
    /// `Kind::Misuse` if that may take more than the memory.
    pub fn new(patterns: Patterns, memory: &mut Memory) -> Result<Self> {
        let are_apart = patterns.len() > FEW_MAX && are_mostly_long(&patterns);
        let lengths = if are_apart { LENGTHS_OF_LONG } else { LENGTHS };
        Self::chosen(patterns, &Choice { lengths, way, alike_max: ALIKE_MAX }, memory)
    }

    fn chosen(patterns: Patterns, choice: &Choice<impl Fn(usize, usize) -> Way>, memory: &mut Memory) -> Result<Self> {
        let mut engines = Vec::new();
        let ends = choice.lengths.iter().skip(1).copied().chain([usize::MAX]);
        for (from, end) in choice.lengths.iter().copied().zip(ends) {
            let is_like = |pattern: &u32| (from..end).contains(&patterns.bytes(*pattern).len());
            let count = (0..number(patterns.len())).filter(is_like).count();
            if count == 0 {
                continue;
            }
            memory.take(count.saturating_mul(GROWING * size_of::<u32>()))?;
            memory.take(Sampled::memory_bytes(count))?;
            let like: Vec<u32> = (0..number(patterns.len())).filter(is_like).collect();
            let shortest = like.iter().map(|pattern| patterns.bytes(*pattern).len()).min().unwrap_or_default();
            let way = (choice.way)(count, shortest);
            if way.is_together
                && let Some(together) = Together::new(&patterns, &like, memory)?
            {
                engines.push(Engine::Together(together));
                continue;
            }
            let (sampled, left_out) = Sampled::new(&patterns, &like, way.block_bytes, choice.alike_max);
            engines.extend(sampled.map(Engine::Sampled));
            if !left_out.is_empty() {
                engines.push(Engine::Automaton(automaton(&patterns, &left_out, memory)?, left_out));
            }
        }
        Ok(Self { patterns, engines })
    }

    /// Calls `found` with the number of each pattern in `bytes`, where it begins, and its length. Patterns may overlap, and
    /// come in any order.
    pub fn scan(&self, bytes: &[u8], mut found: impl FnMut(u32, usize, usize) -> Result<()>) -> Result<()> {
        for engine in &self.engines {
            match engine {
                Engine::Together(together) => together.scan(&self.patterns, bytes, |pattern, start| {
                    found(pattern, start, self.patterns.bytes(pattern).len())
                })?,
                Engine::Sampled(sampled) => sampled.scan(&self.patterns, bytes, |pattern, start| {
                    found(pattern, start, self.patterns.bytes(pattern).len())
                })?,
                Engine::Automaton(automaton, numbers) => {
                    for matched in automaton.find_overlapping_iter(bytes) {
                        if let Some(pattern) = numbers.get(matched.pattern().as_usize()) {
                            found(*pattern, matched.start(), matched.len())?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The way for patterns by their number, and the length of the shortest in bytes: the fastest, as `workshop/bench/words.md` shows. Among short
/// patterns, samples of longer blocks lie closer together.
const fn way(count: usize, shortest: usize) -> Way {
    match shortest < LONG_BYTES {
        true => Way { is_together: count <= 64, block_bytes: if count <= 4000 { 3 } else { 4 } },
        false => {
            let block_bytes = match count {
                0..=100 => 3,
                101..=4000 => 4,
                _ => 5,
            };
            Way { is_together: count <= 32, block_bytes }
        }
    }
}

/// Whether there are many times more long patterns than such as are shorter, but not as short as those that are searched apart anyway.
fn are_mostly_long(patterns: &Patterns) -> bool {
    let count = |lengths: std::ops::Range<usize>| {
        (0..number(patterns.len())).filter(|pattern| lengths.contains(&patterns.bytes(*pattern).len())).count()
    };
    count(LONG_BYTES..usize::MAX) >= count(4..LONG_BYTES).saturating_mul(MOSTLY)
}

/// An automaton for the chosen patterns, which all differ.
fn automaton(patterns: &Patterns, chosen: &[u32], memory: &mut Memory) -> Result<AhoCorasick> {
    let (states, matches) = states_and_matches(chosen.iter().map(|pattern| patterns.bytes(*pattern).len()));
    memory.take(TABLES_BYTES)?;
    memory.take(states.saturating_mul(STATE_BYTES))?;
    memory.take(matches.saturating_mul(MATCH_BYTES))?;
    let mut builder = AhoCorasick::builder();
    builder.match_kind(MatchKind::Standard).ascii_case_insensitive(patterns.ignores_case());
    if states > TABLE_STATES_MAX {
        builder.kind(Some(AhoCorasickKind::ContiguousNFA)).dense_depth(2);
    }
    let built = builder.build(chosen.iter().map(|pattern| patterns.bytes(*pattern)));
    built.map_err(|error| Error::misuse(format!("the words are too much for one search: divide them ({error})")))
}

/// The most states of an automaton for different patterns of these lengths, and the most matches that all its states have.
///
/// A state is a prefix of a pattern. Its matches are the patterns that it ends with: of each length up to its own, at most one.
fn states_and_matches(lens: impl Iterator<Item = usize>) -> (usize, usize) {
    let mut counts = BTreeMap::<usize, usize>::new();
    lens.for_each(|len| *counts.entry(len).or_default() += 1);
    // Beside those of patterns, an automaton has a dead one, one that failed, and two beginnings.
    let (mut states, mut matches) = (4usize, 0usize);
    for (len, count) in &counts {
        states = states.saturating_add(len.saturating_mul(*count));
        let shorter = counts.range(..=*len).map(|(shorter, _)| len - shorter + 1).sum::<usize>();
        matches = matches.saturating_add(shorter.saturating_mul(*count));
    }
    (states, matches)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::super::patterns::tests::patterns as numbered;
    use super::*;

    fn scanner(patterns: &[Vec<u8>]) -> Scanner {
        Scanner::new(numbered(patterns, false), &mut Memory::of(usize::MAX)).unwrap()
    }

    /// Bytes of which patterns consist: few, so that they meet; letters in both cases, zeros as in UTF-16, and bytes beyond ASCII.
    const BYTES: &[u8] = b"abAB\0 \xc3\xe4";

    fn some_bytes(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(select(BYTES), len)
    }

    /// The patterns in `bytes`, and where they begin, in order.
    fn found(scanner: &Scanner, bytes: &[u8]) -> Vec<(usize, u32)> {
        let mut all = Vec::new();
        let note = |pattern: u32, start: usize, len: usize| {
            assert_eq!(len, scanner.patterns.bytes(pattern).len());
            all.push((start, pattern));
            Ok(())
        };
        scanner.scan(bytes, note).unwrap();
        all.sort_unstable();
        all
    }

    /// Each pattern at each place.
    fn naive(patterns: &[Vec<u8>], ignore_case: bool, bytes: &[u8]) -> Vec<(usize, u32)> {
        let mut all = Vec::new();
        for start in 0..bytes.len() {
            for (number, pattern) in (0..).zip(patterns) {
                let there = bytes[start..].get(..pattern.len());
                let is_there = there.is_some_and(|there| match ignore_case {
                    true => there.to_ascii_lowercase() == *pattern,
                    false => there == pattern,
                });
                if is_there {
                    all.push((start, number));
                }
            }
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn each_way_finds_every_pattern_wherever_it_stands(
            mut patterns in prop::collection::vec(prop_oneof![some_bytes(1..5), some_bytes(1..30)], 1..40),
            mut bytes in some_bytes(0..200),
            ignore_case in any::<bool>(),
            places in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..10),
        ) {
            // Long patterns hardly stand there by chance.
            for (pattern, place) in places {
                let pattern = pattern.get(&patterns).clone();
                let at = place.index(bytes.len() + 1);
                bytes.splice(at..at, pattern);
            }
            if ignore_case {
                patterns.iter_mut().for_each(|pattern| pattern.make_ascii_lowercase());
            }
            let expected = naive(&patterns, ignore_case, &bytes);
            let classes: [&'static [usize]; 3] = [&[1], &[1, 4], &[1, 4, 8]];
            for lengths in classes {
                for block_bytes in 1..=5 {
                    for (alike_max, is_together) in [(0, false), (1, false), (1000, false), (0, true)] {
                        let way = |_, _| Way { is_together, block_bytes };
                        let choice = Choice { lengths, way, alike_max };
                        let patterns = numbered(&patterns, ignore_case);
                        let scanner = Scanner::chosen(patterns, &choice, &mut Memory::of(usize::MAX)).unwrap();
                        prop_assert_eq!(&found(&scanner, &bytes), &expected);
                    }
                }
            }
        }
    }

    /// Words of small letters, and text that has some of them.
    fn words_and_text(count: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut word = |len| (0..len).map(|_| b'a' + next(26) as u8).collect::<Vec<u8>>();
        let words: Vec<_> = (0..count).map(|nth| word(1 + nth % 14)).collect();
        let mut text = word(20_000);
        for (nth, word) in words.iter().enumerate().step_by(7) {
            let at = nth * 31 % 19_000;
            text[at..at + word.len()].copy_from_slice(word);
        }
        (words, text)
    }

    #[test]
    fn few_and_many_words_of_all_lengths_are_found_as_an_automaton_finds_them() {
        for count in [10, FEW_MAX, FEW_MAX + 1, 3000, 9000] {
            let (words, text) = words_and_text(count);
            let automaton = AhoCorasick::new(&words).unwrap();
            let matches = automaton.find_overlapping_iter(&text);
            let mut expected: Vec<_> = matches.map(|found| (found.start(), found.pattern().as_u32())).collect();
            expected.sort_unstable();
            assert_eq!(found(&scanner(&words), &text), expected, "{count}");
        }
    }

    #[test]
    fn some_dozens_of_patterns_are_found_together_wherever_several_begin() {
        let words: Vec<Vec<u8>> = (1..=30).map(|len| vec![b'a'; len + 30]).collect();
        let scanner = scanner(&words);
        // Not every processor has the instructions.
        assert!(cfg!(not(target_arch = "x86_64")) || matches!(&scanner.engines[..], [Engine::Together(_)]));
        assert_eq!(found(&scanner, &[b'a'; 32]), [(0, 0), (0, 1), (1, 0)]);
    }

    #[test]
    fn patterns_that_all_begin_alike_are_found_by_what_tells_them_apart() {
        let words: Vec<Vec<u8>> = (0..2000).map(|nth| format!("https://site{nth:04}.example/").into_bytes()).collect();
        let scanner = scanner(&words);
        assert!(scanner.engines.iter().all(|engine| matches!(engine, Engine::Sampled(_))));
        assert_eq!(found(&scanner, b"at https://site0815.example/ and https://site.example/"), [(3, 815)]);
    }

    #[test]
    fn patterns_that_cannot_be_told_apart_are_found_by_an_automaton() {
        let words: Vec<Vec<u8>> = (1..=80).map(|len| vec![b'a'; len + 30]).collect();
        let few = scanner(&words);
        assert!(matches!(&few.engines[..], [Engine::Sampled(_), Engine::Automaton(_, left)] if left.len() == 64));
        assert_eq!(found(&few, &[b'a'; 32]), [(0, 0), (0, 1), (1, 0)]);
        // With more states than an automaton has with a table for each.
        let words: Vec<Vec<u8>> = (1..=300).map(|len| vec![b'a'; len + 30]).collect();
        let mut text = vec![b'a'; 330];
        assert_eq!(found(&scanner(&words), &text).len(), (1..=300).sum::<usize>());
        text[165] = b'b';
        assert_eq!(found(&scanner(&words), &text).len(), (1..=135).sum::<usize>() + (1..=134).sum::<usize>());
    }

    #[test]
    fn an_automaton_takes_no_more_than_was_counted() {
        // All states of the long ones end with all short ones: that is the most.
        let (states, matches) = states_and_matches((1..=40).chain([400; 20]));
        assert_eq!(states, 4 + (1..=40).sum::<usize>() + 8000);
        assert!(matches >= 20 * 40 * 360);
        let tails = (0..20).map(|head| [&[b'b' + head][..], &[b'a'; 399]].concat());
        let words: Vec<Vec<u8>> = (1..=40).map(|len| vec![b'a'; len]).chain(tails).collect();
        let patterns = numbered(&words, false);
        let chosen: Vec<u32> = (0..60).collect();
        let mut memory = Memory::of(usize::MAX);
        let made = automaton(&patterns, &chosen, &mut memory).unwrap();
        assert!(made.memory_usage() <= memory.taken_bytes());
        let mut little = Memory::of(memory.taken_bytes() - 1);
        automaton(&patterns, &chosen, &mut little).unwrap_err();
    }
}
