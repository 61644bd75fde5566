//! The thread that takes the kernel's requests and reports their results. The kernel takes both from one thread only.

#![allow(unsafe_code, reason = "the kernel reads a submission's file and buffer after it was queued")]

use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};

use super::descriptors::Descriptors;
use super::requests::Requests;
use crate::kernel::uapi::{COMMIT_AND_FETCH_REQ, FETCH_REQ, io_command};

/// Marks the completion of the read that wakes the thread.
const WAKE: u64 = u64::MAX;

/// The only queue of a device.
pub(super) struct Queue {
    // The ring comes first, so that it ends before what its submissions refer to.
    ring: IoUring,
    descriptors: Descriptors,
    requests: Arc<Requests>,
    /// Receives a byte for each wake-up.
    woken: Box<[u8; 8]>,
    depth: u16,
}

impl Queue {
    /// Gets ready to take `depth` requests at a time, on the thread that will [`run`](Self::run).
    pub(super) fn start(requests: Arc<Requests>, depth: u16) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .build(u32::from(depth) * 2)?;
        let descriptors = Descriptors::map(requests.file(), depth)?;
        Ok(Self { ring, descriptors, requests, woken: Box::new([0; 8]), depth })
    }

    /// Serves requests until the kernel has ended the device.
    pub(super) fn run(mut self) -> io::Result<()> {
        for tag in 0..self.depth {
            self.push(FETCH_REQ, tag, 0)?;
        }
        self.listen()?;
        let (mut taken, mut done, mut arrived) = (self.depth, Vec::new(), Vec::new());
        while taken > 0 {
            self.requests.take_done(&mut done);
            for done in done.drain(..) {
                self.push(COMMIT_AND_FETCH_REQ, done.tag, done.result)?;
            }
            let wanted = usize::from(self.requests.fall_asleep());
            let waited = self.ring.submit_and_wait(wanted);
            self.requests.awake();
            if let Err(error) = waited
                && !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ResourceBusy)
            {
                return Err(error);
            }
            arrived.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
            for (data, result) in arrived.drain(..) {
                match u16::try_from(data) {
                    Err(_) => self.listen()?,
                    Ok(tag) => match self.descriptors.get(tag).filter(|_| result == 0) {
                        Some(descriptor) => self.requests.start(tag, descriptor),
                        // The device has ended.
                        None => taken -= 1,
                    },
                }
            }
        }
        Ok(())
    }

    /// Reports the result of a request, and takes the next one in its place.
    fn push(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()> {
        let file = types::Fd(self.requests.file().as_raw_fd());
        let entry = opcode::UringCmd16::new(file, command).cmd(io_command(tag, result)).build();
        self.submit(entry.user_data(tag.into()))
    }

    /// Waits for the next wake-up.
    fn listen(&mut self) -> io::Result<()> {
        let file = types::Fd(self.requests.sleeper().as_raw_fd());
        let entry = opcode::Read::new(file, self.woken.as_mut_ptr(), 8).build();
        self.submit(entry.user_data(WAKE))
    }

    fn submit(&mut self, entry: squeue::Entry) -> io::Result<()> {
        // SAFETY: files and buffer live as long as the ring, and there is one read at a time.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)
    }
}
