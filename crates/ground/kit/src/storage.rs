//! The disks of this machine and its mounted file systems, on FreeBSD and macOS. Linux has them in sysfs and procfs.

pub use crate::os::storage::{Mount, disk_names, mounts};
