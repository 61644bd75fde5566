//! The record of how a source was recognised.

use std::fmt;

use cheetah_device::Size;
use serde::{Deserialize, Serialize};

use crate::file::CONFIDENCE_PERCENT;

/// One time that the source was opened again after a part of it may have been acquired.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Opening {
    /// When, in seconds since 1970 (UTC).
    pub at_s: u64,
    /// Bytes that had been read: for an acquisition, the first ones of the source.
    pub at: u64,
    /// Why it was opened again.
    pub cause: Cause,
    /// The process that serves it, if that is an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Whether it was write-protected.
    #[serde(default)]
    pub write_protected: Option<bool>,
    /// The differences from the source as first found, a sentence each. The examiner said that it is the
    /// same source nevertheless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vouched: Vec<String>,
    /// How it was compared with the data acquired before.
    pub comparison: Comparison,
    /// The disks that it lies on, if it is the content of a volume, each as it was compared with its state at the beginning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskCompared>,
}

/// A disk or an image that was compared with samples of its content. No difference was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskCompared {
    /// Where it is.
    pub location: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes that were compared, at both ends and in random places; 0 if the agent is the same process, which kept it open.
    pub compared_bytes: u64,
    /// Bytes that could be read at the beginning, and could not be read now.
    pub unreadable_bytes: u64,
}

/// Why a source was opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The command had ended, and was run again.
    Resumed,
    /// The link to the source was lost.
    Lost,
}

/// How a source was compared with the data read from it before. In every case no difference was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "method", rename_all = "snake_case")]
pub enum Comparison {
    /// No bytes had been read that could be compared.
    Nothing,
    /// Not compared: the agent is the same process, which kept the source open.
    SameInstance,
    /// The agent made new digests of all of it.
    Digests {
        /// Bytes compared.
        compared_bytes: u64,
        /// Bytes that could be read before, and could not be read now.
        unreadable_bytes: u64,
    },
    /// Pieces of it, chosen at random, were read again.
    Samples {
        /// Bytes compared.
        compared_bytes: u64,
        /// Bytes that had been read.
        of_bytes: u64,
        /// The most bytes of these that can differ, with a confidence of [`CONFIDENCE_PERCENT`].
        differ_bytes_max: u64,
    },
}

impl Comparison {
    /// Returns the most bytes of those read before that may differ now; `None` if nothing new is known of them.
    pub const fn differ_bytes_max(&self) -> Option<u64> {
        match self {
            Self::Nothing | Self::SameInstance => None,
            Self::Digests { unreadable_bytes, .. } => Some(*unreadable_bytes),
            Self::Samples { differ_bytes_max, .. } => Some(*differ_bytes_max),
        }
    }
}

impl Opening {
    /// The differences the examiner vouched for, and the bytes that may differ.
    pub fn notes(&self) -> Vec<OpeningNote> {
        let (at, mut notes) = (self.at, Vec::new());
        if !self.vouched.is_empty() {
            notes.push(OpeningNote::Vouched { at, differences: self.vouched.clone() });
        }
        match self.comparison {
            Comparison::Samples { differ_bytes_max: 1.., .. } => {
                notes.push(OpeningNote::Sampled { at, comparison: self.comparison.clone() });
            }
            Comparison::Digests { unreadable_bytes: bytes @ 1.., .. } => notes.push(OpeningNote::Unreadable { bytes }),
            _ => {}
        }
        notes
    }
}

/// What an examiner must know of one time that a source was opened again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpeningNote {
    /// The source differed, and the examiner said that it is the same nevertheless.
    #[error("the examiner vouched for the source after {} were acquired, although {}", Size(*.at), .differences.join(", "))]
    Vouched {
        /// Bytes that had been read.
        at: u64,
        /// The differences, a sentence each.
        differences: Vec<String>,
    },
    /// Not all that had been read was compared, so some of it may differ.
    #[error("the source was opened again after {} were acquired; {comparison}", Size(*.at))]
    Sampled {
        /// Bytes that had been read.
        at: u64,
        /// What was compared.
        comparison: Comparison,
    },
    /// Some of what had been read cannot be read any more.
    #[error("{} acquired before could not be read any more when the source was opened again", Size(*.bytes))]
    Unreadable {
        /// Their number.
        bytes: u64,
    },
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.comparison, f)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Nothing => f.write_str("nothing to compare yet"),
            Self::SameInstance => f.write_str("served by the same process"),
            Self::Digests { compared_bytes, .. } => {
                write!(f, "all {} acquired before compared by digests, equal", Size(compared_bytes))
            }
            Self::Samples { compared_bytes, of_bytes, differ_bytes_max: 0 } => {
                write!(
                    f,
                    "{} of the {} acquired before were read again, and are equal",
                    Size(compared_bytes),
                    Size(of_bytes)
                )
            }
            Self::Samples { compared_bytes, of_bytes, differ_bytes_max } => write!(
                f,
                "no difference was found: {} of the {} acquired before, chosen at random, were read again, and are equal; \
                 the other {} were not compared; had more than {} changed, that would have been found with \
                 {CONFIDENCE_PERCENT} % probability",
                Size(compared_bytes),
                Size(of_bytes),
                Size(of_bytes.saturating_sub(compared_bytes)),
                Size(differ_bytes_max)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_note_on_a_sample_says_what_may_differ_and_how_probable_that_is() {
        let comparison =
            Comparison::Samples { compared_bytes: 64 * MIB, of_bytes: 640 * MIB, differ_bytes_max: 66 * MIB };
        assert_eq!(
            OpeningNote::Sampled { at: 640 * MIB, comparison }.to_string(),
            "the source was opened again after 640MiB were acquired; no difference was found: 64MiB of the 640MiB acquired \
             before, chosen at random, were read again, and are equal; the other 576MiB were not compared; had more than \
             66MiB changed, that would have been found with 99.9 % probability"
        );
    }
}
