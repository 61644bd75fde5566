//! Reading back acquired data: before an acquisition is resumed, and when it is verified.

use std::sync::Arc;

use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage, Data, DynDevice};
use cheetah_drive::copy::read_exactly;
use cheetah_drive::digests::{CHUNK_BYTES, ChunkDigest, Digests, digest};
use cheetah_error::{Error, Result};
use cheetah_image::BadRange;
use cheetah_image::hash::Hashing;
use futures::{StreamExt as _, stream};

use crate::reader::Chunk;
use crate::sink::Sink;

/// Chunks in flight.
const READ_AHEAD: usize = 8;
/// The most differing ranges named in an error.
const RANGES_SHOWN_MAX: usize = 8;

/// Reads `range`, with zeros for the ranges that `coverage` marks unreadable.
pub async fn unreadable_are_zeros(
    device: &DynDevice,
    range: ByteRange,
    coverage: &Coverage,
) -> cheetah_device::Result<Data> {
    let mut whole = Data::new();
    for (run, state) in coverage.runs(range) {
        whole.append(match state {
            State::Unreadable => Data::zeros(run.len),
            State::Read | State::Unread => read_exactly(device, run).await?,
        });
    }
    Ok(whole)
}

/// The receivers of content that is read back.
pub struct Replay<'a> {
    /// The hashes of the whole.
    pub hashing: &'a Hashing,
    /// Sinks that have to be given it again.
    pub sinks: Vec<&'a mut Box<dyn Sink>>,
    /// The unreadable ranges, in order.
    pub bad: &'a [BadRange],
}

impl Replay<'_> {
    async fn push(&mut self, range: ByteRange, data: Data, digest: ChunkDigest) -> Result<()> {
        self.hashing.push(&data).await?;
        if self.sinks.is_empty() {
            return Ok(());
        }
        let from = self.bad.partition_point(|bad| bad.offset < range.offset);
        let bad = self.bad[from..].iter().take_while(|bad| bad.offset < range.end()).cloned().collect();
        let chunk = Chunk { range, data, digest, bad, retries: 0 };
        for sink in &mut self.sinks {
            sink.push(&chunk).await?;
        }
        Ok(())
    }
}

/// Reads the first `size` bytes of `device`, which errors call `name`, compares every chunk with its digest, and passes
/// the chunks up to the first that differs to `replay`. Fails, with `Kind::Evidence`, naming the ranges that differ.
pub async fn read_back(
    device: &DynDevice,
    name: &str,
    size: u64,
    (digests, coverage): (&Digests, &Arc<Coverage>),
    mut replay: Option<Replay<'_>>,
    mut progress: impl FnMut(u64),
) -> Result<()> {
    let read = |range: ByteRange| {
        let (device, coverage) = (device.clone(), coverage.clone());
        let task = tokio::spawn(async move {
            let data = unreadable_are_zeros(&device, range, &coverage).await?;
            let digest = digest(&data);
            Ok::<(Data, ChunkDigest), cheetah_device::Error>((data, digest))
        });
        async move { (range, task.await) }
    };
    let chunks = ByteRange::new(0, size).split_at_multiples(CHUNK_BYTES);
    let mut chunks = std::pin::pin!(stream::iter(chunks).map(read).buffered(READ_AHEAD));
    let mut differing: Vec<ByteRange> = Vec::new();
    while let Some((range, read)) = chunks.next().await {
        let read = read.map_err(|error| Error::failed(format!("reading {name}: {error}")))?;
        let (data, digest) = read.map_err(Error::device(format!("reading {name} back")))?;
        if digests.get(range.offset) != Some(&digest) {
            range.append_to(&mut differing);
        }
        if let Some(replay) = replay.as_mut().filter(|_| differing.is_empty()) {
            replay.push(range, data, digest).await?;
        }
        progress(range.len);
    }
    if differing.is_empty() {
        return Ok(());
    }
    let mut named: Vec<_> = differing.iter().take(RANGES_SHOWN_MAX).map(ToString::to_string).collect();
    if differing.len() > RANGES_SHOWN_MAX {
        named.push(format!("{} more", differing.len() - RANGES_SHOWN_MAX));
    }
    Err(Error::evidence(format!(
        "{name} does not hold what was acquired: {} differ; something changed it, or its medium is failing",
        named.join(", ")
    )))
}

/// Returns at most `count` chunks, evenly spread over the first `at` bytes, that were read whole.
pub fn good_chunks(at: u64, coverage: &Coverage, count: u64) -> impl Iterator<Item = ByteRange> {
    let step = at.div_ceil(CHUNK_BYTES).div_ceil(count.max(1)).max(1) * CHUNK_BYTES;
    let chunks = (0..count).map(move |n| n * step).take_while(move |start| *start < at);
    let chunks = chunks.map(move |start| ByteRange::between(start, (start + CHUNK_BYTES).min(at)));
    chunks.filter(|chunk| coverage.runs(*chunk).all(|(_, state)| state == State::Read))
}
