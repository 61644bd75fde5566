//! The lists of words.

use std::collections::HashSet;
use std::ops::RangeInclusive;

const UMLAUTS: [char; 3] = ['ä', 'ö', 'ü'];

/// Words that are searched for together.
pub struct List {
    /// What they are.
    pub what: String,
    /// The words, of small letters.
    pub words: Vec<String>,
    /// Whether the case of letters is ignored.
    pub ignore_case: bool,
}

/// Returns the lists. Short ones of the same kind begin the long ones.
pub fn all() -> Vec<List> {
    let mut choice = Choice::new(2);
    let long = choice.words(100_000, 8..=14, 0);
    let mixed = choice.words(10_000, 4..=14, 0);
    let with_umlauts = choice.words(5000, 8..=14, 2);
    let first = |count: usize, ignore_case: bool| List {
        what: format!(
            "{count} word{}{}",
            if count == 1 { "" } else { "s" },
            if ignore_case { ", any case" } else { "" }
        ),
        words: long[..count].to_vec(),
        ignore_case,
    };
    let counts = [1, 10, 32, 64, 100, 256, 1000, 3000, 10_000, 30_000, 100_000];
    let mut lists: Vec<_> = counts.iter().map(|count| first(*count, false)).collect();
    lists.extend([20, 64, 256, 1000, 3000, 10_000].map(|count| List {
        what: format!("{count} words of 4 to 14 letters"),
        words: mixed[..count].to_vec(),
        ignore_case: false,
    }));
    lists.extend([10, 64, 256, 1000].map(|count| first(count, true)));
    lists.push(List { what: "5000 words with umlauts, any case".to_owned(), words: with_umlauts, ignore_case: true });
    lists
}

impl List {
    /// The bytes that a library searches for, which ignores the case of ASCII letters alone: words with each umlaut in both cases.
    pub fn patterns(&self) -> Vec<Vec<u8>> {
        let variants = |word: &String| {
            let mut variants = vec![String::new()];
            for letter in word.chars() {
                let cases = match self.ignore_case && !letter.is_ascii() {
                    true => vec![letter.to_string(), letter.to_uppercase().to_string()],
                    false => vec![letter.to_string()],
                };
                variants = cases
                    .iter()
                    .flat_map(|case| variants.iter().map(move |before| format!("{before}{case}")))
                    .collect();
            }
            variants.into_iter().map(String::into_bytes)
        };
        self.words.iter().flat_map(variants).collect()
    }
}

/// Numbers by chance, the same in every run (SplitMix64).
pub struct Choice(u64);

impl Choice {
    /// From a seed on.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub const fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    /// Any of them.
    pub fn among<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A word of `letters` small letters. At most `umlauts` of them are umlauts.
    pub fn word(&mut self, letters: usize, umlauts: usize) -> String {
        let mut word: Vec<char> = (0..letters).map(|_| char::from(b'a' + self.below(26) as u8)).collect();
        for _ in 0..umlauts {
            let at = self.below(letters);
            word[at] = *self.among(&UMLAUTS);
        }
        word.into_iter().collect()
    }

    /// Different words.
    fn words(&mut self, count: usize, letters: RangeInclusive<usize>, umlauts: usize) -> Vec<String> {
        let (mut words, mut seen) = (Vec::new(), HashSet::new());
        while words.len() < count {
            let len = letters.start() + self.below(letters.end() - letters.start() + 1);
            let word = self.word(len, umlauts);
            if seen.insert(word.clone()) {
                words.push(word);
            }
        }
        words
    }
}
