//! The destinations of an acquisition.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cheetah_device::path_text::{path_to_text, text_to_path};
use cheetah_error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The kind of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A raw image: `.raw`, `.dd`, `.img`.
    Raw,
    /// An Expert Witness image with all its segments: `.E01`.
    E01,
    /// An existing, empty drive: `.drive`.
    Drive,
}

/// A file or an object to acquire into; its extension determines the kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// As the user wrote it: the image, the first segment of an E01, or the drive file. For a symbolic link to a drive file,
    /// the path of the file itself, beside which its custody log is. For an object, `BUCKET-NAME`: the files that belong to it
    /// are in the current folder and have this name and a suffix.
    pub path: PathBuf,
    /// Its format.
    pub form: Form,
    /// The URI of an object: `s3://BUCKET/KEY`.
    pub object: Option<String>,
}

impl Destination {
    /// Returns the path of a file beside it: `x.raw` and `map` make `x.raw.map`.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        with_suffix(&self.path, suffix)
    }
}

/// Returns the path of `BUCKET/KEY` without suffix for the files that belong to the object.
fn path_of_object(object: &str) -> PathBuf {
    let (bucket, key) = object.split_once('/').unwrap_or((object, ""));
    format!("{bucket}-{}", key.rsplit('/').next().unwrap_or_default()).into()
}

/// Appends a dot and `suffix` to a path.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

impl FromStr for Destination {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let object = text.strip_prefix("s3://");
        let path = object.map_or_else(|| text_to_path(text), path_of_object);
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        let form = match extension.as_deref() {
            Some("raw" | "dd" | "img") => Form::Raw,
            Some("e01") => Form::E01,
            Some("drive") if object.is_none() => Form::Drive,
            _ => {
                return Err(Error::misuse(format!(
                    "{text}: the name of a destination says what it is to be: .raw, .dd or .img, .E01, or .drive"
                )));
            }
        };
        let is_linked = form == Form::Drive && path.is_symlink();
        let drive_file = is_linked.then(|| path.canonicalize().ok()).flatten();
        Ok(Self { path: drive_file.unwrap_or(path), form, object: object.map(|_| text.to_owned()) })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.object {
            Some(uri) => f.pad(uri),
            None => f.pad(&path_to_text(&self.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beside_a_linked_drive_file_are_beside_the_file_itself() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("case42.drive"), dir.path().join("link.drive"));
        std::os::unix::fs::symlink("case42.drive", &link).unwrap();
        let destination = || path_to_text(&link).parse::<Destination>().unwrap();
        assert_eq!(destination().path, link);
        std::fs::write(&real, "").unwrap();
        assert_eq!(destination().beside("custody"), with_suffix(&real.canonicalize().unwrap(), "custody"));
    }

    #[test]
    fn the_extension_determines_the_kind() {
        let form = |text: &str| text.parse::<Destination>().map(|destination| destination.form);
        assert_eq!(form("a/x.raw"), Ok(Form::Raw));
        assert_eq!(form("x.DD"), Ok(Form::Raw));
        assert_eq!(form("x.img"), Ok(Form::Raw));
        assert_eq!(form("x.e01"), Ok(Form::E01));
        assert_eq!(form("x.drive"), Ok(Form::Drive));
        for text in ["x", "x.E02", "x.Ex01", "x.aff4", ".raw", "s3://lab/x", "s3://lab/x.drive"] {
            assert_eq!(form(text).unwrap_err().exit_code(), 2, "{text}");
        }
        let object = "s3://lab/case 42/x.E01".parse::<Destination>().unwrap();
        assert_eq!((object.form, object.to_string().as_str()), (Form::E01, "s3://lab/case 42/x.E01"));
        assert_eq!(object.beside("custody"), PathBuf::from("lab-x.E01.custody"));
        assert_eq!("x.E01".parse::<Destination>().unwrap().beside("map"), PathBuf::from("x.E01.map"));
    }
}
