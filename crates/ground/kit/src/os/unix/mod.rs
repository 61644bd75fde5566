//! Linux, FreeBSD and macOS.

pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod path;
pub(crate) mod rename;
