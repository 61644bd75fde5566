//! The answer of every command that fails.

use serde::{Deserialize, Serialize};

/// The last line of a command that failed.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Failed<'a> {
    /// What failed, where, and what to do next: one sentence.
    pub error: std::borrow::Cow<'a, str>,
    /// The exit code: 1 failed, 2 misused, 3 evidence problem.
    pub exit_code: u8,
}
