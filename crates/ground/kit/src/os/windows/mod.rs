//! Windows.

pub(crate) mod errno;
pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod machine;
pub(crate) mod machine_memory;
pub(crate) mod memory;
pub(crate) mod path;
pub(crate) mod process;
pub(crate) mod rename;
pub(crate) mod socket;
pub(crate) mod thread;

use std::io;

/// The result of a call that returns 0 if it failed.
fn checked(done: i32) -> io::Result<()> {
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
