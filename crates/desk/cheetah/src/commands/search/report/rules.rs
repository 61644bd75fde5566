//! The files on which rules were tried, and those on which they were not.

use maud::{Markup, html};

use super::super::central::why;
use super::common::{count, numbers};
use super::evidence::evidence;
use super::listed::partly;
use crate::answers::search::Rules;

/// Rules and files that are listed; `search.json` has more.
const SHOWN_MAX: usize = 200;

/// What became of the files.
pub fn tried(rules: &Rules<'_>) -> Markup {
    let rows = [
        ("Files on which the rules were tried", rules.files),
        ("Files without an atom of the rules, which were not read", rules.without_atoms),
        ("Files on which the rules were not tried to the end", rules.untried_files),
        ("Files of more than 32 MiB: the rules were tried on pieces of them", rules.in_pieces),
        ("Files without content of their own", rules.skipped),
        ("Times that a rule has more matches in a file than are listed", rules.cut),
    ];
    let more = rules.untried_files.saturating_sub(rules.untried.len().min(SHOWN_MAX) as u64);
    html! {
        (numbers("Files on which rules were tried", &rows))
        p { "The rules were tried on the content of files, and of deleted files that may have it still. What lies in no file was not tried." }
        @if !rules.untried.is_empty() {
            ul class="gaps" {
                @for file in rules.untried.iter().take(SHOWN_MAX) {
                    li { "Not tried to the end: volume " (file.volume) ", " (evidence(file.path)) ": " (evidence(file.why)) }
                }
                @if more > 0 { li { "and " (count(more)) " more files" } }
            }
        }
        @if rules.lister.is_some() {
            p { strong { "What tries rules ended before it had found all volumes." } }
        }
        @if !rules.problems.is_empty() {
            ul class="gaps" { @for problem in rules.problems { li { "Volumes may be missing: " (evidence(problem)) } } }
        }
        (partly(&rules.volumes))
        (central(rules))
    }
}

/// The rules that have no atoms.
fn central(rules: &Rules<'_>) -> Markup {
    let more = rules.central.len().saturating_sub(SHOWN_MAX);
    html! {
        @if !rules.central.is_empty() {
            h3 { "Rules that were tried on every file" }
            ul class="gaps" {
                @for rule in rules.central.iter().take(SHOWN_MAX) {
                    li {
                        @if let Some(name) = &rule.rule { (evidence(name)) " of " } @else { "All rules of " }
                        (evidence(&rule.file)) ": " (why(&rule.why))
                    }
                }
                @if more > 0 { li { "and " (count(more as u64)) " more rules; search.json lists them all" } }
            }
        }
    }
}
