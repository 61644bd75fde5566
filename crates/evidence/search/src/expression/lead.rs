//! Where hits of a finder may begin, so that its expression need not be tried at each place.

use cheetah_error::Result;
use memchr::memmem;

use super::class::Class;
use super::text::{Characters, Narrow, Wide};
use crate::encoding::TextEncoding;

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
#[expect(clippy::large_enum_variant, reason = "each finder has one, which is a constant")]
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
    /// Each hit begins with a run, as above, or with this text and as many characters of another class: of kinds with a rare and short
    /// form beside a long one.
    RunOrText {
        /// The characters of the run.
        class: Class,
        /// Their number.
        len: usize,
        /// The text, in ASCII. It does not begin again within itself.
        text: &'static str,
        /// The characters after the text.
        then: Class,
        /// Their number.
        then_len: usize,
    },
}

/// A lead in an encoding.
pub struct Leader {
    lead: &'static Lead,
    encoding: TextEncoding,
    /// Finds the mark, or the text, if the sign has one.
    mark: Option<memmem::Finder<'static>>,
}

impl Leader {
    /// Prepares to follow a lead in an encoding.
    pub fn new(lead: &'static Lead, encoding: TextEncoding) -> Self {
        let mark = match lead.sign {
            Sign::Mark { text, .. } | Sign::RunOrText { text, .. } => {
                let bytes: Vec<u8> = text.chars().filter_map(|c| encoding.encode(c)).flatten().collect();
                Some(memmem::Finder::new(&bytes).into_owned())
            }
            Sign::Run { .. } => None,
        };
        Self { lead, encoding, mark }
    }

    /// Calls `place` with each place in `bytes` at which a hit may begin, in order.
    pub fn each(&self, bytes: &[u8], place: impl FnMut(usize) -> Result<()>) -> Result<()> {
        match self.encoding {
            TextEncoding::Utf8 | TextEncoding::CodePage(_) => self.each_of(Narrow(bytes), place),
            TextEncoding::Utf16Le => self.each_of(Wide::<false>(bytes), place),
            TextEncoding::Utf16Be => self.each_of(Wide::<true>(bytes), place),
        }
    }

    fn each_of<C: Characters>(&self, text: C, mut place: impl FnMut(usize) -> Result<()>) -> Result<()> {
        let Lead { sign, not_after, first } = self.lead;
        let follows = |start: usize| start.checked_sub(C::BYTES).is_some_and(|before| text.is(before, not_after));
        let place = |start| if text.is(start, first) && !follows(start) { place(start) } else { Ok(()) };
        match (sign, &self.mark) {
            (Sign::Run { class, len }, _) => each_in_runs(text, class, *len, place),
            (Sign::Mark { class, before_max, .. }, Some(mark)) => {
                each_at_marks(text, mark, (class, *before_max), place)
            }
            (Sign::RunOrText { class, len, then, then_len, .. }, Some(mark)) => {
                each_in_runs_or_at_texts(text, (class, *len), (mark, then, *then_len), place)
            }
            (Sign::Mark { .. } | Sign::RunOrText { .. }, None) => Ok(()),
        }
    }
}

/// Calls `place` with each mark, and the places before it from which only characters of the class lead to it.
fn each_at_marks<C: Characters>(
    text: C,
    finder: &memmem::Finder<'_>,
    (class, before_max): (&Class, usize),
    mut place: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    for mark in finder.find_iter(text.bytes()) {
        // A mark is none of the class, so these places lie behind the mark before this one.
        let mut from = mark;
        while let Some(before) = from.checked_sub(C::BYTES)
            && mark - before <= before_max * C::BYTES
            && text.is(before, class)
        {
            from = before;
        }
        (from..=mark).step_by(C::BYTES).try_for_each(&mut place)?;
    }
    Ok(())
}

/// Calls `place` with each place at which at least `len` characters of the class begin.
///
/// Characters are looked at from the last of `len` backwards. Where one is none of the class, the next `len` begin behind it, so that most
/// characters are never looked at (the idea of Boyer and Moore, 1977). In UTF-16, characters may begin at even or odd places: both
/// are followed, in order. Two runs of which one begins at an even place and one at an odd do not overlap: the zeros of one would be
/// characters of the other.
fn each_in_runs<C: Characters>(
    text: C,
    class: &Class,
    len: usize,
    mut place: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let (unit, before) = (C::BYTES, (len.max(1) - 1) * C::BYTES);
    // The last of the characters to look at, from even and from odd places on.
    let mut lasts = [before, before + 1];
    loop {
        let odd = usize::from(unit > 1 && lasts[1] < lasts[0]);
        let (mut last, size) = (lasts[odd], text.bytes().len());
        // Most of the characters that are looked at are none of the class: a short loop passes them.
        while unit == 1 && last < size && !text.is(last, class) {
            last += unit + before;
        }
        if last + unit > size {
            return Ok(());
        }
        let first = last - before;
        lasts[odd] = match (0..len.max(1)).map(|back| last - back * unit).find(|at| !text.is(*at, class)) {
            Some(other) => other + unit + before,
            None => {
                let mut end = last + unit;
                while text.is(end, class) {
                    end += unit;
                }
                (first..end - before).step_by(unit).try_for_each(&mut place)?;
                end + unit + before
            }
        };
    }
}

/// Calls `place` with each place at which a run begins, as [`each_in_runs`] does, or the text that `finder` finds with at least `then_len`
/// characters of `then` behind it: in order, and once.
fn each_in_runs_or_at_texts<C: Characters>(
    text: C,
    (class, len): (&Class, usize),
    (finder, then, then_len): (&memmem::Finder<'_>, &Class, usize),
    mut place: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let goes_on = |at: &usize| {
        let behind = at + finder.needle().len();
        (0..then_len).all(|number| text.is(behind + number * C::BYTES, then))
    };
    let mut texts = finder.find_iter(text.bytes()).filter(goes_on).peekable();
    each_in_runs(text, class, len, |start| {
        while let Some(earlier) = texts.next_if(|at| *at < start) {
            place(earlier)?;
        }
        texts.next_if_eq(&start);
        place(start)
    })?;
    texts.try_for_each(place)
}
