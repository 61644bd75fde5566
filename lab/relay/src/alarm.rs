//! Waking in time: a timer goes off late, by how long a halted processor takes to wake. So it is set earlier by what it
//! has been late by of late, and the rest is spent spinning.

/// The longest time to spin, however late timers are.
const EARLY_NS_MAX: u64 = 200_000;
/// The weight of a timer that was later, and of one that was less late, than thought, as divisors: so that most are in time.
const RISING: u64 = 8;
const FALLING: u64 = 32;

/// The estimated lateness of timers.
#[derive(Debug, Default)]
pub struct Alarm {
    early_ns: u64,
}

impl Alarm {
    /// When to set a timer to that is to be up for `due_ns`.
    pub fn target_ns(&self, due_ns: u64) -> u64 {
        due_ns.saturating_sub(self.early_ns)
    }

    /// Takes note of a timer that was set to `target_ns` and went off at `now_ns`.
    pub fn went_off(&mut self, target_ns: u64, now_ns: u64) {
        let late_ns = now_ns.saturating_sub(target_ns).min(EARLY_NS_MAX);
        if late_ns > self.early_ns {
            self.early_ns += (late_ns - self.early_ns) / RISING;
        } else {
            self.early_ns -= (self.early_ns - late_ns) / FALLING;
        }
    }

    /// Whether it is not worth sleeping until `due_ns`.
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
    fn a_machine_that_stood_still_has_nobody_spin_for_long() {
        let mut alarm = Alarm::default();
        for _ in 0..100 {
            alarm.went_off(0, 1_000_000_000);
        }
        assert!(alarm.target_ns(1_000_000) >= 800_000);
    }
}
