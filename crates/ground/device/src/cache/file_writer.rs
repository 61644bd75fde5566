//! The thread that writes the cache's file.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use super::file::CacheFile;
use crate::{ByteRange, Data, Error, Result};

/// The maximum number of bytes that wait to be written. Data that arrives while more wait is not kept.
const WAITING_BYTES_MAX: u64 = 64 << 20;

/// Called with the digests of data that was written, or `None` if it could not be.
pub(super) type Written = Box<dyn FnOnce(Option<Arc<[u64]>>) + Send>;

/// A change to the file. They are made in order.
enum FileCommand {
    Write(ByteRange, Data, Written),
    Punch(ByteRange),
}

/// The file and its thread, which ends when this is dropped.
pub(super) struct FileWriter {
    file: Arc<CacheFile>,
    commands: mpsc::Sender<FileCommand>,
    waiting: Arc<AtomicU64>,
}

impl FileWriter {
    /// Makes a file in `dir`, and starts its thread.
    pub(super) fn start(dir: &Path) -> Result<Self> {
        let file = Arc::new(CacheFile::new(dir)?);
        let (commands, received) = mpsc::channel();
        let waiting = Arc::new(AtomicU64::new(0));
        let (target, count) = (Arc::clone(&file), Arc::clone(&waiting));
        std::thread::Builder::new()
            .name("cache-file".into())
            .spawn(move || received.into_iter().for_each(|command| execute(command, &target, &count)))
            .map_err(|error| Error::io("cannot start a thread for the cache's file", &error))?;
        Ok(Self { file, commands, waiting })
    }

    pub(super) fn file(&self) -> Arc<CacheFile> {
        Arc::clone(&self.file)
    }

    /// Queues data to be written, and `written` to be called afterwards; returns false if too much is queued already.
    pub(super) fn write(&self, range: ByteRange, data: Data, written: Written) -> bool {
        if self.waiting.load(Ordering::Relaxed).saturating_add(range.len) > WAITING_BYTES_MAX {
            return false;
        }
        self.waiting.fetch_add(range.len, Ordering::Relaxed);
        self.commands.send(FileCommand::Write(range, data, written)).is_ok()
    }

    /// Queues a range whose space is to be returned to the file system.
    pub(super) fn punch(&self, range: ByteRange) {
        let _ = self.commands.send(FileCommand::Punch(range));
    }
}

fn execute(command: FileCommand, file: &CacheFile, waiting: &AtomicU64) {
    match command {
        FileCommand::Punch(range) => {
            if let Err(error) = file.punch(range) {
                tracing::warn!("the cache's file cannot be made smaller: {error}");
            }
        }
        FileCommand::Write(range, data, written) => {
            let outcome = file.write(range.offset, &data);
            waiting.fetch_sub(range.len, Ordering::Relaxed);
            if let Err(error) = &outcome {
                tracing::warn!("the cache's file cannot be written: {error}; the data is not kept");
            }
            written(outcome.ok());
        }
    }
}
