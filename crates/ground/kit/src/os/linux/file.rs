//! Files: what Linux alone has.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;

use rustix::fs::{Advice, FallocateFlags};

pub(crate) use super::super::unix::file::*;

pub(crate) fn begin_storing(file: &File, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::DontNeed)?)
}

pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, flags, offset, len)?)
}
