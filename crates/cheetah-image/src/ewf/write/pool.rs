//! Threads that compress.

use std::sync::{Arc, mpsc};

use cheetah_device::Data;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::options::Compression;
use super::pack::{Packed, Packer};
use crate::error::{Error, Result};

/// More threads than this are not worth the memory for what they hold.
const THREADS_MAX: usize = 16;

/// One thread a processor, all taking their work from one queue. They end when the pool is dropped.
pub struct Pool {
    jobs: mpsc::Sender<Job>,
    spare: Spare,
    threads: usize,
}

/// Used buffers, to be used again: fresh memory costs a fault a page.
pub type Spare = Arc<Mutex<Vec<Packed>>>;

/// Chunks to pack, and where to send them.
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
                    // Nobody waits for it any more where the writer gave up.
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

    /// Threads there are.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Where to put buffers that are no longer needed.
    pub fn spare(&self) -> Spare {
        self.spare.clone()
    }

    /// Has `data` packed. Work is begun in the order it is handed in.
    pub fn pack(&self, data: Data) -> oneshot::Receiver<Packed> {
        let (reply, packed) = oneshot::channel();
        // Were all threads gone, the receiver would say so.
        let _ = self.jobs.send(Job { data, reply });
        packed
    }
}
