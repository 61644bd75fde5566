//! What an acquisition tells while it runs.

use cheetah_image::{Hashes, Identity};
use serde::Serialize;

use crate::journal::Opening;
use crate::reader::Bad;

/// Something that happened on the way.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// It begins, or goes on.
    Started {
        /// The source.
        source: Box<Identity>,
        /// Where it goes, as the user wrote it.
        destinations: Vec<String>,
        /// Bytes that need not be read again; 0 at the first start.
        resumed_at: u64,
    },
    /// What was acquired before is being read back, or compared with the source.
    Checking(Progress),
    /// How far the pass over the source has come. Told several times a second, also while nothing moves.
    Progress(Progress),
    /// A range could be read, in whole or in part, only after it was tried again.
    Retried {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// How often parts of it were read again.
        retries: u64,
    },
    /// A range could not be read, and is skipped.
    Unreadable(Bad),
    /// The link to the source is lost; it is being tried again.
    Lost {
        /// What happened, as a sentence.
        why: String,
        /// How much longer it will be tried, in seconds.
        retry_for_s: u64,
    },
    /// The source is there again, and is the same.
    Back {
        /// As it is now.
        source: Box<Identity>,
        /// What is not as it was in the beginning, a sentence each.
        changed: Vec<String>,
        /// How it was known again.
        opening: Box<Opening>,
    },
    /// A connection to the source was lost and made again, to the same process.
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
        /// How far that has come.
        #[serde(flatten)]
        progress: Progress,
    },
}

/// How far it has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Bytes dealt with.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes a second, lately.
    pub rate_bytes_s: u64,
    /// Seconds it will take, if it goes on as it did lately. `None` while there is no telling.
    pub left_s: Option<u64>,
    /// Whether nothing has moved for some seconds.
    pub stalled: bool,
    /// Bytes that could not be read.
    pub unreadable_bytes: u64,
    /// How often something had to be read again.
    pub retries: u64,
    /// Bytes of content for each byte received over the link, where there is one and it is compressed.
    pub compression: Option<f64>,
}
