//! The answers of `drive`: the keys of sealed drives.

use std::borrow::Cow;

use serde::Serialize;

/// The answer of `drive share` and `drive unshare`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Recipients<'a> {
    /// The drive file.
    pub drive: Cow<'a, str>,
    /// The recipients that can open it now.
    pub recipients: Vec<&'a str>,
}

/// The answer of `drive identity` without a file: the recipient that stands for this machine's credential in a room.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Recipient<'a> {
    /// An age recipient.
    pub recipient: &'a str,
}

/// The answer of `drive identity` with a file: a new identity.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Identity<'a> {
    /// The file.
    pub file: Cow<'a, str>,
    /// Its age recipient.
    pub recipient: &'a str,
}
