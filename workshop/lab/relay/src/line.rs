//! The delay line: a queue without I/O that determines when each frame leaves.

use std::collections::VecDeque;

use crate::cross::Cross;
use crate::fair::Fair;
use crate::pauses::Pauses;
use crate::random::Random;

const MILLION: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// The properties of a line.
#[derive(Debug, Clone, Copy)]
pub struct LineConfig {
    /// The delay of every frame, in nanoseconds.
    pub delay_ns: u64,
    /// The wire that spaces frames; `None` for no limit.
    pub wire: Option<Wire>,
    /// The maximum number of bytes in flight; a frame beyond it is dropped.
    pub held_bytes_max: u64,
    /// Frames in a million that are lost at random.
    pub loss_ppm: u64,
    /// The interval at which due frames are delivered, all at once, in nanoseconds; 0 delivers each when it is due.
    pub batch_ns: u64,
    /// The longest pause of a relay that is sometimes late, in nanoseconds; 0 is never late.
    pub late_ns_max: u64,
}

/// A wire with a rate and a queue.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// Bits a second, of whole Ethernet frames (as `tc` counts). Not 0.
    pub rate_bits: u64,
    /// The bytes that may wait for the wire; a frame that would exceed them is dropped.
    pub queue_bytes_max: u64,
    /// The share of it that cross traffic uses, in millionths.
    pub cross_ppm: u64,
    /// See [`Cross::new`].
    pub cross_burst: u64,
    /// Whether frames and cross traffic share it fairly, instead of in the order of their arrival.
    pub fair: bool,
}

impl Wire {
    /// Returns how long it takes to send this many bytes.
    pub fn time_ns(&self, bytes: u64) -> u64 {
        bytes * 8 * NS_PER_S / self.rate_bits
    }
}

/// A received frame, with the data to charge it fairly.
#[derive(Debug)]
pub struct Frame {
    /// The virtio-net header and the frame, as read and to be written.
    pub bytes: Box<[u8]>,
    /// Its bytes on a real wire; for a super-frame left whole by segmentation offload, those of all its packets with
    /// their headers.
    pub wire_bytes: u64,
}

/// Frames in flight in one direction.
#[derive(Debug)]
pub struct Line {
    config: LineConfig,
    frames: VecDeque<(u64, Frame)>,
    held_bytes: u64,
    /// When the wire has sent the last frame.
    free_at_ns: u64,
    dropped: u64,
    cross: Option<Cross>,
    /// In place of the queue and the cross traffic above, if the wire is shared fairly.
    fair: Option<Fair>,
    pauses: Option<Pauses>,
    random: Random,
}

impl Line {
    /// Creates an empty line.
    pub fn new(config: LineConfig) -> Self {
        let shared = config.wire.filter(|wire| wire.cross_ppm > 0);
        let mut cross = shared.map(|wire| Cross::new(wire.rate_bits, wire.cross_ppm, wire.cross_burst));
        let fair = config.wire.filter(|wire| wire.fair).map(|wire| Fair::new(wire, cross.take()));
        let pauses = (config.late_ns_max > 0).then(|| Pauses::new(config.late_ns_max));
        let random = Random::default();
        Self { config, frames: VecDeque::new(), held_bytes: 0, free_at_ns: 0, dropped: 0, cross, fair, pauses, random }
    }

    /// Adds a frame that arrived at `arrived_ns`, unless it is lost at random, or the queue is full.
    pub fn push(&mut self, frame: Frame, arrived_ns: u64) {
        if self.config.loss_ppm > 0 && self.random.below(MILLION) < self.config.loss_ppm {
            return;
        }
        let has_room = self.held_bytes + frame.wire_bytes <= self.config.held_bytes_max;
        let bytes = frame.wire_bytes;
        let is_taken = has_room
            && match &mut self.fair {
                Some(fair) => fair.push(frame, arrived_ns),
                None => self.through_wire(bytes, arrived_ns).map(|left_ns| self.deliver(frame, left_ns)).is_some(),
            };
        if is_taken {
            self.held_bytes += bytes;
        } else {
            self.dropped += 1;
        }
    }

    /// Delivers a frame that has left the wire, after the delay.
    fn deliver(&mut self, frame: Frame, left_ns: u64) {
        let due_ns = left_ns + self.config.delay_ns;
        let batched_ns = if self.config.batch_ns > 0 { due_ns.next_multiple_of(self.config.batch_ns) } else { due_ns };
        let delivered_ns = self.pauses.as_mut().map_or(batched_ns, |pauses| pauses.delivered_ns(batched_ns));
        self.frames.push_back((delivered_ns, frame));
    }

    /// Returns when a frame has left the wire, after earlier cross traffic; `None` if the queue is full.
    fn through_wire(&mut self, bytes: u64, arrived_ns: u64) -> Option<u64> {
        let Some(wire) = self.config.wire else { return Some(arrived_ns) };
        while let Some((their_ns, their_bytes)) = self.cross.as_mut().and_then(|cross| cross.next(arrived_ns)) {
            self.take_turn(wire, their_bytes, their_ns);
        }
        self.take_turn(wire, bytes, arrived_ns)
    }

    fn take_turn(&mut self, wire: Wire, bytes: u64, arrived_ns: u64) -> Option<u64> {
        let left_ns = self.free_at_ns.max(arrived_ns) + wire.time_ns(bytes);
        if left_ns - arrived_ns > wire.time_ns(wire.queue_bytes_max) {
            return None;
        }
        self.free_at_ns = left_ns;
        Some(left_ns)
    }

    /// Returns when the next frame leaves, or when the wire is free for one that waits.
    pub fn next_due_ns(&self) -> Option<u64> {
        let leaves_ns = self.frames.front().map(|(due_ns, _)| *due_ns);
        leaves_ns.into_iter().chain(self.fair.as_ref().and_then(Fair::next_ns)).min()
    }

    /// Removes and returns the next frame, if it is due.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<Frame> {
        while let Some((left_ns, frame)) = self.fair.as_mut().and_then(|fair| fair.next(now_ns)) {
            self.deliver(frame, left_ns);
        }
        if self.frames.front()?.0 > now_ns {
            return None;
        }
        let (_, frame) = self.frames.pop_front()?;
        self.held_bytes -= frame.wire_bytes;
        Some(frame)
    }

    /// Returns the number of frames dropped so far because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(wire_bytes: u64) -> Frame {
        Frame { bytes: vec![0; 4].into(), wire_bytes }
    }

    fn wire(rate_bits: u64) -> Wire {
        Wire { rate_bits, queue_bytes_max: 10_000, cross_ppm: 0, cross_burst: 1, fair: false }
    }

    fn line(wire: Option<Wire>) -> Line {
        Line::new(LineConfig {
            delay_ns: 150_000,
            wire,
            held_bytes_max: 4000,
            loss_ppm: 0,
            batch_ns: 0,
            late_ns_max: 0,
        })
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
        let mut line = line(Some(wire(1_000_000_000)));
        line.push(frame(1514), 0);
        line.push(frame(1514), 0);
        let first = line.next_due_ns().unwrap();
        line.pop_due(first).unwrap();
        assert_eq!(line.next_due_ns().unwrap() - first, 1514 * 8);
    }

    #[test]
    fn frames_of_a_batch_leave_together() {
        let batch_ns = 1_000_000;
        let config = LineConfig {
            delay_ns: 0,
            wire: Some(wire(100_000_000)),
            held_bytes_max: 1 << 20,
            loss_ppm: 0,
            batch_ns,
            late_ns_max: 0,
        };
        let mut line = Line::new(config);
        (0..5).for_each(|_| line.push(frame(1514), 2_500_000));
        // Each takes 121 µs on the wire: four leave by the next tick, and one by the tick after.
        assert!(line.pop_due(2_999_999).is_none());
        assert_eq!(std::iter::from_fn(|| line.pop_due(3_000_000)).count(), 4);
        assert_eq!(line.next_due_ns(), Some(4_000_000));
    }

    #[test]
    fn a_fair_wire_spaces_frames_and_the_delay_follows() {
        let mut line = line(Some(Wire { fair: true, ..wire(1_000_000_000) }));
        line.push(frame(1514), 1_000);
        line.push(frame(1514), 1_000);
        let mut left = Vec::new();
        for now_ns in 0..300_000 {
            if line.pop_due(now_ns).is_some() {
                left.push(now_ns);
            }
        }
        assert_eq!(left, [1_000 + 12_112 + 150_000, 1_000 + 2 * 12_112 + 150_000]);
        assert_eq!(line.next_due_ns(), None);
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
    fn frames_are_lost_at_the_requested_rate() {
        let config = LineConfig {
            delay_ns: 0,
            wire: None,
            held_bytes_max: 4000,
            loss_ppm: 100_000,
            batch_ns: 0,
            late_ns_max: 0,
        };
        let mut line = Line::new(config);
        let passed = (0..10_000).filter(|_| {
            line.push(frame(100), 0);
            line.pop_due(u64::MAX).is_some()
        });
        assert!((8_850..=9_150).contains(&passed.count()));
    }
    #[test]
    fn a_frame_beyond_the_queue_is_dropped_below_the_limit_in_flight() {
        let mut line = line(Some(Wire { queue_bytes_max: 2_000, ..wire(8_000_000) }));
        line.push(frame(1_500), 0);
        line.push(frame(1_500), 0);
        assert_eq!(line.dropped(), 1);
        line.push(frame(1_500), 1_500_000);
        assert_eq!(line.dropped(), 1);
    }

    #[test]
    fn cross_traffic_delays_frames_by_its_share_of_the_wire() {
        let rate_bits = 100_000_000;
        let wire = Wire { queue_bytes_max: 1 << 30, cross_ppm: 500_000, ..wire(rate_bits) };
        let mut line = Line::new(LineConfig {
            delay_ns: 0,
            wire: Some(wire),
            held_bytes_max: 1 << 30,
            loss_ppm: 0,
            batch_ns: 0,
            late_ns_max: 0,
        });
        // Half of the rate is left for these frames, so they leave about as fast as they arrive, but not evenly.
        let interval_ns = 2 * wire.time_ns(1514);
        let mut waits = Vec::new();
        for arrived_ns in (0..2_000).map(|number| number * interval_ns) {
            line.push(frame(1514), arrived_ns);
            let left_ns = line.next_due_ns().unwrap();
            line.pop_due(u64::MAX).unwrap();
            waits.push(left_ns - arrived_ns);
        }
        assert_eq!(waits.iter().filter(|wait| **wait < wire.time_ns(1514)).count(), 0);
        assert!(waits.iter().max().unwrap() > &(3 * wire.time_ns(1514)));
    }
}
