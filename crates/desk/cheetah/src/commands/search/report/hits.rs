//! The hits: how many of each pattern, the most frequent, and the first ones.

use cheetah_search::Histogram;
use maud::{Markup, html};

use super::common::{count, section};
use super::evidence::evidence;
use super::samples::{Sample, Samples};
use super::told::Told;
use crate::answers::search::{Pattern, Search as Answer};

/// Patterns that are listed; `search.json` has them all.
const PATTERNS_SHOWN_MAX: usize = 500;

/// A table of the patterns, the one with the most hits first.
pub fn by_pattern(answer: &Answer<'_>) -> Markup {
    let mut patterns: Vec<&Pattern<'_>> = answer.patterns.iter().filter(|pattern| pattern.hits > 0).collect();
    patterns.sort_by_key(|pattern| std::cmp::Reverse(pattern.hits));
    let more = patterns.len().saturating_sub(PATTERNS_SHOWN_MAX);
    let unwritable = answer.patterns.iter().filter(|pattern| !is_searched(pattern)).count();
    html! {
        section {
            (section(2, "patterns", "Hits by pattern"))
            @if patterns.is_empty() {
                p class="empty" { "No pattern has a hit in what was searched." }
            } @else {
                div class="scroll" {
                    table class="plain dense" {
                        thead {
                            tr { th scope="col" { "Pattern" } th scope="col" { "Kind" } th scope="col" { "Encodings" } th scope="col" class="num" { "Hits" } }
                        }
                        tbody {
                            @for pattern in patterns.iter().take(PATTERNS_SHOWN_MAX) {
                                tr {
                                    th scope="row" class="evidence" { (evidence(pattern.pattern)) }
                                    td { (kind(pattern.kind)) }
                                    td class="soft" { (pattern.encodings.join(", ")) }
                                    td class="num" { (count(pattern.hits)) }
                                }
                            }
                        }
                    }
                }
            }
            @if more > 0 { p class="note" { "And hits of " (count(more as u64)) " more patterns; search.json lists them all." } }
            (without_hits(answer))
            @if unwritable > 0 {
                p class="note" { strong { (count(unwritable as u64)) " patterns were not searched: no chosen encoding can write them." } }
            }
        }
    }
}

/// Whether a pattern can be written in an encoding that was chosen. Rules have none.
fn is_searched(pattern: &Pattern<'_>) -> bool {
    pattern.kind == "rule" || !pattern.encodings.is_empty()
}

/// The patterns that were searched for and not found.
fn without_hits(answer: &Answer<'_>) -> Markup {
    let without = answer.patterns.iter().filter(|pattern| pattern.hits == 0 && is_searched(pattern));
    let number = without.clone().count();
    let more = number.saturating_sub(PATTERNS_SHOWN_MAX);
    html! {
        @if number > 0 {
            h3 { "Without hits in what was searched " span class="soft" { (count(number as u64)) } }
            ul class="without" {
                @for pattern in without.take(PATTERNS_SHOWN_MAX) {
                    li class="evidence" { (evidence(pattern.pattern)) }
                }
                @if more > 0 { li { "and " (count(more as u64)) " more; search.json lists them all" } }
            }
        }
    }
}

/// The word for a kind of pattern.
fn kind(kind: &'static str) -> &'static str {
    match kind {
        "regex" => "regular expression",
        "find" => "kind of data",
        "header" => "header of files",
        "rule" => "YARA rule",
        kind => kind,
    }
}

/// The most frequent features of each kind.
pub fn most_frequent(histograms: &[Histogram]) -> Markup {
    html! {
        section {
            (section(3, "frequent", "Most frequent"))
            @if histograms.is_empty() { p class="empty" { "There are no hits in what was searched." } }
            @for histogram in histograms { (frequent(histogram)) }
        }
    }
}

fn frequent(histogram: &Histogram) -> Markup {
    let most = histogram.top.iter().map(|(_, hits)| *hits).max().unwrap_or(1).max(1);
    html! {
        h3 { (histogram.recorder) " " span class="soft" { (count(histogram.different as u64)) " different" } }
        div class="scroll" {
            table class="bars" {
                tbody {
                    @for (feature, hits) in &histogram.top {
                        tr {
                            th scope="row" class="evidence" { (evidence(&beginning(feature))) }
                            td class="num" { (count(*hits)) }
                            td class="bar-cell" {
                                svg class="meter" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
                                    rect class="bar" width=(u128::from(*hits) * 1000 / u128::from(most)) height="10" {}
                                }
                            }
                        }
                    }
                }
            }
        }
        @if histogram.uncounted > 0 {
            p class="note" { (count(histogram.uncounted)) " hits are not counted here: there were too many different ones." }
        }
    }
}

/// The first characters of a long text.
fn beginning(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The first hits of each pattern that has some.
pub fn first(told: &Told<'_>, samples: &Samples) -> Markup {
    let patterns = told.search.patterns().iter().enumerate();
    let shown = patterns.map(|(index, pattern)| (pattern.name.as_str(), samples.of(index)));
    let shown: Vec<_> = shown.filter(|(_, samples)| !samples.is_empty()).collect();
    html! {
        section {
            (section(4, "hits", "First hits of each pattern"))
            @if shown.is_empty() { p class="empty" { "There are no hits in what was searched." } }
            @else { p class="lead" { "A few hits of each pattern, in the order of the search; hits.csv and hits.parquet have all." } }
            @for (name, samples) in &shown {
                h3 class="evidence" { (evidence(name)) }
                (table(samples))
            }
        }
    }
}

fn table(samples: &[Sample]) -> Markup {
    html! {
        table class="plain dense hits" {
            thead {
                tr { th scope="col" class="num" { "Offset" } th scope="col" class="num" { "Length" } th scope="col" { "Context" } th scope="col" { "Encoding" } }
            }
            tbody {
                @for sample in samples {
                    tr {
                        td class="num place" { (evidence(&sample.place)) }
                        td class="num" { (count(sample.len)) }
                        td class="evidence" {
                            span class="context" { (evidence(&sample.context)) @if sample.is_cut { span class="soft" { " …" } } }
                        }
                        td class="soft" { (sample.encoding) @if let Some(node) = &sample.node { ", node " (evidence(node)) } }
                    }
                }
            }
        }
    }
}
