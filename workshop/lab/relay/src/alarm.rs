//! Waking on time: a timer expires late, by the time a halted processor takes to wake. So it is set earlier by its
//! recent lateness, and the relay spins for the rest.

/// The longest time to spin, however late timers are.
const EARLY_NS_MAX: u64 = 200_000;
/// The divisors of the moving average for a timer that was later, and for one that was less late, than estimated,
/// chosen so that most timers are on time.
const RISING: u64 = 8;
const FALLING: u64 = 32;

/// The estimated lateness of timers.
#[derive(Debug, Default)]
pub struct Alarm {
    early_ns: u64,
}

impl Alarm {
    /// Returns the time to set a timer to, for waking at `due_ns`.
    pub fn target_ns(&self, due_ns: u64) -> u64 {
        due_ns.saturating_sub(self.early_ns)
    }

    /// Records a timer that was set to `target_ns` and expired at `now_ns`.
    pub fn went_off(&mut self, target_ns: u64, now_ns: u64) {
        let late_ns = now_ns.saturating_sub(target_ns).min(EARLY_NS_MAX);
        if late_ns > self.early_ns {
            self.early_ns += (late_ns - self.early_ns) / RISING;
        } else {
            self.early_ns -= (self.early_ns - late_ns) / FALLING;
        }
    }

    /// Returns whether `due_ns` is too near for sleeping.
    pub fn is_near(&self, due_ns: u64, now_ns: u64) -> bool {
        self.target_ns(due_ns) <= now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_that_are_late_are_set_earlier() {
        let mut alarm = Alarm::default();
        assert_eq!(alarm.target_ns(1_000_000), 1_000_000);
        for _ in 0..100 {
            alarm.went_off(1_000_000, 1_060_000);
        }
        assert!((935_000..945_000).contains(&alarm.target_ns(1_000_000)));
        assert!(alarm.is_near(1_000_000, 950_000) && !alarm.is_near(1_000_000, 900_000));
    }

    #[test]
    fn after_a_stall_of_the_machine_spinning_is_limited() {
        let mut alarm = Alarm::default();
        for _ in 0..100 {
            alarm.went_off(0, 1_000_000_000);
        }
        assert!(alarm.target_ns(1_000_000) >= 800_000);
    }
}
