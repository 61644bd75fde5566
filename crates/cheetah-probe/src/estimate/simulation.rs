//! A link with a queue, first in, first out, on which other traffic goes too: what the estimators are tested against.

use super::Arrival;
use crate::clock::Nanos;

/// Random numbers that are the same every time.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// From 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed.
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.share()).ln()
    }
}

/// What goes there besides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cross {
    /// Packets of one size, evenly spaced.
    Even(u32),
    /// Packets of 40, 576 and 1500 bytes as on backbones, whenever.
    Mixed,
    /// So many full-sized packets at once, as senders do that hand many to the interface at a time.
    Bursts(u32),
}

/// A path with one narrow link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Its capacity in bits a second.
    pub(super) bits_per_s: f64,
    /// How much of it other traffic takes, 0 to 1, and which.
    pub(super) cross: (f64, Cross),
    /// Mean of what timestamps are late by, in nanoseconds; one in a hundred is late by twenty times that.
    pub(super) noise_ns: f64,
    /// Longest that its queue may get, in bytes.
    pub(super) queue_bytes: f64,
}

impl Link {
    pub(super) fn idle(bits_per_s: f64) -> Self {
        Self { bits_per_s, cross: (0.0, Cross::Mixed), noise_ns: 300.0, queue_bytes: 1e6 }
    }

    /// Carries packets of `ip_bytes` that leave at `sent`; those that find the queue full are lost.
    pub(super) fn carry(&self, sent: &[Nanos], ip_bytes: u32, random: &mut Random) -> Vec<Arrival> {
        let ns_per_byte = 8e9 / self.bits_per_s;
        let start = sent.first().map_or(0.0, |at| at.0 as f64);
        // Other traffic has been going for a while, so that the queue is as it usually is.
        let mut cross = CrossTraffic::new(self, start - 500.0 * 1500.0 * ns_per_byte, random);
        let (mut free_at, mut stamped, mut arrivals) = (0.0_f64, 0.0_f64, Vec::new());
        for (seq, at) in (0_u32..).zip(sent) {
            let at = at.0 as f64;
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
            let outlier = if random.share() < 0.01 { 20.0 } else { 1.0 };
            stamped = stamped.max(free_at + random.exponential(self.noise_ns * outlier));
            arrivals.push(Arrival { seq, sent: Nanos(at as u64), came: Nanos(stamped as u64 + 5_000_000), ip_bytes });
        }
        arrivals
    }
}

struct CrossTraffic {
    kind: Cross,
    /// Mean nanoseconds a byte.
    pace: f64,
    next: (f64, f64),
    left: u32,
}

impl CrossTraffic {
    fn new(link: &Link, from: f64, random: &mut Random) -> Self {
        let (share, kind) = link.cross;
        let pace = 8e9 / (link.bits_per_s * share);
        let first = if share > 0.0 { from + random.share() * 1500.0 * pace } else { f64::INFINITY };
        Self { kind, pace, next: (first, 1500.0), left: 0 }
    }

    /// The next packet: when it comes, and its size.
    fn take(&mut self, random: &mut Random) -> (f64, f64) {
        let taken = self.next;
        let (after, bytes) = match self.kind {
            Cross::Even(bytes) => (f64::from(bytes) * self.pace, f64::from(bytes)),
            Cross::Mixed => {
                let bytes = [54.0, 590.0, 1514.0][(random.share() * 3.0) as usize];
                (random.exponential(719.0 * self.pace), bytes)
            }
            Cross::Bursts(_) if self.left > 0 => (0.0, 1514.0),
            Cross::Bursts(packets) => (random.exponential(1514.0 * f64::from(packets) * self.pace), 1514.0),
        };
        self.left = match self.kind {
            Cross::Bursts(packets) if self.left == 0 => packets - 1,
            _ => self.left.saturating_sub(1),
        };
        self.next = (taken.0 + after, bytes);
        taken
    }
}
