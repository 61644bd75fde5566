//! Files: what Linux does otherwise.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;

use super::checked;

pub(crate) use super::super::unix::file::*;

/// There is no call for it: the system begins by itself.
pub(crate) fn begin_storing(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

fn signed(at: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(at).map_err(|_| ErrorKind::InvalidInput.into())
}

/// By fspacectl(2).
#[cfg(target_os = "freebsd")]
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let range = libc::spacectl_range { r_offset: signed(offset)?, r_len: signed(len)? };
    // SAFETY: the call reads the range, and writes nothing where there is no place for the rest of it.
    checked(unsafe {
        libc::fspacectl(file.as_raw_fd(), libc::SPACECTL_DEALLOC, &raw const range, 0, std::ptr::null_mut())
    })
}

/// By fcntl(2): in whole blocks of the file system only.
#[cfg(target_os = "macos")]
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let range = libc::fpunchhole_t { fp_flags: 0, reserved: 0, fp_offset: signed(offset)?, fp_length: signed(len)? };
    // SAFETY: the request reads the range.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_PUNCHHOLE, &raw const range) })
}
