//! How a search and its result are shown.

use std::path::Path;

use cheetah_carve::Counts;
use cheetah_device::Size;
use cheetah_device::coverage::State;
use cheetah_device::path_text::path_to_text;
use cheetah_device::visible::OneLine;
use cheetah_drive::WorkDone;
use cheetah_error::Next;
use cheetah_error::next::Acquisition;
use cheetah_search::{
    AcrossHit, Gap, Hit, InnerHit, Outcome, Pattern, PatternKind, Place, Search, SearchLimit, SearchNode, Truncation,
};
use cheetah_source::search::{inside, known};

use super::places::{self, FilesShown};
use super::rules::RulesShown;
use crate::answers::search as answers;
use crate::commands::compared::{range_lines, work_lines, wrapped};
use crate::failure::{Failure, Result};
use crate::ui::Ui;

/// Patterns that are printed with the number of their hits; `--json` has them all.
const PATTERNS_SHOWN_MAX: usize = 20;

/// Warns of patterns that are not searched in an encoding that was chosen.
pub fn unsearched_encodings(search: &Search, ui: Ui) {
    let (mut unwritable, mut assertions) = (Vec::new(), Vec::new());
    for pattern in search.patterns() {
        if pattern.encodings.is_empty() && pattern.kind != PatternKind::Rule {
            unwritable.push(pattern.name.as_str());
        }
        if pattern.has_assertions {
            assertions.push(pattern.name.as_str());
        }
    }
    let some = |names: &[&str]| match names {
        [first, rest @ ..] if !rest.is_empty() => format!("'{first}' and {} more", rest.len()),
        names => format!("'{}'", names.concat()),
    };
    if !unwritable.is_empty() {
        ui.warn(format_args!("not searched, because no chosen encoding can write it: {}", some(&unwritable)));
    }
    if !assertions.is_empty() {
        ui.warn(format_args!("not searched in UTF-16, because of its assertions: {}", some(&assertions)));
    }
}

/// Prints a hit, which a node found, or this process.
pub fn hit(hit: &Hit, (place, node): (Option<&Place<'_>>, Option<&SearchNode>), search: &Search, ui: Ui) {
    print((hit.offset, None, node), hit, place.map(|place| places::answer(place, &[])), search, ui);
}

/// Prints a hit across fragments of a file.
pub fn across(across: &AcrossHit, place: &Place<'_>, search: &Search, ui: Ui) {
    let place = places::answer(place, &across.fragments);
    print((across.hit.offset, None, None), &across.hit, Some(place), search, ui);
}

/// Prints a hit inside compressed data.
pub fn inner_hit(inner: &InnerHit, place: Option<&Place<'_>>, search: &Search, ui: Ui) {
    let place = place.map(|place| places::answer(place, &[]));
    print((inner.offset, Some(inner.inside.clone()), None), &inner.hit, place, search, ui);
}

fn print(
    (offset, inside, node): (u64, Option<String>, Option<&SearchNode>),
    hit: &Hit,
    place: Option<answers::Place>,
    search: &Search,
    ui: Ui,
) {
    let pattern = search.patterns().get(hit.pattern).map_or_else(String::new, |pattern| pattern.name.clone());
    let (len, encoding) = (hit.len(), hit.encoding.name());
    let (text, context) = (search.text(hit), search.context(hit));
    let path = inside.iter().fold(offset.to_string(), |path, inside| format!("{path}-{inside}"));
    let lies = place.as_ref().map_or_else(String::new, places::clause);
    let line = format!("{path}  {}  {encoding}  {context}{lies}", OneLine(&pattern));
    let (instance, node) = (node.map(|node| node.instance.to_string()), node.map(|node| node.name.to_string()));
    let found = answers::Found::Hit { context, encoding, inside, instance, len, node, offset, pattern, place, text };
    ui.event(line, &found);
}

/// A search that has ended.
pub struct Shown<'a> {
    /// The source, as the user wrote it.
    pub source: &'a str,
    /// What was searched for.
    pub search: &'a Search,
    /// What was found.
    pub outcome: &'a Outcome,
    /// The folder of the result.
    pub out: Option<&'a Path>,
    /// What was searched where, if nodes were asked to search what they hold.
    pub at_nodes: Option<WorkDone>,
    /// What became of compressed data, if these were searched.
    pub inside: Option<inside::Counts>,
    /// What was found of known files, if their blocks were searched for.
    pub known: Option<&'a known::Found>,
    /// What became of the headers, if files were carved.
    pub carved: Option<Counts>,
    /// The files in which hits lie, if they were listed.
    pub files: Option<FilesShown<'a>>,
    /// What became of the files on which rules were tried, if there are rules.
    pub rules: Option<RulesShown<'a>>,
}

impl Shown<'_> {
    fn bytes(&self, state: State) -> u64 {
        self.outcome.coverage().bytes(state)
    }

    /// The answer for programs.
    pub fn answer(&self, finished: bool) -> answers::Search<'_> {
        let patterns = self.search.patterns().iter().zip(self.outcome.hits_by_pattern());
        let patterns = patterns.filter_map(|(found, hits)| pattern(found, *hits));
        answers::Search {
            at_nodes: self.at_nodes.as_ref(),
            carved: self.carved.map(|counts| answers::Carved {
                bytes: counts.bytes,
                files: counts.files,
                given_up: counts.given_up,
                inside: counts.inside,
                invalid: counts.invalid,
                unreadable: counts.unreadable,
            }),
            complete: finished && self.is_complete(),
            files: self.files.as_ref().map(FilesShown::answer),
            finished,
            gaps: self.outcome.gaps().iter().map(gap).collect(),
            hits: self.outcome.hits(),
            inside: self.inside.map(|counts| answers::Inside {
                bytes: counts.bytes,
                cut: counts.cut,
                damaged: counts.damaged,
                given_up: counts.given_up,
                hits: counts.hits,
                invalid: counts.invalid,
                streams: counts.streams,
                unreadable: counts.unreadable,
            }),
            known: self.known.map(|found| answers::Known {
                bytes: found.bytes(),
                files: found.files(),
                found: found.shares().iter().map(|share| share_of(*share)).collect(),
                runs: found.runs(),
                singles: found.singles(),
            }),
            out: self.out.map(path_to_text),
            patterns: patterns.collect(),
            rules: self.rules.as_ref().map(RulesShown::answer),
            searched_bytes: self.bytes(State::Read),
            size_bytes: self.outcome.coverage().size(),
            source: self.source,
            truncated: self.outcome.truncated().ranges().iter().map(truncated).collect(),
            truncated_bytes: self.outcome.truncated().bytes(self.outcome.coverage()),
            unreadable_bytes: self.bytes(State::Unreadable),
            unsearched_bytes: self.bytes(State::Unread),
        }
    }

    /// The answer for people.
    pub fn text(&self) -> String {
        let mut lines = vec![wrapped(&format!("{}: {}", self.source, self.hits_text()), 0)];
        lines.extend(self.pattern_lines());
        for (state, what) in [(State::Unreadable, "unreadable"), (State::Unread, "not there yet")] {
            let gaps = self.outcome.gaps().iter().filter(|gap| gap.state == state);
            lines.extend(range_lines(what, gaps.map(|gap| (gap.range, &gap.why))));
        }
        let truncated = self.outcome.truncated().ranges().iter();
        lines.extend(range_lines("searched partly", truncated.map(|found| (found.range, limit_clause(found.limit)))));
        lines.extend(self.at_nodes.iter().flat_map(|done| work_lines("searched", done)));
        lines.extend(self.known.iter().flat_map(|found| known_lines(found)));
        lines.extend(self.inside.map(inside_line));
        lines.extend(self.carved.map(carved_line));
        lines.extend(self.files.iter().flat_map(FilesShown::lines));
        lines.extend(self.rules.into_iter().flat_map(RulesShown::lines));
        lines.extend(self.out.map(|out| format!("  written to {}", out.display())));
        lines.join("\n")
    }

    /// How many hits there are, and where; those of rules, which are tried on files, for themselves.
    fn hits_text(&self) -> String {
        let size = Size(self.outcome.coverage().size());
        let place = match (self.is_covered(), self.is_partly_searched()) {
            (true, false) => format!("in all {size}"),
            (true, true) => format!("so far in {size}; not all that it holds was searched"),
            (false, _) => format!("in the {} of {size} that were searched", Size(self.bytes(State::Read))),
        };
        let Some(rules) = self.rules else { return format!("{} {place}", hits_of(self.outcome.hits())) };
        let patterns = self.search.patterns().iter().zip(self.outcome.hits_by_pattern());
        let of_rules = patterns.filter(|(pattern, _)| pattern.kind == PatternKind::Rule).map(|(_, hits)| *hits).sum();
        let matches = format!("{} of rules {}", hits_of(of_rules), rules.place());
        if self.search.is_for_rules_alone() {
            return matches;
        }
        format!("{matches}, and {} {place}", hits_of(self.outcome.hits().saturating_sub(of_rules)))
    }

    /// Whether some of what was searched holds compressed data that were not searched to their end, or fragments that were not searched as
    /// one.
    fn is_partly_searched(&self) -> bool {
        let across = self.files.as_ref().and_then(|files| files.across).map_or(0, |counts| counts.left_out);
        self.left_inside() > 0 || across > 0 || !self.outcome.truncated().is_empty()
    }

    /// The compressed data that were not searched to their end.
    fn left_inside(&self) -> u64 {
        self.inside.map_or(0, |counts| counts.cut + counts.given_up + counts.unreadable)
    }

    /// The ranges that were searched only partly. What a source says of its own end is shown, and decides nothing.
    fn left_partly(&self) -> usize {
        let ranges = self.outcome.truncated().ranges().iter();
        ranges.filter(|truncation| truncation.limit != SearchLimit::End).count()
    }

    /// Whether nothing was left out, also of compressed data, of fragments of files, and of the files on which rules are tried. Files that
    /// were not carved do not count: `carved` has their number.
    fn is_complete(&self) -> bool {
        let files = self.files.as_ref().is_none_or(|files| files.complete(self.source).is_ok());
        self.is_whole() && self.left_inside() == 0 && self.left_partly() == 0 && files
    }

    /// Whether all was searched, and rules, if there are any, were tried on every file. Another search would find no more, even if limits
    /// were reached.
    pub fn is_whole(&self) -> bool {
        self.is_covered() && self.rules.is_none_or(RulesShown::is_whole)
    }

    /// Whether every byte was searched, if bytes are searched.
    fn is_covered(&self) -> bool {
        self.outcome.coverage().is_whole() || self.search.is_for_nothing()
    }

    /// The patterns with the most hits.
    fn pattern_lines(&self) -> Vec<String> {
        let counted = self.search.patterns().iter().zip(self.outcome.hits_by_pattern().iter().copied());
        let mut counted: Vec<_> = counted.filter(|(_, hits)| *hits > 0).collect();
        counted.sort_by_key(|(_, hits)| std::cmp::Reverse(*hits));
        let shown = counted.iter().take(PATTERNS_SHOWN_MAX);
        let mut lines: Vec<_> =
            shown.map(|(pattern, hits)| format!("  {hits:>9}  {}", OneLine(&pattern.name))).collect();
        if let rest @ 1.. = counted.len().saturating_sub(PATTERNS_SHOWN_MAX) {
            lines.push(format!("  and hits of {rest} more; --json lists them all"));
        }
        lines
    }

    /// The failure of a search that did not come to its end.
    pub fn unfinished(&self, failure: Failure) -> Failure {
        let (searched, size) = (Size(self.bytes(State::Read)), Size(self.outcome.coverage().size()));
        let what = match self.rules.filter(|_| self.is_covered()) {
            Some(rules) => format!("{}, after the rules were tried on {} files", failure.message, rules.files()),
            None => format!("{}, after {searched} of {size} were searched", failure.message),
        };
        let Some(out) = self.out else {
            let message = format!("{what}; run it again to search all");
            return Failure { message, ..failure }.while_doing(self.source);
        };
        let step: Next = Acquisition::Resume.into();
        let so_far = format!("{what}; the hits so far are in {}", out.display());
        let message = cheetah_words::with(so_far, std::slice::from_ref(&step));
        let mut next = failure.next.clone();
        next.push(step);
        Failure { message, next, ..failure }.while_doing(self.source)
    }

    /// Fails if part of the source was not searched.
    pub fn complete(&self) -> Result<()> {
        let coverage = self.outcome.coverage();
        if let Some(rules) = self.rules.filter(|rules| !rules.is_whole()) {
            return rules.complete(self.source);
        }
        if self.is_covered() {
            let unfinished = |places, what| Err(not_to_the_end(self.source, places, what));
            let (inside, truncated) = (self.left_inside(), self.left_partly() as u64);
            if inside == 0 && truncated > 0 {
                return unfinished(truncated, "compressed data were not searched");
            }
            return match self.carved.map_or(0, |counts| counts.given_up + counts.unreadable) {
                0 if inside == 0 => self.files.as_ref().map_or(Ok(()), |files| files.complete(self.source)),
                0 => unfinished(inside, "compressed data were not searched"),
                places => unfinished(places, "files were not carved"),
            };
        }
        let missing = Size(coverage.size() - self.bytes(State::Read));
        Err(Failure::evidence(format!(
            "{}: {missing} of {} were not searched, because they cannot be read; see above",
            self.source,
            Size(coverage.size())
        )))
    }
}

/// Shows the answer of an earlier search of the same, which came to its end.
pub fn earlier(answer: &serde_json::Value, source: &str, out: &Path, ui: Ui) -> Result<()> {
    let text = wrapped(&earlier_text(answer, source), 0);
    ui.answer(format_args!("{text}\n  written to {}", out.display()), &answers::Earlier(answer.clone()));
    let partly = numbers(Some(answer), &["truncated_bytes"]);
    match (numbers(answer.get("carved"), &["given_up", "unreadable"]), unfinished_inside(answer)) {
        (0, 0) if partly == 0 => Ok(()),
        (0, 0) => Err(not_to_the_end(source, 1, "compressed data were not searched")),
        (0, places) => Err(not_to_the_end(source, places, "compressed data were not searched")),
        (places, _) => Err(not_to_the_end(source, places, "files were not carved")),
    }
}

/// What an earlier search found. Of all that the source has only if all of it was searched to its end.
fn earlier_text(answer: &serde_json::Value, source: &str) -> String {
    let (hits, size) = (numbers(Some(answer), &["hits"]), Size(numbers(Some(answer), &["size_bytes"])));
    let hits = hits_of(hits);
    let truncated = answer.get("truncated").and_then(serde_json::Value::as_array).map_or(0, Vec::len);
    let tried = answer.get("rules").map(|rules| numbers(Some(rules), &["files", "without_atoms"]));
    match (tried, truncated > 0 || unfinished_inside(answer) > 0) {
        (Some(files), _) if is_for_rules_alone(answer) => {
            format!("{source}: the rules were tried before on all {files} files: {hits}")
        }
        (Some(files), false) => {
            format!("{source}: all {size} were searched before, and the rules tried on all {files} files: {hits}")
        }
        (Some(files), true) => format!(
            "{source}: {size} were searched before, and the rules tried on all {files} files: {hits} so far; not all that it holds was \
             searched"
        ),
        (None, false) => format!("{source}: all {size} were searched before: {hits}"),
        (None, true) => {
            format!("{source}: {size} were searched before: {hits} so far; not all that it holds was searched")
        }
    }
}

/// Whether an earlier search looked for nothing but rules.
fn is_for_rules_alone(answer: &serde_json::Value) -> bool {
    let patterns = answer.get("patterns").and_then(serde_json::Value::as_array);
    let is_rule = |pattern: &serde_json::Value| pattern.get("kind").is_some_and(|kind| kind == "rule");
    answer.get("known").is_none_or(serde_json::Value::is_null) && patterns.is_some_and(|all| all.iter().all(is_rule))
}

/// A number of hits.
fn hits_of(hits: u64) -> String {
    match hits {
        0 => "no hits".to_owned(),
        1 => "1 hit".to_owned(),
        hits => format!("{hits} hits"),
    }
}

/// The compressed data that an earlier search did not search to their end.
fn unfinished_inside(answer: &serde_json::Value) -> u64 {
    numbers(answer.get("inside"), &["cut", "given_up", "unreadable"])
}

/// The sum of the numbers of these names in a part of an answer.
fn numbers(part: Option<&serde_json::Value>, names: &[&str]) -> u64 {
    let number = |name: &&str| part.and_then(|part| part.get(*name)).and_then(serde_json::Value::as_u64);
    names.iter().filter_map(number).fold(0, u64::saturating_add)
}

fn not_to_the_end(source: &str, places: u64, what: &str) -> Failure {
    Failure::evidence(format!("{source}: at {places} places, {what} to the end; see above"))
}

fn gap(gap: &Gap) -> answers::Gap<'_> {
    answers::Gap {
        len: gap.range.len,
        offset: gap.range.offset,
        state: if gap.state == State::Unreadable { "unreadable" } else { "unread" },
        why: &gap.why,
    }
}

fn truncated(truncation: &Truncation) -> answers::Truncated {
    let Truncation { range, limit } = *truncation;
    answers::Truncated { len: range.len, limit: limit.name(), offset: range.offset }
}

/// Why a range was searched only partly.
pub const fn limit_clause(limit: SearchLimit) -> &'static str {
    match limit {
        SearchLimit::Size => "compressed data hold more than is unpacked of one place",
        SearchLimit::Depth => "compressed data lie deeper in each other than is searched",
        SearchLimit::Hits => "compressed data hold more hits, or compressed data, than are kept of one place",
        SearchLimit::Work => "more was unpacked before than is of one source",
        SearchLimit::Places => "the source has more compressed data than are remembered",
        SearchLimit::End => {
            "the source does not have these bytes, although its partition tables or file systems say so"
        }
    }
}

/// A pattern as it is shown; `None` if it is none of the user's.
fn pattern(pattern: &Pattern, hits: u64) -> Option<answers::Pattern<'_>> {
    let kind = match pattern.kind {
        PatternKind::Word => "word",
        PatternKind::Expression => "regex",
        PatternKind::Finder => "find",
        PatternKind::Header => "header",
        PatternKind::Rule => "rule",
        PatternKind::Compressed | PatternKind::Block | PatternKind::Atom => return None,
    };
    let encodings = pattern.encodings.iter().map(|encoding| encoding.name()).collect();
    Some(answers::Pattern { encodings, hits, kind, pattern: &pattern.name })
}

const fn share_of(share: known::Share<'_>) -> answers::KnownFile<'_> {
    answers::KnownFile { blocks: share.blocks, file: share.name, found: share.found }
}

/// The files with the largest shares.
fn known_lines(found: &known::Found) -> Vec<String> {
    let shares = found.shares();
    let (files, runs) = (shares.len(), found.runs());
    let mut lines = vec![match runs {
        0 => format!("  known files: nothing was found of {}", found.files()),
        _ => format!(
            "  known files: {runs} {} with {}, of {files} of {} files",
            if runs == 1 { "run" } else { "runs" },
            Size(found.bytes()),
            found.files()
        ),
    }];
    let line = |share: &known::Share<'_>| {
        format!("  {:>8} %  {}", 100 * share.found / share.blocks.max(1), OneLine(share.name))
    };
    lines.extend(shares.iter().take(PATTERNS_SHOWN_MAX).map(line));
    if let rest @ 1.. = files.saturating_sub(PATTERNS_SHOWN_MAX) {
        lines.push(format!("  and {rest} more; known-files.csv lists them all"));
    }
    lines
}

fn inside_line(counts: inside::Counts) -> String {
    let inside::Counts { streams, bytes, hits, cut, damaged, given_up, invalid: _, unreadable } = counts;
    let of_size = format!("{streams} {} with {}", if streams == 1 { "stream" } else { "streams" }, Size(bytes));
    let mut line = format!("  inside compressed data: {hits} {} in {of_size}", if hits == 1 { "hit" } else { "hits" });
    for (streams, what) in [
        (cut, "searched up to a limit"),
        (damaged, "up to where they are damaged, or with a wrong checksum"),
        (unreadable, "up to where the source cannot be read"),
        (given_up, "not searched: they are too many, or too much was unpacked for those before"),
    ] {
        if streams > 0 {
            line += &format!("; {streams} {what}");
        }
    }
    line
}

fn carved_line(counts: Counts) -> String {
    let Counts { files, bytes, inside, invalid, unreadable, given_up } = counts;
    let mut line = format!("  carved: {files} {} of {}", if files == 1 { "file" } else { "files" }, Size(bytes));
    for (headers, what) in [
        (inside, "inside them"),
        (invalid, "of no valid file"),
        (unreadable, "of unreadable ones"),
        (given_up, "given up: too much was read in vain"),
    ] {
        if headers > 0 {
            line += &format!("; {headers} {} {what}", if headers == 1 { "header" } else { "headers" });
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_earlier_search_with_rules_names_the_bytes_unless_it_was_for_rules_alone() {
        let says_bytes = |kinds: &[&str], known: serde_json::Value| {
            let patterns: Vec<_> = kinds.iter().map(|kind| json!({ "kind": kind })).collect();
            let rules = json!({ "files": 2, "without_atoms": 5 });
            let answer = json!({ "hits": 0, "size_bytes": 1024, "patterns": patterns, "rules": rules, "known": known });
            let text = earlier_text(&answer, "disk.raw");
            assert!(text.contains("no hits") && text.contains("all 7 files"), "{text}");
            text.contains("1KiB")
        };
        assert!(!says_bytes(&["rule", "rule"], json!(null)));
        assert!(says_bytes(&["word", "rule"], json!(null)) && says_bytes(&["rule"], json!({ "runs": 0 })));
    }

    #[test]
    fn an_earlier_search_without_hits_says_so_of_all_only_if_all_was_searched_to_its_end() {
        let is_of_all = |inside: serde_json::Value, truncated: serde_json::Value| {
            let answer = json!({ "hits": 0, "size_bytes": 1024, "inside": inside, "truncated": truncated });
            let text = earlier_text(&answer, "disk.raw");
            assert!(text.contains("no hits"));
            !text.contains("so far")
        };
        let whole = json!({ "cut": 0, "given_up": 0, "unreadable": 0 });
        assert!(is_of_all(json!(null), json!([])) && is_of_all(whole.clone(), json!([])));
        assert!(!is_of_all(whole, json!([{ "offset": 0, "len": 1, "limit": "depth" }])));
        for name in ["cut", "given_up", "unreadable"] {
            assert!(!is_of_all(json!({ name: 1 }), json!([])), "{name}");
        }
    }
}
