//! One direction of a link: the frames in flight, and the interfaces at its ends.

use std::io;
use std::sync::Arc;

use crate::line::{Line, LineConfig};
use crate::port::{Port, now_ns};
use crate::vnet;

/// A super-frame, its Ethernet header and the virtio-net header, with room to spare.
const FRAME_BYTES_MAX: usize = 72 << 10;

/// A delay line between two interfaces.
pub struct Direction {
    name: String,
    line: Line,
    from: Arc<Port>,
    to: Arc<Port>,
    buffer: Vec<u8>,
    lost: u64,
    reported: u64,
}

impl Direction {
    /// Creates a direction without frames in flight.
    pub fn new(name: String, config: LineConfig, from: Arc<Port>, to: Arc<Port>) -> Self {
        let line = Line::new(config);
        Self { name, line, from, to, buffer: vec![0; FRAME_BYTES_MAX], lost: 0, reported: 0 }
    }

    /// Returns the interface that frames are received from.
    pub fn from(&self) -> &Port {
        &self.from
    }

    /// Returns when the next frame is due, if one waits.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.line.next_due_ns()
    }

    /// Receives one frame; returns whether there was one.
    pub fn take_in(&mut self) -> io::Result<bool> {
        let Some((read, arrived_ns)) = self.from.receive(&mut self.buffer)? else { return Ok(false) };
        if let Some(frame) = vnet::frame(read) {
            self.line.push(frame, arrived_ns);
        }
        Ok(true)
    }

    /// Sends the frames that are due; returns whether there were any. Logs dropped frames, except for the intended
    /// losses.
    pub fn let_out(&mut self) -> io::Result<bool> {
        let mut any = false;
        while let Some(frame) = self.line.pop_due(now_ns()) {
            any = true;
            if !self.to.send(&frame.bytes)? {
                self.lost += 1;
            }
        }
        let gone = self.lost + self.line.dropped();
        if gone > 2 * self.reported {
            eprintln!("lab-relay: {}: {gone} frames dropped so far, {} of them by the kernel", self.name, self.lost);
            self.reported = gone;
        }
        Ok(any)
    }
}
