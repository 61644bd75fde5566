//! The behaviour of a connection between small requests.
//!
//! The best choice depends on the client's behaviour:
//!
//! * **Awake**: where requests come one at a time, keep polling for a moment ([`busy`](crate::busy)), which lowers the latency
//!   for a client that waits for each answer.
//! * **Asleep**: where several come at once, sleep until the next ones. Polling would take the processor from the client.
//! * **Gather**: the same, but pause before listening ([`gather`](super::workers::gather)). A client with many requests in
//!   flight fills the socket meanwhile, so no wake-up is needed for each, and one system call receives or answers them all.
//!
//! The client's queue depth is not visible here, so a connection tries the last two modes from time to time and keeps
//! the one with the higher request rate.

use std::time::{Duration, Instant};

/// Consecutive batches of one request after which a client counts as one of depth 1.
const SINGLE_TURNS: u32 = 256;
/// The requests of an epoch, over which a mode is measured.
const EPOCH_REQUESTS: u32 = 256;
/// Epochs between trials of the other mode: 3 % of requests use the slower mode.
const SETTLED_EPOCHS: u32 = 32;
/// After a pause of this length, an epoch starts anew.
const PAUSE: Duration = Duration::from_millis(1);
/// Gathering saves processor time, so it is kept down to this percentage of the other mode's rate.
const GATHER_HANDICAP_PERCENT: u32 = 98;
/// The least mean batch for gathering. Below it, gathering saves nothing.
const GATHERED_MIN: u32 = 2;

/// What to do until the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchMode {
    /// Poll.
    Awake,
    /// Sleep.
    Asleep,
    /// Pause, then sleep.
    Gather,
}

/// Chooses the mode of one connection.
pub(super) struct BatchPolicy {
    /// Whether the mode at depth is [`BatchMode::Gather`].
    gathers: bool,
    /// Batches of one request left until the client counts as one of depth 1.
    several: u32,
    epoch: Option<Epoch>,
    last: Option<Instant>,
    /// Epochs until the next trial.
    settled: u32,
    /// During a trial: seconds per request in the other mode.
    rival_s: Option<f64>,
}

/// The current measurement.
#[derive(Clone, Copy)]
struct Epoch {
    requests: u32,
    /// Batches that brought them.
    turns: u32,
    since: Instant,
}

impl Epoch {
    const fn new(since: Instant) -> Self {
        Self { requests: 0, turns: 0, since }
    }
}

impl Default for BatchPolicy {
    fn default() -> Self {
        Self { gathers: false, several: 0, epoch: None, last: None, settled: 1, rival_s: None }
    }
}

impl BatchPolicy {
    /// Records a batch of `taken` requests at `now`, and returns the mode until the next.
    pub(super) fn turn(&mut self, taken: u32, now: Instant) -> BatchMode {
        self.several = if taken > 1 { SINGLE_TURNS } else { self.several.saturating_sub(1) };
        if self.several == 0 {
            self.epoch = None;
            return BatchMode::Awake;
        }
        let paused = self.last.is_some_and(|last| now.saturating_duration_since(last) > PAUSE);
        self.last = Some(now);
        // The requests of the first batch belong to the time before it.
        let Some(mut epoch) = self.epoch.filter(|_| !paused) else {
            self.epoch = Some(Epoch::new(now));
            return self.mode();
        };
        epoch.requests += taken;
        epoch.turns += 1;
        self.epoch = Some(epoch);
        if epoch.requests >= EPOCH_REQUESTS {
            self.epoch = Some(Epoch::new(now));
            self.judge(epoch, now);
        }
        self.mode()
    }

    fn mode(&self) -> BatchMode {
        if self.gathers { BatchMode::Gather } else { BatchMode::Asleep }
    }

    /// Ends an epoch.
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

    /// The share of turns after which a server chooses each mode, if a turn takes `turn_us(mode)` and brings
    /// `requests(mode, turn)`.
    fn share(
        of: BatchMode,
        turns: u32,
        turn_us: impl Fn(BatchMode) -> u64,
        requests: impl Fn(BatchMode, u32) -> u32,
    ) -> f64 {
        let (mut policy, mut now, mut mode, mut counted) =
            (BatchPolicy::default(), Instant::now(), BatchMode::Awake, 0);
        for turn in 0..turns {
            now += Duration::from_micros(turn_us(mode));
            mode = policy.turn(requests(mode, turn), now);
            counted += u32::from(mode == of);
        }
        f64::from(counted) / f64::from(turns)
    }

    #[test]
    fn a_client_of_depth_1_finds_the_server_awake() {
        assert!(share(BatchMode::Awake, 10_000, |_| 20, |_, _| 1) > 0.99);
        // Occasionally a batch has two requests.
        assert!(share(BatchMode::Awake, 100_000, |_| 20, |_, turn| 1 + u32::from(turn % 5_000 == 0)) > 0.9);
    }

    #[test]
    fn a_client_that_is_the_bottleneck_is_served_in_batches() {
        // The server carries no more requests a second either mode: the client is the limit.
        let turn_us = |mode| if mode == BatchMode::Gather { 60 } else { 20 };
        let gathered =
            share(BatchMode::Gather, 100_000, turn_us, |mode, _| if mode == BatchMode::Gather { 6 } else { 2 });
        assert!(gathered > 0.85, "{gathered}");
    }

    #[test]
    fn gathering_stops_where_it_lowers_the_rate() {
        let turn_us = |mode| if mode == BatchMode::Gather { 60 } else { 30 };
        let asleep = share(BatchMode::Asleep, 100_000, turn_us, |_, _| 4);
        assert!(asleep > 0.9, "{asleep}");
    }

    #[test]
    fn gathering_stops_where_batches_stay_small() {
        // This is one of several servers of a drive: its latency does not limit its client.
        let asleep = share(BatchMode::Asleep, 100_000, |_| 200, |_, turn| 1 + u32::from(turn % 10 == 0));
        assert!(asleep > 0.9, "{asleep}");
    }

    #[test]
    fn a_client_with_pauses_is_not_measured() {
        assert!(share(BatchMode::Gather, 10_000, |_| 2_000, |_, _| 4) < 0.01);
    }

    #[test]
    fn a_change_of_depth_changes_the_mode() {
        let (mut policy, mut now, mut mode) = (BatchPolicy::default(), Instant::now(), BatchMode::Awake);
        for deep in [true, false, true] {
            let mut gathered = 0;
            for turn in 0..40_000 {
                let (us, taken) = match (deep, mode) {
                    (true, BatchMode::Gather) => (60, 8),
                    (false, BatchMode::Gather) => (60, 1),
                    (true, _) => (20, 2),
                    (false, _) => (20, 1),
                };
                now += Duration::from_micros(us);
                mode = policy.turn(taken, now);
                gathered += u32::from(turn >= 20_000 && mode == BatchMode::Gather);
            }
            assert_eq!(gathered > 10_000, deep, "{gathered} of 20,000 turns");
        }
    }
}
