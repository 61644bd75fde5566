//! One stream of reads: the position of its reader, the range fetched ahead, and the next range to fetch.
//!
//! A descending stream is an ascending one on a mirrored device ([`Cursor::view`]), so all other code here assumes
//! ascending offsets.

use std::time::Duration;

use smallvec::SmallVec;

use super::history::DetectedStream;
use super::pattern::{Direction, Pattern};
use super::{KIB, MIB};
use crate::ByteRange;

/// The initial window of a stream.
const WINDOW_START: u64 = 128 * KIB;
/// Bounds of a fetch of a sequential stream, which is a quarter of its window, so that several are in flight.
const FETCH_MIN: u64 = 64 * KIB;
const FETCH_MAX: u64 = MIB;
/// A window that allows no fetch of this size is not worth its requests.
const FETCH_WORTHWHILE: u64 = 4 * KIB;
/// The queue depth of clients and kernels, whose reads may arrive in any order.
const DEPTH: u64 = 16;
/// Bounds of the distance at which a read still belongs to a stream.
const SLACK_MIN: u64 = 64 * KIB;
const SLACK_MAX: u64 = 16 * MIB;
/// Bounds of the number of records fetched ahead of a strided stream.
const RECORDS_MIN: u64 = 2;
const RECORDS_MAX: u64 = 1024;
/// Data handed out ahead of its reader: up to this many records, or runs of this many bytes. A kernel needs as long to
/// store some hundred KiB as one request takes.
const PREDICTED_RECORDS_MAX: usize = 32;
const PREDICTED_RUNS_MAX: u64 = 4;
const PREDICTED_BYTES: u64 = 64 * KIB;
/// After this many reads against its direction, and none along it, a stream has turned.
const CONTRARY_MAX: u32 = 3;
/// The distance over which nothing is fetched after a failed fetch; doubled each time.
const SETBACK_START: u64 = MIB;
const SETBACK_MAX: u64 = 64 * MIB;

/// Names a cursor for the life of the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CursorId(pub(super) u64);

/// When a stream was last read from.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastUse {
    pub(super) at: Duration,
    /// The bytes that all reads had taken by then.
    pub(super) taken_bytes: u64,
}

/// One stream. Offsets are mirrored by [`view`](Self::view) if it goes down.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) id: CursorId,
    pub(super) used: LastUse,
    direction: Direction,
    /// The size of the device.
    size: u64,
    shape: StreamShape,
    /// Sequential: the end of the furthest read. Strided: the start of the furthest record read.
    position: u64,
    /// The same, of the data held or in flight. Never before `position`.
    frontier: u64,
    /// The maximum distance of the frontier from `position`.
    window: u64,
    /// Only starvation after this offset widens the window again: before it, the last widening cannot have an effect
    /// yet.
    widen_from: u64,
    /// The lowest read since the stream started or turned.
    low: u64,
    fetching: Fetching,
    /// The length of the next pause.
    setback: u64,
}

/// The pattern of a stream.
#[derive(Debug)]
enum StreamShape {
    /// Ranges that are adjacent, or nearly so.
    Sequential {
        /// The largest read.
        read_max: u64,
        /// Reads against the direction since the last one along it.
        contrary: u32,
        density: Density,
    },
    /// Records of `len` bytes every `step`.
    Strided { step: u64, len: u64 },
}

/// Whether a stream is fetched ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetching {
    Active,
    /// A fetch failed: nothing is fetched until the reader reaches this offset.
    PausedUntil(u64),
}

/// The share of the bytes a stream passes that are read.
#[derive(Debug)]
struct Density {
    /// The number of bytes passed for each byte expected to be read.
    sparse: u64,
    passed: u64,
    read: u64,
}

impl Cursor {
    /// Follows a stream. With `through`, the gaps of a strided one are fetched too.
    pub(super) fn new(
        id: CursorId,
        found: &DetectedStream,
        read: ByteRange,
        through: bool,
        size: u64,
        used: LastUse,
    ) -> Self {
        let sparse = found.step.map_or(1, |step| step.div_ceil(read.len).max(1));
        let shape = match found.step.filter(|_| !through) {
            Some(step) => StreamShape::Strided { step, len: read.len },
            None => StreamShape::Sequential {
                read_max: read.len,
                contrary: 0,
                density: Density { sparse, passed: 0, read: 0 },
            },
        };
        let mut cursor = Self {
            id,
            used,
            direction: found.direction,
            size,
            shape,
            position: 0,
            frontier: 0,
            window: WINDOW_START,
            widen_from: 0,
            low: 0,
            fetching: Fetching::Active,
            setback: SETBACK_START,
        };
        let hull = cursor.view(found.hull);
        cursor.low = hull.offset;
        cursor.position = if cursor.is_strided() { hull.end() - read.len } else { hull.end() };
        cursor.frontier = cursor.position;
        cursor.widen_from = cursor.position;
        cursor
    }

    fn is_strided(&self) -> bool {
        matches!(self.shape, StreamShape::Strided { .. })
    }

    /// Mirrors a range if the stream goes down; its own inverse.
    fn view(&self, range: ByteRange) -> ByteRange {
        match self.direction {
            Direction::Up => range,
            Direction::Down => ByteRange::new(self.size - range.end(), range.len),
        }
    }

    /// Returns the distance of a read from the expected one; `None` if it does not belong to the stream.
    pub(super) fn distance(&self, range: ByteRange) -> Option<u64> {
        let read = self.view(range);
        match self.shape {
            StreamShape::Sequential { .. } => {
                let near = read.end() >= self.position.saturating_sub(self.slack())
                    && read.offset <= self.position.saturating_add(self.slack()).max(self.frontier);
                near.then(|| read.offset.abs_diff(self.position))
            }
            StreamShape::Strided { step, len } => {
                let apart = read.offset.abs_diff(self.position);
                let ahead = if read.offset > self.position { (self.frontier - self.position) / step } else { 0 };
                let near = apart / step <= ahead + DEPTH;
                (read.len <= len && apart.is_multiple_of(step) && near)
                    .then(|| read.offset.abs_diff(self.position.saturating_add(step)))
            }
        }
    }

    fn slack(&self) -> u64 {
        let StreamShape::Sequential { read_max, density, .. } = &self.shape else { return SLACK_MIN };
        DEPTH.saturating_mul(*read_max).saturating_mul(density.sparse).clamp(SLACK_MIN, SLACK_MAX)
    }

    /// Notes a read of this stream. Returns false if the reader skips most of the bytes it passes, so that it is no
    /// stream.
    pub(super) fn advance(&mut self, range: ByteRange, used: LastUse) -> bool {
        self.used = used;
        let read = self.view(range);
        let mut turned = false;
        match &mut self.shape {
            StreamShape::Strided { .. } => self.position = self.position.max(read.offset),
            StreamShape::Sequential { read_max, contrary, density } => {
                *read_max = (*read_max).max(read.len);
                density.read = density.read.saturating_add(read.len);
                if read.end() > self.position {
                    density.passed = density.passed.saturating_add(read.end() - self.position);
                    self.position = read.end();
                    *contrary = 0;
                } else if read.end() <= self.low {
                    self.low = read.offset;
                    *contrary += 1;
                    turned = *contrary == CONTRARY_MAX;
                }
            }
        }
        if turned {
            self.turn();
        }
        self.frontier = self.frontier.max(self.position);
        if let Fetching::PausedUntil(until) = self.fetching
            && self.position >= until
        {
            (self.fetching, self.window, self.widen_from) = (Fetching::Active, WINDOW_START, self.position);
        }
        let span = 2 * self.slack();
        match &mut self.shape {
            StreamShape::Sequential { density, .. } => density.suffices(span),
            StreamShape::Strided { .. } => true,
        }
    }

    /// Reverses the stream: it continues from the lowest read, downward.
    fn turn(&mut self) {
        let (low, high) = (self.low, self.position);
        self.direction = if self.direction == Direction::Up { Direction::Down } else { Direction::Up };
        self.position = self.size - low;
        self.frontier = self.position;
        self.low = self.size - high;
        self.window = WINDOW_START;
        self.widen_from = self.position;
        self.fetching = Fetching::Active;
        if let StreamShape::Sequential { contrary, .. } = &mut self.shape {
            *contrary = 0;
        }
    }

    /// Notes that a read was not in memory: widens the window, up to `limit`.
    pub(super) fn starved(&mut self, range: ByteRange, limit: u64) {
        if self.view(range).offset >= self.widen_from {
            self.window = (self.window * 2).min(limit.max(WINDOW_START));
            self.widen_from = self.frontier;
        }
    }

    /// Notes that a fetch for this stream failed. The reader reads the failed range, and some distance beyond it,
    /// without read-ahead.
    pub(super) fn failed(&mut self, range: ByteRange) {
        let until = self.view(range).end().saturating_add(self.setback);
        let before = if let Fetching::PausedUntil(before) = self.fetching { before } else { 0 };
        self.fetching = Fetching::PausedUntil(before.max(until));
        self.setback = (self.setback * 2).min(SETBACK_MAX);
        self.frontier = self.position;
    }

    /// Returns the range to fetch next, with a window of at most `limit` bytes. [`fetching`](Self::fetching) then
    /// advances the frontier.
    pub(super) fn next_fetch(&self, limit: u64) -> Option<ByteRange> {
        debug_assert!(self.frontier >= self.position, "the reader is ahead of what has been fetched");
        if self.fetching != Fetching::Active {
            return None;
        }
        let window = self.window.min(limit);
        let next = match self.shape {
            StreamShape::Strided { step, len } => self.next_record(step, len, window)?,
            StreamShape::Sequential { .. } => self.next_run(window)?,
        };
        Some(self.view(next))
    }

    /// Notes that the range of [`next_fetch`](Self::next_fetch) is being fetched, or need not be.
    pub(super) fn fetching(&mut self, range: ByteRange) {
        let range = self.view(range);
        let frontier = if self.is_strided() { range.offset } else { range.end() };
        debug_assert!(frontier > self.frontier, "each fetch moves the frontier on");
        self.frontier = frontier;
    }

    fn next_record(&self, step: u64, len: u64, window: u64) -> Option<ByteRange> {
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

    /// Returns the next offset that is a multiple of `unit` on the device itself, or its end.
    fn boundary_after(&self, at: u64, unit: u64) -> u64 {
        match self.direction {
            Direction::Up => (at / unit + 1).saturating_mul(unit).min(self.size),
            Direction::Down if at >= self.size => self.size,
            Direction::Down => self.size - (self.size - at - 1) / unit * unit,
        }
    }

    /// Whether this is the furthest read of the stream.
    pub(super) fn is_at(&self, read: ByteRange) -> bool {
        let read = self.view(read);
        if self.is_strided() { read.offset == self.position } else { read.end() == self.position }
    }

    /// Returns the ranges that will be read next and are held or in flight, nearest first. None for a stream that goes
    /// forward without gaps.
    pub(super) fn predicted(&self) -> SmallVec<[ByteRange; PREDICTED_RECORDS_MAX]> {
        let (first, step, len, max) = match self.shape {
            StreamShape::Strided { step, len } => {
                (self.position.saturating_add(step), step, len, PREDICTED_RECORDS_MAX as u64)
            }
            StreamShape::Sequential { .. } if self.direction == Direction::Up => return SmallVec::new(),
            StreamShape::Sequential { .. } => (self.position, PREDICTED_BYTES, PREDICTED_BYTES, PREDICTED_RUNS_MAX),
        };
        let count = ((self.frontier - self.position) / step).min(max);
        let ranges = (0..count).map(|nth| ByteRange::new(first + nth * step, len));
        ranges.filter(|range| range.fits(self.size)).map(|range| self.view(range)).collect()
    }

    pub(super) fn pattern(&self) -> Pattern {
        let direction = self.direction;
        match self.shape {
            StreamShape::Strided { step, len } => Pattern::Strided { direction, step, record: len },
            StreamShape::Sequential { .. } => Pattern::Sequential(direction),
        }
    }

    /// Returns the position of the reader on the device itself.
    pub(super) fn position(&self) -> u64 {
        match self.direction {
            Direction::Up => self.position,
            Direction::Down => self.size - self.position,
        }
    }

    /// Returns the bytes the stream has advanced.
    pub(super) fn advanced_bytes(&self) -> u64 {
        let distance = self.position.saturating_sub(self.low);
        match self.shape {
            StreamShape::Strided { step, len } => (distance / step + 1).saturating_mul(len),
            StreamShape::Sequential { .. } => distance,
        }
    }

    /// Whether more than a quarter of the bytes that it passed recently were not read.
    pub(super) fn has_gaps(&self) -> bool {
        match &self.shape {
            StreamShape::Sequential { density, .. } => {
                density.read.saturating_mul(4) < density.passed.saturating_mul(3)
            }
            StreamShape::Strided { .. } => false,
        }
    }

    /// Returns the length of its largest read.
    pub(super) fn read_max(&self) -> u64 {
        match self.shape {
            StreamShape::Sequential { read_max, .. } => read_max,
            StreamShape::Strided { len, .. } => len,
        }
    }

    pub(super) fn window(&self) -> u64 {
        if self.fetching == Fetching::Active { self.window } else { 0 }
    }
}

impl Density {
    /// Whether at least a third of the bytes expected to be read are, judged every `span` bytes.
    fn suffices(&mut self, span: u64) -> bool {
        if self.passed <= span {
            return true;
        }
        let suffices = self.read.saturating_mul(3).saturating_mul(self.sparse) >= self.passed;
        self.passed /= 2;
        self.read /= 2;
        suffices
    }
}

/// Returns the largest power of two that is no larger than `n`; 0 for 0.
fn power_of_two_within(n: u64) -> u64 {
    if n == 0 { 0 } else { 1 << n.ilog2() }
}
