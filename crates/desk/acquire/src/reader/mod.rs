//! Reading a source once, from start to end: several chunks in flight, returned in order, read around bad sectors.

mod liveness;
mod read_window;
mod salvage;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use cheetah_device::{ByteRange, Data, DynDevice, Error as DeviceError};
use cheetah_drive::digests::{CHUNK_BYTES, ChunkDigest, digest};
use cheetah_image::BadRange;
use tokio::task::JoinHandle;

pub use liveness::{DiskPlaces, Liveness, is_bad_sector};
use read_window::ReadWindow;
pub use salvage::{Salvage, sector_size};

/// A piece of the source: 1 MiB, except the last.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Where it is.
    pub range: ByteRange,
    /// Its content, with zeros for unreadable ranges.
    pub data: Data,
    /// The digest of the content.
    pub digest: ChunkDigest,
    /// Its unreadable ranges, in order and not touching.
    pub bad: Vec<BadRange>,
    /// The number of repeated reads.
    pub retries: u64,
}

/// The chunks of a source in order.
pub struct Reader {
    device: DynDevice,
    salvage: Salvage,
    liveness: Arc<Liveness>,
    size: u64,
    /// The offset of the first byte not requested yet.
    ahead: u64,
    under_way: VecDeque<Task>,
    window: ReadWindow,
}

struct Task {
    handle: JoinHandle<cheetah_device::Result<Chunk>>,
    asked: Instant,
}

impl Reader {
    /// Reads `device` from `from`, a multiple of a chunk, with `window_bytes` in flight at first, if known.
    pub fn new(device: DynDevice, from: u64, salvage: Salvage, liveness: Liveness, window_bytes: Option<u64>) -> Self {
        let (size, liveness) = (device.geometry().size, Arc::new(liveness));
        let window = ReadWindow::first(window_bytes);
        Self { device, salvage, liveness, size, ahead: from, under_way: VecDeque::new(), window }
    }

    /// Returns the next chunk; `None` at the end. After an error it must not be called again. Cancel-safe.
    pub async fn next(&mut self) -> Option<cheetah_device::Result<Chunk>> {
        while self.under_way.len() < self.window.chunks() && self.ahead < self.size {
            let range = ByteRange::between(self.ahead, (self.ahead + CHUNK_BYTES).min(self.size));
            let handle = tokio::spawn(read(self.device.clone(), range, self.salvage, self.liveness.clone()));
            self.under_way.push_back(Task { handle, asked: Instant::now() });
            self.ahead = range.end();
        }
        let first = self.under_way.front_mut()?;
        let starved = !first.handle.is_finished();
        let read = (&mut first.handle).await;
        // The latency is known only if the chunk was waited for.
        if starved {
            self.window.starved(first.asked.elapsed());
        }
        self.under_way.pop_front();
        Some(read.unwrap_or_else(|error| Err(DeviceError::Invalid(format!("reading the source: {error}").into()))))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.under_way.iter().for_each(|task| task.handle.abort());
    }
}

async fn read(
    device: DynDevice,
    range: ByteRange,
    salvage: Salvage,
    liveness: Arc<Liveness>,
) -> cheetah_device::Result<Chunk> {
    let salvaged = salvage.read(&device, range, &liveness).await?;
    let digest = digest(&salvaged.data);
    Ok(Chunk { range, data: salvaged.data, digest, bad: salvaged.bad, retries: salvaged.retries })
}

#[cfg(test)]
mod tests;
