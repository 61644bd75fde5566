//! The delay line: a pure queue that says when each frame leaves.

use std::collections::VecDeque;

/// What a frame costs the wire beside its bytes: preamble, frame check sequence and gap between frames.
const WIRE_OVERHEAD_BYTES: u64 = 24;

/// What a line does to frames.
#[derive(Debug, Clone, Copy)]
pub struct LineConfig {
    /// Added to every frame, in nanoseconds.
    pub delay_ns: u64,
    /// Bits a second the line carries; `None` is without limit.
    pub rate_bits: Option<u64>,
    /// Bytes that may wait; a frame that would exceed it is dropped.
    pub queue_bytes_max: u64,
}

/// A frame as it was received, with what is needed to charge it fairly.
#[derive(Debug)]
pub struct Frame {
    /// The virtio-net header and the frame, as read and to be written.
    pub bytes: Box<[u8]>,
    /// Packets on a real wire: more than one for a super-frame left whole by segmentation offload.
    pub packets: u64,
    /// Bytes those packets have on a real wire, headers repeated.
    pub wire_bytes: u64,
}

/// Frames under way in one direction.
#[derive(Debug)]
pub struct Line {
    config: LineConfig,
    frames: VecDeque<(u64, Frame)>,
    waiting_bytes: u64,
    /// When the wire has put the last frame out.
    free_at_ns: u64,
    dropped: u64,
}

impl Line {
    /// An empty line.
    pub fn new(config: LineConfig) -> Self {
        Self { config, frames: VecDeque::new(), waiting_bytes: 0, free_at_ns: 0, dropped: 0 }
    }

    /// Takes in a frame that arrived at `arrived_ns`, or drops it where the queue is full.
    pub fn push(&mut self, frame: Frame, arrived_ns: u64) {
        if self.waiting_bytes + frame.wire_bytes > self.config.queue_bytes_max {
            self.dropped += 1;
            return;
        }
        self.waiting_bytes += frame.wire_bytes;
        self.free_at_ns = self.free_at_ns.max(arrived_ns) + self.wire_time_ns(&frame);
        self.frames.push_back((self.free_at_ns + self.config.delay_ns, frame));
    }

    /// When the next frame leaves, if one waits.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.frames.front().map(|(due_ns, _)| *due_ns)
    }

    /// The next frame, if it is time for it.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<Frame> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        let (_, frame) = self.frames.pop_front()?;
        self.waiting_bytes -= frame.wire_bytes;
        Some(frame)
    }

    /// Frames dropped so far because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn wire_time_ns(&self, frame: &Frame) -> u64 {
        let Some(rate_bits) = self.config.rate_bits else { return 0 };
        (frame.wire_bytes + frame.packets * WIRE_OVERHEAD_BYTES) * 8 * 1_000_000_000 / rate_bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(wire_bytes: u64) -> Frame {
        Frame { bytes: vec![0; 4].into(), packets: 1, wire_bytes }
    }

    fn line(rate_bits: Option<u64>) -> Line {
        Line::new(LineConfig { delay_ns: 150_000, rate_bits, queue_bytes_max: 4000 })
    }

    #[test]
    fn a_frame_leaves_after_the_delay_and_not_before() {
        let mut line = line(None);
        line.push(frame(1514), 1_000);
        assert!(line.pop_due(150_999).is_none());
        assert!(line.pop_due(151_000).is_some());
        assert_eq!(line.next_due_ns(), None);
    }

    #[test]
    fn a_rate_spaces_frames_that_arrive_together() {
        let mut line = line(Some(1_000_000_000));
        line.push(frame(1514), 0);
        line.push(frame(1514), 0);
        let first = line.next_due_ns().unwrap();
        line.pop_due(first).unwrap();
        assert_eq!(line.next_due_ns().unwrap() - first, (1514 + 24) * 8);
    }

    #[test]
    fn a_full_queue_drops_and_recovers() {
        let mut line = line(None);
        for _ in 0..3 {
            line.push(frame(1514), 0);
        }
        assert_eq!(line.dropped(), 1);
        line.pop_due(u64::MAX).unwrap();
        line.push(frame(1514), 0);
        assert_eq!(line.dropped(), 1);
    }
}
