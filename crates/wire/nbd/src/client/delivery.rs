//! Which requests have arrived at the server's machine: until a request has, the server owes no answer to it. Over 100 Mbit/s,
//! a write of 32 MiB takes three seconds to arrive.

use tokio::time::Instant;

/// Counts of the bytes sent over a connection; with TLS, before encryption.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    queued: u64,
    written: u64,
    /// Bytes of the oldest unanswered request, and of all before it, that had arrived at the last look.
    arrived: u64,
    /// Whether some of them had not.
    was_on_the_way: bool,
    /// When more of a request was last found to have arrived that was still on the way.
    progress: Option<Instant>,
}

impl Delivery {
    /// Counts a request. Returns the number of bytes up to its end.
    pub fn queue(&mut self, len: u64) -> u64 {
        self.queued += len;
        self.queued
    }

    /// Counts bytes that the socket took.
    pub fn wrote(&mut self, len: u64) {
        self.written += len;
    }

    /// Looks at the oldest unanswered request, which ends at `end`. Returns when more of it was last found to have arrived.
    /// `None` if it had all arrived when it was first looked at.
    pub fn look(&mut self, unacknowledged: u64, end: u64, now: Instant) -> Option<Instant> {
        let arrived = self.written.saturating_sub(unacknowledged).min(end);
        let is_on_the_way = arrived < end;
        if arrived > self.arrived {
            self.arrived = arrived;
            if is_on_the_way || self.was_on_the_way {
                self.progress = Some(now);
            }
        }
        self.was_on_the_way = is_on_the_way;
        self.progress
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_byte_that_arrives_is_progress_until_the_request_has_arrived() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut delivery = Delivery::default();
        let end = delivery.queue(1000);
        delivery.wrote(600);
        assert_eq!(delivery.look(600, end, at(40)), None, "nothing has arrived");
        assert_eq!(delivery.look(400, end, at(80)), Some(at(80)));
        assert_eq!(delivery.look(400, end, at(120)), Some(at(80)), "the link is cut");
        delivery.wrote(400);
        assert_eq!(delivery.look(0, end, at(160)), Some(at(160)), "it has arrived");
        delivery.queue(500);
        delivery.wrote(500);
        assert_eq!(delivery.look(0, end, at(200)), Some(at(160)), "later requests do not count");
    }

    #[test]
    fn a_request_that_had_arrived_at_the_first_look_is_owed_an_answer_from_its_issue() {
        let mut delivery = Delivery::default();
        let end = delivery.queue(28);
        delivery.wrote(28);
        assert_eq!(delivery.look(0, end, Instant::now()), None);
    }
}
