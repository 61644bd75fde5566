//! One piece of the device that was fetched ahead, or is being fetched.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use super::cursor::CursorId;
use crate::{ByteRange, Data};

/// A contiguous run of bytes held, or on its way, for a stream.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) id: FetchId,
    pub(super) owner: CursorId,
    pub(super) range: ByteRange,
    pub(super) state: State,
    touched: Touched,
}

/// Names a fetch, and the chunk made of it. Later fetches have larger ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FetchId(pub(super) u64);

#[derive(Debug)]
pub(super) enum State {
    Flying(Arc<Landing>),
    Here(Data),
}

impl Chunk {
    pub(super) fn flying(id: FetchId, owner: CursorId, range: ByteRange, landing: Arc<Landing>) -> Self {
        Self { id, owner, range, state: State::Flying(landing), touched: Touched::default() }
    }

    /// Notes that `part` of it has been read, or will be once it is here.
    pub(super) fn touch(&mut self, part: ByteRange) {
        self.touched.mark(ByteRange::new(part.offset - self.range.offset, part.len), self.range.len);
    }

    /// Bytes that have been read at least once.
    pub(super) fn used(&self) -> u64 {
        self.touched.bytes(self.range.len)
    }
}

/// Where readers wait for a fetch. It lands once, with the data or, if it failed, without; also when the chunk
/// was invalidated meanwhile, for those who had come before that.
#[derive(Debug, Default)]
pub(crate) struct Landing {
    outcome: OnceLock<Option<Data>>,
    notify: Notify,
}

impl Landing {
    pub(crate) fn land(&self, data: Option<Data>) {
        if self.outcome.set(data).is_ok() {
            self.notify.notify_waiters();
        }
    }

    /// `part` of what landed, counted from the start of the fetch; `None` if it failed.
    pub(crate) async fn part(&self, part: ByteRange) -> Option<Data> {
        // Made before looking, so that a landing in between is not missed.
        let notified = self.notify.notified();
        if let Some(outcome) = self.outcome.get() {
            return outcome.as_ref().map(|data| data.slice(part.offset, part.len));
        }
        notified.await;
        self.outcome.get()?.as_ref().map(|data| data.slice(part.offset, part.len))
    }
}

/// Which parts of a chunk were read, to one part in 256 of it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Touched([u64; 4]);

impl Touched {
    const GRAINS: u64 = 256;

    fn grain(len: u64) -> u64 {
        len.div_ceil(Self::GRAINS).max(1)
    }

    /// Notes that `part`, counted from the start of a chunk of `len` bytes, has been read.
    pub(crate) fn mark(&mut self, part: ByteRange, len: u64) {
        let grain = Self::grain(len);
        let (first, last) = (part.offset / grain, part.end().div_ceil(grain));
        for (word, base) in self.0.iter_mut().zip((0..).step_by(64)) {
            let from = first.clamp(base, base + 64) - base;
            let to = last.clamp(base, base + 64) - base;
            *word |= low_bits(to) & !low_bits(from);
        }
    }

    /// Bytes of a chunk of `len` that have been read.
    pub(crate) fn bytes(&self, len: u64) -> u64 {
        let grains: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        (u64::from(grains) * Self::grain(len)).min(len)
    }
}

fn low_bits(count: u64) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_read_is_counted_once(len in 1u64..3000, reads in prop::collection::vec((0u64..3000, 1u64..600), 0..20)) {
            let mut touched = Touched::default();
            let mut model = vec![false; len as usize];
            let grain = Touched::grain(len);
            for (offset, count) in reads {
                let part = ByteRange::between(offset.min(len), (offset + count).min(len));
                if part.is_empty() { continue }
                touched.mark(part, len);
                let whole = part.aligned_to(grain);
                (whole.offset..whole.end().min(len)).for_each(|i| model[i as usize] = true);
            }
            let expected = model.iter().filter(|read| **read).count() as u64;
            prop_assert!(touched.bytes(len).abs_diff(expected) < grain);
        }
    }
}
