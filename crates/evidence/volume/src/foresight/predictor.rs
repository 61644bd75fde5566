//! The prediction of reads as a state machine: reads in, hints out. It does no I/O and reads no clock.

use std::collections::VecDeque;
use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_device::link_estimate::LinkModel;

use super::file_map::{FileIndex, FileMap, FileOrder};
use super::file_stream::{FileAccess, FileStreams};
use super::locality::LocalityPredictor;
use crate::survey::WINDOW_BYTES;

/// The maximum number of open files remembered.
const OPEN_MAX: usize = 64;
/// The window of a file at its first read, and its maximum, in bytes.
const AHEAD_FIRST: u64 = 1 << 20;
const AHEAD_MAX: u64 = 16 << 20;
/// The number of wasted bytes allowed in addition to the number of bytes read.
const FREE_BYTES: u64 = 4 << 20;

/// The bytes fetched so far, and the use of hints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HintUsage {
    /// Fetched because a reader waited for them.
    pub(super) demanded: u64,
    /// Fetched because of hints.
    pub(super) hinted: u64,
    /// Of the hinted bytes, those read since.
    pub(super) used: u64,
}

/// What a read reads of a file.
struct FileRead {
    file: FileIndex,
    /// Its position in the file.
    at: u64,
    /// Whether the reader reads the file from its start, which may be cached above.
    begins: bool,
}

/// A file that is being read.
struct OpenFile {
    file: FileIndex,
    /// The position up to which it has been hinted.
    hinted: u64,
    /// The distance hinted ahead of its reader.
    window: u64,
}

/// Predicts reads; see the [module](super).
#[derive(Default)]
pub(super) struct ReadPredictor {
    file_map: Arc<FileMap>,
    open: VecDeque<OpenFile>,
    streams: FileStreams,
    locality: LocalityPredictor,
    /// The total of absent bytes hinted.
    hinted: u64,
}

impl ReadPredictor {
    /// Replaces the map: more files have been found.
    pub(super) fn learn(&mut self, file_map: Arc<FileMap>) {
        self.file_map = file_map;
    }

    /// Returns the number of known files.
    pub(super) fn files(&self) -> usize {
        self.file_map.count()
    }

    /// Notes a read of `range`; `starved` if part of it is not cached. Passes ranges to fetch to `hint`, the most
    /// useful first, which returns the number of bytes each will fetch.
    pub(super) fn read(
        &mut self,
        range: ByteRange,
        starved: bool,
        usage: HintUsage,
        link: LinkModel,
        mut hint: impl FnMut(ByteRange) -> u64,
    ) {
        let file_map = Arc::clone(&self.file_map);
        let allowance = self.allowance(usage);
        let found = self.file_read(&file_map, range);
        // Knowledge of files predicts better than locality.
        let mut allowed = if found.is_some() { allowance } else { allowance / 2 };
        let mut spend = |range: ByteRange, hinted: &mut u64| {
            if range.len <= allowed {
                let bytes = hint(range);
                *hinted += bytes;
                allowed -= bytes.min(allowed);
                return true;
            }
            false
        };
        let Some(FileRead { file, at, begins }) = found else {
            for part in self.locality.read(range, link).into_iter().filter(|part| starved && !part.is_empty()) {
                spend(part, &mut self.hinted);
            }
            return;
        };
        let rank = file_map.rank(FileOrder::Listing, file);
        tracing::trace!(%range, file, at, rank, starved, "a file is read");
        let known = self.open.iter().position(|open| open.file == file);
        let mut open =
            known.and_then(|at| self.open.remove(at)).unwrap_or(OpenFile { file, hinted: 0, window: AHEAD_FIRST });
        if known.is_some() && starved {
            open.window = (open.window * 2).min(AHEAD_MAX);
        }
        let from = at.saturating_add(range.len);
        let (from, to) = (open.hinted.max(from), from.saturating_add(open.window));
        // A first read in the middle of a file may belong to something else, such as metadata nearby. Hints are given
        // in large steps, since each one is a request.
        let access = FileAccess { file, begins, anew: known.is_none(), starved };
        let begins = access.anew && access.begins;
        let goes_on = known.is_some() && to.saturating_sub(from) * 4 >= open.window;
        if begins || goes_on {
            for part in parts(file_map.runs_of(file), from, to) {
                if spend(part, &mut self.hinted) {
                    open.hinted = to;
                }
            }
        }
        self.open.push_front(open);
        self.open.truncate(OPEN_MAX);
        if let Some(stream) = self.streams.accessed(&file_map, access) {
            while let Some(next) = stream.next(&file_map) {
                let mut all = true;
                for part in parts(file_map.runs_of(next), 0, AHEAD_FIRST) {
                    all &= spend(part, &mut self.hinted);
                }
                if !all {
                    tracing::trace!(file = next, "too much was hinted for nothing");
                    break;
                }
                stream.advance();
            }
        }
    }

    /// Returns the file that a read belongs to. The end of a file's first window lies in other files, so there are two answers if
    /// one of those was meant: then the file counts that a stream gets to first, or else the one that is read from its start.
    fn file_read(&self, file_map: &FileMap, range: ByteRange) -> Option<FileRead> {
        let inside = file_map.file_at(range).map(|(file, at)| FileRead { file, at, begins: at == 0 });
        let Some((file, at)) = file_map.file_of_window_end(range) else { return inside };
        let window = FileRead { file, at, begins: true };
        let Some(inside) = inside else { return Some(window) };
        let steps = |read: &FileRead| self.streams.steps_ahead(file_map, read.file).unwrap_or(i64::MAX);
        let goes_on = self.open.iter().any(|open| open.file == inside.file);
        let is_window = steps(&window) < steps(&inside) || !(inside.begins || goes_on);
        Some(if is_window { window } else { inside })
    }

    /// Returns the bytes that may still be hinted: at most as many bytes may be wasted as were read, plus
    /// [`FREE_BYTES`].
    fn allowance(&self, usage: HintUsage) -> u64 {
        let unused = self.hinted.max(usage.hinted).saturating_sub(usage.used);
        (usage.demanded + usage.used + FREE_BYTES).saturating_sub(unused)
    }
}

/// Returns the extents of bytes `from` to `to` of a file, in whole windows from the start of each run, as tools read
/// it.
fn parts(runs: &[ByteRange], from: u64, to: u64) -> impl Iterator<Item = ByteRange> {
    let mut before = 0u64;
    runs.iter().filter_map(move |run| {
        let wide = run.len.checked_next_multiple_of(WINDOW_BYTES).unwrap_or(run.len);
        let start = from.saturating_sub(before).min(wide);
        let end = to.saturating_sub(before);
        let end = if end >= run.len { wide } else { end.next_multiple_of(WINDOW_BYTES).min(wide) };
        // The bytes after the end of a run were read with its last window.
        let done = from.saturating_sub(before) >= run.len && from > before;
        before = before.saturating_add(run.len);
        (start < end && !done).then(|| ByteRange::between(run.offset + start, run.offset.saturating_add(end)))
    })
}
