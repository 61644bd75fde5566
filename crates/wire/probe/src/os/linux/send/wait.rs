//! Waits for a point in time.

use std::io;
use std::time::Duration;

use rustix::thread::ClockId;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::Timespec;

use super::stalls::StallWatch;
use crate::clock::Nanos;

/// How long before a point in time sleeping ends and spinning begins: longer than a machine takes to wake up from
/// idling. It is also the longest spin for one packet.
pub(super) const SPIN: Duration = Duration::from_micros(300);

/// Shorter waits are spun altogether.
pub(super) const SPIN_MAX: Duration = SPIN.saturating_mul(2);

/// Sleeps until shortly before `due`, if that is far enough ahead. Returns whether it slept.
pub(super) fn sleep_before(due: Nanos, watch: &mut StallWatch) -> bool {
    let worth_it = due.since(Nanos::now()) > SPIN_MAX;
    if worth_it {
        sleep_until(due - SPIN);
        watch.woke(due - SPIN);
    }
    worth_it
}

/// Waits until exactly `due`: sleeps until shortly before, then spins. Returns the last clock reading.
pub(super) fn until(due: Nanos, watch: &mut StallWatch) -> Nanos {
    sleep_before(due, watch);
    spin(due, watch)
}

/// Reads the clock until `due`, and does nothing else. Returns the last reading.
pub(super) fn spin(due: Nanos, watch: &mut StallWatch) -> Nanos {
    watch.spins();
    loop {
        // No pause instruction here: under a hypervisor it may cause an exit of the virtual machine.
        let now = Nanos::now();
        watch.reads(now);
        if now >= due {
            return now;
        }
    }
}

/// Sleeps until about `due`.
pub(super) fn sleep_until(due: Nanos) {
    let time = Timespec {
        tv_sec: i64::try_from(due.0 / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(due.0 % 1_000_000_000).unwrap_or_default(),
    };
    // A signal may end the sleep early, hence the loop.
    while Nanos::now() < due && clock_nanosleep_absolute(ClockId::Monotonic, &time).is_err() {}
}

/// An interface that takes no packet for this long counts as stuck.
const STUCK: Duration = Duration::from_secs(1);

/// How long to retry at once, and how long each sleep after that is. By then the train is late in any case, and the
/// task that makes room may need this CPU.
const AT_ONCE: Duration = Duration::from_millis(1);
const NAP: Duration = Duration::from_micros(100);

/// Waiting for an interface that has no room for packets just now.
pub(super) struct Patience {
    since: Nanos,
}

impl Patience {
    /// Starts waiting: the interface has taken no packet since then.
    pub(super) const fn since(since: Nanos) -> Self {
        Self { since }
    }

    /// Call it before each further try. Fails once the interface counts as stuck.
    pub(super) fn wait(&self) -> io::Result<()> {
        let waited = Nanos::now().since(self.since);
        if waited > STUCK {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if waited > AT_ONCE {
            sleep_until(Nanos::now() + NAP);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_stuck_interface_sleeps_and_ends() {
        let now = Nanos::now();
        assert!(Patience::since(now - STUCK - NAP).wait().is_err());
        let asleep = Patience::since(now - AT_ONCE).wait();
        assert!(asleep.is_ok() || Nanos::now() >= now + STUCK - AT_ONCE);
        assert!(Nanos::now() >= now + NAP);
    }

    #[test]
    fn waiting_never_ends_early() {
        for wait in [0, 10, 1_000, 20_000].map(Duration::from_micros) {
            let due = Nanos::now() + wait;
            assert!(until(due, &mut StallWatch::begin()) >= due);
            let due = Nanos::now() + wait;
            sleep_until(due);
            assert!(Nanos::now() >= due);
        }
    }

    #[test]
    fn a_time_in_the_past_is_not_waited_for() {
        let long_ago = Nanos(1);
        assert!(until(long_ago, &mut StallWatch::begin()) > long_ago);
    }
}
