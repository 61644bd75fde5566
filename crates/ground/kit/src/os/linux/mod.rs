//! Linux.

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
