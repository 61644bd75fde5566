//! Readers that read files in an order.
//!
//! Not every file of such a reader causes a request: a window around a small file often contains the next ones, which
//! the kernel caches and does not request again. So a reader that advances among neighbours is assumed to read each of
//! them. Hints for files that are already cached cost nothing.

use std::collections::VecDeque;

use super::file_map::{FileIndex, FileMap, FileOrder};

/// The maximum number of streams followed at once.
const STREAMS_MAX: usize = 16;
/// The number of recent files in which new streams are detected.
const HISTORY_MAX: usize = 24;
/// Three files, read in succession along an order, are neighbours if they are within this many ranks.
const NEAR: i64 = 8;
/// The longest step between two files of a stream.
const STEP_MAX: i64 = 4096;
/// The number of steps ahead of the hinted files at which a file still belongs to a stream: for each file read of it,
/// and at most.
const SKIPPED_EACH: u32 = 2;
const SKIPPED_MAX: u32 = 16;
/// A stream ends when none of its files is read while this many others are.
const PATIENCE: u64 = 64;
/// The number of files hinted ahead when a stream begins, and at most. It starts small, since a detection may be wrong;
/// each file read adds one, and each file that had to be waited for doubles it.
const WINDOW_FIRST: u32 = 4;
const WINDOW_MAX: u32 = 256;

/// The files read lately, and the streams detected.
#[derive(Default)]
pub(super) struct FileStreams {
    streams: Vec<FileStream>,
    /// The latest first, and whether they were read from their starts.
    history: VecDeque<(FileIndex, bool)>,
    /// The number of files read so far.
    clock: u64,
}

/// A reader that reads files in an order.
#[derive(Debug)]
pub(super) struct FileStream {
    order: FileOrder,
    step: i64,
    /// The rank of the file read last.
    at: i64,
    /// The rank of the last file hinted.
    ahead: i64,
    /// The number of files to hint ahead.
    window: u32,
    /// The number of files read since it began.
    hits: u32,
    /// The value of the clock at the last of them.
    seen_at: u64,
}

/// A read of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileAccess {
    pub(super) file: FileIndex,
    /// Whether it is at the start of the file.
    pub(super) begins: bool,
    /// Whether it is the first read of the file.
    pub(super) anew: bool,
    /// Whether it has to wait.
    pub(super) starved: bool,
}

impl FileStreams {
    /// Returns the least number of steps by which a stream would get to the file; `None` if no stream gets there.
    pub(super) fn steps_ahead(&self, file_map: &FileMap, file: FileIndex) -> Option<i64> {
        let reaching = self.streams.iter().filter(|stream| stream.fits(file_map, file));
        reaching.filter_map(|stream| stream.steps_to(file_map, file)).filter(|steps| *steps > 0).min()
    }

    /// Notes a read of a file; returns the stream it belongs to.
    pub(super) fn accessed(&mut self, file_map: &FileMap, access: FileAccess) -> Option<&mut FileStream> {
        self.clock += u64::from(access.anew);
        self.streams.retain(|stream| self.clock - stream.seen_at <= PATIENCE);
        let known = self.streams.iter().position(|stream| stream.fits(file_map, access.file));
        let stream = match known {
            Some(at) => {
                let mut stream = self.streams.remove(at);
                stream.move_to(file_map, access);
                stream.seen_at = self.clock;
                stream
            }
            None if access.anew => {
                let found = self.find(file_map, access);
                self.history.push_front((access.file, access.begins));
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

    /// Detects a stream that ends at this file: the third of three neighbours, among other reads; or the fourth in
    /// succession at equal steps, since random reads often contain three. The closest files are preferred, and listings
    /// to other orders. A read in the middle of a file counts by offset only: the reader may have begun with another
    /// file.
    fn find(&self, file_map: &FileMap, access: FileAccess) -> Option<FileStream> {
        let mut best: Option<(i64, FileStream)> = None;
        for order in FileOrder::ALL {
            let counts = |begins| begins || order == FileOrder::Place;
            let rank = |file| file_map.rank(order, file).map(i64::from);
            let Some(at) = rank(access.file).filter(|_| counts(access.begins)) else { continue };
            let accessed = self.history.iter().filter(|(_, begins)| counts(*begins));
            let before: Vec<i64> = accessed.filter_map(|(file, _)| rank(*file)).collect();
            let found = neighbours(at, &before).or_else(|| even_step(at, &before).map(|step| (step, 3 * step.abs())));
            let Some((step, span)) = found else { continue };
            if best.as_ref().is_none_or(|(least, _)| span < *least) {
                let (window, hits, seen_at) = (WINDOW_FIRST, 0, self.clock);
                best = Some((span, FileStream { order, step, at, ahead: at, window, hits, seen_at }));
            }
        }
        best.map(|(_, stream)| stream)
    }
}

/// Returns the direction in which two earlier files, latest first, lead here, and their distance.
fn neighbours(here: i64, before: &[i64]) -> Option<(i64, i64)> {
    [1, -1].into_iter().find_map(|way| {
        let apart = |rank: &i64| (here - rank) * way;
        let latest = before.iter().position(|rank| (1..NEAR).contains(&apart(rank)))?;
        let (rank, earlier) = (before.get(latest)?, before.get(latest + 1..)?);
        let span = earlier.iter().map(apart).find(|span| (apart(rank) + 1..=NEAR).contains(span))?;
        Some((way, span))
    })
}

/// Returns the step between each of the last files and the next, if it is always the same.
fn even_step(here: i64, before: &[i64]) -> Option<i64> {
    let [first, second, third, ..] = before else { return None };
    let step = here - first;
    (first - second == step && second - third == step && (2..=STEP_MAX).contains(&step.abs())).then_some(step)
}

impl FileStream {
    /// Returns the number of steps to the file; `None` if the stream does not reach it.
    fn steps_to(&self, file_map: &FileMap, file: FileIndex) -> Option<i64> {
        let way = i64::from(file_map.rank(self.order, file)?) - self.at;
        (way % self.step == 0).then_some(way / self.step)
    }

    fn fits(&self, file_map: &FileMap, file: FileIndex) -> bool {
        let skipped = self.hits.saturating_mul(SKIPPED_EACH).clamp(1, SKIPPED_MAX);
        let ahead = (self.ahead - self.at) / self.step + i64::from(skipped);
        self.steps_to(file_map, file).is_some_and(|steps| (0..=ahead).contains(&steps))
    }

    fn move_to(&mut self, file_map: &FileMap, access: FileAccess) {
        let Some(steps) = self.steps_to(file_map, access.file).filter(|steps| *steps > 0) else { return };
        self.at += steps * self.step;
        if (self.ahead - self.at) / self.step < 0 {
            self.ahead = self.at;
        }
        if access.anew {
            self.hits = self.hits.saturating_add(1);
            let wider = if access.starved { self.window * 2 } else { self.window + 1 };
            self.window = wider.min(WINDOW_MAX);
        }
    }

    /// Returns the next file to hint; `None` if enough have been.
    pub(super) fn next(&self, file_map: &FileMap) -> Option<FileIndex> {
        let rank = self.ahead + self.step;
        if (rank - self.at) / self.step > i64::from(self.window) {
            return None;
        }
        file_map.at_rank(self.order, u32::try_from(rank).ok()?)
    }

    /// Notes that the next file has been hinted.
    pub(super) fn advance(&mut self) {
        self.ahead += self.step;
    }
}
