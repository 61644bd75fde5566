//! How a connection passes the time between small requests.
//!
//! There are two ways to spend less on waking up, and which is better only the client's behaviour tells:
//!
//! * **Awake**: keep polling for a moment ([`busy`](crate::busy)). A client that waits for its answers gets them sooner.
//! * **Gather**: before going to sleep, wait a little without listening ([`Gathering`](super::workers)). A client that
//!   keeps many requests under way fills the socket meanwhile, nobody has to be woken for each of them, and one system
//!   call takes and answers them all.
//!
//! How many requests a client keeps under way cannot be seen from here, so both are tried now and then, and the one
//! that carries more requests a second is kept.

use std::time::{Duration, Instant};

/// Requests over which a way is judged.
const EPOCH_REQUESTS: u32 = 256;
/// Epochs until the other way is tried again: three requests in a hundred go the worse way.
const SETTLED_EPOCHS: u32 = 32;
/// A client that pauses for so long tells nothing of either way.
const PAUSE: Duration = Duration::from_millis(1);
/// Gathering spares the processor, so it may be this much slower, in hundredths.
const GATHER_HANDICAP_PERCENT: u32 = 95;
/// Requests that a turn takes on average where they gather. Where they do not, there is nothing to be spared.
const GATHERED_MIN: u32 = 2;

/// What to do between requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Stay awake for the next one.
    Awake,
    /// Let some gather.
    Gather,
}

impl Way {
    const fn other(self) -> Self {
        match self {
            Self::Awake => Self::Gather,
            Self::Gather => Self::Awake,
        }
    }
}

/// Judges the two ways for one connection.
pub(super) struct Pace {
    way: Way,
    epoch: Option<Epoch>,
    last: Option<Instant>,
    /// Epochs left until the other way is tried.
    settled: u32,
    /// While the other way is tried: seconds an epoch took the old way.
    rival_s: Option<f64>,
}

/// What happened since the ways were judged last.
#[derive(Clone, Copy)]
struct Epoch {
    requests: u32,
    /// Turns that took them.
    turns: u32,
    since: Instant,
}

impl Epoch {
    const fn new(since: Instant) -> Self {
        Self { requests: 0, turns: 0, since }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self { way: Way::Awake, epoch: None, last: None, settled: 1, rival_s: None }
    }
}

impl Pace {
    /// Takes note of `taken` requests, taken at `now` in one turn, and says what to do until the next ones.
    pub(super) fn turn(&mut self, taken: u32, now: Instant) -> Way {
        let paused = self.last.is_some_and(|last| now.saturating_duration_since(last) > PAUSE);
        self.last = Some(now);
        // Those of the first turn belong to the time before it.
        let Some(mut epoch) = self.epoch.filter(|_| !paused) else {
            self.epoch = Some(Epoch::new(now));
            return self.way;
        };
        epoch.requests += taken;
        epoch.turns += 1;
        self.epoch = Some(epoch);
        if epoch.requests >= EPOCH_REQUESTS {
            self.epoch = Some(Epoch::new(now));
            self.judge(epoch, now);
        }
        self.way
    }

    /// An epoch is over.
    fn judge(&mut self, epoch: Epoch, now: Instant) {
        let took_s = now.saturating_duration_since(epoch.since).as_secs_f64() / f64::from(epoch.requests);
        if self.way == Way::Gather && epoch.requests < GATHERED_MIN * epoch.turns {
            (self.way, self.rival_s, self.settled) = (Way::Awake, None, SETTLED_EPOCHS);
            return;
        }
        match self.rival_s.take() {
            Some(rival_s) => {
                let handicap = f64::from(GATHER_HANDICAP_PERCENT) / 100.0;
                let better = match self.way {
                    Way::Gather => took_s * handicap <= rival_s,
                    Way::Awake => took_s < rival_s * handicap,
                };
                if !better {
                    self.way = self.way.other();
                }
                self.settled = SETTLED_EPOCHS;
            }
            None if self.settled == 0 => {
                self.rival_s = Some(took_s);
                self.way = self.way.other();
            }
            None => self.settled -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of turns a client's server gathers in, when a turn takes `turn_us(way)` and brings `requests(way)`.
    fn gathered(turns: u32, turn_us: impl Fn(Way) -> u64, requests: impl Fn(Way) -> u32) -> f64 {
        let (mut pace, mut now, mut way, mut gathered) = (Pace::default(), Instant::now(), Way::Awake, 0);
        for _ in 0..turns {
            now += Duration::from_micros(turn_us(way));
            let taken = requests(way);
            way = pace.turn(taken, now);
            gathered += u32::from(way == Way::Gather);
        }
        f64::from(gathered) / f64::from(turns)
    }

    #[test]
    fn a_client_that_waits_for_every_answer_finds_the_server_awake() {
        let share = gathered(100_000, |way| if way == Way::Awake { 20 } else { 50 }, |_| 1);
        assert!(share < 0.05, "{share}");
    }

    #[test]
    fn a_client_that_never_waits_is_served_in_batches() {
        // The server carries no more requests a second either way: the client is the limit.
        let share = gathered(
            100_000,
            |way| if way == Way::Awake { 20 } else { 60 },
            |way| match way {
                Way::Awake => 2,
                Way::Gather => 6,
            },
        );
        assert!(share > 0.85, "{share}");
    }

    #[test]
    fn where_nothing_gathers_the_server_stays_awake() {
        // One of several servers of a drive: how soon it answers is not what its client waits for most.
        let share = gathered(100_000, |_| 200, |_| 1);
        assert!(share < 0.05, "{share}");
    }

    #[test]
    fn a_client_that_pauses_says_nothing() {
        assert!(gathered(10_000, |_| 2_000, |_| 1) < 0.01);
    }

    #[test]
    fn a_client_that_changes_its_ways_is_followed() {
        let (mut pace, mut now, mut way) = (Pace::default(), Instant::now(), Way::Awake);
        for deep in [true, false, true] {
            let mut gathered = 0;
            for turn in 0..40_000 {
                let (us, taken) = match (deep, way) {
                    (true, Way::Gather) => (60, 8),
                    (false, Way::Gather) => (60, 1),
                    (_, Way::Awake) => (20, 1),
                };
                now += Duration::from_micros(us);
                way = pace.turn(taken, now);
                gathered += u32::from(turn >= 20_000 && way == Way::Gather);
            }
            assert_eq!(gathered > 10_000, deep, "{gathered} of 20,000 turns");
        }
    }
}
