//! The answer of `demo`.

use serde::Serialize;

/// The answer of `demo`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Demo<'a> {
    /// How caches were dropped before each run: a sentence.
    pub cache: &'a str,
    /// Whether all tools gave the same answers on the image and on the drive.
    pub identical: bool,
    /// The runs of the tools.
    pub runs: &'a [Row],
    /// The steps, in order.
    pub steps: &'a [Step],
}

/// A finished step.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Step {
    /// The step.
    pub what: String,
    /// Its duration in seconds.
    pub took_s: f64,
}

/// One tool, run twice.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    /// The tool and its options.
    pub ran: String,
    /// A summary of its output.
    pub answer: String,
    /// Seconds on the image.
    pub image_s: f64,
    /// Seconds on the drive.
    pub drive_s: f64,
    /// Whether output and exit status were the same.
    pub identical: bool,
}
