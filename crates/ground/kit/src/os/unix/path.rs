//! Names of files: any bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

pub(crate) const NOT_IN_NAMES: &[u8] = b"/\0";

pub(crate) fn from_bytes(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}
