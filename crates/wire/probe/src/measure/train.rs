//! Sends trains, and checks whether they left on time.

use std::time::Duration;

use crate::clock::Nanos;
use crate::schedule;
use crate::selfcheck::{Bound, Verdict};
use crate::send::{Departures, SendError, Sender, Train};

/// The time from handing a train over until its first packet is due,
const LEAD: Duration = Duration::from_millis(2);
/// and this much more for each packet.
const LEAD_EACH: Duration = Duration::from_micros(5);

/// A train that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentTrain {
    /// When its packets were due.
    pub due: Vec<Nanos>,
    /// When they left.
    pub departures: Departures,
    /// Whether they left on time.
    pub verdict: Verdict,
}

impl SentTrain {
    /// Returns whether it left on time.
    #[must_use]
    pub const fn is_accepted(&self) -> bool {
        matches!(self.verdict, Verdict::Accepted(_))
    }

    /// Returns the largest error of its gaps, in nanoseconds, if it is known.
    #[must_use]
    pub const fn error_ns(&self) -> Option<u64> {
        match self.verdict {
            Verdict::Accepted(errors) => Some(errors.max_ns),
            Verdict::Spoiled { error_ns, .. } => Some(error_ns.unsigned_abs()),
            Verdict::Unknown => None,
        }
    }

    /// Returns when the first packet left, or when it was due if that is not known.
    #[must_use]
    pub fn first(&self) -> Nanos {
        self.departures.left.first().copied().flatten().or(self.due.first().copied()).unwrap_or_default()
    }
}

/// Sends `frames` as soon as they are ready, each `offsets` later than the first.
///
/// # Errors
///
/// As [`Sender::send`].
pub fn send(
    sender: &mut dyn Sender,
    frames: Vec<Vec<u8>>,
    offsets: &[Duration],
    bound: Bound,
) -> Result<SentTrain, SendError> {
    let lead = LEAD + LEAD_EACH * u32::try_from(frames.len()).unwrap_or(u32::MAX);
    let start = sender.quiet_start(Nanos::now() + lead, offsets);
    let train = Train { frames, due: schedule::due(start, offsets) };
    let departures = sender.send(&train)?;
    // For packets sent back to back, the rate matters, not each gap.
    let verdict = if offsets.iter().all(Duration::is_zero) {
        departures.check_back_to_back(&train.due, bound)
    } else {
        departures.check(&train.due, bound)
    };
    Ok(SentTrain { due: train.due, departures, verdict })
}
