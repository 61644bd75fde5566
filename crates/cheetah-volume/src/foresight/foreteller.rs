//! What will be read next, as a state machine: reads in, hints out. It does no I/O and reads no clock.

use std::collections::VecDeque;
use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_device::link_estimate::LinkModel;

use super::around::Around;
use super::atlas::{Atlas, FileIndex, Order};
use super::stream::{Streams, Touch};
use crate::survey::WINDOW_BYTES;

/// Files that are being read, as far as is remembered.
const OPEN_MAX: usize = 64;
/// How far ahead a file is fetched when it is first touched, and at most, in bytes.
const AHEAD_FIRST: u64 = 1 << 20;
const AHEAD_MAX: u64 = 16 << 20;
/// What may be fetched for nothing, beyond as much as was read.
const FREE_BYTES: u64 = 4 << 20;

/// What came of what was hinted so far, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// Came from the device because it was read.
    pub(super) demanded: u64,
    /// Came from the device because it was hinted.
    pub(super) hinted: u64,
    /// Of that, was read.
    pub(super) used: u64,
}

/// A file that is being read.
struct Open {
    file: FileIndex,
    /// Hinted up to here, in the file.
    hinted: u64,
    /// So far ahead of its reader.
    window: u64,
}

/// See the module's essay.
#[derive(Default)]
pub(super) struct Foreteller {
    atlas: Arc<Atlas>,
    open: VecDeque<Open>,
    streams: Streams,
    around: Around,
    /// Bytes hinted in all, as far as they were known to be missing.
    hinted: u64,
}

impl Foreteller {
    /// More has been found.
    pub(super) fn learn(&mut self, atlas: Arc<Atlas>) {
        self.atlas = atlas;
    }

    /// Files known.
    pub(super) fn files(&self) -> usize {
        self.atlas.count()
    }

    /// Somebody reads `range`; `starved` if it is not all here. What to fetch, the most useful first, is told to
    /// `hint`, which answers how many bytes of it that brings.
    pub(super) fn read(
        &mut self,
        range: ByteRange,
        starved: bool,
        account: Account,
        link: LinkModel,
        mut hint: impl FnMut(ByteRange) -> u64,
    ) {
        let atlas = Arc::clone(&self.atlas);
        let allowance = self.allowance(account);
        let found = atlas.file_at(range);
        // What is known of files is worth more than a habit.
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
        let Some((file, at)) = found else {
            for part in self.around.read(range, link).into_iter().filter(|part| starved && !part.is_empty()) {
                spend(part, &mut self.hinted);
            }
            return;
        };
        let rank = atlas.rank(Order::Listing, file);
        tracing::trace!(%range, file, at, rank, starved, "a file is read");
        let known = self.open.iter().position(|open| open.file == file);
        let mut open =
            known.and_then(|at| self.open.remove(at)).unwrap_or(Open { file, hinted: 0, window: AHEAD_FIRST });
        if known.is_some() && starved {
            open.window = (open.window * 2).min(AHEAD_MAX);
        }
        let from = at.saturating_add(range.len);
        let (from, to) = (open.hinted.max(from), from.saturating_add(open.window));
        // Whoever comes upon the middle of a file may mean something else: what tools read around metadata, say. And not
        // a little at a time: each hint is a request.
        let touch = Touch { file, begins: at == 0, anew: known.is_none(), starved };
        let begins = touch.anew && touch.begins;
        let goes_on = known.is_some() && to.saturating_sub(from) * 4 >= open.window;
        if begins || goes_on {
            for part in parts(atlas.runs_of(file), from, to) {
                if spend(part, &mut self.hinted) {
                    open.hinted = to;
                }
            }
        }
        self.open.push_front(open);
        self.open.truncate(OPEN_MAX);
        if let Some(stream) = self.streams.touched(&atlas, touch) {
            while let Some(next) = stream.next(&atlas) {
                let mut all = true;
                for part in parts(atlas.runs_of(next), 0, AHEAD_FIRST) {
                    all &= spend(part, &mut self.hinted);
                }
                if !all {
                    break;
                }
                stream.advance();
            }
        }
    }

    /// What may still be fetched ahead: no more than what was really read, and a little, may ever be in vain.
    fn allowance(&self, account: Account) -> u64 {
        let unused = self.hinted.max(account.hinted).saturating_sub(account.used);
        (account.demanded + account.used + FREE_BYTES).saturating_sub(unused)
    }
}

/// Where bytes `from` up to `to` of a file lie, whole windows from the start of each run: so much of it is read at once.
fn parts(runs: &[ByteRange], from: u64, to: u64) -> impl Iterator<Item = ByteRange> {
    let mut before = 0u64;
    runs.iter().filter_map(move |run| {
        let wide = run.len.checked_next_multiple_of(WINDOW_BYTES).unwrap_or(run.len);
        let start = from.saturating_sub(before).min(wide);
        let end = to.saturating_sub(before);
        let end = if end >= run.len { wide } else { end.next_multiple_of(WINDOW_BYTES).min(wide) };
        // What lies behind the last byte of a run was read with it.
        let done = from.saturating_sub(before) >= run.len && from > before;
        before = before.saturating_add(run.len);
        (start < end && !done).then(|| ByteRange::between(run.offset + start, run.offset.saturating_add(end)))
    })
}
