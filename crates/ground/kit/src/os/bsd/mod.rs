//! FreeBSD and macOS. Nothing here has been run yet: it compiles and links.

pub(crate) mod errno;
pub(crate) mod file;
pub(crate) mod machine;
pub(crate) mod machine_memory;
pub(crate) mod memory;
pub(crate) mod no_replace;
pub(crate) mod process;
pub(crate) mod socket;
pub mod storage;
pub(crate) mod thread;

pub(crate) use super::unix::{folder, path, rename};

use std::ffi::c_int;
use std::io;

/// The result of a call that returns -1 if it failed.
fn checked(done: c_int) -> io::Result<()> {
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
