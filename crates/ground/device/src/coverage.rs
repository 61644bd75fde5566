//! Coverage: which bytes of an image have been read, could not be read, or have not been read yet.
//!
//! Unread, unreadable and zero are three different things. An image that was not read in full is accompanied by its
//! coverage: a map file in the format of GNU ddrescue ("Mapfile structure" in its manual), which other forensic tools
//! understand.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::ByteRange;

/// The maximum number of runs in a map, which limits what a malicious map file can make us allocate.
const RUNS_MAX: usize = 4 << 20;

/// The state of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not read yet (`?`).
    Unread,
    /// Read (`+`).
    Read,
    /// Unreadable (`-`).
    Unreadable,
}

impl State {
    const fn symbol(self) -> char {
        match self {
            Self::Unread => '?',
            Self::Read => '+',
            Self::Unreadable => '-',
        }
    }

    /// Parses ddrescue's status. Its non-trimmed (`*`) and non-scraped (`/`) count as not read yet.
    fn of_symbol(symbol: &str) -> Option<Self> {
        match symbol {
            "?" | "*" | "/" => Some(Self::Unread),
            "+" => Some(Self::Read),
            "-" => Some(Self::Unreadable),
            _ => None,
        }
    }
}

/// The state of every byte of an image.
#[derive(Clone, PartialEq, Eq)]
pub struct Coverage {
    size: u64,
    /// The state of each run, by offset; neighbours differ. Starts with 0 unless the size is 0.
    runs: BTreeMap<u64, State>,
}

impl Coverage {
    /// Makes a coverage of `size` unread bytes.
    pub fn new(size: u64) -> Self {
        Self { size, runs: (size > 0).then_some((0, State::Unread)).into_iter().collect() }
    }

    /// Returns the size of the image.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Sets the state of a range; bytes outside the image are ignored.
    pub fn set(&mut self, range: ByteRange, state: State) {
        let Some(range) = range.intersection(ByteRange::new(0, self.size)) else { return };
        let after = self.at(range.end());
        let inside: Vec<_> = self.runs.range(range.offset..range.end()).map(|(at, _)| *at).collect();
        for at in inside {
            self.runs.remove(&at);
        }
        if self.before(range.offset) != Some(state) {
            self.runs.insert(range.offset, state);
        }
        match after {
            Some(after) if after != state => self.runs.insert(range.end(), after),
            // A following run of the same state is merged.
            _ => self.runs.remove(&range.end()),
        };
    }

    /// Returns the state at `offset`; `None` outside the image.
    pub fn at(&self, offset: u64) -> Option<State> {
        if offset >= self.size {
            return None;
        }
        self.runs.range(..=offset).next_back().map(|(_, state)| *state)
    }

    fn before(&self, offset: u64) -> Option<State> {
        self.runs.range(..offset).next_back().map(|(_, state)| *state)
    }

    /// Returns the runs of `range`, in order, each cut to the range; neighbours differ.
    pub fn runs(&self, range: ByteRange) -> impl Iterator<Item = (ByteRange, State)> {
        let range = range.intersection(ByteRange::new(0, self.size)).unwrap_or_default();
        let mut at = range.offset;
        std::iter::from_fn(move || {
            let state = (at < range.end()).then(|| self.at(at))??;
            let next = self.runs.range(at + 1..).next().map_or(self.size, |(next, _)| *next).min(range.end());
            let run = ByteRange::between(at, next);
            at = next;
            Some((run, state))
        })
    }

    /// Returns all runs in a state.
    pub fn in_state(&self, state: State) -> impl Iterator<Item = ByteRange> {
        self.runs(ByteRange::new(0, self.size)).filter(move |(_, other)| *other == state).map(|(run, _)| run)
    }

    /// Returns the number of bytes in a state.
    pub fn bytes(&self, state: State) -> u64 {
        self.in_state(state).map(|run| run.len).sum()
    }

    /// Whether every byte has been read.
    pub fn is_whole(&self) -> bool {
        self.runs.values().all(|state| *state == State::Read)
    }
}

impl fmt::Debug for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.runs(ByteRange::new(0, self.size))).finish()
    }
}

/// A ddrescue map file.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unread = self.in_state(State::Unread).next();
        let (position, status) = unread.map_or((self.size, '+'), |run| (run.offset, '?'));
        writeln!(f, "# Mapfile. Written by Cheetah, in the format of GNU ddrescue")?;
        writeln!(f, "# current_pos  current_status  current_pass")?;
        writeln!(f, "{position:#010x}     {status}               1")?;
        writeln!(f, "#      pos        size  status")?;
        for (run, state) in self.runs(ByteRange::new(0, self.size)) {
            writeln!(f, "{:#010x}  {:#010x}  {}", run.offset, run.len, state.symbol())?;
        }
        Ok(())
    }
}

/// The reason why a text is not a map file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the map: {why}")]
pub struct BadMap {
    /// Counted from 1.
    pub line: usize,
    /// The reason.
    pub why: &'static str,
}

impl FromStr for Coverage {
    type Err = BadMap;

    fn from_str(text: &str) -> Result<Self, BadMap> {
        let mut runs = BTreeMap::new();
        let (mut size, mut last, mut seen_status) = (0u64, None, false);
        for (line, content) in text.lines().enumerate().map(|(index, content)| (index + 1, content.trim())) {
            let bad = |why| BadMap { line, why };
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            if !std::mem::replace(&mut seen_status, true) {
                continue;
            }
            let mut words = content.split_whitespace();
            let (Some(at), Some(len), Some(symbol), None) = (words.next(), words.next(), words.next(), words.next())
            else {
                return Err(bad("not a position, a size and a status"));
            };
            let (at, len) = number(at).zip(number(len)).ok_or_else(|| bad("not a number"))?;
            let state = State::of_symbol(symbol).ok_or_else(|| bad("an unknown status"))?;
            if at != size || len == 0 {
                return Err(bad("the runs are not in order, or leave gaps"));
            }
            size = at.checked_add(len).ok_or_else(|| bad("beyond what can be addressed"))?;
            if last.replace(state) != Some(state) {
                runs.insert(at, state);
            }
            if runs.len() > RUNS_MAX {
                return Err(bad("too many runs"));
            }
        }
        Ok(Self { size, runs })
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn states() -> impl Strategy<Value = Vec<(u64, u64, State)>> {
        let state = prop_oneof![Just(State::Unread), Just(State::Read), Just(State::Unreadable)];
        prop::collection::vec((0u64..70, 0u64..40, state), 0..30)
    }

    proptest! {
        #[test]
        fn each_byte_has_the_state_set_last(changes in states(), from in 0u64..70, len in 0u64..70) {
            let mut coverage = Coverage::new(64);
            let mut model = [State::Unread; 64];
            for (at, len, state) in changes {
                coverage.set(ByteRange::new(at, len), state);
                model.iter_mut().skip(at as usize).take(len as usize).for_each(|byte| *byte = state);
            }
            let range = ByteRange::new(from, len);
            let mut at = from;
            let mut before = None;
            for (run, state) in coverage.runs(range) {
                prop_assert_eq!(run.offset, at);
                prop_assert!(before.replace(state) != Some(state) && !run.is_empty());
                prop_assert!(model[run.offset as usize..run.end() as usize].iter().all(|byte| *byte == state));
                at = run.end();
            }
            prop_assert_eq!(at, range.end().min(64).max(from));
            prop_assert_eq!(coverage.bytes(State::Read), model.iter().filter(|byte| **byte == State::Read).count() as u64);
            prop_assert_eq!(coverage.is_whole(), model.iter().all(|byte| *byte == State::Read));
            prop_assert_eq!(coverage.to_string().parse::<Coverage>(), Ok(coverage));
        }

        #[test]
        fn no_text_causes_a_panic(text in "[-0-9a-fx?+*/# \n]{0,200}") {
            let _ = text.parse::<Coverage>();
        }
    }

    #[test]
    fn a_map_written_by_ddrescue_is_parsed() {
        let text = "# Mapfile. Created by GNU ddrescue version 1.27\n0x00000400     ?               1\n\
                    0x00000000  0x00000200  +\n0x00000200  0x00000200  -\n0x00000400  0x00000200  *\n";
        let coverage: Coverage = text.parse().unwrap();
        assert_eq!(coverage.size(), 0x600);
        assert_eq!(coverage.in_state(State::Unreadable).collect::<Vec<_>>(), [ByteRange::new(0x200, 0x200)]);
        assert_eq!(coverage.bytes(State::Unread), 0x200);
    }
}
