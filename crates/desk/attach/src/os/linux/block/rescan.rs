//! Makes the kernel read the partition table of a device again. For a detached device, the kernel then removes the
//! partitions.
//!
//! `BLKRRPART` (linux/fs.h) takes no argument. There is no other way: the kernel's NBD client leaves the partitions behind.

#![allow(unsafe_code, reason = "an ioctl without a safe wrapper")]

use std::fs::File;
use std::io;

use rustix::ioctl::{NoArg, Opcode, ioctl, opcode};

use super::node::Node;

const BLKRRPART: Opcode = opcode::none(0x12, 95);

/// Makes the kernel look for partitions. Fails if one is in use.
pub(crate) fn rescan(node: Node) -> io::Result<()> {
    let device = File::open(node.path())?;
    // SAFETY: BLKRRPART takes no argument, and the kernel changes no memory of this process.
    unsafe { ioctl(&device, NoArg::<BLKRRPART>::new()) }.map_err(io::Error::from)
}
