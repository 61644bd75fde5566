//! The delay line: a pure queue that says when each frame leaves.

use std::collections::VecDeque;

/// The same frames of the same traffic are lost every time.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
const MILLION: u64 = 1_000_000;

/// What a line does to frames.
#[derive(Debug, Clone, Copy)]
pub struct LineConfig {
    /// Added to every frame, in nanoseconds.
    pub delay_ns: u64,
    /// Bits a second the line carries, of whole Ethernet frames (as `tc` counts); `None` is without limit.
    pub rate_bits: Option<u64>,
    /// Bytes that may wait; a frame that would exceed it is dropped.
    pub queue_bytes_max: u64,
    /// Frames in a million that are lost at random.
    pub loss_ppm: u64,
}

/// A frame as it was received, with what is needed to charge it fairly.
#[derive(Debug)]
pub struct Frame {
    /// The virtio-net header and the frame, as read and to be written.
    pub bytes: Box<[u8]>,
    /// Bytes it has on a real wire; for a super-frame left whole by segmentation offload, those of all its packets,
    /// headers repeated.
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
    /// State of the generator that says which frames are lost; never 0.
    random: u64,
}

impl Line {
    /// An empty line.
    pub fn new(config: LineConfig) -> Self {
        Self { config, frames: VecDeque::new(), waiting_bytes: 0, free_at_ns: 0, dropped: 0, random: SEED }
    }

    /// Takes in a frame that arrived at `arrived_ns`; loses it where chance says so, drops it where the queue is full.
    pub fn push(&mut self, frame: Frame, arrived_ns: u64) {
        if self.is_lost() {
            return;
        }
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
        frame.wire_bytes * 8 * 1_000_000_000 / rate_bits
    }

    /// Throws the dice for one frame (xorshift64*).
    fn is_lost(&mut self) -> bool {
        if self.config.loss_ppm == 0 {
            return false;
        }
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let dice = self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((dice * MILLION) >> 32) < self.config.loss_ppm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(wire_bytes: u64) -> Frame {
        Frame { bytes: vec![0; 4].into(), wire_bytes }
    }

    fn line(rate_bits: Option<u64>) -> Line {
        Line::new(LineConfig { delay_ns: 150_000, rate_bits, queue_bytes_max: 4000, loss_ppm: 0 })
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
        assert_eq!(line.next_due_ns().unwrap() - first, 1514 * 8);
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

    #[test]
    fn as_many_frames_are_lost_as_asked() {
        let config = LineConfig { delay_ns: 0, rate_bits: None, queue_bytes_max: 4000, loss_ppm: 100_000 };
        let mut line = Line::new(config);
        let passed = (0..10_000).filter(|_| {
            line.push(frame(100), 0);
            line.pop_due(u64::MAX).is_some()
        });
        assert!((8_850..=9_150).contains(&passed.count()));
    }
}
