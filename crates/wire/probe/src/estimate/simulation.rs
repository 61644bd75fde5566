//! A simulated path for the estimators' tests: one narrow link with a FIFO queue that cross traffic shares, and stages
//! that deliver packets in batches before or after it.

use super::{Arrival, TrainArrivals};
use crate::clock::Nanos;

/// A reproducible random number generator (xorshift64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a number from 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, (low, high): (f64, f64)) -> f64 {
        low + (high - low) * self.share()
    }

    /// Returns an exponentially distributed number.
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }
}

/// Cross traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cross {
    /// Packets of one size, evenly spaced.
    Even(u32),
    /// Poisson arrivals of 40, 576 and 1500 bytes, as on backbones.
    Mixed,
    /// Bursts of this many full-sized packets, as from senders with segmentation offload.
    Bursts(u32),
}

/// When a stage that delivers packets in batches releases them. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Batching {
    /// At every tick of a clock with this interval: a poller.
    Clock(f64),
    /// This long after the first packet of the batch: interrupt coalescing.
    HoldOff(f64),
    /// At once, but not sooner than this after the last release: interrupt throttling.
    Throttle(f64),
    /// At once, except that this share of wake-ups is late by a time from this range: a thread that waits for the
    /// processor.
    Late(f64, (f64, f64)),
}

/// The time from one packet of a batch to the next, at most.
const RELEASE_NS_MAX: f64 = 4_300.0;

impl Batching {
    /// Returns when packets that arrive at `came`, in order, are released.
    fn release(self, came: &[f64], release_ns: f64, random: &mut Random) -> Vec<f64> {
        let phase = random.share();
        let (mut last, mut opens) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        let release = |came: &f64| {
            let came = *came;
            match self {
                Self::Clock(period) => opens = ((came / period - phase).ceil() + phase) * period,
                Self::HoldOff(time) if came > opens.max(last) => opens = came + time,
                Self::Throttle(time) if came > opens => opens = came.max(opens + time),
                Self::Late(share, by) if came > last && random.share() < share => opens = came + random.between(by),
                Self::HoldOff(_) | Self::Throttle(_) | Self::Late(..) => {}
            }
            last = came.max(opens).max(last + release_ns);
            last
        };
        came.iter().map(release).collect()
    }
}

/// A path with one narrow link.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimulatedPath {
    /// The capacity in bits a second.
    pub(super) bits_per_s: f64,
    /// The share of it that cross traffic takes, 0 to 1, and its kind.
    pub(super) cross: (f64, Cross),
    /// Mean lateness of timestamps, in nanoseconds; one in a hundred is late by twenty times that.
    pub(super) noise_ns: f64,
    /// The length limit of the queue, in bytes.
    pub(super) queue_bytes: f64,
    /// The time from one packet of a batch to the next, in nanoseconds.
    pub(super) release_ns: f64,
    /// Batching before the narrow link.
    pub(super) before: Option<Batching>,
    /// Batching after it: on the way there, and on the way back.
    pub(super) after: [Option<Batching>; 2],
}

impl SimulatedPath {
    pub(super) fn idle(bits_per_s: f64) -> Self {
        let cross = (0.0, Cross::Mixed);
        // A batcher that took as long for a packet as the link would be the narrowest link itself.
        let release_ns = RELEASE_NS_MAX.min(0.35 * 1514.0 * 8e9 / bits_per_s);
        Self { bits_per_s, cross, noise_ns: 300.0, queue_bytes: 1e6, release_ns, before: None, after: [None; 2] }
    }

    /// Carries packets of `ip_bytes` that leave at `sent`; those that find the queue full are lost.
    pub(super) fn carry(&self, sent: &[Nanos], ip_bytes: u32, random: &mut Random) -> Vec<Arrival> {
        let mut entered = sent.iter().map(|at| at.0 as f64).collect::<Vec<_>>();
        if let Some(before) = self.before {
            entered = before.release(&entered, self.release_ns, random);
        }
        let (places, mut came): (Vec<_>, Vec<_>) = self.through_link(&entered, ip_bytes, random).into_iter().unzip();
        for after in self.after.into_iter().flatten() {
            came = after.release(&came, self.release_ns, random);
        }
        let mut stamped = 0.0_f64;
        let arrive = |(place, came): (usize, f64)| {
            let outlier = if random.share() < 0.01 { 20.0 } else { 1.0 };
            stamped = stamped.max(came + random.exponential(self.noise_ns * outlier));
            Arrival { seq: place as u32, sent: sent[place], came: Nanos(stamped as u64 + 5_000_000), ip_bytes }
        };
        places.into_iter().zip(came).map(arrive).collect()
    }

    /// Returns the packets that get through, by place, and when each leaves the link.
    fn through_link(&self, entered: &[f64], ip_bytes: u32, random: &mut Random) -> Vec<(usize, f64)> {
        let ns_per_byte = 8e9 / self.bits_per_s;
        let start = entered.first().copied().unwrap_or_default();
        // Cross traffic started a while ago, so the queue is in its steady state.
        let mut cross = CrossTraffic::new(self, start - 500.0 * 1500.0 * ns_per_byte, random);
        let (mut free_at, mut left) = (0.0_f64, Vec::new());
        for (place, at) in entered.iter().copied().enumerate() {
            while cross.next.0 <= at {
                let (came, bytes) = cross.take(random);
                if (free_at - came).max(0.0) / ns_per_byte <= self.queue_bytes {
                    free_at = free_at.max(came) + bytes * ns_per_byte;
                }
            }
            if (free_at - at).max(0.0) / ns_per_byte > self.queue_bytes {
                continue;
            }
            free_at = free_at.max(at) + (f64::from(ip_bytes) + 14.0) * ns_per_byte;
            left.push((place, free_at));
        }
        left
    }

    /// Carries one train.
    pub(super) fn train(&self, sent: &[Nanos], ip_bytes: u32, random: &mut Random) -> TrainArrivals {
        TrainArrivals { packets: sent.len(), arrivals: self.carry(sent, ip_bytes, random) }
    }
}

struct CrossTraffic {
    kind: Cross,
    /// Mean nanoseconds a byte.
    ns_per_byte: f64,
    next: (f64, f64),
    left: u32,
}

impl CrossTraffic {
    fn new(path: &SimulatedPath, from: f64, random: &mut Random) -> Self {
        let (share, kind) = path.cross;
        let ns_per_byte = 8e9 / (path.bits_per_s * share);
        let first = if share > 0.0 { from + random.share() * 1500.0 * ns_per_byte } else { f64::INFINITY };
        Self { kind, ns_per_byte, next: (first, 1500.0), left: 0 }
    }

    /// Takes the next packet: its arrival time and its size.
    fn take(&mut self, random: &mut Random) -> (f64, f64) {
        let taken = self.next;
        let (after, bytes) = match self.kind {
            Cross::Even(bytes) => (f64::from(bytes) * self.ns_per_byte, f64::from(bytes)),
            Cross::Mixed => {
                let bytes = [54.0, 590.0, 1514.0][(random.share() * 3.0) as usize];
                (random.exponential(719.0 * self.ns_per_byte), bytes)
            }
            Cross::Bursts(_) if self.left > 0 => (0.0, 1514.0),
            Cross::Bursts(packets) => (random.exponential(1514.0 * f64::from(packets) * self.ns_per_byte), 1514.0),
        };
        self.left = match self.kind {
            Cross::Bursts(packets) if self.left == 0 => packets - 1,
            _ => self.left.saturating_sub(1),
        };
        self.next = (taken.0 + after, bytes);
        taken
    }
}
