use cheetah_search::{Histogram, Hit, Order, Row, Search, SearchNode};

use super::*;
use crate::answers::search as answers;

/// A text that tries to leave its element, to load something, and to hide.
const HOSTILE: &str =
    "</style></title><script>alert(1)</script><img src=x onerror=alert(2)>\" onload=\"x\u{202e}\u{200b}'&amp;";

fn search() -> Search {
    let order = Order {
        words: vec![HOSTILE.into(), "none".into()],
        encodings: vec!["utf-8".parse().unwrap()],
        ..Order::default()
    };
    Search::new(&order).unwrap()
}

fn about() -> About {
    About {
        began: OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap(),
        kind: "raw",
        hashes: vec![("sha256", HOSTILE.into())],
        doubts: vec![HOSTILE.into()],
        ignore_case: true,
        context_bytes: 32,
        encodings: vec!["utf-8".into()],
    }
}

/// An answer: all of 4096 bytes was searched, with this number of hits.
fn answer(hits: u64) -> Answer<'static> {
    let pattern = |pattern, hits| answers::Pattern { encodings: vec!["utf-8".into()], hits, kind: "word", pattern };
    Answer {
        at_nodes: None,
        carved: None,
        complete: true,
        files: None,
        finished: true,
        gaps: Vec::new(),
        hits,
        inside: None,
        known: None,
        out: None,
        patterns: vec![pattern(HOSTILE, hits), pattern("none", 0)],
        rules: None,
        searched_bytes: 4096,
        size_bytes: 4096,
        source: HOSTILE,
        truncated: Vec::new(),
        truncated_bytes: 0,
        unreadable_bytes: 0,
        unsearched_bytes: 0,
    }
}

fn made() -> Made {
    let mut samples = Samples::default();
    let hit = Hit {
        offset: 1234,
        pattern: 0,
        encoding: "utf-8".parse().unwrap(),
        bytes: HOSTILE.as_bytes().to_vec(),
        before: "\u{e0041}<b>".as_bytes().to_vec(),
        after: b"</td></table>".to_vec(),
    };
    let node = SearchNode { name: HOSTILE.into(), instance: "0011".into() };
    (0..100).for_each(|_| samples.push(&Row::new(&hit, Some(&node)), &search()));
    let top = vec![(HOSTILE.to_owned(), u64::MAX), ("rare".to_owned(), 1)];
    Made { histograms: vec![Histogram { recorder: "find", top, different: 2, uncounted: 7 }], samples }
}

fn shown(answer: &Answer<'_>) -> String {
    page(&Told { answer, search: &search(), about: &about() }, &made()).into_string()
}

#[test]
fn hostile_names_patterns_and_contexts_stay_text_and_the_policy_allows_the_style_alone() {
    let page = shown(&answer(100));
    let digest = STANDARD.encode(Sha256::digest(STYLES.concat()));
    let policy = format!("default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'");
    assert!(page.contains(&format!("content=\"{policy}\"")), "the policy");
    let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    assert_eq!(style, STYLES.concat());
    for (text, times) in
        [("<script", 0), ("<img", 0), (" onload=\"", 0), (" style=", 0), ("</style>", 1), ("</table>", 4)]
    {
        assert_eq!(page.matches(text).count(), times, "{text}");
    }
    assert!(!page.contains(['\u{202e}', '\u{200b}', '\u{e0041}']));
    assert!(page.contains("<span class=\"code\">U+202E</span><span class=\"code\">U+200B</span>"));
    assert_eq!(page.matches("<bdi>1234</bdi>").count(), 10, "the first hits of a pattern, and no more");
}

#[test]
fn no_hits_are_said_of_all_only_if_all_was_searched() {
    let page = shown(&answer(0));
    assert!(page.contains("No hits in all 4KiB") && page.contains("<li class=\"evidence\"><bdi>none</bdi></li>"));
    let gap = answers::Gap { len: 512, offset: 1024, state: "unreadable", why: "bad sector" };
    let gaps = Answer { complete: false, searched_bytes: 3584, unreadable_bytes: 512, gaps: vec![gap], ..answer(0) };
    let page = shown(&gaps);
    assert!(page.contains("No hits in the 3.5KiB of 4KiB that were searched") && page.contains("verdict-gaps"));
    assert!(page.contains("bad sector") && !page.contains("in all 4KiB") && !page.contains("No gaps are known"));
    let stopped = Answer { complete: false, finished: false, searched_bytes: 0, unsearched_bytes: 4096, ..answer(0) };
    let page = shown(&stopped);
    assert!(page.contains("Partial.") && page.contains("hits.unfinished.parquet") && !page.contains("in all 4KiB"));
    let inside =
        answers::Inside { bytes: 1, cut: 1, damaged: 0, given_up: 0, hits: 0, invalid: 0, streams: 1, unreadable: 0 };
    let page = shown(&Answer { complete: false, inside: Some(inside), ..answer(0) });
    assert!(page.contains("No hits so far in 4KiB; not all that it holds") && !page.contains("in all 4KiB"));
    let truncated = vec![answers::Truncated { len: 512, limit: "depth", offset: 1024 }];
    let page = shown(&Answer { truncated, truncated_bytes: 512, ..answer(0) });
    assert!(page.contains("verdict-gaps") && page.contains("Searched only partly"));
    assert!(!page.contains("in all 4KiB") && !page.contains("No gaps are known") && page.contains("3\u{202f}584"));
}

#[test]
fn no_hits_are_not_said_of_all_if_files_are_not_listed_or_fragments_are_not_searched_as_one() {
    let problems = [HOSTILE.to_owned()];
    let volume = |listing| answers::ListedVolume {
        description: HOSTILE,
        file_system: "ntfs",
        len: 4096,
        listing,
        number: 3,
        offset: 0,
        problems: &problems,
        status: None,
    };
    let files = |listing, left_out, problems| answers::Files {
        across: Some(answers::Across { hits: 0, left_out, searched: 1, unreadable: 0 }),
        files: 1,
        left_out_files: 0,
        left_out_free: 0,
        left_out_runs: 0,
        left_out_volumes: 0,
        lister: None,
        problems,
        runs: 2,
        volumes: vec![volume(listing)],
    };
    let page = |files| shown(&Answer { files: Some(files), ..answer(0) });
    assert!(page(files("whole", 0, &[])).contains("No hits in all 4KiB"));
    for (listing, left_out, of_source) in
        [("partly", 0, &[][..]), ("killed", 0, &[]), ("whole", 1, &[]), ("whole", 0, &problems)]
    {
        let page = page(files(listing, left_out, of_source));
        assert!(page.contains("verdict-gaps") && !page.contains("in all 4KiB"), "{listing}, {left_out}");
        assert!(!page.contains("<script") && !page.contains("<img"));
    }
}

#[test]
fn hits_of_rules_and_of_words_are_counted_apart_and_said_of_all_only_if_both_were_searched() {
    let rules = || answers::Rules {
        atoms: 1,
        central: &[],
        cut: 0,
        files: 2,
        in_pieces: 0,
        is_whole: true,
        lister: None,
        problems: &[],
        searched: true,
        skipped: 0,
        untried: Vec::new(),
        untried_files: 0,
        volumes: Vec::new(),
        without_atoms: 5,
    };
    let rule = answers::Pattern { encodings: Vec::new(), hits: 3, kind: "rule", pattern: HOSTILE };
    let words = answer(4);
    let patterns = words.patterns.into_iter().chain([rule]).collect();
    let mut both = Answer { hits: 7, patterns, rules: Some(rules()), ..answer(4) };
    let page = shown(&both);
    assert!(page.contains("3 hits of rules in all 7 files. 4 hits in all 4KiB") && page.contains("Encodings</dt>"));
    both.complete = false;
    assert!(shown(&both).contains("3 hits of rules in all 7 files. 4 hits in the 4KiB of 4KiB"));
    both.rules = Some(answers::Rules { is_whole: false, untried_files: 1, ..rules() });
    let page = shown(&both);
    assert!(page.contains("3 hits of rules in the 7 files on which they were tried. 4 hits in the 4KiB of 4KiB"));
    let rule = answers::Pattern { encodings: Vec::new(), hits: 0, kind: "rule", pattern: HOSTILE };
    let alone = Answer { hits: 0, patterns: vec![rule], rules: Some(rules()), ..answer(0) };
    let page = shown(&alone);
    assert!(page.contains("No hits of rules in all 7 files") && !page.contains("in all 4KiB"));
    assert!(!page.contains("Encodings</dt>"));
}

#[test]
fn of_a_long_hit_its_beginning_and_what_is_near_it_is_shown() {
    let mut samples = Samples::default();
    let (before, after) = ([vec![b'x'; 4096], b"near".to_vec()].concat(), vec![b'y'; 4096]);
    let hit = Hit { offset: 0, pattern: 0, encoding: "utf-8".parse().unwrap(), bytes: b"hit".to_vec(), before, after };
    samples.push(&Row::new(&hit, None), &search());
    samples.push(&Row::new(&Hit { bytes: b"long".repeat(100), ..hit }, None), &search());
    let [short, long] = samples.of(0) else { panic!("two samples") };
    assert!(short.is_cut && short.context.contains("nearhityyy") && short.context.len() == 128 + 3 + 128);
    assert!(long.is_cut && long.context.contains("nearlonglong") && !long.context.contains('y'));
}
