//! Threads that compress.

use std::sync::{Arc, mpsc};

use cheetah_device::Data;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::options::Compression;
use super::pack::{Packed, Packer};
use cheetah_error::{Error, Result};

/// The maximum number of threads; more are not worth their buffers.
const THREADS_MAX: usize = 16;

/// One thread per processor, with one shared queue. Dropping the pool ends them.
pub struct Pool {
    jobs: mpsc::Sender<Job>,
    spare: Spare,
    threads: usize,
}

/// Buffers for reuse: fresh memory costs a page fault per page.
pub type Spare = Arc<Mutex<Vec<Packed>>>;

/// Chunks to pack, and the channel for the result.
struct Job {
    data: Data,
    reply: oneshot::Sender<Packed>,
}

impl Pool {
    /// Starts the threads.
    pub fn start(chunk_bytes: usize, compression: Compression) -> Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let spare = Spare::default();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |number: usize| {
            let mut packer = Packer::new(chunk_bytes, compression)?;
            let (queue, spare) = (queue.clone(), spare.clone());
            let work = move || {
                let next = || queue.lock().recv();
                while let Ok(Job { data, reply }) = next() {
                    let mut packed = spare.lock().pop().unwrap_or_default();
                    packer.pack(&data, &mut packed);
                    // The writer may be gone.
                    let _ = reply.send(packed);
                }
            };
            let thread = std::thread::Builder::new().name(format!("e01-pack-{number}"));
            thread.spawn(work).map_err(|error| Error::io("starting a thread to compress with", &error))
        };
        let threads = processors.min(THREADS_MAX);
        for number in 0..threads {
            start(number)?;
        }
        Ok(Self { jobs, spare, threads })
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns a buffer for reuse.
    pub fn spare(&self) -> Spare {
        self.spare.clone()
    }

    /// Queues `data` for packing. Jobs start in queue order.
    pub fn pack(&self, data: Data) -> oneshot::Receiver<Packed> {
        let (reply, packed) = oneshot::channel();
        // If all threads were gone, the receiver would fail.
        let _ = self.jobs.send(Job { data, reply });
        packed
    }
}
