//! What happened to evidence.

use std::collections::BTreeMap;

use cheetah_device::ByteRange;
use cheetah_image::Hashes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One thing that happened. In the log, `event` is its name and `details` what is known of it.
///
/// New kinds may be added: a log that holds kinds this version does not know is checked all the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "details", rename_all = "snake_case")]
pub enum Event {
    /// An acquisition began.
    Started(Box<Started>),
    /// An acquisition that was interrupted goes on.
    Resumed {
        /// Bytes that need not be read again: those from the start, but for a drive that is filled while it is used.
        at: u64,
        /// The source's identity, as it was found now.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        source: Value,
        /// What is not as it was in the beginning, though it is the same source: its write protection, where it is.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changed: Vec<String>,
        /// How the source was known again: what was compared, what the examiner vouched for.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        opened: Value,
    },
    /// The link to the source was lost, and is there again.
    Reconnected {
        /// The source's identity, as it was found now.
        #[serde(default)]
        source: Value,
        /// As for `resumed`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changed: Vec<String>,
        /// As for `resumed`; missing where only a connection to the same process was replaced.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        opened: Value,
    },
    /// Everything before `at` is on stable storage.
    Checkpoint {
        /// Bytes from the start.
        at: u64,
    },
    /// Something failed.
    Error {
        /// Where, if it was at a place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        range: Option<Span>,
        /// What, as a sentence.
        what: String,
    },
    /// A range was asked for again.
    Retry {
        /// Where.
        range: Span,
        /// How often so far.
        attempts: u32,
    },
    /// A range could not be read, and was given up.
    Unreadable {
        /// Where.
        range: Span,
        /// What the source said.
        why: String,
    },
    /// The source is not what it was when the acquisition began.
    SourceChanged {
        /// What differs.
        what: String,
    },
    /// Hashes of the whole.
    Hashes {
        /// The hashes.
        hashes: Hashes,
    },
    /// The acquisition is done: flushed at its destination.
    Finished(Box<Finished>),
    /// The acquisition was given up, or interrupted in good order; it may be resumed.
    Stopped {
        /// Why.
        why: String,
    },
    /// The image was read back and compared.
    Verified(Box<Verified>),
    /// The drive is no more: its memory was given back.
    Destroyed {
        /// What each node said of that, a sentence each.
        nodes: Vec<String>,
    },
}

/// How an acquisition began.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// The source's identity: kind, location, size, model, serial number, write protection, as they were found.
    #[serde(default)]
    pub source: Value,
    /// Where to, as the examiner named them.
    #[serde(default)]
    pub destinations: Vec<String>,
    /// Case data: numbers, examiner, description, notes.
    #[serde(default)]
    pub case: Value,
    /// What else was asked for, by option: `hash`, `compress`, `lazy` …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// A source's identity, as it goes into a record.
///
/// # Errors
///
/// If it cannot be put as JSON.
pub fn source(identity: &impl Serialize) -> cheetah_image::Result<Value> {
    serde_json::to_value(identity)
        .map_err(|error| cheetah_image::Error::failed(format!("putting the source's identity as JSON: {error}")))
}

impl Started {
    /// `source` and `case` are written as they serialise.
    ///
    /// # Errors
    ///
    /// If one of them cannot be put as JSON.
    pub fn new(
        source: &impl Serialize,
        case: &impl Serialize,
        destinations: Vec<String>,
    ) -> cheetah_image::Result<Self> {
        let failed = |error| cheetah_image::Error::failed(format!("putting the case data as JSON: {error}"));
        Ok(Self {
            source: self::source(source)?,
            case: serde_json::to_value(case).map_err(failed)?,
            destinations,
            options: BTreeMap::new(),
        })
    }
}

/// How an acquisition ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Bytes in the image.
    pub size: u64,
    /// Bytes of them that could not be read; zeros stand for them in the hashes.
    #[serde(default)]
    pub unreadable_bytes: u64,
    /// Hashes of the whole.
    #[serde(default)]
    pub hashes: Hashes,
    /// What must be known of how the source was known again, a sentence each: what the examiner vouched for, and how much
    /// may differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What a verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Whether all is as it was acquired.
    pub ok: bool,
    /// Bytes in the image.
    pub size: u64,
    /// Bytes that could not be read, now or when it was acquired.
    #[serde(default)]
    pub unreadable_bytes: u64,
    /// Hashes made again.
    #[serde(default)]
    pub hashes: Hashes,
    /// Whether the digest of every chunk was compared with that made when it was acquired.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub digests: bool,
    /// What is wrong, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A range of bytes, as the log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl From<ByteRange> for Span {
    fn from(range: ByteRange) -> Self {
        Self { offset: range.offset, len: range.len }
    }
}

impl From<Span> for ByteRange {
    fn from(span: Span) -> Self {
        Self::new(span.offset, span.len)
    }
}
