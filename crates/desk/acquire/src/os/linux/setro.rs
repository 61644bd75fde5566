//! The one thing an agent does to a block device besides reading it: telling the kernel to refuse writes to it.
//!
//! `BLKROSET` (linux/fs.h) takes a pointer to an `int`, 1 for read-only. It changes a flag in the kernel's memory and
//! nothing on the disk.

#![allow(unsafe_code, reason = "an ioctl without a safe wrapper")]

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

const BLKROSET: Opcode = opcode::none(0x12, 93);

/// Has the kernel refuse writes to the block device at `path`. Takes CAP_SYS_ADMIN.
pub(super) fn set_read_only(path: &Path) -> io::Result<()> {
    let device = File::open(path)?;
    // SAFETY: BLKROSET reads one int through the pointer it is given, and Setter passes a pointer to one.
    unsafe { ioctl(&device, Setter::<BLKROSET, c_int>::new(1)) }.map_err(io::Error::from)
}
