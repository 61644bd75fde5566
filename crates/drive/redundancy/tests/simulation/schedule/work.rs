//! The reads and writes of a run.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Data, Device, Error, Zeroing};
use tokio::time::{sleep, timeout};

use super::{Bounds, Phase, Run};
use crate::checker::{BLOCK, fill};
use crate::network::Process;
use crate::process::{OPEN_PAUSE, Reader, Writer};

impl Run {
    /// A range of whole blocks.
    pub(super) fn some_blocks(&self) -> Range<u64> {
        let blocks = self.size() / BLOCK;
        let longest = [1, 4, 16, 64, blocks][self.below(5) as usize].min(blocks);
        let len = 1 + self.below(longest);
        let start = self.below(blocks - len + 1);
        start..start + len
    }

    /// Reads and writes through the writer.
    pub(super) async fn work(self: Arc<Self>, id: u64) {
        while self.phase() != Phase::Over {
            sleep(Duration::from_millis(1 + self.below(30))).await;
            let writer = self.writer.lock().clone();
            let Some(writer) = writer else { continue };
            let blocks = self.some_blocks();
            match self.below(10) {
                0..=4 => self.write(&writer, blocks).await,
                5..=8 => self.read(&writer, blocks).await,
                _ => {
                    let begun = self.checker.lock().now();
                    let flushed = timeout(self.operation_max(), writer.device().flush()).await;
                    if matches!(flushed, Ok(Ok(()))) && !self.is_deposed(&writer) {
                        self.checker.lock().flushed(begun);
                    }
                    self.note_result(&writer, "flush", flushed.map(|flushed| flushed.map(|_| ())));
                }
            }
            self.world.note(&[id, 20]);
        }
    }

    pub async fn write(&self, writer: &Writer, blocks: Range<u64>) {
        let zeros = self.below(12) == 0;
        let version = self.checker.lock().issue(blocks.clone(), zeros);
        let range = ByteRange::between(blocks.start * BLOCK, blocks.end * BLOCK);
        let operation = match zeros {
            true => writer.device().zero(range, Zeroing::default()),
            false => writer.device().write(range.offset, Data::from(fill(blocks.clone(), version)), false),
        };
        let written = timeout(self.operation_max(), operation).await;
        let acknowledged = matches!(written, Ok(Ok(())));
        self.checker.lock().end(version, blocks, acknowledged);
        self.outcome.lock().writes += 1;
        self.note_result(writer, "write", written);
    }

    pub async fn read(&self, writer: &Writer, blocks: Range<u64>) {
        let since = self.checker.lock().now();
        let range = ByteRange::between(blocks.start * BLOCK, blocks.end * BLOCK);
        let read = timeout(self.operation_max(), writer.device().read(range)).await;
        if let Ok(Ok(data)) = &read {
            // The reads of a deposed writer may be old.
            let since = Some(since).filter(|_| !self.is_deposed(writer));
            if let Err(wrong) = self.checker.lock().check(blocks.start, data, since) {
                self.problem(format!("the writer read wrong bytes: {wrong}"));
            }
        }
        self.note_result(writer, "read", read.map(|read| read.map(|_| ())));
    }

    /// A writer meets no error while faults are within bounds, unless it was killed or deposed.
    fn note_result(&self, writer: &Writer, what: &str, result: Result<Result<(), Error>, tokio::time::error::Elapsed>) {
        let error = match result {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => {
                self.problem(format!("a {what} hangs"));
                return;
            }
        };
        if crate::verbose() {
            println!("process {}: {what}: {error}", writer.process.id);
        }
        if !writer.process.is_alive() || self.is_deposed(writer) {
            writer.process.alive.store(false, std::sync::atomic::Ordering::Relaxed);
            return;
        }
        if self.is_refused(&error) {
            self.outcome.lock().refused += 1;
            return;
        }
        self.outcome.lock().errors += 1;
        if self.plan.bounds == Bounds::Survived {
            self.problem(format!("a {what} failed: {error}; {:?}", writer.map()));
        }
    }

    /// Reads in another process, which follows the map. Each read returns at least the writes acknowledged before it
    /// began.
    pub(super) async fn read_elsewhere(self: Arc<Self>, id: u64) {
        let process = Process::new(id);
        let reader = loop {
            match Reader::open_following(&self.world, &process, &self.plan.shape).await {
                Ok(reader) => break reader,
                Err(_) if self.phase() == Phase::Over => return,
                Err(_) => sleep(OPEN_PAUSE).await,
            }
        };
        if let Some(sealing) = &self.sealing {
            return self.read_sealed_elsewhere(sealing, &process, &reader.drive).await;
        }
        while self.phase() != Phase::Over {
            sleep(Duration::from_millis(5 + self.below(40))).await;
            let begun = self.checker.lock().now();
            let blocks = self.some_blocks();
            let range = ByteRange::between(blocks.start * BLOCK, blocks.end * BLOCK);
            match timeout(self.operation_max(), reader.drive.read(range)).await {
                Ok(Ok(data)) => {
                    if let Err(wrong) = self.checker.lock().check(blocks.start, &data, Some(begun)) {
                        self.problem(format!("reader {id} read wrong bytes: {wrong}"));
                    }
                }
                // Its map may be old, or it may be cut off.
                Ok(Err(_)) => self.outcome.lock().reader_errors += u64::from(self.plan.bounds == Bounds::Survived),
                Err(_) => self.problem("a reader hangs".into()),
            }
        }
    }
}
