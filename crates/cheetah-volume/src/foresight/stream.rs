//! Somebody who goes through files in an order.
//!
//! Not all of the files are seen to be read: what tools read around a small file is often the next ones, which the
//! kernel keeps and nobody asks for again. So whoever goes on among neighbours is taken to read each of them; those that
//! are there already cost nothing.

use std::collections::VecDeque;

use super::atlas::{Atlas, FileIndex, Order};

/// Streams followed at once.
const STREAMS_MAX: usize = 16;
/// Files touched lately, among which a new stream is looked for.
const HISTORY_MAX: usize = 24;
/// Three files, one after the other in time and in an order, are neighbours if they lie within so many places.
const NEAR: i64 = 8;
/// The longest step from one file to the next.
const STEP_MAX: i64 = 4096;
/// Steps ahead of what was fetched at which a file still belongs to a stream: so many for each file that came by.
const SKIPPED_EACH: u32 = 2;
const SKIPPED_MAX: u32 = 16;
/// A stream of which nothing is seen while so many files are touched is over.
const PATIENCE: u64 = 64;
/// Files fetched ahead, when a stream begins and at most. It may be none, so it begins with few; each file that comes
/// by makes it one more, and each that had to be waited for twice as many.
const WINDOW_FIRST: u32 = 4;
const WINDOW_MAX: u32 = 256;

/// Files touched, and who seems to go through them.
#[derive(Default)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    /// The latest first, and whether they were touched at their starts.
    history: VecDeque<(FileIndex, bool)>,
    /// Files touched so far.
    clock: u64,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Stream {
    order: Order,
    step: i64,
    /// The rank of the file touched last.
    at: i64,
    /// The rank of the last that was fetched ahead.
    ahead: i64,
    /// So many files ahead.
    window: u32,
    /// Files that came by since it began.
    hits: u32,
    /// When the last did, counted in files touched.
    seen_at: u64,
}

/// How a file was touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) file: FileIndex,
    /// At its start.
    pub(super) begins: bool,
    /// For the first time.
    pub(super) anew: bool,
    /// And what was read was not all there.
    pub(super) starved: bool,
}

impl Streams {
    /// A file is read; the stream that it belongs to.
    pub(super) fn touched(&mut self, atlas: &Atlas, touch: Touch) -> Option<&mut Stream> {
        self.clock += u64::from(touch.anew);
        self.streams.retain(|stream| self.clock - stream.seen_at <= PATIENCE);
        let known = self.streams.iter().position(|stream| stream.fits(atlas, touch.file));
        let stream = match known {
            Some(at) => {
                let mut stream = self.streams.remove(at);
                stream.move_to(atlas, touch);
                stream.seen_at = self.clock;
                stream
            }
            None if touch.anew => {
                let found = self.find(atlas, touch);
                self.history.push_front((touch.file, touch.begins));
                self.history.truncate(HISTORY_MAX);
                found?
            }
            None => return None,
        };
        tracing::trace!(?stream, "a stream of files");
        self.streams.insert(0, stream);
        self.streams.truncate(STREAMS_MAX);
        self.streams.first_mut()
    }

    /// A stream that this file goes on: the third of neighbours, whoever else read files meanwhile; or the fourth in a
    /// row at equal steps, since at random there are always three somewhere. The closest win, and listings over other
    /// orders. Who comes upon the middle of a file may have begun with another: that says where he is, and not what he
    /// reads.
    fn find(&self, atlas: &Atlas, touch: Touch) -> Option<Stream> {
        let mut best: Option<(i64, Stream)> = None;
        for order in Order::ALL {
            let counts = |begins| begins || order == Order::Place;
            let rank = |file| atlas.rank(order, file).map(i64::from);
            let Some(at) = rank(touch.file).filter(|_| counts(touch.begins)) else { continue };
            let touched = self.history.iter().filter(|(_, begins)| counts(*begins));
            let before: Vec<i64> = touched.filter_map(|(file, _)| rank(*file)).collect();
            let found = neighbours(at, &before).or_else(|| even_step(at, &before).map(|step| (step, 3 * step.abs())));
            let Some((step, span)) = found else { continue };
            if best.as_ref().is_none_or(|(least, _)| span < *least) {
                let (window, hits, seen_at) = (WINDOW_FIRST, 0, self.clock);
                best = Some((span, Stream { order, step, at, ahead: at, window, hits, seen_at }));
            }
        }
        best.map(|(_, stream)| stream)
    }
}

/// The direction of who has come here by two neighbours, the latest first, and how far apart they are.
fn neighbours(here: i64, before: &[i64]) -> Option<(i64, i64)> {
    [1, -1].into_iter().find_map(|way| {
        let apart = |rank: &i64| (here - rank) * way;
        let latest = before.iter().position(|rank| (1..NEAR).contains(&apart(rank)))?;
        let (rank, earlier) = (before.get(latest)?, before.get(latest + 1..)?);
        let span = earlier.iter().map(apart).find(|span| (apart(rank) + 1..=NEAR).contains(span))?;
        Some((way, span))
    })
}

/// The step from each of the last files to the next, if it is always the same.
fn even_step(here: i64, before: &[i64]) -> Option<i64> {
    let [first, second, third, ..] = before else { return None };
    let step = here - first;
    (first - second == step && second - third == step && (2..=STEP_MAX).contains(&step.abs())).then_some(step)
}

impl Stream {
    /// Steps from where it is to the file; `None` if it does not come by.
    fn steps_to(&self, atlas: &Atlas, file: FileIndex) -> Option<i64> {
        let way = i64::from(atlas.rank(self.order, file)?) - self.at;
        (way % self.step == 0).then_some(way / self.step)
    }

    fn fits(&self, atlas: &Atlas, file: FileIndex) -> bool {
        let skipped = self.hits.saturating_mul(SKIPPED_EACH).clamp(1, SKIPPED_MAX);
        let ahead = (self.ahead - self.at) / self.step + i64::from(skipped);
        self.steps_to(atlas, file).is_some_and(|steps| (0..=ahead).contains(&steps))
    }

    fn move_to(&mut self, atlas: &Atlas, touch: Touch) {
        let Some(steps) = self.steps_to(atlas, touch.file).filter(|steps| *steps > 0) else { return };
        self.at += steps * self.step;
        if (self.ahead - self.at) / self.step < 0 {
            self.ahead = self.at;
        }
        if touch.anew {
            self.hits = self.hits.saturating_add(1);
            let wider = if touch.starved { self.window * 2 } else { self.window + 1 };
            self.window = wider.min(WINDOW_MAX);
        }
    }

    /// The next file to fetch; `None` if enough are on their way.
    pub(super) fn next(&self, atlas: &Atlas) -> Option<FileIndex> {
        let rank = self.ahead + self.step;
        if (rank - self.at) / self.step > i64::from(self.window) {
            return None;
        }
        atlas.at_rank(self.order, u32::try_from(rank).ok()?)
    }

    /// It is on its way.
    pub(super) fn advance(&mut self) {
        self.ahead += self.step;
    }
}
