//! Windows, FreeBSD and macOS do not tell how long processes waited. Threads of the lowest priority give way all the same, and memory
//! is followed by how much is available.

use std::time::Duration;

/// How long some process has waited for a processor since the machine started.
pub(crate) fn waited_for_processor() -> Option<Duration> {
    None
}

/// How long some process has waited for memory since the machine started.
pub(crate) fn waited_for_memory() -> Option<Duration> {
    None
}
