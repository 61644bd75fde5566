//! Names of files as bytes: on Linux those that the file system has, elsewhere UTF-8 with what is not Unicode in a like form
//! (WTF-8). [`OsStr::as_encoded_bytes`](std::ffi::OsStr::as_encoded_bytes) is the way there, and this the way back.

use std::ffi::OsString;

use crate::os;

/// The bytes that no name of a file has.
pub const NOT_IN_NAMES: &[u8] = os::path::NOT_IN_NAMES;

/// Returns the name that these bytes stand for. Any bytes are a name on Linux; elsewhere, bytes that stand for none are replaced.
pub fn from_bytes(bytes: Vec<u8>) -> OsString {
    os::path::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_from_its_bytes() {
        for name in ["disk.001", "caf\u{e9} \u{1f406}.raw", ""] {
            let name = OsString::from(name);
            assert_eq!(from_bytes(name.as_encoded_bytes().to_vec()), name);
        }
    }
}
