//! `report.html`: the result of a search as one page, which loads nothing and runs nothing.
//!
//! Its policy allows one style, by its digest, and nothing else; no script is needed. All text that is not ours goes through
//! [`evidence()`].

mod common;
mod evidence;
mod hits;
mod listed;
mod rules;
mod samples;
mod sections;
mod told;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_device::Size;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use self::common::{count, moment};
use self::evidence::evidence;
pub use self::samples::Samples;
pub use self::told::{About, Made, Told};
use crate::answers::search::Search as Answer;

/// The style that all pages have, and what this one has besides.
const STYLES: [&str; 2] =
    [include_str!("../../../../../../../python/cheetah/page/style.css"), include_str!("style.css")];

/// How much of the source was searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// All of it.
    Whole,
    /// Not all of it, not all of what it holds compressed, or not all fragments of its files as one.
    Gaps,
    /// The search did not come to its end.
    Stopped,
}

impl Verdict {
    fn of(answer: &Answer<'_>) -> Self {
        match (answer.finished, answer.complete && !is_partly_searched(answer)) {
            (false, _) => Self::Stopped,
            (true, true) => Self::Whole,
            (true, false) => Self::Gaps,
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Self::Whole => "verdict-whole",
            Self::Gaps => "verdict-gaps",
            Self::Stopped => "verdict-stopped",
        }
    }
}

/// Whether compressed data were not searched to their end, or fragments of files not as one.
fn is_partly_searched(answer: &Answer<'_>) -> bool {
    let unsearched = answer.inside.as_ref().map_or(0, |inside| inside.cut + inside.given_up + inside.unreadable);
    unsearched > 0 || !answer.truncated.is_empty() || !answer.files.as_ref().is_none_or(listed::is_whole)
}

/// The page.
pub fn page(told: &Told<'_>, made: &Made) -> Markup {
    let style = STYLES.concat();
    let digest = STANDARD.encode(Sha256::digest(&style));
    let policy = format!("default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'");
    let verdict = Verdict::of(told.answer);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                meta name="color-scheme" content="light dark";
                title { "Report of a search" }
                style { (PreEscaped(style)) }
            }
            body class=(verdict.class()) {
                @if verdict == Verdict::Stopped {
                    p class="banner" role="status" { strong { "Partial." } " The search did not come to its end." }
                }
                div class="page" {
                    (header(told, verdict))
                    main {
                        (sections::coverage(told))
                        (hits::by_pattern(told.answer))
                        (hits::most_frequent(&made.histograms))
                        (hits::first(told, &made.samples))
                        (sections::files(told.answer))
                    }
                    footer {
                        p { "Made by Cheetah " (env!("CARGO_PKG_VERSION")) ". This page is self-contained: it loads and sends nothing." }
                    }
                }
            }
        }
    }
}

fn header(told: &Told<'_>, verdict: Verdict) -> Markup {
    let Told { answer, about, .. } = told;
    html! {
        header class="masthead" {
            p class="kicker" { "Report of a search" }
            h1 { (evidence(answer.source)) }
            dl class="facts" {
                div { dt { "Kind" } dd { (about.kind) } }
                div { dt { "Size" } dd { (Size(answer.size_bytes)) " " span class="soft" { (count(answer.size_bytes)) " bytes" } } }
                div { dt { "Began" } dd { (moment(about.began)) } }
                div { dt { "Ended" } dd { (moment(OffsetDateTime::now_utc())) } }
                @for (kind, digest) in &about.hashes {
                    div class="wide" { dt { (kind) " that the source names" } dd class="hash" { (evidence(digest)) } }
                }
                @if about.hashes.is_empty() {
                    div class="wide" { dt { "Hash of the source" } dd class="soft" { "Unknown. A search computes none." } }
                }
                @for doubt in &about.doubts {
                    div class="wide" { dt { "In doubt" } dd { strong { (evidence(doubt)) } } }
                }
                @if !is_for_rules_alone(answer) {
                    div { dt { "Encodings" } dd { (evidence(&about.encodings.join(", "))) } }
                    div { dt { "Case of letters" } dd { @if about.ignore_case { "ignored" } @else { "respected" } } }
                    div { dt { "Context" } dd { (about.context_bytes) " bytes before and after each hit" } }
                }
                div { dt { "Made with" } dd { "Cheetah " (env!("CARGO_PKG_VERSION")) } }
            }
            div class="verdict" role="region" aria-label="Verdict" {
                p class="verdict-headline" { (headline(answer, verdict)) }
                p { (sentence(answer, verdict)) }
            }
            nav aria-label="Contents" {
                ol class="contents" {
                    li { a href="#coverage" { "Coverage" } }
                    li { a href="#patterns" { "Hits by pattern" } }
                    li { a href="#frequent" { "Most frequent" } }
                    li { a href="#hits" { "First hits" } }
                    li { a href="#files" { "Files" } }
                }
            }
        }
    }
}

/// What was found where. Without hits, it says how much was searched, and nothing of the rest.
fn headline(answer: &Answer<'_>, verdict: Verdict) -> String {
    let of_rules = answer.patterns.iter().filter(|pattern| pattern.kind == "rule").map(|pattern| pattern.hits).sum();
    let hits = hits_of(answer.hits.saturating_sub(of_rules));
    let matches = answer.rules.as_ref().map(|rules| {
        let (matches, files) = (hits_of(of_rules), count(rules.files.saturating_add(rules.without_atoms)));
        match rules.is_whole {
            true => format!("{matches} of rules in all {files} files"),
            false => format!("{matches} of rules in the {files} files on which they were tried"),
        }
    });
    if let Some(matches) = matches {
        return match is_for_rules_alone(answer) {
            true => matches,
            false => format!("{matches}. {}", of_bytes(answer, &hits, verdict)),
        };
    }
    of_bytes(answer, &hits, verdict)
}

/// A number of hits, at the start of a sentence.
fn hits_of(hits: u64) -> String {
    match hits {
        0 => "No hits".to_owned(),
        1 => "1 hit".to_owned(),
        hits => format!("{} hits", count(hits)),
    }
}

/// Whether nothing was looked for but rules.
fn is_for_rules_alone(answer: &Answer<'_>) -> bool {
    answer.rules.is_some() && answer.known.is_none() && answer.patterns.iter().all(|pattern| pattern.kind == "rule")
}

/// Where there are hits of patterns that are searched in the bytes.
fn of_bytes(answer: &Answer<'_>, hits: &str, verdict: Verdict) -> String {
    let size = Size(answer.size_bytes);
    let is_covered = answer.searched_bytes == answer.size_bytes;
    match verdict {
        Verdict::Whole => format!("{hits} in all {size}"),
        _ if is_covered && (verdict == Verdict::Stopped || is_partly_searched(answer)) => {
            format!("{hits} so far in {size}; not all that it holds was searched")
        }
        _ => format!("{hits} in the {} of {size} that were searched", Size(answer.searched_bytes)),
    }
}

fn sentence(answer: &Answer<'_>, verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Whole if is_for_rules_alone(answer) => {
            "The rules were tried on every file, and on nothing that lies in no file."
        }
        Verdict::Whole if answer.rules.is_some() => {
            "Every byte of the source was searched, and the rules were tried on every file."
        }
        Verdict::Whole => "Every byte of the source was searched.",
        Verdict::Gaps => "Nothing is known of what was not searched. Section 1 lists it.",
        Verdict::Stopped => "The search was stopped, or the source failed. Nothing is known of what was not searched.",
    }
}

#[cfg(test)]
mod tests;
