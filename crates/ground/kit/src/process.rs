//! The rights and the end of this process.

use std::io;

use crate::os;

/// Whether this process may do what the machine's administrator may: root, or a program started as administrator.
pub fn is_privileged() -> bool {
    os::process::is_privileged()
}

/// Forbids core dumps of this process from now on, and to other users' debuggers its memory.
///
/// # Errors
///
/// If the system refuses one of both.
pub fn forbid_core_dumps() -> io::Result<()> {
    os::process::forbid_core_dumps()
}

/// Asks the system to end this process before others when the machine runs out of memory. Nothing to do where the system ends no
/// process for that.
///
/// # Errors
///
/// If the system refuses.
pub fn prefer_as_victim() -> io::Result<()> {
    os::process::prefer_as_victim()
}
