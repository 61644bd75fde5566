//! A range that is held for a stream, or in flight.

use std::sync::Arc;

use super::cursor::CursorId;
use crate::fetch::{PendingFetch, ReadBitmap};
use crate::{ByteRange, Data};

/// A contiguous range that was prefetched, or is in flight.
#[derive(Debug)]
pub(super) struct PrefetchedChunk {
    pub(super) id: PrefetchId,
    pub(super) owner: CursorId,
    pub(super) range: ByteRange,
    pub(super) state: ChunkState,
    read_bitmap: ReadBitmap,
}

/// Names a fetch, and the chunk made of it. Later fetches have larger ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PrefetchId(pub(super) u64);

#[derive(Debug)]
pub(super) enum ChunkState {
    InFlight(Arc<PendingFetch>),
    Held(Data),
}

impl PrefetchedChunk {
    pub(super) fn in_flight(id: PrefetchId, owner: CursorId, range: ByteRange, pending: Arc<PendingFetch>) -> Self {
        Self { id, owner, range, state: ChunkState::InFlight(pending), read_bitmap: ReadBitmap::default() }
    }

    /// Notes that `part` of the device has been read, or will be when the chunk arrives.
    pub(super) fn mark_read(&mut self, part: ByteRange) {
        self.read_bitmap.mark(ByteRange::new(part.offset - self.range.offset, part.len), self.range.len);
    }

    /// Returns the bytes that have been read at least once.
    pub(super) fn used(&self) -> u64 {
        self.read_bitmap.bytes(self.range.len)
    }
}
