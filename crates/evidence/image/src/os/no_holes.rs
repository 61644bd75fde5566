//! Holes are not looked for: sparse files are rare on Windows, and APFS of macOS may take what a program has just written for a hole.
//! They read as zeros all the same.

use std::fs::File;
use std::io::{ErrorKind, Result as IoResult};

/// The offset of the first byte outside a hole: not known.
pub(crate) fn next_data(_file: &File, _offset: u64) -> IoResult<Option<u64>> {
    Err(ErrorKind::Unsupported.into())
}

/// As [`next_data`].
pub(crate) fn next_hole(_file: &File, _offset: u64) -> IoResult<u64> {
    Err(ErrorKind::Unsupported.into())
}
