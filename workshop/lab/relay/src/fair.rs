//! A wire that is shared fairly by two flows, forwarded frames and cross traffic: deficit round robin (Shreedhar, Varghese 1995), by
//! which fq_codel and CAKE choose the next frame.

use std::collections::VecDeque;

use crate::cross::Cross;
use crate::line::{Frame, Wire};

/// The bytes that a flow may send in its turn: a whole frame, as in fq_codel and CAKE.
const QUANTUM_BYTES: i64 = 1514;
/// The flows.
const OURS: usize = 0;
const THEIRS: usize = 1;

/// The frames of both flows that wait for the wire, each with the time of its arrival.
#[derive(Debug)]
pub struct Fair {
    wire: Wire,
    cross: Option<Cross>,
    ours: VecDeque<(u64, Frame)>,
    /// Of cross traffic, the bytes.
    theirs: VecDeque<(u64, u64)>,
    waiting_bytes: [u64; 2],
    /// The bytes that each flow may still send.
    deficits: [i64; 2],
    turn: usize,
    /// When the wire has sent the last frame.
    free_at_ns: u64,
}

impl Fair {
    /// Creates empty queues.
    pub fn new(wire: Wire, cross: Option<Cross>) -> Self {
        let (ours, theirs) = (VecDeque::new(), VecDeque::new());
        let (waiting_bytes, deficits) = ([0; 2], [QUANTUM_BYTES; 2]);
        Self { wire, cross, ours, theirs, waiting_bytes, deficits, turn: OURS, free_at_ns: 0 }
    }

    /// Adds a frame; returns whether there was room.
    pub fn push(&mut self, frame: Frame, arrived_ns: u64) -> bool {
        let has_room = self.has_room(OURS, frame.wire_bytes);
        if has_room {
            self.waiting_bytes[OURS] += frame.wire_bytes;
            self.ours.push_back((arrived_ns, frame));
        }
        has_room
    }

    /// Returns when the wire is free for a frame that waits.
    pub fn next_ns(&self) -> Option<u64> {
        self.ours.front().map(|(arrived_ns, _)| self.free_at_ns.max(*arrived_ns))
    }

    /// Returns the next forwarded frame that the wire begins to send until `now_ns`, and when it has sent it.
    pub fn next(&mut self, now_ns: u64) -> Option<(u64, Frame)> {
        while self.next_ns()? <= now_ns {
            self.admit();
            match self.choose() {
                Some(OURS) => {
                    let (_, frame) = self.ours.pop_front()?;
                    self.sends(OURS, frame.wire_bytes);
                    return Some((self.free_at_ns, frame));
                }
                Some(_) => {
                    let (_, bytes) = self.theirs.pop_front()?;
                    self.sends(THEIRS, bytes);
                }
                None => self.idle()?,
            }
        }
        None
    }

    /// Queues the cross traffic that arrives until the wire is free.
    fn admit(&mut self) {
        while let Some((arrived_ns, bytes)) = self.cross.as_mut().and_then(|cross| cross.next(self.free_at_ns)) {
            self.push_theirs(arrived_ns, bytes);
        }
    }

    fn push_theirs(&mut self, arrived_ns: u64, bytes: u64) {
        if self.has_room(THEIRS, bytes) {
            self.waiting_bytes[THEIRS] += bytes;
            self.theirs.push_back((arrived_ns, bytes));
        }
    }

    /// Lets the wire be idle until the next frame of either flow arrives; `None` if no forwarded frame waits.
    fn idle(&mut self) -> Option<()> {
        let until_ns = self.next_ns()?;
        self.free_at_ns = match self.cross.as_mut().and_then(|cross| cross.next(until_ns)) {
            Some((arrived_ns, bytes)) => {
                self.push_theirs(arrived_ns, bytes);
                self.free_at_ns.max(arrived_ns)
            }
            None => until_ns,
        };
        Some(())
    }

    fn has_room(&self, flow: usize, bytes: u64) -> bool {
        self.waiting_bytes[flow] + bytes <= self.wire.queue_bytes_max
    }

    /// Returns the flow whose frame is next on the free wire; `None` if none has arrived.
    fn choose(&mut self) -> Option<usize> {
        let has_arrived = |arrived_ns: Option<u64>| arrived_ns.is_some_and(|at_ns| at_ns <= self.free_at_ns);
        let waits = [
            has_arrived(self.ours.front().map(|(at_ns, _)| *at_ns)),
            has_arrived(self.theirs.front().map(|(at_ns, _)| *at_ns)),
        ];
        if waits == [false; 2] {
            return None;
        }
        while !waits[self.turn] || self.deficits[self.turn] <= 0 {
            let left = if waits[self.turn] { self.deficits[self.turn] } else { 0 };
            self.deficits[self.turn] = left + QUANTUM_BYTES;
            self.turn = 1 - self.turn;
        }
        Some(self.turn)
    }

    fn sends(&mut self, flow: usize, bytes: u64) {
        self.waiting_bytes[flow] -= bytes;
        self.deficits[flow] -= bytes as i64;
        self.free_at_ns += self.wire.time_ns(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: u64 = 100_000_000;

    fn wire(cross_ppm: u64, cross_burst: u64) -> Wire {
        Wire { rate_bits: BITS, queue_bytes_max: 1 << 20, cross_ppm, cross_burst, fair: true }
    }

    /// The times at which 100 frames leave that arrive together, after a second of cross traffic.
    fn left_ns(wire: Wire) -> Vec<u64> {
        let cross = (wire.cross_ppm > 0).then(|| Cross::new(wire.rate_bits, wire.cross_ppm, wire.cross_burst));
        let mut fair = Fair::new(wire, cross);
        for _ in 0..100 {
            assert!(fair.push(Frame { bytes: Box::default(), wire_bytes: 1514 }, 1_000_000_000));
        }
        std::iter::from_fn(|| fair.next(u64::MAX).map(|(left_ns, _)| left_ns)).collect()
    }

    fn gaps(left_ns: &[u64]) -> Vec<u64> {
        left_ns.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn without_cross_traffic_frames_leave_one_after_the_other() {
        let left_ns = left_ns(wire(0, 1));
        assert_eq!(left_ns[0], 1_000_000_000 + 121_120);
        assert!(gaps(&left_ns).iter().all(|gap| *gap == 121_120));
    }

    #[test]
    fn beside_a_flow_that_always_waits_frames_have_half_of_the_wire() {
        // Nine tenths of the wire, evenly: more than its half, so its queue is never empty for long.
        let left_ns = left_ns(wire(900_000, 0));
        let bits_per_s = 99.0 * 1514.0 * 8e9 / (left_ns[99] - left_ns[0]) as f64;
        assert!((45e6..58e6).contains(&bits_per_s), "{bits_per_s}");
        // At most two frames of the other flow come between: the last of its turn may exceed its quantum.
        assert!(gaps(&left_ns).iter().all(|gap| *gap <= 121_120 * 3), "{left_ns:?}");
    }

    #[test]
    fn a_frame_is_not_sent_before_it_arrives_nor_decided_upon_before_the_wire_is_free() {
        let mut fair = Fair::new(wire(0, 1), None);
        for arrived_ns in [5_000, 6_000] {
            assert!(fair.push(Frame { bytes: Box::default(), wire_bytes: 1514 }, arrived_ns));
        }
        assert!(fair.next(4_999).is_none());
        assert_eq!(fair.next(5_000).map(|(left_ns, _)| left_ns), Some(126_120));
        assert_eq!(fair.next_ns(), Some(126_120));
        assert!(fair.next(126_119).is_none());
        assert!(fair.next(126_120).is_some() && fair.next_ns().is_none());
    }

    #[test]
    fn a_full_queue_takes_no_frame() {
        let mut fair = Fair::new(Wire { queue_bytes_max: 2_000, ..wire(0, 1) }, None);
        let mut push = || fair.push(Frame { bytes: Box::default(), wire_bytes: 1_500 }, 0);
        assert_eq!([push(), push()], [true, false]);
    }
}
