//! Any patterns over any bytes, in parts of any size, by any number of workers: the hits are those of the naive search.

use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, coalesce};
use cheetah_search::{Atoms, Hit, Order, RunOptions};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::naive::{self, Place};
use crate::support::{Disk, Searched, batches, searched, searched_alone};

const ENCODINGS: [&str; 5] = ["utf-8", "utf-16le", "utf-16be", "windows-1252", "shift_jis"];
/// Words that occur often in text of few letters, also beyond ASCII; one whose bytes look like letters.
const WORDS: [&str; 9] = ["a", "ab", "aba", "bab", "äb", "Äbä", "b a", "ア", "абабаба"];
/// Expressions with short and long matches, overlapping ones, and assertions of one and of four bytes.
const EXPRESSIONS: [&str; 8] = [
    "a[ab]{1,5}b",
    "(?s).b",
    "\\bab\\b",
    "(?m)^a",
    "a{1,3}(?:b|\\xe4)",
    "[^\\x00]{40,700}\\x00",
    "(?u:\\bb\\b)",
    "\\x00{30,600}[ab]",
];

fn order() -> impl Strategy<Value = Order> {
    let words = subsequence(WORDS.to_vec(), 0..=WORDS.len());
    let expressions = subsequence(EXPRESSIONS.to_vec(), 1..=3);
    let encodings = subsequence(ENCODINGS.to_vec(), 1..=ENCODINGS.len());
    (words, expressions, encodings, any::<bool>(), 0usize..40).prop_map(
        |(words, expressions, encodings, ignore_case, context_bytes)| Order {
            words: words.into_iter().map(str::to_owned).collect(),
            // The naive search knows nothing of their case, nor of UTF-16.
            expressions: match ignore_case || encodings.iter().any(|name| name.starts_with("utf-16")) {
                true => Vec::new(),
                false => expressions.into_iter().map(str::to_owned).collect(),
            },
            finders: Vec::new(),
            blocks: Vec::new(),
            atoms: Atoms::default(),
            encodings: encodings.into_iter().map(|name| name.parse().unwrap()).collect(),
            ignore_case,
            context_bytes,
        },
    )
}

/// Text of few letters in any encoding, with zeros in between.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let text = "[abAB Äáаб\nア]{1,30}".prop_flat_map(|text| {
        select(ENCODINGS.to_vec()).prop_map(move |encoding| {
            let encoding = encoding.parse::<cheetah_search::TextEncoding>().unwrap();
            text.chars().filter_map(|c| encoding.encode(c)).flatten().collect::<Vec<u8>>()
        })
    });
    let zeros = (1usize..2000).prop_map(|len| vec![0; len]);
    let run = (select(b"ab".to_vec()), 1usize..900).prop_map(|(byte, len)| vec![byte; len]);
    prop::collection::vec(prop_oneof![8 => text, 1 => zeros, 1 => run], 1..150).prop_map(|pieces| pieces.concat())
}

fn options() -> impl Strategy<Value = RunOptions> {
    (1u64..5000, 1usize..6).prop_map(|(part_bytes, workers)| RunOptions { part_bytes, ..RunOptions::new(workers) })
}

fn ranges(size: u64) -> impl Strategy<Value = Vec<ByteRange>> {
    let range = (0..size.max(1), 1u64..1500).prop_map(|(offset, len)| ByteRange::new(offset, len));
    prop::collection::vec(range, 0..4)
}

fn places(hits: &[Hit]) -> Vec<Place> {
    hits.iter().map(|hit| (hit.offset, hit.len(), hit.pattern, hit.encoding.name())).collect()
}

/// Sorted as the naive search sorts: encodings in the order of their choice.
fn assert_same(found: &Searched, expected: &[Place]) -> Result<(), TestCaseError> {
    let hits = places(&found.hits);
    prop_assert!(hits.is_sorted_by_key(|hit| (hit.0, hit.1, hit.2)));
    let sorted = |hits: &[Place]| {
        let mut hits = hits.to_vec();
        hits.sort();
        hits
    };
    prop_assert_eq!(sorted(&hits), sorted(expected));
    prop_assert_eq!(found.outcome.hits(), expected.len() as u64);
    Ok(())
}

/// The ranges that are left of a device if these are taken away.
fn rest(size: u64, taken: &[ByteRange]) -> Vec<ByteRange> {
    let (mut left, mut at) = (Vec::new(), 0);
    for range in taken.iter().copied().chain([ByteRange::new(size, 0)]) {
        left.push(ByteRange::between(at, range.offset));
        at = range.end();
    }
    left.retain(|range| !range.is_empty());
    left
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_parts_and_workers_find_the_hits_of_a_naive_search(
        order in order(), bytes in content(), options in options(),
    ) {
        prop_assume!(!order.words.is_empty() || !order.expressions.is_empty());
        let whole = ByteRange::new(0, bytes.len() as u64);
        let found = searched(&order, Disk::whole(bytes.clone()), &options);
        assert_same(&found, &naive::hits(&order, &bytes, &[whole]))?;
        prop_assert!(found.ended.is_ok() && found.outcome.coverage().is_whole());
        for hit in &found.hits {
            let (start, end) = (hit.offset as usize, (hit.offset + hit.len()) as usize);
            prop_assert_eq!(&hit.bytes, &bytes[start..end]);
            let unit = hit.encoding.unit_bytes();
            let context = order.context_bytes - order.context_bytes % unit;
            let before = context.min(start - start % unit);
            prop_assert_eq!(&hit.before, &bytes[start - before..start]);
            prop_assert_eq!(&hit.after, &bytes[end..(end + context).min(bytes.len())]);
        }
    }

    #[test]
    fn parts_that_are_searched_alone_give_the_hits_of_a_naive_search(
        order in order(),
        bytes in content(),
        parts in prop::collection::vec((1usize..4000, any::<bool>()), 0..12),
    ) {
        prop_assume!(!order.words.is_empty() || !order.expressions.is_empty());
        let whole = ByteRange::new(0, bytes.len() as u64);
        let found = searched_alone(&order, &bytes, &parts);
        assert_same(&found, &naive::hits(&order, &bytes, &[whole]))?;
        prop_assert!(found.ended.is_ok() && found.outcome.coverage().is_whole());
        prop_assert_eq!(found.hits, searched(&order, Disk::whole(bytes), &RunOptions::new(1)).hits);
    }

    #[test]
    fn a_search_within_ranges_has_the_results_of_a_whole_search_there(
        order in order(),
        (bytes, bad, within) in content().prop_flat_map(|bytes| {
            let size = bytes.len() as u64;
            (Just(bytes), ranges(size), ranges(size))
        }),
        options in options(),
    ) {
        prop_assume!(!order.words.is_empty() || !order.expressions.is_empty());
        let size = bytes.len() as u64;
        let disk = || Disk { bytes: bytes.clone(), bad: bad.clone(), gone_from: u64::MAX };
        let whole = searched(&order, disk(), &options);
        let options = RunOptions { within: Some(within.clone()), ..options };
        let mut hits = Vec::new();
        let searched_ranges: Vec<ByteRange> = batches(&order, disk(), &options).into_iter().map(|batch| {
            let runs: Vec<_> = whole.outcome.coverage().runs(batch.range).collect();
            assert_eq!(runs, [(batch.range, batch.state)]);
            hits.extend(batch.hits);
            batch.range
        }).collect();
        let searched_ranges = coalesce(searched_ranges, 0);
        for wanted in within.iter().filter_map(|range| range.intersection(ByteRange::new(0, size))) {
            prop_assert!(searched_ranges.iter().any(|range| range.contains(wanted)));
        }
        let begins_there = |hit: &&Hit| searched_ranges.iter().any(|range| range.contains(ByteRange::new(hit.offset, 1)));
        let expected: Vec<Hit> = whole.hits.iter().filter(begins_there).cloned().collect();
        prop_assert_eq!(hits, expected);
    }

    #[test]
    fn what_cannot_be_read_is_left_out_and_said_whatever_the_parts(
        order in order(),
        (bytes, bad, absent) in content().prop_flat_map(|bytes| {
            let size = bytes.len() as u64;
            (Just(bytes), ranges(size), ranges(size))
        }),
        options in options(),
    ) {
        prop_assume!(!order.words.is_empty() || !order.expressions.is_empty());
        let size = bytes.len() as u64;
        let whole = ByteRange::new(0, size);
        let absent = coalesce(absent.iter().filter_map(|range| range.intersection(whole)).collect(), 0);
        let options = RunOptions { absent: absent.clone(), ..options };
        let found = searched(&order, Disk { bytes: bytes.clone(), bad: bad.clone(), gone_from: u64::MAX }, &options);
        // A sector in which a byte that is there cannot be read is given up, as far as it is there.
        let mut unreadable = Vec::new();
        for there in rest(size, &absent) {
            let sectors = there.split_at_multiples(512);
            unreadable.extend(sectors.filter(|sector| bad.iter().any(|bad| bad.intersection(*sector).is_some())));
        }
        let runs = rest(size, &coalesce([unreadable.clone(), absent.clone()].concat(), 0));
        assert_same(&found, &naive::hits(&order, &bytes, &runs))?;
        let coverage = found.outcome.coverage();
        let told = |state| coalesce(coverage.in_state(state).collect(), 0);
        prop_assert_eq!(told(State::Unreadable), coalesce(unreadable, 0));
        prop_assert_eq!(told(State::Unread), absent);
        prop_assert!(found.ended.is_ok());
        prop_assert_eq!(found.outcome.gaps().is_empty(), coverage.is_whole());
    }
}
