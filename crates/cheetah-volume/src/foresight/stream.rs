//! Somebody who goes through files in an order.

use std::collections::VecDeque;

use super::atlas::{Atlas, FileIndex, Order};

/// Streams followed at once.
const STREAMS_MAX: usize = 16;
/// Files touched lately, among which a new stream is looked for.
const HISTORY_MAX: usize = 32;
/// The longest step from one file to the next.
const STEP_MAX: i64 = 4096;
/// Steps of a stream that may be left out: files whose content is read with something else, or is in memory.
const SKIPPED_MAX: i64 = 16;
/// Files fetched ahead, when a stream begins and at most.
const WINDOW_FIRST: u32 = 8;
const WINDOW_MAX: u32 = 256;

/// Files touched, and who seems to go through them.
#[derive(Default)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    history: VecDeque<FileIndex>,
}

/// One of them.
pub(super) struct Stream {
    order: Order,
    step: i64,
    /// The rank of the file touched last.
    at: i64,
    /// The rank of the last that was fetched ahead.
    ahead: i64,
    /// So many files ahead.
    window: u32,
}

impl Streams {
    /// A file is read, for the first time if `anew`; the stream that it belongs to.
    pub(super) fn touched(&mut self, atlas: &Atlas, file: FileIndex, anew: bool, starved: bool) -> Option<&mut Stream> {
        let known = self.streams.iter().position(|stream| stream.fits(atlas, file));
        let stream = match known {
            Some(at) => {
                let mut stream = self.streams.remove(at);
                stream.move_to(atlas, file, starved && anew);
                stream
            }
            None if anew => {
                let found = self.find(atlas, file);
                self.history.push_front(file);
                self.history.truncate(HISTORY_MAX);
                found?
            }
            None => return None,
        };
        self.streams.insert(0, stream);
        self.streams.truncate(STREAMS_MAX);
        self.streams.first_mut()
    }

    /// A stream that this file goes on: the third of neighbours, whoever else read files meanwhile; or the fourth in a
    /// row at equal steps, since at random there are always three somewhere. The shortest steps win, and listings over
    /// other orders.
    fn find(&self, atlas: &Atlas, file: FileIndex) -> Option<Stream> {
        let mut best: Option<Stream> = None;
        for order in Order::ALL {
            let rank = |file: &FileIndex| atlas.rank(order, *file).map(i64::from);
            let Some(here) = rank(&file) else { continue };
            let before: Vec<i64> = self.history.iter().filter_map(rank).collect();
            let neighbour = |step: &i64| before.contains(&(here - step)) && before.contains(&(here - 2 * step));
            let step = [1, -1, 2, -2].into_iter().find(neighbour).or_else(|| even_step(here, &before));
            if let Some(step) = step
                && best.as_ref().is_none_or(|best| step.abs() < best.step.abs())
            {
                best = Some(Stream { order, step, at: here, ahead: here, window: WINDOW_FIRST });
            }
        }
        best
    }
}

/// The step from each of the last files to the next, if it is always the same.
fn even_step(here: i64, before: &[i64]) -> Option<i64> {
    let [first, second, third, ..] = before else { return None };
    let step = here - first;
    (first - second == step && second - third == step && (1..=STEP_MAX).contains(&step.abs())).then_some(step)
}

impl Stream {
    /// Steps from where it is to the file; `None` if it does not come by.
    fn steps_to(&self, atlas: &Atlas, file: FileIndex) -> Option<i64> {
        let way = i64::from(atlas.rank(self.order, file)?) - self.at;
        (way % self.step == 0).then_some(way / self.step)
    }

    fn fits(&self, atlas: &Atlas, file: FileIndex) -> bool {
        let ahead = (self.ahead - self.at) / self.step;
        self.steps_to(atlas, file).is_some_and(|steps| (-1..=ahead + SKIPPED_MAX).contains(&steps))
    }

    fn move_to(&mut self, atlas: &Atlas, file: FileIndex, starved: bool) {
        let Some(steps) = self.steps_to(atlas, file).filter(|steps| *steps > 0) else { return };
        self.at += steps * self.step;
        if (self.ahead - self.at) / self.step < 0 {
            self.ahead = self.at;
        }
        if starved {
            self.window = (self.window * 2).min(WINDOW_MAX);
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
