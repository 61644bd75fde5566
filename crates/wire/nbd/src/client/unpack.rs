//! Unpacking packed chunks, in the reader's future rather than in the connection's task.

use std::num::NonZeroUsize;
use std::sync::LazyLock;

use bytes::Bytes;
use cheetah_device::data::Part;
use cheetah_device::{ByteRange, Data, Error, Result, buffers};
use futures::stream::{FuturesOrdered, TryStreamExt};
use tokio::sync::Semaphore;

use super::Shared;
use super::inflight::{ReadChunk, ReadChunks};
use crate::proto::packed::{self, Codec, CorruptContent, Head};

/// Up to this size, unpacking takes less time than waking a thread would.
const INLINE_LEN_MAX: u32 = 32 << 10;

/// Limits concurrent unpacking by all clients of this process to the number of processors.
static PLACES: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    Semaphore::new(processors.get())
});

impl Shared {
    /// Unpacks the chunks of a read and joins them.
    pub(super) async fn unpack(&self, pieces: ReadChunks) -> Result<Data> {
        let parts: FuturesOrdered<_> =
            pieces.into_iter().map(|(offset, piece)| async move { (self.unpack_piece(offset, piece)).await }).collect();
        parts
            .try_fold(Data::new(), |mut data, part| async move {
                data.push_part(part);
                Ok(data)
            })
            .await
    }

    async fn unpack_piece(&self, offset: u64, piece: ReadChunk) -> Result<Part> {
        let packed = match piece {
            ReadChunk::Plain(part) => return Ok(part),
            ReadChunk::Packed(packed) => packed,
        };
        let (head, bytes) = *packed;
        let unpacked = if head.len <= INLINE_LEN_MAX {
            unpack(&head, bytes)
        } else {
            // The semaphore is never closed.
            let _place = PLACES.acquire().await;
            cheetah_device::supervise::spawn_blocking(move || unpack(&head, bytes)).await.unwrap_or(Err(CorruptContent))
        };
        unpacked.map(Part::Bytes).map_err(|CorruptContent| {
            let range = ByteRange::new(offset, head.len.into());
            let error = Error::Corrupt { device: self.name.clone(), range };
            tracing::error!("{error}");
            error
        })
    }
}

fn unpack(head: &Head, packed: Bytes) -> std::result::Result<Bytes, CorruptContent> {
    if head.codec == Codec::Stored {
        return packed::check(head, &packed).map(|()| packed);
    }
    let len = head.len as usize;
    let mut content = buffers::empty(len);
    content.resize(len, 0);
    packed::unpack(head, &packed, &mut content)?;
    Ok(buffers::share(content))
}
