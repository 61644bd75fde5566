//! The answers of `load`, of drives that fill, and of `save`.

use std::borrow::Cow;

use cheetah_drive::{Hashes, ImageState};
use cheetah_image::BadRange;
use serde::Serialize;

/// The answer of `load`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Load<'a> {
    /// Bytes of the unreadable ranges that are corrupt in the source, rather than unreadable.
    pub corrupt_bytes: u64,
    /// The drive file.
    pub drive: Cow<'a, str>,
    /// Hashes of the image, with zeros for the unreadable ranges.
    pub hashes: &'a Hashes,
    /// The size of the image, in bytes.
    pub size_bytes: u64,
    /// Its source, as the user wrote it.
    pub source: &'a str,
    /// The ranges that the source did not yield, in order.
    pub unreadable: &'a [BadRange],
    /// Their size in bytes.
    pub unreadable_bytes: u64,
}

/// The event of a drive that is filled while it is used, and the answer of `load` without a source.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Fill<'a> {
    /// Everything that the source yields is in the drive.
    Complete {
        /// The drive file.
        drive: &'a str,
        /// Hashes of the image.
        hashes: &'a Hashes,
        /// A warning that the image may not have one source: a sentence.
        note: Option<String>,
        /// The size of the image, in bytes.
        size_bytes: u64,
        /// Its source, as the user wrote it.
        source: &'a str,
        /// Its state.
        state: ImageState,
    },
}

/// The answer of `save`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Save<'a> {
    /// Whether it was compared with the digests made when the image was loaded.
    pub compared: bool,
    /// Hashes of what was saved.
    pub hashes: &'a Hashes,
    /// The file or object.
    pub image: Cow<'a, str>,
    /// A warning that the image may not have one source: a sentence.
    pub note: Option<String>,
    /// Its size, in bytes.
    pub size_bytes: u64,
}

/// The answer of `save --partial`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SavePartial<'a> {
    /// Bytes left out because they differ from what was loaded.
    pub differing_bytes: u64,
    /// The file.
    pub image: Cow<'a, str>,
    /// The nodes that cannot be used, a sentence each.
    pub lost: &'a [String],
    /// The coverage map, which lists the ranges.
    pub map: Cow<'a, str>,
    /// A warning that the image may not have one source: a sentence.
    pub note: Option<String>,
    /// Bytes that the file has.
    pub read_bytes: u64,
    /// The size of the image, in bytes.
    pub size_bytes: u64,
    /// Bytes that cannot be read.
    pub unreadable_bytes: u64,
    /// Bytes that were never read from the source.
    pub unread_bytes: u64,
}
