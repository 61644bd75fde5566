//! The threads that pack.

use std::cell::RefCell;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cheetah_device::{ByteRange, Data, Error, Result};
use cheetah_kit::thread::lower_priority;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Method;
use super::auto::{Auto, Conditions};
use super::cut::{ContentPart, cut};
use super::meter::Meter;
use super::sample::Sample;
use crate::proto::packed::{Compression, Compressor, Head};

/// Less than this is packed in place: waking a thread would take longer.
const INLINE_LEN_MAX: u64 = 16 << 10;
/// The most threads. Each takes up to 8 MiB.
const THREADS_MAX: usize = 64;
/// The level of the method `zstd`.
const ZSTD_LEVEL: u8 = 3;

/// How much of the machine a [`Packer`] may use.
#[derive(Debug, Clone, Copy)]
pub struct PackerConfig {
    /// Threads, 1 to 64. Each takes up to 8 MiB.
    pub threads: NonZeroUsize,
    /// The fraction of time that each thread may work: above 0, at most 1.
    pub share: f64,
    /// Whether they run only on otherwise idle processors.
    pub nice: bool,
    /// The limit to sending, in bytes a second, if any.
    pub rate_max: Option<u64>,
}

impl Default for PackerConfig {
    /// All processors, up to the most threads.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self { threads, share: 1.0, nice: false, rate_max: None }
    }
}

/// A part of a read's reply.
#[derive(Debug, Clone)]
pub enum Chunk {
    /// Zeros.
    Hole(ByteRange),
    /// Content, packed.
    Packed(Head, Bytes),
}

impl Chunk {
    /// The length of its content.
    pub fn content_len(&self) -> u64 {
        match self {
            Self::Hole(range) => range.len,
            Self::Packed(head, _) => head.len.into(),
        }
    }
}

/// Packs content, on threads of its own, for any number of connections.
pub struct Packer {
    jobs: mpsc::Sender<Job>,
    shared: Arc<Shared>,
}

struct Job {
    method: Method,
    offset: u64,
    data: Data,
    done: oneshot::Sender<Vec<Chunk>>,
}

struct Shared {
    auto: Mutex<Auto>,
    meter: Arc<Meter>,
    /// Processors available for packing.
    processors: f64,
    rate_max: Option<u64>,
    /// Pieces queued or being packed.
    under_way: AtomicUsize,
}

impl Packer {
    /// Starts the threads. They end when it is dropped.
    ///
    /// # Errors
    ///
    /// The operating system's, where it has no thread left.
    pub fn start(config: PackerConfig) -> io::Result<Arc<Self>> {
        let threads = config.threads.get().min(THREADS_MAX);
        let share = config.share.clamp(0.01, 1.0);
        let (jobs, queue) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        let shared = Arc::new(Shared {
            auto: Mutex::default(),
            meter: Arc::default(),
            processors: threads as f64 * share,
            rate_max: config.rate_max,
            under_way: AtomicUsize::new(0),
        });
        for _ in 0..threads {
            let (queue, shared) = (Arc::clone(&queue), Arc::clone(&shared));
            std::thread::Builder::new().name("pack".into()).spawn(move || work(&queue, &shared, share, config.nice))?;
        }
        Ok(Arc::new(Self { jobs, shared }))
    }

    /// Packs the content at `offset`, at most 1 MiB.
    ///
    /// # Errors
    ///
    /// If a thread ended without a result.
    pub async fn pack(&self, method: Method, offset: u64, data: Data) -> Result<Vec<Chunk>> {
        thread_local! {
            static COMPRESSOR: RefCell<Compressor> = RefCell::default();
        }
        if data.len() <= INLINE_LEN_MAX {
            return Ok(COMPRESSOR.with_borrow_mut(|compressor| self.shared.pack(compressor, method, offset, &data)));
        }
        let _counted = Counted::new(&self.shared.under_way);
        let failed = || Error::Invalid("packing failed; the agent's log says why".into());
        let (done, packed) = oneshot::channel();
        self.jobs.send(Job { method, offset, data, done }).map_err(|_| failed())?;
        packed.await.map_err(|_| failed())
    }

    /// The meter that clients' sockets report to.
    pub(crate) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.shared.meter)
    }
}

/// Counts a piece as in flight until dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn work(queue: &Mutex<mpsc::Receiver<Job>>, shared: &Shared, share: f64, nice: bool) {
    if nice && let Err(error) = lower_priority(19) {
        tracing::warn!("compression runs at normal priority: {error}");
    }
    let mut compressor = Compressor::default();
    loop {
        let next = queue.lock().recv();
        let Ok(job) = next else { return };
        if job.done.is_closed() {
            continue;
        }
        let began = Instant::now();
        let chunks = shared.pack(&mut compressor, job.method, job.offset, &job.data);
        drop(job.data);
        let _ = job.done.send(chunks);
        if share < 1.0 {
            std::thread::sleep(began.elapsed().mul_f64(1.0 / share - 1.0).min(Duration::from_secs(5)));
        }
    }
}

impl Shared {
    fn pack(&self, compressor: &mut Compressor, method: Method, offset: u64, data: &Data) -> Vec<Chunk> {
        if method == Method::Omit {
            return vec![Chunk::Packed(Compressor::digest(offset, data), Bytes::new())];
        }
        cut(offset, data)
            .into_iter()
            .map(|cut| match cut {
                ContentPart::Hole(range) => Chunk::Hole(range),
                ContentPart::Content(at, content) => {
                    let content = content.into_bytes();
                    let (head, packed) = match method {
                        Method::None => compressor.pack(at, &content, Compression::Stored),
                        Method::Lz4 => compressor.pack(at, &content, Compression::Lz4),
                        Method::Zstd => compressor.pack(at, &content, Compression::Zstd(ZSTD_LEVEL)),
                        Method::Auto | Method::Omit => self.choose_and_pack(compressor, at, &content),
                    };
                    Chunk::Packed(head, packed)
                }
            })
            .collect()
    }

    fn choose_and_pack(&self, compressor: &mut Compressor, offset: u64, content: &Bytes) -> (Head, Bytes) {
        let sample = Sample::of(content);
        let link_rate = self.meter.rate().min(self.rate_max.map_or(f64::INFINITY, |max| max as f64));
        // While a socket is full, packing overlaps with sending.
        let waits = self.meter.is_full() || self.rate_max.is_some();
        let overlaps = waits || self.under_way.load(Ordering::Relaxed) > 1;
        let shared = self.meter.is_here();
        let conditions = Conditions { link_rate, processors: self.processors, overlaps, shared };
        let how = self.auto.lock().choose(sample, conditions);
        let began = Instant::now();
        let (head, packed) = compressor.pack(offset, content, how);
        self.auto.lock().learn(how, sample, content.len(), packed.len(), began.elapsed());
        (head, packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::packed;

    #[tokio::test]
    async fn packed_pieces_unpack_to_the_content() {
        let threads = NonZeroUsize::new(2).unwrap();
        let packer = Packer::start(PackerConfig { threads, ..PackerConfig::default() }).unwrap();
        let mut content = b"all work and no play makes jack a dull boy\n".repeat(20_000);
        content[300_000..400_000].fill(0);
        for (method, len) in
            [Method::None, Method::Lz4, Method::Zstd, Method::Auto].into_iter().zip([860_000, 9000, 0x8000, 500_000])
        {
            let chunks = packer.pack(method, 4096, content[..len].to_vec().into()).await.unwrap();
            let mut out = vec![1; len];
            for chunk in &chunks {
                match chunk {
                    Chunk::Hole(range) => out[range.offset as usize - 4096..range.end() as usize - 4096].fill(0),
                    Chunk::Packed(head, bytes) => {
                        let from = head.offset as usize - 4096;
                        packed::unpack(head, bytes, &mut out[from..from + head.len as usize]).unwrap();
                    }
                }
            }
            assert!(out == content[..len], "{method}");
            assert_eq!(chunks.iter().map(Chunk::content_len).sum::<u64>(), len as u64);
            assert_eq!(chunks.iter().any(|chunk| matches!(chunk, Chunk::Hole(_))), len > 400_000);
        }
    }
}
