//! Reading a source once, from start to end: many chunks under way, handed on in order, bad sectors salvaged.

mod life;
mod salvage;
mod window;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use cheetah_device::{ByteRange, Data, DynDevice, Error as DeviceError};
use cheetah_drive::digests::{CHUNK_BYTES, ChunkDigest, digest};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

pub use life::Life;
pub use salvage::{Salvage, is_bad_sector};
use window::Window;

/// A piece of the source: 1 MiB, except the last.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Where it is.
    pub range: ByteRange,
    /// Its content; zeros stand for what is unreadable.
    pub data: Data,
    /// The digest of that.
    pub digest: ChunkDigest,
    /// What could not be read of it, in order and apart.
    pub bad: Vec<Bad>,
    /// How often parts of it were read again.
    pub retries: u64,
}

/// A range that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bad {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// What the source said.
    pub why: Arc<str>,
}

impl Bad {
    /// Where it is.
    pub const fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.len)
    }

    /// Appends to `list`, merging with its last where they touch.
    pub fn push(self, list: &mut Vec<Self>) {
        match list.last_mut() {
            Some(last) if last.range().end() == self.offset => last.len += self.len,
            _ => list.push(self),
        }
    }
}

/// The chunks of a source in order.
pub struct Reader {
    device: DynDevice,
    salvage: Salvage,
    life: Arc<Life>,
    size: u64,
    /// The first byte nobody has asked for yet.
    ahead: u64,
    under_way: VecDeque<Task>,
    window: Window,
}

struct Task {
    handle: JoinHandle<cheetah_device::Result<Chunk>>,
    asked: Instant,
}

impl Reader {
    /// Reads `device` from `from`, a multiple of a chunk, with `window_bytes` on their way at first, if that is known.
    pub fn new(device: DynDevice, from: u64, salvage: Salvage, life: Life, window_bytes: Option<u64>) -> Self {
        let (size, life) = (device.geometry().size, Arc::new(life));
        let window = Window::first(window_bytes);
        Self { device, salvage, life, size, ahead: from, under_way: VecDeque::new(), window }
    }

    /// The next chunk; `None` at the end. After an error there is nothing more to be had. May be dropped, and called
    /// again.
    pub async fn next(&mut self) -> Option<cheetah_device::Result<Chunk>> {
        while self.under_way.len() < self.window.chunks() && self.ahead < self.size {
            let range = ByteRange::between(self.ahead, (self.ahead + CHUNK_BYTES).min(self.size));
            let handle = tokio::spawn(read(self.device.clone(), range, self.salvage, self.life.clone()));
            self.under_way.push_back(Task { handle, asked: Instant::now() });
            self.ahead = range.end();
        }
        let first = self.under_way.front_mut()?;
        let starved = !first.handle.is_finished();
        let read = (&mut first.handle).await;
        // How long it took is known only if it was waited for.
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

async fn read(device: DynDevice, range: ByteRange, salvage: Salvage, life: Arc<Life>) -> cheetah_device::Result<Chunk> {
    let salvaged = salvage.read(&device, range, &life).await?;
    let digest = digest(&salvaged.data);
    Ok(Chunk { range, data: salvaged.data, digest, bad: salvaged.bad, retries: salvaged.retries })
}

#[cfg(test)]
mod tests;
