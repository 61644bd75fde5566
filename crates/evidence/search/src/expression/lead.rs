//! Where hits of a finder may begin, so that its expression need not be tried at each place.

use cheetah_error::Result;
use memchr::memmem;

use super::text::Text;
use crate::encoding::TextEncoding;

/// A set of ASCII characters.
pub struct Class([bool; 128]);

impl Class {
    /// The characters between the brackets of such a class of an expression: characters, ranges, and a `-` at the end.
    pub const fn of(class: &str) -> Self {
        let (bytes, mut has, mut at) = (class.as_bytes(), [false; 128], 0);
        while at < bytes.len() {
            let is_range = at + 2 < bytes.len() && bytes[at + 1] == b'-';
            let (mut c, last) = (bytes[at], if is_range { bytes[at + 2] } else { bytes[at] });
            while c <= last {
                has[c as usize] = true;
                c += 1;
            }
            at += if is_range { 3 } else { 1 };
        }
        Self(has)
    }

    /// Whether it has a character; never if that is none of ASCII.
    fn has(&self, c: Option<u8>) -> bool {
        c.is_some_and(|c| self.0.get(c as usize).copied().unwrap_or_default())
    }
}

/// What is the same for all hits of a finder.
pub struct Lead {
    /// What tells where to look.
    pub sign: Sign,
    /// The characters after which no hit begins.
    pub not_after: Class,
    /// The characters with which hits begin.
    pub first: Class,
}

/// What tells where to look.
pub enum Sign {
    /// Each hit has this text after its first characters: at most this many, all of the class. The text begins with another one.
    Mark {
        /// The text, in ASCII.
        text: &'static str,
        /// The characters before it.
        class: Class,
        /// Their greatest number.
        before_max: usize,
    },
    /// Each hit begins with at least this many characters of the class, which does not have NUL.
    Run {
        /// The characters.
        class: Class,
        /// Their number.
        len: usize,
    },
}

/// A lead in an encoding.
pub struct Leader {
    lead: &'static Lead,
    encoding: TextEncoding,
    /// Finds the mark, if that is the sign.
    mark: Option<memmem::Finder<'static>>,
}

impl Leader {
    /// Prepares to follow a lead in an encoding.
    pub fn new(lead: &'static Lead, encoding: TextEncoding) -> Self {
        let mark = match lead.sign {
            Sign::Mark { text, .. } => {
                let bytes: Vec<u8> = text.chars().filter_map(|c| encoding.encode(c)).flatten().collect();
                Some(memmem::Finder::new(&bytes).into_owned())
            }
            Sign::Run { .. } => None,
        };
        Self { lead, encoding, mark }
    }

    /// Calls `place` with each place in `bytes` at which a hit may begin, in order.
    pub fn each(&self, bytes: &[u8], mut place: impl FnMut(usize) -> Result<()>) -> Result<()> {
        let text = Text { bytes, encoding: self.encoding };
        let begins = |start: usize| {
            let before = start.checked_sub(text.unit_bytes()).and_then(|before| text.ascii(before));
            self.lead.first.has(text.ascii(start)) && !self.lead.not_after.has(before)
        };
        let place = |start| if begins(start) { place(start) } else { Ok(()) };
        match (&self.lead.sign, &self.mark) {
            (Sign::Run { class, len }, _) => each_in_runs(text, class, *len, place),
            (Sign::Mark { class, before_max, .. }, Some(mark)) => {
                each_at_marks(text, mark, (class, *before_max), place)
            }
            (Sign::Mark { .. }, None) => Ok(()),
        }
    }
}

/// Calls `place` with each mark, and the places before it from which only characters of the class lead to it.
fn each_at_marks(
    text: Text<'_>,
    finder: &memmem::Finder<'_>,
    (class, before_max): (&Class, usize),
    mut place: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while let Some(found) = text.bytes.get(at..).and_then(|rest| finder.find(rest)) {
        let mark = at + found;
        // A mark is none of the class, so these places lie behind the mark before this one.
        let from = text.run_begin(mark, mark.saturating_sub(before_max * text.unit_bytes()), class);
        (from..=mark).step_by(text.unit_bytes()).try_for_each(&mut place)?;
        at = mark + 1;
    }
    Ok(())
}

/// Calls `place` with each place at which at least `len` characters of the class begin.
///
/// Such a run has a place at each multiple of its least length, so that only these are looked at. In UTF-16, characters may begin at
/// even or odd places, and both are. Two runs of which one begins at an even place and one at an odd do not overlap: the zeros of one would
/// be characters of the other.
fn each_in_runs(text: Text<'_>, class: &Class, len: usize, mut place: impl FnMut(usize) -> Result<()>) -> Result<()> {
    let unit = text.unit_bytes();
    // The end of the run before, or 0.
    let mut end = 0;
    let mut at = 0;
    while at < text.bytes.len() {
        let Some(within) = (at..at + unit).find(|at| class.has(text.ascii(*at))) else {
            at += len * unit;
            continue;
        };
        let begin = text.run_begin(within, end, class);
        end = text.run_end(within, class);
        // No place if the run is shorter.
        let last = (end + 1).saturating_sub(len * unit);
        (begin..last).step_by(unit).try_for_each(&mut place)?;
        at = end;
    }
    Ok(())
}

impl Text<'_> {
    /// Where the characters of the class before `at` begin, not before `floor`; `at` if there are none.
    fn run_begin(self, mut at: usize, floor: usize, class: &Class) -> usize {
        while let Some(before) = at.checked_sub(self.unit_bytes()).filter(|before| *before >= floor) {
            if !class.has(self.ascii(before)) {
                break;
            }
            at = before;
        }
        at
    }

    /// Where the characters of the class that begin at `at` end.
    fn run_end(self, mut at: usize, class: &Class) -> usize {
        while class.has(self.ascii(at)) {
            at += self.unit_bytes();
        }
        at
    }
}
