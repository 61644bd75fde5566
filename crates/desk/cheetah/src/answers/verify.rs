//! The answers of `verify` and `custody`.

use std::borrow::Cow;

use cheetah_custody::{Audit, KnownHead, LogReport, OutputFile, Span};
use cheetah_drive::verify::VerifyReport;
use cheetah_image::Identity;
use cheetah_source::UnlockOutcome;
use serde::Serialize;

/// The answer of `verify` for a drive.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyDrive<'a> {
    /// Whether everything is as recorded.
    pub ok: bool,
    /// The problems, a clause each that begins after the drive's name.
    pub problems: &'a [String],
    /// What is in doubt about the image although it is as loaded, a sentence each.
    pub doubts: &'a [String],
    /// The result of reading it.
    #[serde(flatten)]
    pub report: &'a VerifyReport,
    /// A warning that the image may not have one source: a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'a str>,
    /// The custody log beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custody: Option<&'a LogReport>,
}

/// The answer of `verify` for an image.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyImage<'a> {
    /// The image, as the user wrote it.
    pub image: &'a str,
    /// Whether everything is as recorded.
    pub ok: bool,
    /// What is in doubt although the image is as recorded, a sentence each.
    pub doubts: &'a [String],
    /// The result of reading it.
    #[serde(flatten)]
    pub audit: &'a Audit,
}

/// The answer of `verify` with `--decrypted`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyDecrypted<'a> {
    /// Bytes that were read of the volume and of the image, and compared.
    pub compared_bytes: u64,
    /// What the volume is, and what opened it.
    pub description: &'a str,
    /// The ranges of these bytes that differ, in order; at most 1000.
    pub differing: &'a [Span],
    /// The number of bytes that differ.
    pub differing_bytes: u64,
    /// The number of ranges that they form.
    pub differing_ranges: u64,
    /// The disks and images that the volume was looked for on. It lies on all of them, or on some.
    pub disks: &'a [Identity],
    /// The offset of the first byte that differs, or that only the longer of both has.
    pub first_difference: Option<u64>,
    /// The image, as the user wrote it.
    pub image: &'a str,
    /// Bytes of the image.
    pub image_size_bytes: u64,
    /// Bytes of the image that cannot be read, within the length of the volume.
    pub image_unreadable_bytes: u64,
    /// Whether the image has all bytes of the volume, and no others.
    pub ok: bool,
    /// The problems, a sentence each.
    pub problems: &'a [String],
    /// The disk or image that holds the volume, as the user wrote it.
    pub source: &'a str,
    /// What the keys did to the encrypted volumes, if keys were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlocked: Option<&'a UnlockOutcome>,
    /// The name of the volume, as that of its file in a mount.
    pub volume: &'a str,
    /// Bytes of the volume.
    pub volume_size_bytes: u64,
    /// Bytes of the volume that cannot be read, within the length of the image.
    pub volume_unreadable_bytes: u64,
}

/// The answer of `verify` for the folder of a triage.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyTriage<'a> {
    /// The custody log in it.
    pub custody: &'a LogReport,
    /// Whether everything is as recorded.
    pub ok: bool,
    /// The files of the result, as recorded.
    pub outputs: &'a [OutputFile],
    /// The problems, a sentence each.
    pub problems: &'a [String],
    /// The folder.
    pub triage: Cow<'a, str>,
}

/// The answer of `verify` for a custody log.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyLog<'a> {
    /// What the log says.
    pub custody: &'a LogReport,
    /// The log.
    pub log: Cow<'a, str>,
    /// Whether it is in order.
    pub ok: bool,
    /// The problems, a sentence each.
    pub problems: &'a [String],
}

/// The answer of `custody`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Custody<'a> {
    /// The head, as `verify --head` takes it: RECORDS:SHA256.
    pub head: String,
    /// The heads that were known elsewhere, and compared with the log.
    pub heads: &'a [KnownHead],
    /// Which log this is: SHA-256 of the line of its first record.
    pub id: Option<&'a str>,
    /// The log.
    pub log: Cow<'a, str>,
    /// Whether it is in order.
    pub ok: bool,
    /// The problems, a sentence each.
    pub problems: &'a [String],
    /// The number of its records.
    pub records: u64,
    /// SHA-256 of the last, in hexadecimal.
    pub sha256: &'a str,
}
