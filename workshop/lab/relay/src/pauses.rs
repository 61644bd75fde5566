//! A relay that is sometimes late: its pauses, at random times.

use crate::random::Random;

/// The mean time from one pause to the next.
const MEAN_INTERVAL_NS: f64 = 20e6;
/// The shortest pause, as a share of the longest.
const SHORTEST: f64 = 0.1;

/// Pauses with Poisson arrivals, each of a tenth to the whole of the longest.
#[derive(Debug)]
pub struct Pauses {
    longest_ns: u64,
    /// The latest pause considered: the last or the next.
    start_ns: u64,
    end_ns: u64,
    random: Random,
}

impl Pauses {
    /// Creates pauses of up to `longest_ns`.
    pub fn new(longest_ns: u64) -> Self {
        Self { longest_ns, start_ns: 0, end_ns: 0, random: Random::default() }
    }

    /// Returns when a frame leaves that is due at `due_ns`: then, or at the end of a pause. Times must not decrease.
    pub fn delivered_ns(&mut self, due_ns: u64) -> u64 {
        // After a long time without frames, the pauses since then are of no interest.
        if due_ns.saturating_sub(self.end_ns) > 100 * MEAN_INTERVAL_NS as u64 {
            self.end_ns = due_ns;
            self.advance();
        }
        while self.end_ns <= due_ns {
            self.advance();
        }
        if due_ns < self.start_ns { due_ns } else { self.end_ns }
    }

    fn advance(&mut self) {
        self.start_ns = self.end_ns + (-self.random.share().ln() * MEAN_INTERVAL_NS) as u64;
        let share = SHORTEST + (1.0 - SHORTEST) * self.random.share();
        self.end_ns = self.start_ns + (self.longest_ns as f64 * share) as u64 + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_due_in_a_pause_leave_together_at_its_end_and_others_on_time() {
        let mut pauses = Pauses::new(3_000_000);
        let (mut late, mut latest, mut last) = (0, 0, 0);
        for due_ns in (0..10_000_000_000).step_by(100_000) {
            let delivered_ns = pauses.delivered_ns(due_ns);
            assert!(delivered_ns >= due_ns && delivered_ns >= last);
            last = delivered_ns;
            late += u64::from(delivered_ns > due_ns);
            latest = latest.max(delivered_ns - due_ns);
        }
        // Pauses of 1.65 ms in the mean, every 21.65 ms.
        assert!((6_000..9_500).contains(&late), "{late} of 100,000");
        assert!((2_500_000..=3_000_001).contains(&latest), "{latest}");
    }
}
