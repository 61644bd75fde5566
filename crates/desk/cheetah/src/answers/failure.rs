//! The answer of every command that fails.

use std::borrow::Cow;

use cheetah_error::Next;
use serde::{Deserialize, Serialize};

/// The last line of a command that failed.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Failed<'a> {
    /// What failed, where, and what to do next: one sentence.
    pub error: Cow<'a, str>,
    /// The exit code: 1 failed, 2 misused, 3 evidence problem.
    pub exit_code: u8,
    /// What kind of failure it is: `misuse`, `failed`, `evidence`, `device`, `unsupported` by this operating system, or what is
    /// known of a node that cannot be used: `refused`, `unreachable`, `silent`, `restarted`, `lost`.
    pub kind: Cow<'a, str>,
    /// The next steps, which the sentence names too; absent if there are none.
    #[serde(default, skip_serializing_if = "<[Next]>::is_empty")]
    pub next: Cow<'a, [Next]>,
}
