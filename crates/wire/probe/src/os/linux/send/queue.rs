//! Frames that are queued before they are due.

use std::io;

use crate::clock::Nanos;
use crate::send::Backend;
use crate::send::call::SendCall;

/// Frames in memory shared with the kernel, first in, first out.
pub(super) trait FrameQueue: Send {
    /// The backend.
    const BACKEND: Backend;

    /// The longest frame that fits a place, in bytes.
    fn frame_bytes_max(&self) -> usize;

    /// Copies a frame into the next place without sending it; returns false if no place is free.
    fn put(&mut self, frame: &[u8]) -> bool;

    /// Sends the next `packets` queued frames now.
    fn go(&mut self, packets: usize) -> io::Result<()>;

    /// Makes the sending call with nothing to send, and touches the next frame, to warm up caches.
    fn idle(&mut self);

    /// Opens another queue, to the loopback interface and without timestamps, if possible.
    fn to_warm_up() -> Option<Self>
    where
        Self: Sized;

    /// Returns when the packets of the calls left by the kernel's timestamps; `None` if there are none. Called once
    /// after each train.
    fn stamps(&mut self, calls: &[SendCall]) -> Option<Vec<Option<Nanos>>>;
}
