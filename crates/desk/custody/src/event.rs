//! The events that a custody log records.

use std::collections::BTreeMap;

use cheetah_control::receipt::Receipt;
use cheetah_device::ByteRange;
use cheetah_drive::file::NodePart;
use cheetah_drive::lending::KeyLending;
use cheetah_image::{Hashes, Identity};
use cheetah_unlock::{OpenedVolume, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::triage::Triaged;

/// The number of the source's files in one record of a custody log: a record has a maximum length.
pub const FILES_LOGGED_TOGETHER: usize = 1000;

/// An event. In the log, `event` is its name and `details` holds its fields.
///
/// A log with events that this version does not know can still be checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", content = "details", rename_all = "snake_case")]
pub enum CustodyEvent {
    /// An acquisition began.
    Started(Box<Started>),
    /// An interrupted acquisition was resumed.
    Resumed {
        /// The number of bytes that need not be read again: from the start, except for a drive that is filled while in
        /// use.
        at: u64,
        /// The source's current identity.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        source: Value,
        /// Differences from the start although the source is the same: its write protection, its location.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changed: Vec<String>,
        /// How the source was recognised: the comparison, and what the examiner vouched for.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        opened: Value,
    },
    /// The link to the source was lost and re-established.
    Reconnected {
        /// The source's current identity.
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
        /// SHA-256, in hexadecimal, of the journal up to here: of all of its bytes. An acquisition is resumed only from
        /// a journal that begins with these bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        journal: Option<String>,
    },
    /// Something failed.
    Error {
        /// Where, if it was at a place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        range: Option<Span>,
        /// The error, as a sentence.
        what: String,
    },
    /// A range was read again.
    Retry {
        /// Where.
        range: Span,
        /// The number of reads so far.
        attempts: u32,
    },
    /// A range is unreadable.
    Unreadable {
        /// Where.
        range: Span,
        /// The source's reason.
        why: String,
        /// Whether the image that is the source is corrupt there, rather than unreadable.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        corrupt: bool,
    },
    /// The source is not the one that the acquisition began with.
    SourceChanged {
        /// The difference.
        what: String,
    },
    /// Ranges of a drive that were lost with its nodes were fetched again. Each is equal to the digests made at load.
    Refetched {
        /// The source's current identity.
        #[serde(default)]
        source: Value,
        /// The ranges, in order; at most 10 000.
        ranges: Vec<Span>,
        /// Bytes in all of them.
        bytes: u64,
    },
    /// Ranges of a sealed drive that its writer wrote after its last flush, and never closed, are used although no record
    /// says that they are the newest.
    AcceptedUnverified {
        /// The ranges, in order; at most 10 000.
        ranges: Vec<Span>,
        /// Bytes in all of them.
        bytes: u64,
    },
    /// Nodes are lent keys that open a sealed drive, for a task. The node's receipts name the task, too.
    KeyLent(Box<KeyLending>),
    /// Two writers wrote to a drive apart from each other, and the examiner decided which content is kept.
    Kept {
        /// The nodes whose content is kept.
        kept: Vec<String>,
        /// The nodes whose content was overwritten with it.
        overwritten: Vec<String>,
    },
    /// What is in doubt about the source although it can be read: a partition table that reaches beyond its end, say.
    Doubts {
        /// The doubts, a sentence each.
        doubts: Vec<String>,
    },
    /// Keys were tried on the encrypted volumes of the source: which protector opened which volume, and what stays locked.
    Unlocked(Box<Outcome>),
    /// The image is the content of an opened volume, and not what is on the disk.
    Decrypted(Box<Decrypted>),
    /// The image is the content of another volume that was found in the source, and not what is on the disk.
    Volume(Box<VolumeOf>),
    /// The files that the source was read from, up to 1000 in a record.
    SourceFiles {
        /// The files, in order.
        files: Vec<FileRead>,
    },
    /// Hashes of the whole.
    Hashes {
        /// The hashes.
        hashes: Hashes,
    },
    /// The acquisition is complete, and flushed at its destination.
    Finished(Box<Finished>),
    /// The acquisition was stopped in good order; it may be resumed.
    Stopped {
        /// Why.
        why: String,
    },
    /// The image was read back and compared.
    Verified(Box<Verified>),
    /// The redundancy of a drive was read, and compared with the content.
    RedundancyCompared(Box<RedundancyCompared>),
    /// A triage ended, and wrote its result.
    Triaged(Box<Triaged>),
    /// The last line of the log was unfinished, as a power cut or a full disk leaves it. It was removed, and this
    /// record stands in its place.
    Repaired {
        /// Bytes removed.
        dropped_bytes: u64,
        /// SHA-256 of these bytes, in hexadecimal.
        sha256: String,
    },
    /// A node wiped its part of the drive, and gave this receipt.
    Wiped(Box<Receipt>),
    /// The drive was destroyed and its memory freed.
    Destroyed {
        /// A sentence for each node.
        nodes: Vec<String>,
    },
}

/// The start of an acquisition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Started {
    /// The source's identity: kind, location, size, model, serial number, write protection.
    #[serde(default)]
    pub source: Value,
    /// The destinations, as the examiner named them.
    #[serde(default)]
    pub destinations: Vec<String>,
    /// Case data: numbers, examiner, description, notes.
    #[serde(default)]
    pub case: Value,
    /// Other options: `hash`, `compress`, `lazy` …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// Returns a source's identity as JSON for a record.
///
/// # Errors
///
/// If it cannot be serialized.
pub fn source(identity: &impl Serialize) -> cheetah_error::Result<Value> {
    serde_json::to_value(identity)
        .map_err(|error| cheetah_error::Error::failed(format!("putting the source's identity as JSON: {error}")))
}

impl Started {
    /// Returns a record with `source` and `case` as JSON.
    ///
    /// # Errors
    ///
    /// If one of them cannot be serialized.
    pub fn new(
        source: &impl Serialize,
        case: &impl Serialize,
        destinations: Vec<String>,
    ) -> cheetah_error::Result<Self> {
        let failed = |error| cheetah_error::Error::failed(format!("putting the case data as JSON: {error}"));
        Ok(Self {
            source: self::source(source)?,
            case: serde_json::to_value(case).map_err(failed)?,
            destinations,
            options: BTreeMap::new(),
        })
    }
}

/// Of what an image with the content of an opened volume was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decrypted {
    /// The image or disk that holds the volume, encrypted.
    pub of: String,
    /// The hashes of all of it, as its custody log or it itself states them.
    #[serde(default)]
    pub hashes: Hashes,
    /// All disks and images that the volume was looked for on, the first one included, if these are several; with the hashes of each. It
    /// lies on all of them, or on some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Identity>,
    /// The volume, and what opened it.
    pub volume: OpenedVolume,
}

/// Of what an image with the content of a volume was made that is not encrypted itself: an array, a logical volume, a partition of
/// such a one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VolumeOf {
    /// The image or disk that holds the volume.
    pub of: String,
    /// The hashes of all of it, as its custody log or it itself states them.
    #[serde(default)]
    pub hashes: Hashes,
    /// All disks and images that the volume was looked for on, the first one included, if these are several; with the hashes of each. It
    /// lies on all of them, or on some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Identity>,
    /// The name of the volume, as that of its file in a mount.
    pub name: String,
    /// What it is, and what is to be said of it.
    pub description: String,
    /// Bytes of its content.
    pub size_bytes: u64,
    /// The encrypted volumes of the image or disk that were open when it was read: it may lie in one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<OpenedVolume>,
}

/// The content of a volume of a source, of which an image is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentOf {
    /// That of an encrypted one, which was opened.
    Decrypted(Decrypted),
    /// That of another one.
    Volume(VolumeOf),
}

impl ContentOf {
    /// Its record.
    pub fn event(&self) -> CustodyEvent {
        match self {
            Self::Decrypted(decrypted) => CustodyEvent::Decrypted(Box::new(decrypted.clone())),
            Self::Volume(volume) => CustodyEvent::Volume(Box::new(volume.clone())),
        }
    }
}

/// A file that a source was read from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileRead {
    /// Its path as text, or its URI.
    pub file: String,
    /// Its size in bytes.
    #[serde(rename = "size_bytes", alias = "size")]
    pub size: u64,
    /// The SHA-256 of the file itself, in hexadecimal. It is the hash of the content only if the file is a raw image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Why there is no hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// The end of an acquisition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finished {
    /// Bytes in the image.
    #[serde(rename = "size_bytes", alias = "size")]
    pub size: u64,
    /// The number of unreadable bytes, corrupt ones included; hashes are made with zeros for them.
    #[serde(default)]
    pub unreadable_bytes: u64,
    /// The number of bytes that are corrupt in the image that is the source.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub corrupt_bytes: u64,
    /// Hashes of the whole.
    #[serde(default)]
    pub hashes: Hashes,
    /// Notes on how the source was recognised: what the examiner vouched for, and how much
    /// may differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// BLAKE3 of the BLAKE3 digests of its chunks: 32 bytes for each MiB, in order. In hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digests: Option<String>,
    /// The id of the drive, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<String>,
    /// Whether a report is written beside it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub report: bool,
    /// Whether the report has the head of this log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub head_in_report: bool,
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Whether the image or drive is unchanged since it was acquired.
    pub ok: bool,
    /// Bytes in the image.
    #[serde(rename = "size_bytes", alias = "size")]
    pub size: u64,
    /// Bytes that could not be read, now or when it was acquired.
    #[serde(default)]
    pub unreadable_bytes: u64,
    /// Recomputed hashes.
    #[serde(default)]
    pub hashes: Hashes,
    /// Whether the digest of every chunk was compared with that made when it was acquired.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub digests: bool,
    /// Bytes of a drive that its nodes hashed, on their word; the others were read by the verifier.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at_nodes_bytes: u64,
    /// The problems, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// The result of comparing the redundancy of a drive with its content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedundancyCompared {
    /// Bytes of content that were compared.
    pub compared_bytes: u64,
    /// Bytes of content that were not, because a node is missing or the range is lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uncompared_bytes: u64,
    /// Rows of pages in which both contradict each other, and nothing shows which is right.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub undecided_rows: u64,
    /// Pages of content that were wrong, and were rewritten.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub data_pages_repaired: u64,
    /// Pages of redundancy that were wrong, and were rewritten.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub redundancy_pages_repaired: u64,
    /// The parts of nodes in which both agree now; empty unless all was compared and decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<NodePart>,
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// A range of bytes in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_under_their_former_name_too() {
        for name in ["size", "size_bytes"] {
            let text = format!(r#"{{"event":"finished","details":{{"{name}":4096}}}}"#);
            let event: CustodyEvent = serde_json::from_str(&text).unwrap();
            assert_eq!(event, CustodyEvent::Finished(Box::new(Finished { size: 4096, ..Finished::default() })));
            let written = serde_json::to_value(&event).unwrap();
            assert_eq!(written["details"]["size_bytes"], 4096, "{written}");
            let text = format!(r#"{{"event":"verified","details":{{"ok":true,"{name}":4096}}}}"#);
            let event: CustodyEvent = serde_json::from_str(&text).unwrap();
            assert!(matches!(event, CustodyEvent::Verified(verified) if verified.size == 4096));
        }
    }
}
