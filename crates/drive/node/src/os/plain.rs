//! Windows, FreeBSD and macOS do not tell how long processes waited, and a node says so at its start. Threads of the lowest priority give way all the same, and memory
//! is followed by how much is available.

use std::time::Duration;

/// What shows whether other programs need the processors, as a time that grows while they do.
pub(crate) fn need_of_processors() -> Option<fn() -> Option<Duration>> {
    None
}

/// How long some process has waited for memory since the machine started.
pub(crate) fn waited_for_memory() -> Option<Duration> {
    None
}
