//! Stderr, on which nothing depends: a full disk, a closed pipe or a reader that has stopped must not end or hold up work.
//!
//! Lines go through a bounded queue to a thread that writes them and ignores errors. Lines that do not fit are dropped and
//! counted.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cheetah_device::visible::Visible;

/// The most bytes that wait to be written.
const QUEUE_BYTES_MAX: usize = 1 << 20;

/// The longest wait for queued lines where later output must follow them.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

static STDERR: LazyLock<Stderr> = LazyLock::new(Stderr::start);

/// Queues one line, with the control characters in it escaped: it may quote evidence or a peer.
pub fn line(line: impl std::fmt::Display) {
    STDERR.push(format!("{}\n", Visible(line)).into_bytes());
}

/// Waits until all queued lines are written, but no longer than `patience`. Does not wait for a writer that was found stuck
/// and has not moved since.
pub fn flush(patience: Duration) {
    STDERR.flush(patience);
}

/// Keeps lines in the queue until it is dropped.
#[derive(Debug)]
pub struct Held(());

/// Holds back what is not written yet, while the terminal shows something else.
pub fn hold() -> Held {
    STDERR.flush(FLUSH_TIMEOUT);
    STDERR.set_held(true);
    Held(())
}

impl Drop for Held {
    fn drop(&mut self) {
        STDERR.set_held(false);
    }
}

/// An [`io::Write`] that queues each write unchanged, and never fails.
#[derive(Debug, Clone, Copy)]
pub struct Queued;

impl Write for Queued {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        STDERR.push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Stderr {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    /// Whether the thread is writing a line that it has taken.
    writing: bool,
    /// Whether a flush ran out of patience and nothing was written since.
    stuck: bool,
    /// Whether lines are held back.
    held: bool,
}

impl Stderr {
    fn start() -> Self {
        // If threads cannot be started, no work is done either, and the queue is lost.
        let _ = std::thread::Builder::new().name("stderr".into()).spawn(|| STDERR.write_all_to(io::stderr()));
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: Vec<u8>) {
        let mut queue = self.lock();
        if queue.bytes + line.len() > QUEUE_BYTES_MAX {
            queue.dropped += 1;
            return;
        }
        queue.bytes += line.len();
        queue.lines.push_back(line);
        self.changed.notify_all();
    }

    fn set_held(&self, held: bool) {
        self.lock().held = held;
        self.changed.notify_all();
    }

    fn flush(&self, patience: Duration) {
        let queue = self.lock();
        let busy = |queue: &mut Queue| !queue.stuck && !queue.held && (queue.writing || !queue.lines.is_empty());
        let waited = self.changed.wait_timeout_while(queue, patience, busy);
        let (mut queue, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.stuck |= timed_out.timed_out();
    }

    /// Writes queued lines, forever.
    fn write_all_to(&self, mut to: impl Write) {
        loop {
            let line = self.next();
            let _ = to.write_all(&line);
            let mut queue = self.lock();
            (queue.writing, queue.stuck) = (false, false);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Vec<u8> {
        let waited = self.changed.wait_while(self.lock(), |queue| queue.held || queue.lines.is_empty());
        let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
        let mut line = queue.lines.pop_front().unwrap_or_default();
        queue.bytes -= line.len();
        queue.writing = true;
        // Only after the last line that did fit is it known where lines are missing.
        if queue.lines.is_empty() && queue.dropped > 0 {
            let dropped = std::mem::take(&mut queue.dropped);
            line.extend(format!("warning: {dropped} lines were dropped here, since stderr was blocked\n").into_bytes());
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    /// Hands on each line, once its reader is ready for it.
    struct Slow(mpsc::SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn blocked() -> (Arc<Stderr>, mpsc::Receiver<Vec<u8>>) {
        let (send, receive) = mpsc::sync_channel(0);
        let stderr = Arc::new(Stderr::default());
        let writer = stderr.clone();
        std::thread::spawn(move || writer.write_all_to(Slow(send)));
        (stderr, receive)
    }

    #[test]
    fn blocked_reader_costs_lines_and_never_time() {
        let (stderr, receive) = blocked();
        let line = vec![b'x'; QUEUE_BYTES_MAX / 4];
        for _ in 0..20 {
            stderr.push(line.clone());
        }
        let received = receive.recv().unwrap();
        assert_eq!(received, line);
        let mut rest = Vec::new();
        while !String::from_utf8_lossy(&rest).contains(" lines were dropped") {
            rest.extend(receive.recv().unwrap());
        }
        stderr.push(b"next\n".to_vec());
        assert_eq!(receive.recv().unwrap(), b"next\n");
    }

    #[test]
    fn flush_waits_for_a_blocked_writer_once() {
        let (stderr, receive) = blocked();
        stderr.push(b"a\n".to_vec());
        stderr.flush(Duration::from_millis(1));
        assert!(stderr.lock().stuck);
        // Would never return.
        stderr.flush(Duration::MAX);
        assert_eq!(receive.recv().unwrap(), b"a\n");
    }

    #[test]
    fn lines_that_are_held_back_are_written_afterwards() {
        let (stderr, receive) = blocked();
        stderr.set_held(true);
        stderr.push(b"a\n".to_vec());
        // Lines that are held back are written later: a wait for them would not end.
        stderr.flush(Duration::MAX);
        assert!(receive.try_recv().is_err());
        stderr.set_held(false);
        assert_eq!(receive.recv().unwrap(), b"a\n");
    }

    #[test]
    fn write_errors_are_ignored() {
        let (stderr, receive) = blocked();
        drop(receive);
        for _ in 0..3 {
            stderr.push(b"a\n".to_vec());
            stderr.flush(Duration::from_secs(60));
        }
        assert!(!stderr.lock().stuck);
    }
}
