//! The thread that writes packed chunks.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Open;
use super::pack::Packed;
use super::pool::Spare;
use super::set::Set;
use crate::hash::Hashes;
use cheetah_error::{Error, Result};

/// Commands to the thread, in order.
pub enum Command {
    /// Write these chunks, once they are packed.
    Append(oneshot::Receiver<Packed>),
    /// Make everything durable, and return the end position.
    Sync(oneshot::Sender<Result<Open>>),
    /// End the set, with these hashes and unreadable sectors.
    Finish(Box<Hashes>, Vec<(u32, u32)>, oneshot::Sender<Result<Vec<PathBuf>>>),
}

/// A handle of the thread. Dropping it stops the thread and waits for its last write.
pub struct SegmentWriter {
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    failure: Mutex<Option<Error>>,
    abandoned: AtomicBool,
    written: AtomicU64,
}

impl SegmentWriter {
    /// Starts the thread; `slots` commands may wait.
    pub fn start(set: Set, slots: usize, spare: Spare) -> Result<Self> {
        let (commands, mut queue) = mpsc::channel(slots);
        let shared = Arc::new(Shared::default());
        let seen = shared.clone();
        let work = move || {
            // The reason is set before the queue closes, so a caller that finds it closed finds the reason.
            if let Err(error) = run(set, &mut queue, &spare, &seen) {
                *seen.failure.lock() = Some(error);
            }
        };
        let thread = std::thread::Builder::new().name("e01-write".into()).spawn(work);
        let thread = thread.map_err(|error| Error::io("starting a thread to write with", &error))?;
        Ok(Self { commands: Some(commands), thread: Some(thread), shared })
    }

    /// Waits for room for one more command.
    pub async fn reserve(&self) -> Result<mpsc::Permit<'_, Command>> {
        let Some(commands) = &self.commands else { return Err(self.failure()) };
        commands.reserve().await.map_err(|_| self.failure())
    }

    /// Sends a command and waits for its answer.
    pub async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<Result<T>>) -> Command) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.reserve().await?.send(command(reply));
        answer.await.unwrap_or_else(|_| Err(self.failure()))
    }

    /// The number of chunk bytes written by this thread.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// The reason the thread ended.
    fn failure(&self) -> Error {
        let failure = self.shared.failure.lock().clone();
        failure.unwrap_or_else(|| {
            Error::failed("the thread that writes the E01 image has ended; this is a bug, please report it")
        })
    }
}

impl Drop for SegmentWriter {
    fn drop(&mut self) {
        self.shared.abandoned.store(true, Ordering::Relaxed);
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // A panic in there has been reported by its own hook.
            let _ = thread.join();
        }
    }
}

fn run(mut set: Set, queue: &mut mpsc::Receiver<Command>, spare: &Spare, shared: &Shared) -> Result<()> {
    while let Some(command) = queue.blocking_recv() {
        if shared.abandoned.load(Ordering::Relaxed) {
            break;
        }
        match command {
            Command::Append(packed) => {
                let packed = packed.blocking_recv();
                let packed = packed.map_err(|_| Error::failed("a compressing thread ended early; this is a bug"))?;
                set.append(&packed)?;
                shared.written.fetch_add(packed.bytes.len() as u64, Ordering::Relaxed);
                spare.lock().push(packed);
            }
            Command::Sync(reply) => answer(reply, set.sync().map(|()| set.open().clone()))?,
            Command::Finish(hashes, unreadable, reply) => return answer(reply, set.finish(&hashes, &unreadable)),
        }
    }
    Ok(())
}

/// Sends a result to the caller, and returns whether to continue.
fn answer<T>(reply: oneshot::Sender<Result<T>>, result: Result<T>) -> Result<()> {
    let goes_on = result.as_ref().map(|_| ()).map_err(Clone::clone);
    // The caller may be gone.
    let _ = reply.send(result);
    goes_on
}
