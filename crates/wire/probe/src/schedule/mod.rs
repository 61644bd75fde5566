//! Schedules of packets: patterns, and the absolute times they yield.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::clock::Nanos;

mod duration;
#[cfg(test)]
mod tests;

pub use self::duration::{DurationError, ShortDuration};

/// Most packets one train may have.
pub const PACKETS_MAX: usize = 10_000;

/// Longest time from the first packet of a train to the last.
pub const SPAN_MAX: Duration = Duration::from_secs(3600);

/// When the packets of a train are due, from its start. Parses from and prints as text, such as `single`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// `single`: one packet.
    Single,
    /// `pair:GAP`: two packets.
    Pair(Duration),
    /// `train:N@GAP`: many packets, evenly spaced.
    Train {
        /// Their number, from 1 to [`PACKETS_MAX`].
        packets: usize,
        /// Time from the start of one to the start of the next.
        gap: Duration,
    },
    /// `gaps:G1,G2,…`: one packet more than there are gaps.
    Gaps(Vec<Duration>),
    /// `at:T1,T2,…`: times from the start of the train, never decreasing.
    At(Vec<Duration>),
}

/// The error for a text that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The first word is unknown.
    #[error("{0:?} is not a pattern: use single, pair:GAP, train:N@GAP, gaps:G1,G2,… or at:T1,T2,…")]
    Unknown(String),
    /// One of its times is invalid.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// The train has no packets, or too many.
    #[error("a train has 1 to {PACKETS_MAX} packets")]
    Packets,
    /// Its times go back.
    #[error("a packet is due before the one it follows")]
    Order,
    /// It lasts too long.
    #[error("a train lasts no longer than {} s", SPAN_MAX.as_secs())]
    Span,
    /// The rate is invalid.
    #[error("{0} bits a second is not a valid sending rate")]
    Rate(String),
}

impl Pattern {
    /// Creates a train of frames of `frame_bytes` bytes at `bits_per_s`, as precisely as whole nanoseconds allow.
    ///
    /// # Errors
    ///
    /// If the rate is not above zero, or the train would have too many packets or last too long.
    pub fn at_rate(packets: usize, frame_bytes: usize, bits_per_s: f64) -> Result<Self, PatternError> {
        #[expect(clippy::cast_precision_loss, reason = "a frame is far smaller than 2^52 bytes")]
        let gap_s = frame_bytes as f64 * 8.0 / bits_per_s;
        if !bits_per_s.is_finite() || bits_per_s <= 0.0 {
            return Err(PatternError::Rate(bits_per_s.to_string()));
        }
        let gap = Duration::try_from_secs_f64(gap_s).map_err(|_| PatternError::Span)?;
        Self::Train { packets, gap }.checked()
    }

    /// Returns when each packet is due after the start of the train: at least one, at most [`PACKETS_MAX`], never
    /// decreasing if the pattern was parsed.
    #[must_use]
    pub fn offsets(&self) -> Vec<Duration> {
        let mut offsets = match self {
            Self::Single => vec![Duration::ZERO],
            Self::Pair(gap) => vec![Duration::ZERO, *gap],
            Self::Train { packets, gap } => {
                let packets = u32::try_from((*packets).min(PACKETS_MAX)).unwrap_or(u32::MAX);
                (0..packets).map(|i| gap.saturating_mul(i)).collect()
            }
            Self::Gaps(gaps) => {
                let later = gaps.iter().scan(Duration::ZERO, |at, gap| {
                    *at = at.saturating_add(*gap);
                    Some(*at)
                });
                std::iter::once(Duration::ZERO).chain(later).collect()
            }
            Self::At(times) => times.clone(),
        };
        offsets.truncate(PACKETS_MAX);
        offsets
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn packets(&self) -> usize {
        match self {
            Self::Single => 1,
            Self::Pair(_) => 2,
            Self::Train { packets, .. } => *packets,
            Self::Gaps(gaps) => gaps.len().saturating_add(1),
            Self::At(times) => times.len(),
        }
    }

    /// Returns the time from the start of the train to its last packet.
    #[must_use]
    pub fn span(&self) -> Duration {
        match self {
            Self::Single => Duration::ZERO,
            Self::Pair(gap) => *gap,
            Self::Train { packets, gap } => {
                gap.saturating_mul(u32::try_from(packets.saturating_sub(1)).unwrap_or(u32::MAX))
            }
            Self::Gaps(gaps) => gaps.iter().fold(Duration::ZERO, |sum, gap| sum.saturating_add(*gap)),
            Self::At(times) => times.iter().max().copied().unwrap_or_default(),
        }
    }

    fn checked(self) -> Result<Self, PatternError> {
        if !(1..=PACKETS_MAX).contains(&self.packets()) {
            return Err(PatternError::Packets);
        }
        if self.span() > SPAN_MAX {
            return Err(PatternError::Span);
        }
        match &self {
            Self::At(times) if !times.is_sorted() => Err(PatternError::Order),
            _ => Ok(self),
        }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let unknown = || PatternError::Unknown(text.chars().take(80).collect());
        let pattern = match text.split_once(':') {
            None if text == "single" => Self::Single,
            Some(("pair", gap)) => Self::Pair(time(gap)?),
            Some(("train", train)) => {
                let (packets, gap) = train.split_once('@').ok_or_else(unknown)?;
                Self::Train { packets: packets.parse().map_err(|_| PatternError::Packets)?, gap: time(gap)? }
            }
            Some(("gaps", gaps)) => Self::Gaps(times(gaps)?),
            Some(("at", at)) => Self::At(times(at)?),
            _ => return Err(unknown()),
        };
        pattern.checked()
    }
}

fn time(text: &str) -> Result<Duration, DurationError> {
    text.parse::<ShortDuration>().map(|ShortDuration(time)| time)
}

/// Parses times between commas; stops after more than a train may have, which is refused afterwards.
fn times(text: &str) -> Result<Vec<Duration>, DurationError> {
    text.split(',').take(PACKETS_MAX + 1).map(time).collect()
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, times: &[Duration]| {
            for (i, time) in times.iter().enumerate() {
                write!(f, "{}{}", if i == 0 { "" } else { "," }, ShortDuration(*time))?;
            }
            Ok(())
        };
        match self {
            Self::Single => f.write_str("single"),
            Self::Pair(gap) => write!(f, "pair:{}", ShortDuration(*gap)),
            Self::Train { packets, gap } => write!(f, "train:{packets}@{}", ShortDuration(*gap)),
            Self::Gaps(gaps) => f.write_str("gaps:").and_then(|()| list(f, gaps)),
            Self::At(times) => f.write_str("at:").and_then(|()| list(f, times)),
        }
    }
}

/// Returns the due times of a train that starts at `start`.
#[must_use]
pub fn due(start: Nanos, offsets: &[Duration]) -> Vec<Nanos> {
    offsets.iter().map(|offset| start + *offset).collect()
}
