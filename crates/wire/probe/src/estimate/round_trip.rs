//! Round trips from the times probes were sent and answered.

use std::collections::HashMap;
use std::time::Duration;

use super::stats;
use crate::clock::Nanos;
use crate::path::{Method, RoundTrip};

/// The kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The first answer to its probe, in time, with the time it took.
    Took(Duration),
    /// The first answer to its probe, too late: the probe counts as lost.
    Late(Duration),
    /// A duplicate.
    Duplicate,
    /// An answer to no probe that was sent.
    Unknown,
}

/// Probes sent one by one, and their answers.
#[derive(Debug, Clone)]
pub struct Probes {
    timeout: Duration,
    /// In the order they were sent in.
    probes: Vec<SentProbe>,
    /// For each sequence number, the index in `probes` of the latest probe with it.
    by_seq: HashMap<u32, usize>,
    late: u32,
    duplicates: u32,
}

#[derive(Debug, Clone, Copy)]
struct SentProbe {
    at: Nanos,
    took: Option<Duration>,
}

impl Probes {
    /// Creates an empty list; an answer that takes longer than `timeout` is late.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, probes: Vec::new(), by_seq: HashMap::new(), late: 0, duplicates: 0 }
    }

    /// Notes that a probe left at `at`. A reused sequence number now belongs to this probe.
    pub fn sent(&mut self, seq: u32, at: Nanos) {
        self.by_seq.insert(seq, self.probes.len());
        self.probes.push(SentProbe { at, took: None });
    }

    /// Notes that an answer came at `at`.
    pub fn answered(&mut self, seq: u32, at: Nanos) -> Answer {
        let Some(probe) = self.by_seq.get(&seq).and_then(|i| self.probes.get_mut(*i)) else { return Answer::Unknown };
        if probe.took.is_some() {
            self.duplicates = self.duplicates.saturating_add(1);
            return Answer::Duplicate;
        }
        let took = at.since(probe.at);
        probe.took = Some(took);
        if took > self.timeout {
            self.late = self.late.saturating_add(1);
            return Answer::Late(took);
        }
        Answer::Took(took)
    }

    /// Forgets the probes that at `now` may still be answered in time, so that they do not count as lost.
    pub fn forget_pending(&mut self, now: Nanos) {
        let timeout = self.timeout;
        self.probes.retain(|probe| probe.took.is_some() || now.since(probe.at) > timeout);
        // Indexes have changed; no more answers are expected.
        self.by_seq.clear();
    }

    /// Returns whether every probe was answered, in time or not.
    #[must_use]
    pub fn all_answered(&self) -> bool {
        self.probes.iter().all(|probe| probe.took.is_some())
    }

    /// Returns the number of late answers.
    #[must_use]
    pub fn late(&self) -> u32 {
        self.late
    }

    /// Returns the number of duplicates.
    #[must_use]
    pub fn duplicates(&self) -> u32 {
        self.duplicates
    }

    /// Returns the round trips; `None` if no probe was answered in time.
    #[must_use]
    pub fn round_trip(&self, method: Method) -> Option<RoundTrip> {
        let took =
            |probe: &SentProbe| probe.took.filter(|took| *took <= self.timeout).map(|took| took.as_secs_f64() * 1e6);
        let times = self.probes.iter().filter_map(took).collect::<Vec<_>>();
        // RFC 3550 section 6.4.1 and RFC 5481 section 4.1: differences of consecutive packets among those that arrived.
        let steps = times.windows(2).filter_map(|pair| Some((pair.last()? - pair.first()?).abs()));
        let jitter_us = stats::mean(&steps.collect::<Vec<_>>()).unwrap_or(0.0);
        let sorted = stats::sorted(times.iter().copied());
        let at = |q| stats::percentile(&sorted, q);
        Some(RoundTrip {
            method,
            sent: count(self.probes.len()),
            answered: count(times.len()),
            min_us: at(0.0)?,
            median_us: at(0.5)?,
            mean_us: stats::mean(&times)?,
            p95_us: at(0.95)?,
            max_us: at(1.0)?,
            jitter_us,
            loss: 1.0 - times.len() as f64 / self.probes.len() as f64,
        })
    }
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
