//! Events of a running acquisition.

use cheetah_drive::recognise::Opening;
use cheetah_image::{BadRange, Hashes, Identity};
use serde::Serialize;

/// An event of a running acquisition.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AcquireEvent {
    /// The acquisition begins or is resumed.
    Started {
        /// The source.
        source: Box<Identity>,
        /// Where it goes, as the user wrote it.
        destinations: Vec<String>,
        /// Bytes acquired by earlier runs; 0 at the first start.
        resumed_at: u64,
    },
    /// The source can be read, and something about it is in doubt.
    Doubts {
        /// The doubts, a sentence each.
        doubts: Vec<String>,
    },
    /// Acquired data is read back, or compared with the source.
    Checking(Progress),
    /// Progress of the pass over the source, several times a second, even when stalled.
    Progress(Progress),
    /// A range was read, in whole or in part, only after retries.
    Retried {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The number of repeated reads.
        retries: u64,
    },
    /// A range could not be read, and is skipped.
    Unreadable(BadRange),
    /// The link to the source was lost; the source is being reopened.
    Lost {
        /// The error, as a sentence.
        why: String,
        /// Seconds until the acquisition gives up.
        retry_for_s: u64,
    },
    /// The source was reopened, and is the same.
    Back {
        /// Its identity now.
        source: Box<Identity>,
        /// The changes since the beginning, a sentence each.
        changed: Vec<String>,
        /// How it was recognised.
        opening: Box<Opening>,
    },
    /// The source that was reopened is another one, or may be.
    SourceChanged {
        /// The difference, as a sentence.
        what: String,
    },
    /// A connection to the source was lost and restored, to the same process.
    Reconnected {
        /// The source.
        source: Box<Identity>,
    },
    /// Everything was read; the destinations are being completed.
    Completing {
        /// Hashes of the whole.
        hashes: Hashes,
    },
    /// A destination is being read back.
    Verifying {
        /// Which.
        destination: String,
        /// Progress.
        #[serde(flatten)]
        progress: Progress,
    },
}

/// Bytes done, rate and estimated time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Progress {
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes a second over the last 15 s.
    pub rate_bytes_s: u64,
    /// Estimated seconds left; `None` while unknown.
    pub left_s: Option<u64>,
    /// Whether nothing was done for some seconds.
    pub stalled: bool,
    /// Bytes that could not be read.
    pub unreadable_bytes: u64,
    /// Repeated reads.
    pub retries: u64,
    /// Compression ratio on the link, where there is one.
    pub compression: Option<f64>,
}
