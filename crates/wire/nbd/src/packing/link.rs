//! Estimating the bandwidth to the clients. No I/O.

use std::time::Duration;

/// The initial estimate: gigabit Ethernet, in bytes a second.
const RATE_INITIAL: f64 = 118e6;
/// The weight of the initial estimate, in seconds of waiting.
const INITIAL_WEIGHT_S: f64 = 0.005;
/// An observation's weight falls to 1/e after this many bytes.
const WINDOW_BYTES: f64 = 8e6;
/// The estimate doubles after this many bytes without a wait, before the first wait …
const FREE_BYTES_UNKNOWN: f64 = 4e6;
/// … or after this many, once there has been a wait.
const FREE_BYTES_KNOWN: f64 = 64e6;
/// But to no more than this many times the rate of those bytes, or the initial estimate.
const FREE_FACTOR_MAX: f64 = 4.0;
/// Longer gaps between sends count as idle time.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// The highest estimate.
const RATE_MAX: f64 = 100e9;

/// An estimate of a link's rate.
///
/// A socket accepts bytes at the speed of memory until its buffer is full; only while a writer waits do bytes leave at
/// the link's rate. So the estimate is the number of bytes sent while waiting, over the time waited. Without waits, the
/// link is only known to be faster than the sender: the estimate then grows slowly, so that its users send more. It
/// does not grow while little is sent: small requests over several connections never fill a buffer, however slow the
/// link.
#[derive(Debug, Clone)]
pub struct LinkRate {
    bytes: f64,
    waited_s: f64,
    free_bytes: f64,
    free_s: f64,
    known: bool,
}

impl Default for LinkRate {
    fn default() -> Self {
        let (bytes, waited_s) = (RATE_INITIAL * INITIAL_WEIGHT_S, INITIAL_WEIGHT_S);
        Self { bytes, waited_s, free_bytes: 0.0, free_s: 0.0, known: false }
    }
}

impl LinkRate {
    /// Records `bytes` sent after all connections together had waited this long.
    pub fn drained(&mut self, bytes: usize, waited: Duration) {
        let fresh = bytes as f64;
        let keep = (-fresh / WINDOW_BYTES).exp();
        self.bytes = self.bytes * keep + fresh;
        self.waited_s = (self.waited_s * keep + waited.as_secs_f64()).max(self.bytes / RATE_MAX);
        (self.free_bytes, self.free_s) = (0.0, 0.0);
        self.known |= self.waited_s > 4.0 * INITIAL_WEIGHT_S;
    }

    /// Records `bytes` sent without waiting, this long after the previous send.
    pub fn flowed(&mut self, bytes: usize, since: Duration) {
        self.free_bytes += bytes as f64;
        self.free_s += since.min(PAUSE_MAX).as_secs_f64();
        let enough = if self.known { FREE_BYTES_KNOWN } else { FREE_BYTES_UNKNOWN };
        if self.free_bytes >= enough {
            let most = (FREE_FACTOR_MAX * self.free_bytes / self.free_s.max(1e-6)).clamp(RATE_INITIAL, RATE_MAX);
            let least_s = (self.bytes / most).min(self.waited_s);
            self.waited_s = (self.waited_s / 2.0).max(least_s);
            (self.free_bytes, self.free_s) = (0.0, 0.0);
        }
    }

    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes / self.waited_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends over a link of `rate` whose buffer holds `buffer` bytes, `busy` of the time.
    fn send(link: &mut LinkRate, rate: f64, buffer: usize, total: usize) {
        link.flowed(buffer, Duration::ZERO);
        for _ in 0..total / 100_000 {
            link.drained(100_000, Duration::from_secs_f64(100_000.0 / rate));
        }
    }

    #[test]
    fn a_saturated_link_is_known_within_a_second() {
        for rate in [1e6, 12e6, 118e6, 2e9] {
            let mut link = LinkRate::default();
            send(&mut link, rate, 2_000_000, (rate as usize).max(4_000_000));
            assert!((0.7..1.4).contains(&(link.rate() / rate)), "{rate}: {}", link.rate());
        }
    }

    #[test]
    fn the_estimate_follows_a_changing_link() {
        let mut link = LinkRate::default();
        send(&mut link, 118e6, 2_000_000, 200_000_000);
        send(&mut link, 12e6, 0, 6_000_000);
        assert!(link.rate() < 30e6, "{}", link.rate());
        send(&mut link, 118e6, 0, 60_000_000);
        assert!(link.rate() > 90e6, "{}", link.rate());
    }

    #[test]
    fn a_link_without_queue_counts_as_fast() {
        let mut link = LinkRate::default();
        (0..40).for_each(|_| link.flowed(1_000_000, Duration::from_millis(1)));
        assert!(link.rate() > 10.0 * RATE_INITIAL);
        // After a wait, more bytes without one are needed to raise the estimate.
        send(&mut link, 12e6, 0, 40_000_000);
        (0..60).for_each(|_| link.flowed(1_000_000, Duration::from_millis(1)));
        assert!(link.rate() < 14e6, "{}", link.rate());
    }

    #[test]
    fn a_link_whose_buffers_are_never_full_has_a_finite_estimate() {
        for rate in [1e6, 12e6, 20e6, 60e6, 118e6, 500e6] {
            let mut link = LinkRate::default();
            let piece = Duration::from_secs_f64(64e3 / rate);
            (0..10_000).for_each(|_| link.flowed(64_000, piece));
            assert!(link.rate() <= RATE_INITIAL.max(4.1 * rate), "{rate}: {}", link.rate());
        }
    }

    #[test]
    fn pauses_do_not_lower_the_estimate_of_a_fast_link() {
        let mut link = LinkRate::default();
        for nth in 0..2000 {
            let pause = if nth % 100 == 0 { Duration::from_secs(2) } else { Duration::from_micros(100) };
            link.flowed(1_000_000, pause);
        }
        assert!(link.rate() > 10.0 * RATE_INITIAL, "{}", link.rate());
    }
}
