//! Names of files: 16-bit units, usually UTF-16.

use std::ffi::OsString;
use std::io;
use std::os::windows::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

pub(crate) const NOT_IN_NAMES: &[u8] = b"/\\:*?\"<>|\0";

/// Paths of this many units or more need the prefix `\\?\`; a folder leaves room for a short name.
const LONG_UNITS: usize = 248;

pub(crate) fn from_bytes(bytes: Vec<u8>) -> OsString {
    match String::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(error) => OsString::from_wide(&units(error.as_bytes())),
    }
}

/// The units of bytes in WTF-8: UTF-8 with surrogates of three bytes each. Any other byte becomes U+FFFD.
fn units(mut bytes: &[u8]) -> Vec<u16> {
    let mut units = Vec::with_capacity(bytes.len());
    while let Some(chunk) = bytes.utf8_chunks().next() {
        units.extend(chunk.valid().encode_utf16());
        bytes = &bytes[chunk.valid().len()..];
        match bytes {
            [] => {}
            [0xed, second @ 0xa0..=0xbf, third @ 0x80..=0xbf, ..] => {
                units.push(0xd000 | u16::from(second & 0x3f) << 6 | u16::from(third & 0x3f));
                bytes = &bytes[3..];
            }
            _ => {
                units.push(0xfffd);
                bytes = &bytes[chunk.invalid().len().max(1)..];
            }
        }
    }
    units
}

/// A path as the system's calls take it: with a zero at the end, and if it is long, with the prefix that allows that.
pub(super) fn wide(path: &Path) -> io::Result<Vec<u16>> {
    let absolute = std::path::absolute(path)?;
    let name: Vec<u16> = absolute.as_os_str().encode_wide().collect();
    let (server, device) = (r"\\".encode_utf16(), [r"\\?\", r"\\.\"]);
    let is_prefixed = device.iter().any(|prefix| name.starts_with(&prefix.encode_utf16().collect::<Vec<_>>()));
    let mut whole: Vec<u16> = Vec::new();
    if name.len() < LONG_UNITS || is_prefixed {
        whole.extend(&name);
    } else if name.starts_with(&server.collect::<Vec<_>>()) {
        whole.extend(r"\\?\UNC".encode_utf16().chain(name.iter().skip(1).copied()));
    } else {
        whole.extend(r"\\?\".encode_utf16().chain(name.iter().copied()));
    }
    whole.push(0);
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_unicode_comes_back_from_its_bytes() {
        let name = OsString::from_wide(&[0x63, 0xd83d, 0x66, 0xdc06, 0xd83d, 0xdc06]);
        assert_eq!(from_bytes(name.as_encoded_bytes().to_vec()), name);
        assert_eq!(from_bytes(b"a\xffb".to_vec()), OsString::from("a\u{fffd}b"));
    }

    #[test]
    fn a_long_path_gets_the_prefix_that_allows_it() {
        let text = |path: &str| {
            let mut units = wide(Path::new(path)).unwrap();
            assert_eq!(units.pop(), Some(0));
            String::from_utf16(&units).unwrap()
        };
        let long = "x".repeat(300);
        assert_eq!(text(r"C:\a"), r"C:\a");
        assert_eq!(text(&format!(r"C:\{long}")), format!(r"\\?\C:\{long}"));
        assert_eq!(text(&format!(r"\\server\share\{long}")), format!(r"\\?\UNC\server\share\{long}"));
        assert_eq!(text(&format!(r"\\?\C:\{long}")), format!(r"\\?\C:\{long}"));
    }
}
