//! The answers of `generate`.

use std::borrow::Cow;

use serde::Serialize;

/// The answer of `generate`: a man page or a completion script.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Text<'a> {
    /// The text.
    pub text: &'a str,
}

/// The answer of `generate man --out`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ManPages<'a> {
    /// Their files.
    pub pages: Vec<Cow<'a, str>>,
}
