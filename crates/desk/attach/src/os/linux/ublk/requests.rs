//! Carrying out the kernel's requests.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cheetah_device::{ByteRange, Data, Device, DynDevice, Zeroing};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::runtime::Handle;

use super::descriptors::Descriptor;
use crate::kernel::uapi::{
    IO_FUA, IO_NOUNMAP, OP_DISCARD, OP_FLUSH, OP_READ, OP_WRITE, OP_WRITE_ZEROES, SECTOR_BYTES, content_offset,
};
use crate::task;

/// The requests of a device: those that run, and those that are done and not yet reported to the kernel.
pub(super) struct Requests {
    device: DynDevice,
    /// `/dev/ublkcN`
    file: File,
    runtime: Handle,
    done: Mutex<Vec<Done>>,
    /// Whether the queue's thread waits for the kernel, and must be woken to report a request.
    is_asleep: AtomicBool,
    sleeper: PipeReader,
    waker: PipeWriter,
}

/// A request that is done, and its result in the kernel's terms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) tag: u16,
    pub(super) result: i32,
}

impl Requests {
    pub(super) fn new(device: DynDevice, file: File, runtime: Handle) -> io::Result<Arc<Self>> {
        let (sleeper, waker) = io::pipe()?;
        let (done, is_asleep) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        Ok(Arc::new(Self { device, file, runtime, done, is_asleep, sleeper, waker }))
    }

    /// The file through which they arrive.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Becomes readable when the queue's thread must report a request.
    pub(super) fn sleeper(&self) -> &PipeReader {
        &self.sleeper
    }

    /// Starts a request. It runs on this thread until it has to wait.
    pub(super) fn start(self: &Arc<Self>, tag: u16, descriptor: Descriptor) {
        let reply = Reply { requests: Arc::clone(self), tag, result: -Errno::IO.raw_os_error() };
        task::run(&self.runtime, "a request of the kernel", async move {
            let mut reply = reply;
            let done = reply.requests.carry_out(tag, &descriptor).await;
            reply.result = done.unwrap_or_else(|error| {
                tracing::warn!(
                    "request {:#x} of {} sectors at {}: {error}",
                    descriptor.flags,
                    descriptor.sectors,
                    descriptor.start
                );
                -Errno::IO.raw_os_error()
            });
        });
    }

    async fn carry_out(&self, tag: u16, request: &Descriptor) -> cheetah_device::Result<i32> {
        let device = &self.device;
        let offset = request.start.saturating_mul(SECTOR_BYTES);
        let range = ByteRange::new(offset, u64::from(request.sectors) * SECTOR_BYTES);
        // Not truncated: the kernel was told the longest request.
        let all = range.len as i32;
        let fua = request.flags & IO_FUA != 0;
        let copied =
            |error: io::Error| cheetah_device::Error::io("copying the content of a request".to_owned(), &error);
        match request.flags & 0xff {
            OP_READ => {
                let data = device.read(range).await?;
                if data.len() != range.len {
                    return Err(cheetah_device::Error::Invalid("the device answered with another length".into()));
                }
                self.fill(tag, &data).map_err(copied)?;
                Ok(all)
            }
            OP_WRITE => {
                let len = usize::try_from(range.len).unwrap_or_default();
                let mut bytes = vec![0; len];
                self.file.read_exact_at(&mut bytes, content_offset(tag)).map_err(copied)?;
                device.write(offset, bytes.into(), fua).await?;
                Ok(all)
            }
            OP_FLUSH => device.flush().await.map(|()| 0),
            OP_DISCARD => device.trim(range).await.map(|()| 0),
            OP_WRITE_ZEROES => {
                let keep_allocated = request.flags & IO_NOUNMAP != 0;
                device.zero(range, Zeroing { keep_allocated, fast_only: false, fua }).await.map(|()| 0)
            }
            _ => Err(cheetah_device::Error::Unsupported("the kernel asks for an unknown operation")),
        }
    }

    /// Gives the kernel the content of a read.
    fn fill(&self, tag: u16, data: &Data) -> io::Result<()> {
        let mut at = content_offset(tag);
        for run in data.runs() {
            self.file.write_all_at(run, at)?;
            at += run.len() as u64;
        }
        Ok(())
    }

    /// Moves the requests that are done to `done`.
    pub(super) fn take_done(&self, done: &mut Vec<Done>) {
        done.append(&mut self.done.lock());
    }

    /// Notes that the queue's thread is about to wait; false if there is something to report.
    pub(super) fn fall_asleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        self.done.lock().is_empty()
    }

    /// Notes that the queue's thread is awake.
    pub(super) fn awake(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
    }
}

/// The reply to a request, sent when it is dropped: an error, unless there is a result.
struct Reply {
    requests: Arc<Requests>,
    tag: u16,
    result: i32,
}

impl Drop for Reply {
    fn drop(&mut self) {
        let requests = &self.requests;
        requests.done.lock().push(Done { tag: self.tag, result: self.result });
        if requests.is_asleep.swap(false, Ordering::SeqCst) {
            // It cannot fail: the pipe has room for one byte for each time that the thread fell asleep.
            let _ = (&requests.waker).write(&[1]);
        }
    }
}
