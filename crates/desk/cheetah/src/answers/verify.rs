//! The answers of `verify` and `custody`.

use std::borrow::Cow;

use cheetah_custody::{Audit, KnownHead, LogReport, OutputFile};
use cheetah_drive::verify::VerifyReport;
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
