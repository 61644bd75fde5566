//! Linux.

pub(crate) mod errno;
pub(crate) mod file;
pub(crate) mod machine;
pub(crate) mod machine_memory;
pub(crate) mod memory;
pub(crate) mod no_replace;
pub(crate) mod process;
pub(crate) mod socket;
pub(crate) mod thread;

pub(crate) use super::unix::{folder, path, rename};
