//! Reading a journal in memory, for tests and fuzzing.

use std::collections::HashSet;

use cheetah_device::Coverage;
use cheetah_search::Search;

use super::group::read_group;
use super::lines::{FIRST, json_line};
use super::record::Record;
use super::scan::read;

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadJournal {
    /// The length of its valid part, in bytes: whole lines.
    pub end: u64,
    /// What was searched.
    pub coverage: Coverage,
    /// Whether the groups of hits that it names are there.
    pub has_groups: bool,
}

/// The lines of a journal with these records, as JSON, each with its check.
pub fn journal_of<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut lines, mut before) = (Vec::new(), FIRST);
    for json in records {
        let (line, check) = json_line(json, before);
        lines.extend(line);
        before = check;
    }
    lines
}

/// Reads a journal of `search`; `None` if it is damaged, or a crash cut off its beginning.
pub fn read_journal(bytes: &[u8], search: &Search) -> Option<ReadJournal> {
    let (state, end, _) = read(&bytes, search).ok()?.ok()??;
    let mut seen = HashSet::new();
    let places = state.stretches.values().map(|stretch| (stretch.place, false));
    let places = places.chain(state.inside_groups.iter().map(|place| (*place, true)));
    let is_there = |(place, is_inside): (_, bool)| match read_group(&bytes, place, search) {
        Ok(Some((_, _, Record::Searched(_)))) => !is_inside,
        Ok(Some((_, _, Record::Inside(_)))) => is_inside,
        _ => false,
    };
    let has_groups = places.filter(|(place, _)| seen.insert(place.at)).all(is_there);
    Some(ReadJournal { end, coverage: state.coverage, has_groups })
}
