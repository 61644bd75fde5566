//! Waits for a point in time.

use std::io;
use std::time::Duration;

use rustix::thread::ClockId;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::Timespec;

use crate::clock::Nanos;

/// How long before a point in time sleeping ends and spinning begins: longer than a machine takes to wake up from idling. It
/// is also the longest anything spins for one packet.
pub(super) const SPIN: Duration = Duration::from_micros(300);

/// Sleeps until shortly before `due`, if it is worth it. Returns whether it was.
pub(super) fn sleep_before(due: Nanos) -> bool {
    let worth_it = due.since(Nanos::now()) > SPIN * 2;
    if worth_it {
        sleep_until(due - SPIN);
    }
    worth_it
}

/// Waits until `due`, exactly: sleeps until shortly before and spins through the rest. Returns what the clock said.
pub(super) fn until(due: Nanos) -> Nanos {
    sleep_before(due);
    loop {
        // No pause instruction here: under a hypervisor it may cost a trip out of the machine.
        let now = Nanos::now();
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
    // A signal ends the sleep early; then the rest is slept.
    while Nanos::now() < due && clock_nanosleep_absolute(ClockId::Monotonic, &time).is_err() {}
}

/// How long an interface may take nothing before it counts as stuck.
const STUCK: Duration = Duration::from_secs(1);

/// How long to retry at once, and how long each sleep after that is. By then the train is late in any case, and the task that makes
/// room may need this CPU.
const AT_ONCE: Duration = Duration::from_millis(1);
const NAP: Duration = Duration::from_micros(100);

/// Waiting for an interface that has no room for packets just now.
pub(super) struct Patience {
    since: Nanos,
}

impl Patience {
    /// Since then it has taken nothing.
    pub(super) const fn since(since: Nanos) -> Self {
        Self { since }
    }

    /// To be called before each further try; fails once it counts as stuck.
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
    fn an_interface_that_takes_nothing_is_waited_for_asleep_and_not_for_ever() {
        let now = Nanos::now();
        assert!(Patience::since(now - STUCK - NAP).wait().is_err());
        let asleep = Patience::since(now - AT_ONCE).wait();
        assert!(asleep.is_ok() || Nanos::now() >= now + STUCK - AT_ONCE);
        assert!(Nanos::now() >= now + NAP);
    }

    #[test]
    fn nothing_is_early() {
        for wait in [0, 10, 1_000, 20_000].map(Duration::from_micros) {
            let due = Nanos::now() + wait;
            assert!(until(due) >= due);
            let due = Nanos::now() + wait;
            sleep_until(due);
            assert!(Nanos::now() >= due);
        }
    }

    #[test]
    fn the_past_is_not_waited_for() {
        let long_ago = Nanos(1);
        assert!(until(long_ago) > long_ago);
    }
}
