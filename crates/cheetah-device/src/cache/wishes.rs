//! Ranges that somebody wants near, the most urgent first.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::Urgency;
use crate::ByteRange;

/// Wishes remembered of each urgency; further ones are forgotten, as hints may be.
const WISHES_MAX: usize = 4096;

/// What is left of the wishes.
#[derive(Default)]
pub(super) struct Wishes {
    queues: [VecDeque<Wish>; Urgency::COUNT],
}

struct Wish {
    range: ByteRange,
    /// Told when all of it is here or on its way; dropped if it never will be.
    told: Option<oneshot::Sender<()>>,
}

impl Wishes {
    pub(super) fn push(&mut self, range: ByteRange, urgency: Urgency, told: Option<oneshot::Sender<()>>) {
        let queue = &mut self.queues[urgency as usize];
        if !range.is_empty() && queue.len() < WISHES_MAX {
            queue.push_back(Wish { range, told });
        }
    }

    /// The next piece to fetch, of at most so many bytes.
    pub(super) fn peek(&self, bytes_max: u64) -> Option<(ByteRange, Urgency)> {
        Urgency::ALL.into_iter().find_map(|urgency| {
            let wish = self.queues[urgency as usize].front()?;
            Some((wish.range.split_at_multiples(bytes_max).next()?, urgency))
        })
    }

    /// What was peeked at is here or on its way.
    pub(super) fn pop(&mut self, range: ByteRange, urgency: Urgency) {
        let queue = &mut self.queues[urgency as usize];
        let Some(front) = queue.front_mut() else { return };
        front.range = ByteRange::between(range.end(), front.range.end());
        if front.range.is_empty()
            && let Some(told) = queue.pop_front().and_then(|wish| wish.told)
        {
            // Whoever wished may have gone.
            let _ = told.send(());
        }
    }
}
