//! The rights and the end of this process.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) fn is_privileged() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn forbid_core_dumps() -> io::Result<()> {
    let limit = getrlimit(Resource::Core);
    let none = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: limit.maximum });
    let hidden = refuse_debuggers();
    none?;
    hidden
}

/// Refuses debuggers, and core dumps once more (procctl(2)).
#[cfg(target_os = "freebsd")]
fn refuse_debuggers() -> io::Result<()> {
    let mut wanted = libc::PROC_TRACE_CTL_DISABLE;
    // 0 stands for this process.
    let (kind, this, request) = (libc::P_PID, 0, libc::PROC_TRACE_CTL);
    // SAFETY: the request reads an int.
    super::checked(unsafe { libc::procctl(kind, this, request, (&raw mut wanted).cast()) })
}

/// macOS gives the memory of a process to debuggers of root and of the same user only.
#[cfg(target_os = "macos")]
fn refuse_debuggers() -> io::Result<()> {
    Ok(())
}

/// FreeBSD ends the process with the most memory first, and a node is that; macOS does not let a process ask.
pub(crate) fn prefer_as_victim() -> io::Result<()> {
    Ok(())
}
