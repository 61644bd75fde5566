//! The names of sources on the command line: a URI, a path, or `raw:` and a path. A path that is not UTF-8 is written
//! as [`path_text`](cheetah_device::path_text) says.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cheetah_device::path_text::{path_to_text, text_to_path, typed_to_text};

use cheetah_error::{Error, Result};
use cheetah_kit::path::from_bytes;

/// The prefix of the path of a file that is to be read as a raw image, regardless of its content.
const RAW: &str = "raw:";

/// Returns the path that `spec` names, and whether it is to be read as a raw image; `None` for a URI.
pub fn path_of(spec: &str) -> Option<(PathBuf, bool)> {
    // A file with exactly this name takes precedence over the prefix.
    match spec.strip_prefix(RAW).filter(|_| !Path::new(spec).exists()) {
        Some(path) => Some((text_to_path(path), true)),
        None => (!is_uri(spec)).then(|| (text_to_path(spec), false)),
    }
}

/// Whether a text is a URI. Its scheme has several letters: one letter is a drive of Windows, as in `C:\case\x.raw`.
pub fn is_uri(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| scheme.len() != 1)
}

/// Returns a command-line argument as a spec; a path may be any bytes.
pub fn typed(typed: &OsStr) -> String {
    match typed.as_encoded_bytes().strip_prefix(RAW.as_bytes()) {
        Some(path) if typed.to_str().is_none() => format!("{RAW}{}", path_to_text(&from_bytes(path.to_vec()))),
        _ => typed_to_text(typed).into_owned(),
    }
}

/// Returns `spec` as it can be opened from any directory.
///
/// # Errors
///
/// `Kind::Failed` if the current directory is unknown.
pub fn absolute(spec: &str) -> Result<String> {
    let Some((path, is_raw)) = path_of(spec) else { return Ok(spec.to_owned()) };
    let path = std::path::absolute(path).map_err(|error| Error::io(format_args!("placing {spec}"), &error))?;
    Ok(format!("{}{}", if is_raw { RAW } else { "" }, path_to_text(&path)))
}

/// Serializes paths as their text, for serde's `serialize_with`. serde itself fails for a path that is not UTF-8.
pub mod json {
    use std::path::PathBuf;

    use cheetah_device::path_text::path_to_text;
    use serde::Serializer;

    /// Writes a path, or null.
    ///
    /// # Errors
    ///
    /// The serializer's.
    pub fn option<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        match path {
            Some(path) => serializer.serialize_some(&path_to_text(path)),
            None => serializer.serialize_none(),
        }
    }

    /// Writes a list of paths.
    ///
    /// # Errors
    ///
    /// The serializer's.
    pub fn list<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| path_to_text(path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn a_path_of_windows_is_a_path_and_no_scheme() {
        for path in [
            r"C:\case\x.raw",
            "C:/case/x.raw",
            "C://case/x.raw",
            r"d:x.raw",
            r"\\server\share\x.raw",
            r"\\?\C:\case\x.raw",
            r"\\.\PhysicalDrive0",
            r"\\.\C:",
        ] {
            assert_eq!(path_of(path), Some((path.into(), false)), "{path}");
            assert_eq!(path_of(&format!("raw:{path}")), Some((path.into(), true)), "{path}");
        }
        assert!(["nbd://h/x", "s3://b/k", "ftp://h/x"].into_iter().all(|uri| path_of(uri).is_none()));
    }

    #[test]
    fn a_path_of_any_bytes_survives_conversion_to_text() {
        let path = Path::new(OsStr::from_bytes(b"/cases/caf\xe9.E01"));
        let text = path_to_text(path);
        assert_eq!(path_of(&text), Some((path.to_owned(), false)));
        assert_eq!(path_of(&format!("raw:{text}")), Some((path.to_owned(), true)));
        assert_eq!(absolute(&format!("raw:{text}")).unwrap(), "raw:bytes:/cases/caf%E9.E01");
        assert_eq!(typed(OsStr::from_bytes(b"raw:/cases/caf\xe9.E01")), format!("raw:{text}"));
        assert_eq!(typed(path.as_os_str()), text);
        assert_eq!(typed(OsStr::new("raw:a%")), "raw:a%");
        assert_eq!(path_of("nbd://host/caf%E9"), None);
        assert_eq!(absolute("nbd://host/x").unwrap(), "nbd://host/x");
    }
}
