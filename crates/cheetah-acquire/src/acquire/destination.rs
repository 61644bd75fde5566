//! Where an acquisition goes to.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cheetah_image::{Error, Result};
use serde::{Deserialize, Serialize};

/// What a destination is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A raw image: `.raw`, `.dd`, `.img`.
    Raw,
    /// An Expert Witness image with all its segments: `.E01`.
    E01,
    /// A drive that exists, and is empty: `.drive`.
    Drive,
}

/// A file to acquire into; its extension says what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// As the user wrote it: the image, the first segment of an E01, or the drive file.
    pub path: PathBuf,
    /// What it is.
    pub form: Form,
}

impl Destination {
    /// What lies beside it, with `suffix` put behind its name: `x.raw` and `map` are `x.raw.map`.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        with_suffix(&self.path, suffix)
    }
}

/// The path with a dot and `suffix` put behind it.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

impl FromStr for Destination {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let path = PathBuf::from(text);
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        let form = match extension.as_deref() {
            Some("raw" | "dd" | "img") => Form::Raw,
            Some("e01") => Form::E01,
            Some("drive") => Form::Drive,
            _ => {
                return Err(Error::misuse(format!(
                    "{text}: the name of a destination says what it is to be: .raw, .dd or .img, .E01, or .drive"
                )));
            }
        };
        Ok(Self { path, form })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_says_what_it_is() {
        let form = |text: &str| text.parse::<Destination>().map(|destination| destination.form);
        assert_eq!(form("a/x.raw"), Ok(Form::Raw));
        assert_eq!(form("x.DD"), Ok(Form::Raw));
        assert_eq!(form("x.img"), Ok(Form::Raw));
        assert_eq!(form("x.e01"), Ok(Form::E01));
        assert_eq!(form("x.drive"), Ok(Form::Drive));
        for text in ["x", "x.E02", "x.Ex01", "x.aff4", ".raw"] {
            assert_eq!(form(text).unwrap_err().exit_code(), 2, "{text}");
        }
        assert_eq!("x.E01".parse::<Destination>().unwrap().beside("map"), PathBuf::from("x.E01.map"));
    }
}
