//! Windows, FreeBSD and macOS do not tell how long processes waited. A node whose jobs would pause then says so at its start. Threads of the
//! lowest priority give way all the same, and memory is followed by how much is available.

use std::time::Duration;

use super::Need;

/// What shows whether other programs need the processors.
pub(crate) fn need_of_processors() -> Option<Need> {
    None
}

/// How long some process has waited for memory since the machine started.
pub(crate) fn waited_for_memory() -> Option<Duration> {
    None
}
