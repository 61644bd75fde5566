//! The rights and the end of this process.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

pub(crate) fn is_privileged() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn forbid_core_dumps() -> io::Result<()> {
    let limit = getrlimit(Resource::Core);
    let none = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: limit.maximum });
    // A limit does not count for a program that the kernel pipes core dumps to.
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    Ok(none.and(hidden)?)
}

pub(crate) fn prefer_as_victim() -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "1000")
}
