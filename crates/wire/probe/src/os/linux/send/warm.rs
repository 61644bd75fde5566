//! Keeps the kernel's transmit path in the processor's caches. After a sleep, cache misses would cost the first packets
//! of a train tens of microseconds each.

use std::time::Duration;

use super::lead::NO_PROTOCOL;
use super::queue::FrameQueue;
use crate::clock::Nanos;
use crate::frame::ETHERNET_BYTES;

/// How long before a packet is due the last warm-up frame is sent: longer than sending one takes.
const BEFORE: Duration = Duration::from_micros(20);

/// How long before a packet is due warming up begins, if the thread did not sleep.
pub(super) const BEGIN: Duration = Duration::from_micros(100);

/// The loopback interface's index, in every network namespace.
pub(super) const LOOPBACK: u32 = 1;

/// The size of most frames, so that as much memory is allocated and copied.
const FRAME_BYTES: usize = 1514;

/// Sends frames without a protocol to this machine's loopback interface, which drops them. They run through most of the
/// kernel's transmit path, and never reach a network.
pub(super) struct WarmUp<L> {
    line: Option<L>,
    frame: Vec<u8>,
}

impl<L: FrameQueue> WarmUp<L> {
    /// Warms up through this queue of the loopback interface; does nothing without one.
    pub(super) fn by(line: Option<L>) -> Self {
        let mut frame = vec![0; FRAME_BYTES];
        if let Some(protocol) = frame.get_mut(ETHERNET_BYTES - 2..ETHERNET_BYTES) {
            protocol.copy_from_slice(&NO_PROTOCOL);
        }
        Self { line, frame }
    }

    /// Warms up until shortly before `due`, and calls `also` before each frame.
    pub(super) fn up(&mut self, due: Nanos, mut also: impl FnMut()) {
        while Nanos::now() + BEFORE < due {
            also();
            let sent = self.line.as_mut().is_some_and(|line| line.put(&self.frame) && line.go(1).is_ok());
            if !sent {
                // Loopback may be down; then there is no warming up.
                self.line = None;
                return;
            }
        }
    }
}
