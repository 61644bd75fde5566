//! What was searched and what was not, and the files of the result.

use cheetah_device::Size;
use cheetah_drive::WorkDone;
use cheetah_search::SearchLimit;
use maud::{Markup, html};

use super::common::{count, numbers, section};
use super::evidence::evidence;
use super::is_for_rules_alone;
use super::listed::listed;
use super::rules::tried;
use super::told::Told;
use crate::answers::search::{Carved, Inside, Known, Search as Answer};
use crate::commands::search::show::limit_clause;

/// Ranges that are listed; `search.json` has them all.
const GAPS_SHOWN_MAX: usize = 200;

/// The coverage, in words and numbers.
pub fn coverage(told: &Told<'_>) -> Markup {
    let answer = told.answer;
    html! {
        section {
            (section(1, "coverage", "What was searched, and what was not"))
            @if answer.rules.as_ref().is_none_or(|rules| rules.searched) || !is_for_rules_alone(answer) {
                (states(answer))
                (gaps(answer))
            }
            @if !answer.truncated.is_empty() { (truncated(answer)) }
            @if let Some(rules) = &answer.rules { (tried(rules)) }
            @if let Some(work) = answer.at_nodes { (at_nodes(work)) }
            @if let Some(inside) = &answer.inside { (compressed(inside)) }
            @if let Some(files) = &answer.files { (listed(files)) }
            @if let Some(carved) = &answer.carved { (carving(carved)) }
            @if let Some(known) = &answer.known { (known_files(known)) }
        }
    }
}

/// A table of how many bytes are in which state.
fn states(answer: &Answer<'_>) -> Markup {
    let absent: u64 = answer.gaps.iter().filter(|gap| gap.state == "unread").map(|gap| gap.len).sum();
    let rows = [
        ("Searched", "every byte was read and searched", answer.searched_bytes.saturating_sub(answer.truncated_bytes)),
        ("Truncated", "the bytes were searched, and what they hold only up to a limit", answer.truncated_bytes),
        ("Unreadable", "reading failed", answer.unreadable_bytes),
        ("Not there yet", "the source does not have it", absent),
        ("Not reached", "the search ended before", answer.unsearched_bytes.saturating_sub(absent)),
    ];
    html! {
        div class="scroll" {
            table class="plain" {
                thead { tr { th scope="col" { "State" } th scope="col" {} th scope="col" class="num" { "Bytes" } th scope="col" class="num" {} } }
                tbody {
                    @for (state, note, bytes) in rows {
                        tr class=[(bytes == 0).then_some("none")] {
                            th scope="row" { (state) }
                            td class="soft" { (note) }
                            td class="num" { (count(bytes)) }
                            td class="num" { (Size(bytes)) }
                        }
                    }
                }
                tfoot { tr { th scope="row" { "All" } td {} td class="num" { (count(answer.size_bytes)) } td class="num" { (Size(answer.size_bytes)) } } }
            }
        }
    }
}

fn gaps(answer: &Answer<'_>) -> Markup {
    let more = answer.gaps.len().saturating_sub(GAPS_SHOWN_MAX);
    html! {
        @if answer.gaps.is_empty() && answer.complete && answer.truncated.is_empty() {
            p { "No gaps are known." }
        }
        @if !answer.gaps.is_empty() {
            h3 { "Not searched" }
            ul class="gaps" {
                @for gap in answer.gaps.iter().take(GAPS_SHOWN_MAX) {
                    li {
                        "From " (count(gap.offset)) ", " (count(gap.len)) " bytes: "
                        @if gap.state == "unread" { "not there yet: " } @else { "unreadable: " }
                        (evidence(gap.why))
                    }
                }
                @if more > 0 { li { "and " (count(more as u64)) " more ranges; search.json lists them all" } }
            }
        }
    }
}

/// The ranges that were searched only partly.
fn truncated(answer: &Answer<'_>) -> Markup {
    let more = answer.truncated.len().saturating_sub(GAPS_SHOWN_MAX);
    html! {
        h3 { "Searched only partly" }
        ul class="gaps" {
            @for range in answer.truncated.iter().take(GAPS_SHOWN_MAX) {
                li {
                    "From " (count(range.offset)) ", " (count(range.len)) " bytes: "
                    @match range.limit.parse::<SearchLimit>() {
                        Ok(limit) => { (limit_clause(limit)) }
                        Err(_) => { "a limit was reached" }
                    }
                }
            }
            @if more > 0 { li { "and " (count(more as u64)) " more ranges; search.json lists them all" } }
        }
    }
}

fn at_nodes(work: &WorkDone) -> Markup {
    html! {
        h3 { "Where it was searched" }
        div class="scroll" {
            table class="plain" {
                thead { tr { th scope="col" { "Searched by" } th scope="col" class="num" { "Bytes" } th scope="col" { "Why" } } }
                tbody {
                    @for (node, bytes) in &work.node_bytes {
                        tr { td { "node " span class="evidence" { (evidence(node)) } } td class="num" { (count(*bytes)) } td {} }
                    }
                    @for (why, bytes) in &work.here_bytes {
                        tr { td { "this machine" } td class="num" { (count(*bytes)) } td { (evidence(why)) } }
                    }
                }
            }
        }
    }
}

fn compressed(inside: &Inside) -> Markup {
    let rows = [
        ("Streams that were searched", inside.streams),
        ("Hits in them", inside.hits),
        ("Searched up to a limit", inside.cut),
        ("Searched up to where they are damaged, or with a wrong checksum", inside.damaged),
        ("Searched up to where the source cannot be read", inside.unreadable),
        ("Not searched: too many, or too much was unpacked before", inside.given_up),
    ];
    numbers("Inside compressed data", &rows)
}

fn carving(carved: &Carved) -> Markup {
    let rows = [
        ("Files that were saved", carved.files),
        ("Bytes of these files", carved.bytes),
        ("Headers inside them", carved.inside),
        ("Headers of no valid file", carved.invalid),
        ("Headers of unreadable files", carved.unreadable),
        ("Given up: too much was read in vain", carved.given_up),
    ];
    numbers("Files that were carved", &rows)
}

fn known_files(known: &Known<'_>) -> Markup {
    let rows = [
        ("Known files", known.files as u64),
        ("Of which something was found", known.found.len() as u64),
        ("Runs of blocks", known.runs as u64),
        ("Bytes of these runs", known.bytes),
        ("Blocks that were found alone", known.singles),
    ];
    numbers("What is left of known files", &rows)
}

/// The files beside this page.
pub fn files(answer: &Answer<'_>) -> Markup {
    let unfinished = if answer.finished { "" } else { ".unfinished" };
    let mut files = vec![
        (format!("hits{unfinished}.csv"), "the hits, as a table"),
        (format!("hits{unfinished}.parquet"), "the same table with typed columns, as Apache Parquet"),
        (format!("features{unfinished}/"), "the hits as feature files of bulk_extractor, with histograms"),
    ];
    if answer.known.is_some() {
        files.push(("known-runs.csv".to_owned(), "the runs of blocks of known files"));
        files.push(("known-files.csv".to_owned(), "how much of each known file was found"));
    }
    if answer.carved.is_some() {
        files.push(("carved/".to_owned(), "the files that were carved, and their table"));
    }
    if !answer.truncated.is_empty() {
        files.push(("truncated.csv".to_owned(), "the ranges that were searched only partly"));
    }
    files.push(("coverage.map".to_owned(), "which ranges were searched, as a map of GNU ddrescue"));
    files.push(("search.json".to_owned(), "the answer of the command: all patterns and all gaps"));
    html! {
        section {
            (section(5, "files", "Files of the result"))
            dl class="meanings" {
                @for (name, content) in files { div { dt class="mono" { (name) } dd { (content) } } }
            }
            p class="soft" {
                "Texts are shown as they were found. Control characters, and bytes that are no text, are written as \\xNN or \\u{NNNN}; "
                "other characters that cannot be seen stand as their numbers in boxes."
            }
        }
    }
}
