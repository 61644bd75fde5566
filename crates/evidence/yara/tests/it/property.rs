//! Conditions at random: wherever one holds, a string is there whose atom was derived.

use std::fmt;

use cheetah_yara::split;
use proptest::prelude::*;

use super::rule;

const NAMES: [&str; 3] = ["a", "b", "c"];
const WORDS: [&[u8]; 3] = [b"first word", b"second word", b"third word"];

/// A condition of which a naive evaluation is easy.
#[derive(Debug, Clone)]
enum Condition {
    String(usize),
    AtLeast(usize, u64),
    AtMost(usize, u64),
    /// Something that has nothing to do with strings.
    Other,
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Of(Quantifier, Vec<usize>),
    /// For strings, each of which is found `least` times, or the condition holds.
    For(Quantifier, Vec<usize>, u64, Option<Box<Self>>),
}

#[derive(Debug, Clone, Copy)]
enum Quantifier {
    Any,
    All,
    None,
    Number(usize),
}

impl Quantifier {
    fn holds(self, found: &[bool]) -> bool {
        let count = found.iter().filter(|found| **found).count();
        match self {
            Self::Any => count > 0,
            Self::All => count == found.len(),
            Self::None => count == 0,
            Self::Number(least) => count >= least,
        }
    }
}

impl fmt::Display for Quantifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::All => f.write_str("all"),
            Self::None => f.write_str("none"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Condition {
    /// Whether it holds, where strings are found that many times.
    fn holds(&self, counts: [u64; 3], other: bool) -> bool {
        match self {
            Self::String(place) => counts[*place] > 0,
            Self::AtLeast(place, least) => counts[*place] >= *least,
            Self::AtMost(place, most) => counts[*place] <= *most,
            Self::Other => other,
            Self::Not(part) => !part.holds(counts, other),
            Self::And(one, two) => one.holds(counts, other) && two.holds(counts, other),
            Self::Or(one, two) => one.holds(counts, other) || two.holds(counts, other),
            Self::Of(quantifier, set) => {
                quantifier.holds(&set.iter().map(|place| counts[*place] > 0).collect::<Vec<_>>())
            }
            Self::For(quantifier, set, least, part) => {
                let part = part.as_ref().is_some_and(|part| part.holds(counts, other));
                quantifier.holds(&set.iter().map(|place| counts[*place] >= *least || part).collect::<Vec<_>>())
            }
        }
    }
}

fn set_text(set: &[usize]) -> String {
    set.iter().map(|place| format!("${}", NAMES[*place])).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(place) => write!(f, "${}", NAMES[*place]),
            Self::AtLeast(place, least) => write!(f, "#{} >= {least}", NAMES[*place]),
            Self::AtMost(place, most) => write!(f, "{most} >= #{}", NAMES[*place]),
            Self::Other => f.write_str("filesize > 100"),
            Self::Not(part) => write!(f, "not ({part})"),
            Self::And(one, two) => write!(f, "({one}) and ({two})"),
            Self::Or(one, two) => write!(f, "({one}) or ({two})"),
            Self::Of(quantifier, set) => write!(f, "{quantifier} of ({})", set_text(set)),
            Self::For(quantifier, set, least, part) => {
                let or = part.as_ref().map(|part| format!(" or ({part})")).unwrap_or_default();
                write!(f, "for {quantifier} of ({}) : (# >= {least}{or})", set_text(set))
            }
        }
    }
}

fn quantifiers() -> impl Strategy<Value = Quantifier> {
    prop_oneof![
        Just(Quantifier::Any),
        Just(Quantifier::All),
        Just(Quantifier::None),
        (1..3_usize).prop_map(Quantifier::Number),
    ]
}

fn sets() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![Just(vec![0, 1, 2]), Just(vec![0, 1]), Just(vec![2]), Just(vec![1, 2])]
}

fn conditions() -> impl Strategy<Value = Condition> {
    let leaf = prop_oneof![
        (0..3_usize).prop_map(Condition::String),
        (0..3_usize, 0..3_u64).prop_map(|(place, least)| Condition::AtLeast(place, least)),
        (0..3_usize, 0..3_u64).prop_map(|(place, most)| Condition::AtMost(place, most)),
        Just(Condition::Other),
        (quantifiers(), sets()).prop_map(|(quantifier, set)| Condition::Of(quantifier, set)),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|part| Condition::Not(Box::new(part))),
            (inner.clone(), inner.clone()).prop_map(|(one, two)| Condition::And(Box::new(one), Box::new(two))),
            (inner.clone(), inner.clone()).prop_map(|(one, two)| Condition::Or(Box::new(one), Box::new(two))),
            (quantifiers(), sets(), 0..3_u64, proptest::option::of(inner.prop_map(Box::new)))
                .prop_map(|(quantifier, set, least, part)| Condition::For(quantifier, set, least, part)),
        ]
    })
}

/// The numbers of times that each string may be found.
fn all_counts() -> impl Iterator<Item = [u64; 3]> {
    (0..64_u64).map(|number| [number % 4, number / 4 % 4, number / 16])
}

proptest! {
    #[test]
    fn wherever_a_condition_holds_one_of_its_atoms_is_there(condition in conditions()) {
        let source = rule(&condition.to_string());
        let found = split(&[source.as_str()]);
        prop_assert!(found.central.iter().all(|central| central.rule.is_some()), "not parsed: {condition}");
        if !found.central.is_empty() {
            return Ok(());
        }
        for counts in all_counts() {
            let is_there = counts.iter().zip(WORDS).any(|(count, word)| {
                *count > 0 && found.atoms.iter().any(|atom| atom.bytes == word)
            });
            for other in [false, true] {
                prop_assert!(is_there || !condition.holds(counts, other), "{condition} {counts:?}");
            }
        }
    }
}
