//! Reading a journal: how far a search has come.

use std::fs::File;
use std::io::{self, ErrorKind};

use cheetah_device::ByteRange;
use cheetah_kit::file::FileExt as _;
use cheetah_search::{Hit, Search};

use super::lines::{CHECK_DIGITS, Check, FIRST, Line, Lines, Source};
use super::record::{BadRecord, Record};
use super::start::Start;
use super::state::{Place, State};

/// How the JSON of the first record begins.
const START: &[u8] = br#" {"start":"#;

/// Whether a file begins like a journal, or like the part of one that a crash left.
pub fn is_journal(file: &File) -> io::Result<bool> {
    let mut head = [0; CHECK_DIGITS + START.len()];
    let mut len = 0;
    while let Some(rest) = head.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let head = head.get(..len).unwrap_or_default();
    let (check, json) = head.split_at(len.min(CHECK_DIGITS));
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    Ok(check.iter().all(is_digit) && json.iter().zip(START).all(|(byte, start)| byte == start))
}

/// What the search is, if the first record says that.
///
/// # Errors
///
/// Those of pread(2).
pub fn read_start(file: &File) -> io::Result<Option<Start>> {
    Ok(match Lines::new(file, 0, FIRST).read()? {
        Line::Record(record) => match *record {
            Record::Start(start) => Some(*start),
            _ => None,
        },
        _ => None,
    })
}

/// How far a search has come, the length of the valid part of its journal, and the check there; `None` if a crash cut off the beginning.
/// Or the number of a bad line, and why it is bad.
pub type Scan = Result<Option<(State, u64, Check)>, (usize, BadRecord)>;

/// Hits of a group that is not complete yet.
#[derive(Default)]
struct Open {
    hits: u64,
    inner: u64,
    /// The first offset of a hit, and the last.
    offsets: Option<(u64, u64)>,
}

/// Reads a journal.
///
/// # Errors
///
/// Those of pread(2).
pub fn read(journal: &dyn Source, search: &Search) -> io::Result<Scan> {
    let mut lines = Lines::new(journal, 0, FIRST);
    let mut state = match lines.read()? {
        Line::Record(record) => match *record {
            Record::Start(start) => State::new(*start),
            _ => return Ok(Err((1, BadRecord::Beginning))),
        },
        Line::End => return Ok(Ok(None)),
        Line::Unknown => return Ok(Err((1, BadRecord::NoRecord))),
        Line::Bad => return Ok(if lines.ends_in_last_group()? { Ok(None) } else { Err((1, BadRecord::NoRecord)) }),
    };
    let (mut open, mut place, mut number) = (Open::default(), Place { at: lines.at, before: lines.before }, 1);
    loop {
        number += 1;
        let record = match lines.read()? {
            Line::Record(record) => *record,
            Line::End => return Ok(Ok(Some((state, place.at, place.before)))),
            Line::Unknown => return Ok(Err((number, BadRecord::NoRecord))),
            Line::Bad => {
                let is_torn = lines.ends_in_last_group()?;
                let scan = if is_torn {
                    Ok(Some((state, place.at, place.before)))
                } else {
                    Err((number, BadRecord::NoRecord))
                };
                return Ok(scan);
            }
        };
        match apply(&mut state, &mut open, record, place, search) {
            Ok(true) => (open, place) = (Open::default(), Place { at: lines.at, before: lines.before }),
            Ok(false) => {}
            Err(why) => return Ok(Err((number, why))),
        }
    }
}

/// Applies a record; true if it ends a group.
fn apply(state: &mut State, open: &mut Open, record: Record, place: Place, search: &Search) -> Result<bool, BadRecord> {
    match record {
        Record::Start(_) => return Err(BadRecord::Beginning),
        Record::Hits(rows) => {
            open.add(&rows.iter().map(|row| row.hit(search)).collect::<Option<Vec<_>>>().ok_or(BadRecord::Hits)?)?;
            return Ok(false);
        }
        Record::InnerHits(rows) => {
            if rows.iter().any(|row| row.hit(search).is_none()) {
                return Err(BadRecord::Hits);
            }
            open.inner = open.inner.saturating_add(rows.len() as u64);
            return Ok(false);
        }
        Record::Searched(range) => {
            let whole = ByteRange::new(range.offset, range.len);
            let is_within = |(first, last): (u64, u64)| first >= whole.offset && last < whole.end();
            if open.hits != range.hits || open.inner > 0 || !open.offsets.is_none_or(is_within) {
                return Err(BadRecord::Hits);
            }
            state.searched(&range, place)?;
        }
        Record::Inside(places) => {
            if open.hits > 0 || open.inner != places.hits {
                return Err(BadRecord::Hits);
            }
            state.inside(places, place)?;
        }
        Record::Carved(files) => state.carved(&files)?,
        Record::Finished(files) => state.finish(files)?,
    }
    Ok(true)
}

impl Open {
    /// Adds hits, which are in order.
    fn add(&mut self, hits: &[Hit]) -> Result<(), BadRecord> {
        for hit in hits {
            let (first, last) = self.offsets.unwrap_or((hit.offset, hit.offset));
            if hit.offset < last {
                return Err(BadRecord::Hits);
            }
            self.offsets = Some((first, hit.offset));
            self.hits = self.hits.saturating_add(1);
        }
        Ok(())
    }
}
