//! One stream of reads: where its reader is, how far ahead it has been fetched, and what to fetch next.
//!
//! A stream going down is a stream going up on a mirrored device, so everything here goes up; only
//! [`Cursor::view`] knows better.

use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use super::history::Found;
use super::{KIB, MIB};
use crate::ByteRange;

/// Which way a stream goes through the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Towards the end.
    Up,
    /// Towards the start.
    Down,
}

/// The pattern of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One read after the other.
    Sequential(Direction),
    /// A record every so many bytes, with a gap between them.
    Strided {
        /// Which way.
        direction: Direction,
        /// Bytes from the start of one record to the start of the next.
        step: u64,
        /// Bytes in a record.
        record: u64,
    },
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = |direction: &Direction| if *direction == Direction::Up { "forward" } else { "backward" };
        match self {
            Self::Sequential(direction) => f.write_str(arrow(direction)),
            Self::Strided { direction, step, record } => {
                write!(f, "{}, {} every {}", arrow(direction), crate::Size(*record), crate::Size(*step))
            }
        }
    }
}

/// The window a stream starts with.
const WINDOW_START: u64 = 128 * KIB;
/// A fetch of a sequential stream: a quarter of its window within these bounds, so that several are on their way.
const FETCH_MIN: u64 = 64 * KIB;
const FETCH_MAX: u64 = MIB;
/// Where a window allows no fetch of this size, fetching ahead is not worth its requests.
const FETCH_WORTHWHILE: u64 = 4 * KIB;
/// Reads that clients and kernels have under way at once, and so may deliver in any order.
const DEPTH: u64 = 16;
/// Bounds of how far from its place a read may be and still belong to the stream.
const SLACK_MIN: u64 = 64 * KIB;
const SLACK_MAX: u64 = 16 * MIB;
/// Records fetched ahead of a strided stream.
const RECORDS_MIN: u64 = 2;
const RECORDS_MAX: u64 = 1024;
/// Data handed out ahead of its reader: up to this many records, or runs of this many bytes. A kernel takes as long to store
/// some hundred KiB as one request takes.
const PREDICTED_RECORDS_MAX: usize = 32;
const PREDICTED_RUNS_MAX: u64 = 4;
const PREDICTED_BYTES: u64 = 64 * KIB;
/// After so many reads the wrong way, and none the right way, the stream is taken to have turned.
const CONTRARY_MAX: u32 = 3;
/// After a failed fetch, so far the reader has to get on by itself; doubled each time.
const SETBACK_START: u64 = MIB;
const SETBACK_MAX: u64 = 64 * MIB;

/// Names a cursor for as long as the layer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CursorId(pub(super) u64);

/// One stream. Offsets are those of the device as [`view`](Self::view)ed.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) id: CursorId,
    /// When it was last read from.
    pub(super) used_at: Duration,
    direction: Direction,
    /// Size of the device.
    size: u64,
    records: Option<Records>,
    /// Sequential: the end of the furthest read. Strided: the start of the furthest record read.
    position: u64,
    /// The same, of what has been asked of the device.
    frontier: u64,
    /// How far ahead of `position` the frontier may be.
    window: u64,
    /// Only starvation from here on widens the window again: before it, the last widening cannot show yet.
    widen_from: u64,
    /// The largest read.
    read_max: u64,
    /// The lowest read since it started or turned.
    low: u64,
    contrary: u32,
    tally: Tally,
    /// No fetches before the reader gets here.
    paused_until: Option<u64>,
    setback: u64,
}

#[derive(Debug, Clone, Copy)]
struct Records {
    step: u64,
    len: u64,
}

/// How much of what the stream passes is read.
#[derive(Debug)]
struct Tally {
    /// One byte in how many is expected to be.
    sparse: u64,
    passed: u64,
    read: u64,
}

impl Cursor {
    /// Follows the stream that was found. With `through`, the gaps of a strided one are fetched too.
    pub(super) fn new(id: CursorId, found: &Found, read: ByteRange, through: bool, size: u64, now: Duration) -> Self {
        let records = found.step.filter(|_| !through).map(|step| Records { step, len: read.len });
        let mut cursor = Self {
            id,
            used_at: now,
            direction: found.direction,
            size,
            records,
            position: 0,
            frontier: 0,
            window: WINDOW_START,
            widen_from: 0,
            read_max: read.len,
            low: 0,
            contrary: 0,
            tally: Tally { sparse: found.step.map_or(1, |step| step.div_ceil(read.len).max(1)), passed: 0, read: 0 },
            paused_until: None,
            setback: SETBACK_START,
        };
        let hull = cursor.view(found.hull);
        cursor.low = hull.offset;
        cursor.position = if records.is_some() { hull.end() - read.len } else { hull.end() };
        cursor.frontier = cursor.position;
        cursor.widen_from = cursor.position;
        cursor
    }

    /// The range as a stream going up sees it, and back.
    fn view(&self, range: ByteRange) -> ByteRange {
        match self.direction {
            Direction::Up => range,
            Direction::Down => ByteRange::new(self.size - range.end(), range.len),
        }
    }

    /// How far the read is from the place where the next one is expected, if it can be of this stream at all.
    pub(super) fn distance(&self, range: ByteRange) -> Option<u64> {
        let read = self.view(range);
        let Some(Records { step, len }) = self.records else {
            let near = read.end() >= self.position.saturating_sub(self.slack())
                && read.offset <= self.position.saturating_add(self.slack()).max(self.frontier);
            return near.then(|| read.offset.abs_diff(self.position));
        };
        let apart = read.offset.abs_diff(self.position);
        let steps = apart / step;
        let near = if read.offset > self.position { (self.frontier - self.position) / step } else { 0 } + DEPTH;
        (read.len <= len && apart.is_multiple_of(step) && steps <= near)
            .then(|| read.offset.abs_diff(self.position.saturating_add(step)))
    }

    fn slack(&self) -> u64 {
        DEPTH.saturating_mul(self.read_max).saturating_mul(self.tally.sparse).clamp(SLACK_MIN, SLACK_MAX)
    }

    /// Notes a read of this stream. False if it turns out not to be one: too little of what it passes is read.
    pub(super) fn advance(&mut self, range: ByteRange, now: Duration) -> bool {
        self.used_at = now;
        let read = self.view(range);
        if self.records.is_some() {
            self.position = self.position.max(read.offset);
        } else {
            self.read_max = self.read_max.max(read.len);
            self.tally.read = self.tally.read.saturating_add(read.len);
            if read.end() > self.position {
                self.tally.passed = self.tally.passed.saturating_add(read.end() - self.position);
                self.position = read.end();
                self.contrary = 0;
            } else if read.end() <= self.low {
                self.low = read.offset;
                self.contrary += 1;
                if self.contrary == CONTRARY_MAX {
                    self.turn();
                }
            }
        }
        self.frontier = self.frontier.max(self.position);
        if self.paused_until.is_some_and(|until| self.position >= until) {
            (self.paused_until, self.window, self.widen_from) = (None, WINDOW_START, self.position);
        }
        self.tally.holds(2 * self.slack())
    }

    /// The reader goes the other way: from the lowest read down.
    fn turn(&mut self) {
        let (low, high) = (self.low, self.position);
        self.direction = if self.direction == Direction::Up { Direction::Down } else { Direction::Up };
        self.position = self.size - low;
        self.frontier = self.position;
        self.low = self.size - high;
        self.window = WINDOW_START;
        self.widen_from = self.position;
        self.contrary = 0;
        self.paused_until = None;
    }

    /// The read was not in memory when its reader wanted it: the window is too small, up to `limit`.
    pub(super) fn starved(&mut self, range: ByteRange, limit: u64) {
        if self.view(range).offset >= self.widen_from {
            self.window = (self.window * 2).min(limit.max(WINDOW_START));
            self.widen_from = self.frontier;
        }
    }

    /// A fetch for this stream failed. The reader passes the place by itself, and some way more.
    pub(super) fn failed(&mut self, range: ByteRange) {
        let until = self.view(range).end().saturating_add(self.setback);
        self.paused_until = Some(self.paused_until.unwrap_or(0).max(until));
        self.setback = (self.setback * 2).min(SETBACK_MAX);
        self.frontier = self.position;
    }

    /// What to fetch next with a window of no more than `limit` bytes; [`fetching`](Self::fetching) it moves on.
    pub(super) fn next_fetch(&self, limit: u64) -> Option<ByteRange> {
        if self.paused_until.is_some() {
            return None;
        }
        let window = self.window.min(limit);
        let next = match self.records {
            Some(records) => self.next_record(records, window)?,
            None => self.next_run(window)?,
        };
        Some(self.view(next))
    }

    /// The range of [`next_fetch`](Self::next_fetch) is being fetched, or need not be.
    pub(super) fn fetching(&mut self, range: ByteRange) {
        let range = self.view(range);
        self.frontier = if self.records.is_some() { range.offset } else { range.end() };
    }

    fn next_record(&self, Records { step, len }: Records, window: u64) -> Option<ByteRange> {
        let ahead = (window / len).clamp(RECORDS_MIN, RECORDS_MAX);
        let next = ByteRange::new(self.frontier.checked_add(step)?, len);
        (next.fits(self.size) && next.offset - self.position <= ahead.saturating_mul(step)).then_some(next)
    }

    fn next_run(&self, window: u64) -> Option<ByteRange> {
        let unit = power_of_two_within((window / 4).clamp(FETCH_MIN, FETCH_MAX).min(window / 2));
        if unit < FETCH_WORTHWHILE || self.frontier >= self.size {
            return None;
        }
        let mut end = self.boundary_after(self.frontier, unit);
        if end - self.frontier < unit / 2 {
            end = self.boundary_after(end, unit);
        }
        (end <= self.position.saturating_add(window)).then(|| ByteRange::between(self.frontier, end))
    }

    /// The next offset that is a multiple of `unit` on the device as it is, or its end.
    fn boundary_after(&self, at: u64, unit: u64) -> u64 {
        match self.direction {
            Direction::Up => (at / unit + 1).saturating_mul(unit).min(self.size),
            Direction::Down if at >= self.size => self.size,
            Direction::Down => self.size - (self.size - at - 1) / unit * unit,
        }
    }

    /// Whether the stream has come as far as this read of it, and no further.
    pub(super) fn is_at(&self, read: ByteRange) -> bool {
        let read = self.view(read);
        if self.records.is_some() { read.offset == self.position } else { read.end() == self.position }
    }

    /// Returns the ranges that will be read next and have been fetched or are in flight, nearest first. None for a stream that
    /// goes forward without gaps.
    pub(super) fn predicted(&self) -> SmallVec<[ByteRange; PREDICTED_RECORDS_MAX]> {
        let asked = match self.records {
            Some(Records { step, .. }) => (self.frontier - self.position) / step,
            None if self.direction == Direction::Up => 0,
            None => (self.frontier - self.position) / PREDICTED_BYTES,
        };
        let nth = |nth: u64| match self.records {
            Some(Records { step, len }) => ByteRange::new(self.position + nth * step, len),
            None => ByteRange::new(self.position + (nth - 1) * PREDICTED_BYTES, PREDICTED_BYTES),
        };
        let most = if self.records.is_some() { PREDICTED_RECORDS_MAX as u64 } else { PREDICTED_RUNS_MAX };
        let fits = |range: &ByteRange| range.fits(self.size);
        (1..=asked.min(most)).map(nth).filter(fits).map(|range| self.view(range)).collect()
    }

    pub(super) fn pattern(&self) -> Pattern {
        let direction = self.direction;
        match self.records {
            Some(Records { step, len }) => Pattern::Strided { direction, step, record: len },
            None => Pattern::Sequential(direction),
        }
    }

    /// Where the reader is, on the device as it is.
    pub(super) fn position(&self) -> u64 {
        match self.direction {
            Direction::Up => self.position,
            Direction::Down => self.size - self.position,
        }
    }

    /// Bytes the stream has come.
    pub(super) fn come(&self) -> u64 {
        let way = self.position.saturating_sub(self.low);
        self.records.map_or(way, |Records { step, len }| (way / step + 1).saturating_mul(len))
    }

    /// Whether more than a quarter of what it passed lately was not read.
    pub(super) fn has_gaps(&self) -> bool {
        self.records.is_none() && self.tally.read.saturating_mul(4) < self.tally.passed.saturating_mul(3)
    }

    /// The largest of its reads.
    pub(super) fn read_max(&self) -> u64 {
        self.read_max
    }

    pub(super) fn window(&self) -> u64 {
        if self.paused_until.is_some() { 0 } else { self.window }
    }
}

impl Tally {
    /// Whether at least a third of what was expected is read, judged every `span` bytes.
    fn holds(&mut self, span: u64) -> bool {
        if self.passed <= span {
            return true;
        }
        let holds = self.read.saturating_mul(3).saturating_mul(self.sparse) >= self.passed;
        self.passed /= 2;
        self.read /= 2;
        holds
    }
}

/// The largest power of two that is no larger than `n`; 0 for 0.
fn power_of_two_within(n: u64) -> u64 {
    if n == 0 { 0 } else { 1 << n.ilog2() }
}
