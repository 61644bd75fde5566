//! Hints that have not been fetched yet, most urgent first.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::Urgency;
use crate::ByteRange;

/// The maximum number of hints queued of each urgency. Further ones are dropped, as hints may be.
const HINTS_MAX: usize = 4096;

/// A queue of hints for each urgency.
#[derive(Default)]
pub(super) struct HintQueue {
    queues: [VecDeque<QueuedHint>; Urgency::COUNT],
}

struct QueuedHint {
    /// The part that has not been fetched yet.
    range: ByteRange,
    /// Notified when all of it is held or in flight; dropped if it never will be.
    done: Option<oneshot::Sender<()>>,
}

impl HintQueue {
    /// Queues a hint for a range.
    pub(super) fn push(&mut self, range: ByteRange, urgency: Urgency, done: Option<oneshot::Sender<()>>) {
        let queue = &mut self.queues[urgency as usize];
        if !range.is_empty() && queue.len() < HINTS_MAX {
            queue.push_back(QueuedHint { range, done });
        }
    }

    /// Returns the range to fetch next, of at most `bytes_max`.
    pub(super) fn peek(&self, bytes_max: u64) -> Option<(ByteRange, Urgency)> {
        Urgency::ALL.into_iter().find_map(|urgency| {
            let hint = self.queues[urgency as usize].front()?;
            Some((hint.range.split_at_multiples(bytes_max).next()?, urgency))
        })
    }

    /// Removes a range that was [peeked](Self::peek) at and is held or in flight now.
    pub(super) fn pop(&mut self, range: ByteRange, urgency: Urgency) {
        let queue = &mut self.queues[urgency as usize];
        let Some(front) = queue.front_mut() else { return };
        debug_assert_eq!(front.range.offset, range.offset, "only the front is popped");
        front.range = ByteRange::between(range.end(), front.range.end());
        if front.range.is_empty()
            && let Some(done) = queue.pop_front().and_then(|hint| hint.done)
        {
            // The caller may have stopped waiting.
            let _ = done.send(());
        }
    }
}
