//! The copy engine: reads ahead, hashes in order, writes behind, and skips zeros.
//!
//! ```text
//!  source ──task per chunk: read, digest──▶ chunks in order ──▶ thread per hash
//!                                                    └──▶ task per chunk: find zeros, write
//! ```
//! Every stage is bounded: a copy uses about 24 MiB, however large the devices are.

pub(crate) mod rescue;
pub mod sparse_file;

use std::sync::Arc;

use cheetah_device::{ByteRange, Data, DynDevice, Error as DeviceError, Zeroing};
use futures::future::try_join_all;
use futures::{Stream, StreamExt as _, stream};
use tokio::task::{JoinError, JoinSet};

use crate::file::digests::{CHUNK_BYTES, ChunkDigest, Digests, digest};
use cheetah_error::{Error, Result};
use cheetah_image::hash::{HashChoice, Hashes, Hashing};

/// Reads in flight, in chunks: enough for a link of 1 Gbit/s and 60 ms.
const READ_AHEAD: usize = 8;
/// Writes in flight, in chunks.
const WRITE_BEHIND: usize = 8;
/// The granularity of finding zeros, in bytes: a node stores memory in chunks of this size.
const ZERO_RUN_BYTES: u64 = 64 << 10;

/// The progress of a copy, a verification or a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// Bytes done.
    pub done: u64,
    /// Bytes in total.
    pub total: u64,
}

/// A copy from one device to another.
pub(crate) struct DeviceCopy {
    /// The device to copy from.
    pub from: DynDevice,
    /// Its name in errors.
    pub from_name: Arc<str>,
    /// The device to copy to; must be writable and large enough.
    pub to: DynDevice,
    /// Its name in errors.
    pub to_name: Arc<str>,
    /// The number of bytes to copy, from the start.
    pub size: u64,
    /// The hashes to compute of the whole.
    pub hashes: HashChoice,
}

impl DeviceCopy {
    /// Copies, then flushes. Records the digests of the chunks in `digests`, if there is one.
    pub async fn run(
        &self,
        mut digests: Option<&mut Digests>,
        mut progress: impl FnMut(CopyProgress) + Send,
    ) -> Result<Hashes> {
        let hashing = Hashing::start(self.hashes)?;
        let digested = digests.as_ref().map_or(0, |digests| digests.size());
        let mut reads = std::pin::pin!(chunks(self.from.clone(), self.size, digested));
        let mut writer = ChunkWriter::new(self.to.clone(), self.to_name.clone());
        while let Some(ReadChunk { range, read }) = reads.next().await {
            let (data, digest) = read.map_err(Error::device(format!("reading {}", self.from_name)))?;
            if let (Some(digests), Some(digest)) = (&mut digests, digest) {
                digests.set(range.offset, digest);
            }
            hashing.push(&data).await?;
            writer.write(range, data).await?;
            progress(CopyProgress { done: writer.written(), total: self.size });
        }
        writer.wait().await?;
        progress(CopyProgress { done: writer.written(), total: self.size });
        self.to.flush().await.map_err(Error::device(format!("flushing {}", self.to_name)))?;
        hashing.finish().await
    }
}

/// Writes several chunks concurrently, each in a task of its own, and skips zeros.
pub struct ChunkWriter {
    to: DynDevice,
    name: Arc<str>,
    tasks: JoinSet<Result<u64>>,
    written: u64,
}

impl ChunkWriter {
    /// Writes to `to`, which errors call `name`.
    pub fn new(to: DynDevice, name: impl Into<Arc<str>>) -> Self {
        Self { to, name: name.into(), tasks: JoinSet::new(), written: 0 }
    }

    /// Starts writing `data` to `range`, which is as long; waits first while too many writes are in flight. The error
    /// may be that of an earlier write. Ranges must not overlap until [`ChunkWriter::wait`].
    pub async fn write(&mut self, range: ByteRange, data: Data) -> Result<()> {
        while self.tasks.len() >= WRITE_BEHIND {
            self.next().await?;
        }
        self.tasks.spawn(write(self.to.clone(), self.name.clone(), range, data));
        Ok(())
    }

    /// Waits until everything has been written. Does not flush.
    pub async fn wait(&mut self) -> Result<()> {
        while !self.tasks.is_empty() {
            self.next().await?;
        }
        Ok(())
    }

    /// Bytes written so far.
    pub const fn written(&self) -> u64 {
        self.written
    }

    async fn next(&mut self) -> Result<()> {
        if let Some(result) = self.tasks.join_next().await {
            self.written += result.map_err(|error| Error::failed(format!("writing {}: {error}", self.name)))??;
        }
        Ok(())
    }
}

/// A chunk of a device that has been read, or that failed.
pub(crate) struct ReadChunk {
    /// Its range.
    pub range: ByteRange,
    /// Its content, and its digest if one was wanted.
    pub read: cheetah_device::Result<(Data, Option<ChunkDigest>)>,
}

/// Reads the chunks of the first `size` bytes of `device` ahead, in tasks of their own, and returns them in order.
/// Chunks of the first `digested` bytes are digested as well; the rest starts with a new chunk.
pub(crate) fn chunks(device: DynDevice, size: u64, digested: u64) -> impl Stream<Item = ReadChunk> + Send {
    let digested = digested.min(size);
    let parts = [ByteRange::new(0, digested), ByteRange::between(digested, size)];
    chunks_of(device, parts, move |chunk| chunk.end() <= digested)
}

/// Reads the chunks of `ranges` of `device` ahead, in tasks of their own, and returns them in order. Chunks for which
/// `digested` holds are digested as well.
pub(crate) fn chunks_of<R>(
    device: DynDevice,
    ranges: R,
    digested: impl Fn(ByteRange) -> bool + Send,
) -> impl Stream<Item = ReadChunk> + Send
where
    R: IntoIterator<Item = ByteRange>,
    R::IntoIter: Send,
{
    let read = move |range: ByteRange| {
        let (device, digested) = (device.clone(), digested(range));
        let task = tokio::spawn(async move {
            let data = read_exactly(&device, range).await?;
            let digest = digested.then(|| digest(&data));
            Ok((data, digest))
        });
        async move {
            let died = |error: JoinError| Err(DeviceError::Invalid(format!("reading {range}: {error}").into()));
            ReadChunk { range, read: task.await.unwrap_or_else(died) }
        }
    };
    let chunks = ranges.into_iter().flat_map(|range| range.split_at_multiples(CHUNK_BYTES));
    stream::iter(chunks).map(read).buffered(READ_AHEAD)
}

/// Reads `range`; a reply of another length is an error.
pub async fn read_exactly(device: &DynDevice, range: ByteRange) -> cheetah_device::Result<Data> {
    let data = device.read(range).await?;
    if data.len() == range.len {
        return Ok(data);
    }
    let why = format!("{range} was answered with {} bytes", data.len());
    Err(cheetah_device::Error::Invalid(why.into()))
}

async fn write(to: DynDevice, name: Arc<str>, range: ByteRange, data: Data) -> Result<u64> {
    let runs = zero_runs(&data).into_iter().map(|(within, zero)| {
        let target = within.shifted(range.offset);
        let part = data.slice(within.offset, within.len);
        let to = &to;
        async move {
            if zero { to.zero(target, Zeroing::default()).await } else { to.write(target.offset, part, false).await }
        }
    });
    try_join_all(runs).await.map_err(Error::device(format!("writing {name}")))?;
    Ok(range.len)
}

/// Splits the data into runs of zeros and of other bytes, cut at multiples of [`ZERO_RUN_BYTES`].
pub(crate) fn zero_runs(data: &Data) -> Vec<(ByteRange, bool)> {
    let mut runs: Vec<(ByteRange, bool)> = Vec::new();
    for piece in ByteRange::new(0, data.len()).split_at_multiples(ZERO_RUN_BYTES) {
        let zero = data.slice(piece.offset, piece.len).is_zero();
        match runs.last_mut() {
            Some((run, same)) if *same == zero => run.len += piece.len,
            _ => runs.push((piece, zero)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use cheetah_device::memory::Memory;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_copy_equals_its_source(size in 0u64..5 << 20, runs in prop::collection::vec((0u64..5 << 20, 1u64..1 << 18), 0..8)) {
            let mut bytes = vec![0u8; usize::try_from(size).unwrap()];
            for (n, (from, len)) in runs.iter().enumerate() {
                let from = usize::try_from(*from).unwrap().min(bytes.len());
                let to = (from + usize::try_from(*len).unwrap()).min(bytes.len());
                bytes[from..to].fill(n as u8 + 1);
            }
            let target = Arc::new(Memory::new(vec![0xee; bytes.len() + 1]));
            let copy = DeviceCopy {
                from: Arc::new(Memory::new(bytes.clone())),
                from_name: "source".into(),
                to: target.clone(),
                to_name: "target".into(),
                size,
                hashes: HashChoice::NONE,
            };
            let mut digests = Digests::new(size).unwrap();
            let mut last = 0;
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(copy.run(Some(&mut digests), |p| last = p.done)).unwrap();
            let written = target.snapshot();
            prop_assert!(written[..bytes.len()] == bytes[..] && written[bytes.len()] == 0xee);
            prop_assert_eq!(last, size);
            for (chunk, offset) in bytes.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
                prop_assert!(digests.get(offset).is_some_and(|digest| blake3::hash(chunk) == *digest));
            }
        }
    }
}
