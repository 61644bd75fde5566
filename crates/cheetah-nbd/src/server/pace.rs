//! How a connection passes the time between small requests.
//!
//! What waking up costs can be spent better, and how only the client's behaviour tells:
//!
//! * **Awake**: where requests come one at a time, keep polling for a moment ([`busy`](crate::busy)): a client that waits
//!   for its answers gets them sooner.
//! * **Asleep**: where several come at once, sleep until there are more. Polling would take the processor from the client.
//! * **Gather**: the same, but wait a little without listening first ([`gather`](super::workers::gather)). A client that
//!   keeps many requests under way fills the socket meanwhile, nobody has to be woken for each of them, and one system
//!   call takes and answers them all.
//!
//! How many requests a client keeps under way cannot be seen from here, so the last two are both tried now and then, and
//! the one that carries more requests a second is kept.

use std::time::{Duration, Instant};

/// Turns of one request each until a client counts as one of depth 1 again.
const SINGLE_TURNS: u32 = 256;
/// Requests over which a way is judged.
const EPOCH_REQUESTS: u32 = 256;
/// Epochs until the other way is tried again: three requests in a hundred go the worse way.
const SETTLED_EPOCHS: u32 = 32;
/// A client that pauses for so long tells nothing of either way.
const PAUSE: Duration = Duration::from_millis(1);
/// Gathering spares the processor, so it may be this much slower, in hundredths.
const GATHER_HANDICAP_PERCENT: u32 = 98;
/// Requests that a turn takes on average where they gather. Where they do not, there is nothing to be spared.
const GATHERED_MIN: u32 = 2;

/// What to do between requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Stay awake for the next one.
    Awake,
    /// Sleep until there is one.
    Asleep,
    /// Let some gather.
    Gather,
}

/// Judges, for one connection, whether requests are to gather.
pub(super) struct Pace {
    /// Whether they gather at present, where several come at once.
    gathers: bool,
    /// Turns of one request each until the client counts as one that has no more under way.
    several: u32,
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
        Self { gathers: false, several: 0, epoch: None, last: None, settled: 1, rival_s: None }
    }
}

impl Pace {
    /// Takes note of `taken` requests, taken at `now` in one turn, and says what to do until the next ones.
    pub(super) fn turn(&mut self, taken: u32, now: Instant) -> Way {
        self.several = if taken > 1 { SINGLE_TURNS } else { self.several.saturating_sub(1) };
        if self.several == 0 {
            self.epoch = None;
            return Way::Awake;
        }
        let paused = self.last.is_some_and(|last| now.saturating_duration_since(last) > PAUSE);
        self.last = Some(now);
        // Those of the first turn belong to the time before it.
        let Some(mut epoch) = self.epoch.filter(|_| !paused) else {
            self.epoch = Some(Epoch::new(now));
            return self.way();
        };
        epoch.requests += taken;
        epoch.turns += 1;
        self.epoch = Some(epoch);
        if epoch.requests >= EPOCH_REQUESTS {
            self.epoch = Some(Epoch::new(now));
            self.judge(epoch, now);
        }
        self.way()
    }

    fn way(&self) -> Way {
        if self.gathers { Way::Gather } else { Way::Asleep }
    }

    /// An epoch is over.
    fn judge(&mut self, epoch: Epoch, now: Instant) {
        let took_s = now.saturating_duration_since(epoch.since).as_secs_f64() / f64::from(epoch.requests);
        if self.gathers && epoch.requests < GATHERED_MIN * epoch.turns {
            (self.gathers, self.rival_s, self.settled) = (false, None, SETTLED_EPOCHS);
            return;
        }
        match self.rival_s.take() {
            Some(rival_s) => {
                let handicap = f64::from(GATHER_HANDICAP_PERCENT) / 100.0;
                let (gathering_s, sleeping_s) = if self.gathers { (took_s, rival_s) } else { (rival_s, took_s) };
                self.gathers = gathering_s * handicap <= sleeping_s;
                self.settled = SETTLED_EPOCHS;
            }
            None if self.settled == 0 => {
                self.rival_s = Some(took_s);
                self.gathers = !self.gathers;
            }
            None => self.settled -= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of turns after which a server goes each `way`, when a turn takes `turn_us(way)` and brings
    /// `requests(way, turn)`.
    fn share(of: Way, turns: u32, turn_us: impl Fn(Way) -> u64, requests: impl Fn(Way, u32) -> u32) -> f64 {
        let (mut pace, mut now, mut way, mut counted) = (Pace::default(), Instant::now(), Way::Awake, 0);
        for turn in 0..turns {
            now += Duration::from_micros(turn_us(way));
            way = pace.turn(requests(way, turn), now);
            counted += u32::from(way == of);
        }
        f64::from(counted) / f64::from(turns)
    }

    #[test]
    fn a_client_that_waits_for_every_answer_finds_the_server_awake() {
        assert!(share(Way::Awake, 10_000, |_| 20, |_, _| 1) > 0.99);
        // Once in a while there are two.
        assert!(share(Way::Awake, 100_000, |_| 20, |_, turn| 1 + u32::from(turn % 5_000 == 0)) > 0.9);
    }

    #[test]
    fn a_client_that_never_waits_is_served_in_batches() {
        // The server carries no more requests a second either way: the client is the limit.
        let turn_us = |way| if way == Way::Gather { 60 } else { 20 };
        let gathered = share(Way::Gather, 100_000, turn_us, |way, _| if way == Way::Gather { 6 } else { 2 });
        assert!(gathered > 0.85, "{gathered}");
    }

    #[test]
    fn a_client_that_waits_for_all_its_answers_is_not_kept_waiting() {
        let turn_us = |way| if way == Way::Gather { 60 } else { 30 };
        let asleep = share(Way::Asleep, 100_000, turn_us, |_, _| 4);
        assert!(asleep > 0.9, "{asleep}");
    }

    #[test]
    fn where_nothing_gathers_the_server_does_not_wait_for_it() {
        // One of several servers of a drive: how soon it answers is not what its client waits for most.
        let asleep = share(Way::Asleep, 100_000, |_| 200, |_, turn| 1 + u32::from(turn % 10 == 0));
        assert!(asleep > 0.9, "{asleep}");
    }

    #[test]
    fn a_client_that_pauses_says_nothing() {
        assert!(share(Way::Gather, 10_000, |_| 2_000, |_, _| 4) < 0.01);
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
                    (true, _) => (20, 2),
                    (false, _) => (20, 1),
                };
                now += Duration::from_micros(us);
                way = pace.turn(taken, now);
                gathered += u32::from(turn >= 20_000 && way == Way::Gather);
            }
            assert_eq!(gathered > 10_000, deep, "{gathered} of 20,000 turns");
        }
    }
}
