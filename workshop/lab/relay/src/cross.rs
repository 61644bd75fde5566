//! Cross traffic on the wire. It is not sent: only the time that its frames would take is counted, so that it uses no
//! processor time, which would disturb measurements on the same machine.

use crate::random::Random;

/// Frame sizes in bytes, and how many of four frames have each: bulk data, smaller pieces of it, and acknowledgements.
const SIZES: [(u64, u64); 3] = [(1514, 2), (590, 1), (66, 1)];
/// The most frames generated after a pause: earlier ones have left the wire, unless its queue is extremely long.
const FRAMES_REMEMBERED: u64 = 1000;
const MILLION: u64 = 1_000_000;

/// The most frames that arrive together.
pub const BURST_MAX: u64 = 1000;

/// A stream of frames.
#[derive(Debug)]
pub struct Cross {
    mean_interval_ns: f64,
    burst: u64,
    /// Frames that are still to come of the present burst.
    left: u64,
    next_ns: u64,
    random: Random,
}

impl Cross {
    /// Creates traffic that takes `share_ppm` millionths of a wire of `rate_bits` bits a second. `burst` frames arrive
    /// together, at random times (Poisson); with 0, frames arrive one by one at equal intervals.
    pub fn new(rate_bits: u64, share_ppm: u64, burst: u64) -> Self {
        let (bytes, frames) =
            SIZES.iter().fold((0, 0), |(bytes, frames), (size, count)| (bytes + size * count, frames + count));
        let mean_bits = (bytes * 8) as f64 / frames as f64;
        let rate = rate_bits as f64 * share_ppm as f64 / MILLION as f64;
        let burst = burst.min(BURST_MAX);
        Self { mean_interval_ns: mean_bits * 1e9 / rate, burst, left: burst, next_ns: 0, random: Random::default() }
    }

    /// Returns the time and the bytes of the next frame that arrives until `now_ns`.
    pub fn next(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        self.next_ns = self.next_ns.max(now_ns.saturating_sub(FRAMES_REMEMBERED * self.mean_interval_ns as u64));
        if self.next_ns > now_ns {
            return None;
        }
        let arrived_ns = self.next_ns;
        self.advance();
        Some((arrived_ns, self.size()))
    }

    fn advance(&mut self) {
        if self.burst == 0 {
            self.next_ns += self.mean_interval_ns as u64 + 1;
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            self.left = self.burst;
            self.next_ns += (-self.random.share().ln() * self.mean_interval_ns * self.burst as f64) as u64 + 1;
        }
    }

    fn size(&mut self) -> u64 {
        let mut turn = self.random.below(SIZES.iter().map(|(_, count)| count).sum());
        for (size, count) in SIZES {
            if turn < count {
                return size;
            }
            turn -= count;
        }
        SIZES[0].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_traffic_takes_its_share_evenly_at_random_and_in_bursts() {
        for burst in [0, 1, 32] {
            let mut cross = Cross::new(100_000_000, 500_000, burst);
            let mut bytes = 0;
            for now_ns in (0..20_000_000_000).step_by(100_000) {
                while let Some((_, size)) = cross.next(now_ns) {
                    bytes += size;
                }
            }
            let bits_per_s = bytes * 8 / 20;
            assert!((47_500_000..52_500_000).contains(&bits_per_s), "{burst}: {bits_per_s}");
        }
    }

    #[test]
    fn frames_of_a_burst_arrive_together_and_steady_frames_apart() {
        let times = |burst| {
            let mut cross = Cross::new(100_000_000, 500_000, burst);
            (0..64).map(|_| cross.next(u64::MAX / 2).map(|(at_ns, _)| at_ns)).collect::<Vec<_>>()
        };
        let bursts = times(32);
        assert!(bursts[..32].iter().all(|at| *at == bursts[0]) && bursts[32] > bursts[0]);
        let steady: Vec<_> = times(0).windows(2).map(|pair| pair[1].unwrap() - pair[0].unwrap()).collect();
        assert!(steady.iter().all(|interval| *interval == steady[0]));
    }

    #[test]
    fn after_a_long_pause_a_limited_number_of_frames_is_generated() {
        let mut cross = Cross::new(1_000_000_000, 500_000, 1);
        let mut frames = 0;
        while cross.next(3_600_000_000_000).is_some() {
            frames += 1;
        }
        assert!((800..1200).contains(&frames), "{frames}");
    }
}
