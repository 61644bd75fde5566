//! How hashes, ranges and long sentences are shown to people, at most 80 columns wide.

use std::fmt::Display;

use cheetah_device::{ByteRange, Size};
use cheetah_drive::lending::KeyLending;
use cheetah_drive::{HashKind, Hashes, ImageState, WorkDone};

/// Ranges printed for each cause; `--json` has them all.
const RANGES_SHOWN_MAX: usize = 20;
/// Columns of a line.
const COLUMNS: usize = 80;

/// A line for each hash, with a remark; one that does not fit goes on a line of its own.
pub fn hash_lines(hashes: &Hashes, remark: impl Fn(HashKind) -> String) -> Vec<String> {
    let line = |(kind, digest): (HashKind, &str)| {
        let (line, remark) = (format!("  {:<7} {digest}", kind.name()), remark(kind));
        match line.len() + 2 + remark.chars().count() {
            _ if remark.is_empty() => line,
            ..=COLUMNS => format!("{line}  {remark}"),
            _ => format!("{line}\n          {remark}"),
        }
    };
    hashes.iter().map(line).collect()
}

/// Lines for ranges and their causes: each cause once, with the first of its ranges.
pub fn range_lines<W: Display>(what: &str, ranges: impl Iterator<Item = (ByteRange, W)>) -> Vec<String> {
    let mut by_cause: Vec<(String, Vec<ByteRange>)> = Vec::new();
    for (range, why) in ranges {
        let why = why.to_string();
        match by_cause.iter_mut().find(|(cause, _)| *cause == why) {
            Some((_, ranges)) => ranges.push(range),
            None => by_cause.push((why, vec![range])),
        }
    }
    by_cause.iter().flat_map(|(why, ranges)| cause_lines(what, why, ranges)).collect()
}

fn cause_lines(what: &str, why: &str, ranges: &[ByteRange]) -> Vec<String> {
    if let [only] = ranges {
        return vec![wrapped(&format!("{what}: {only}: {why}"), 2)];
    }
    let bytes = Size(ranges.iter().map(|range| range.len).sum());
    let mut lines = vec![wrapped(&format!("{what}: {bytes} in {} ranges: {why}", ranges.len()), 2)];
    let mut listed: Vec<_> = ranges.iter().take(RANGES_SHOWN_MAX).map(ToString::to_string).collect();
    if ranges.len() > listed.len() {
        listed.push(format!("and {} more; --json lists them all", ranges.len() - listed.len()));
    }
    lines.push(wrapped(&listed.join(" "), 4));
    lines
}

/// Lines that say what was `done`, such as hashed, at the nodes of a drive, and what this machine read.
pub fn work_lines(done: &str, work: &WorkDone) -> Vec<String> {
    let mut lines = Vec::new();
    if !work.node_bytes.is_empty() {
        let sum = Size(work.node_bytes.values().sum());
        let nodes: Vec<_> = work.node_bytes.iter().map(|(node, bytes)| format!("{node} {}", Size(*bytes))).collect();
        lines.push(wrapped(&format!("{done} at the nodes: {sum} ({})", nodes.join(", ")), 2));
    }
    let here = work.here_bytes.iter().map(|(why, bytes)| format!("read by this machine: {}: {why}", Size(*bytes)));
    lines.extend(here.map(|line| wrapped(&line, 2)));
    if let Some(KeyLending { task, nodes, .. }) = &work.key_lent {
        let nodes: Vec<&str> = nodes.iter().map(|borrower| borrower.node.as_str()).collect();
        lines.push(wrapped(&format!("the key was lent to {}, as task {task}", cheetah_error::list(&nodes)), 2));
    }
    lines
}

/// `text` in lines of at most 80 columns: indented by `indent`, and by two more from the second line on. A longer word
/// has a line of its own.
pub fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![" ".repeat(indent)];
    let mut words_in_line = 0;
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if words_in_line > 0 && last + 1 + word.chars().count() > COLUMNS {
            lines.push(" ".repeat(indent + 2));
            words_in_line = 0;
        }
        if let Some(line) = lines.last_mut() {
            if words_in_line > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
        words_in_line += 1;
    }
    lines.join("\n")
}

/// Returns the reason that a drive may differ from the image loaded into it, if there is one.
pub const fn since_load(state: ImageState) -> Option<&'static str> {
    match state {
        ImageState::Intact => None,
        ImageState::Modified => Some("it was opened for writing since it was loaded"),
        ImageState::Loading => Some("its load never finished"),
        ImageState::Filling => Some("it is still being filled"),
        ImageState::Incomplete => Some("parts of it could not be read from its source"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_with_one_cause_are_listed_under_it() {
        let why = "node 10.0.0.7: cannot connect: nothing listens there (connection refused), after 5 attempts";
        let lost = (0..100).map(|unit| (ByteRange::new(unit * (3 << 16), 1 << 16), why));
        let lines = range_lines("unreadable", lost.chain([(ByteRange::new(7, 1), "damaged")]));
        let text = lines.join("\n");
        assert!(text.starts_with("  unreadable: 6.2MiB in 100 ranges: node 10.0.0.7: cannot"), "{text}");
        assert_eq!(text.matches("10.0.0.7").count(), 1);
        assert!(text.contains("0+65536 196608+65536 ") && text.contains("and 80 more;"), "{text}");
        assert!(text.ends_with("  unreadable: 7+1: damaged"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_remark_that_does_not_fit_beside_its_hash_goes_below() {
        let hashes = Hashes { md5: Some("0".repeat(32)), sha256: Some("0".repeat(64)), ..Hashes::default() };
        let lines = hash_lines(&hashes, |_| "as in the custody log".into());
        assert!(lines[0].ends_with("0  as in the custody log"), "{lines:?}");
        assert!(lines.iter().flat_map(|line| line.lines()).all(|line| line.len() <= 80), "{lines:?}");
        assert_eq!(lines[1].lines().count(), 2);
    }

    #[test]
    fn a_long_word_is_not_cut() {
        assert_eq!(wrapped(&format!("at {}", "x".repeat(90)), 2), format!("  at\n    {}", "x".repeat(90)));
        assert_eq!(wrapped("", 2), "  ");
    }
}
