//! A drive file as text: canonical TOML under a seal.
//!
//! The seal is over the canonical form, not over the text, so a file that was copied through a system with other
//! line ends still opens; one whose meaning changed in any way does not.

use std::path::Path;

use toml::{Table, Value};

use super::{DriveFile, VERSION};
use crate::error::{Error, Result};

/// The most a drive file may weigh: bytes. 256 sets of 1024 nodes do not come near it.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

const HEADER: &str = "# A Cheetah drive. Do not edit: the seal would no longer match, and the drive would not open.\n";

/// The file's text.
pub fn encode(file: &DriveFile) -> Result<String> {
    let body = canonical(file)?;
    Ok(format!("{HEADER}seal = \"{}\"\n{body}", seal(&body)))
}

/// Reads the file's text, and checks it. `path` becomes the file's, and is named in errors.
pub fn decode(text: &str, path: &Path) -> Result<DriveFile> {
    let refuse = |why: &str| {
        Error::failed(format!("{}: {why}; use an untouched copy of the file, or create the drive anew", path.display()))
    };
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        refuse(&format!("not a drive file, or cut off ({})", error.message().replace('\n', " ")))
    })?;
    check_version(&table, path)?;
    let Some(Value::String(sealed)) = table.remove("seal") else {
        return Err(refuse("the seal is missing, so it is cut off or no drive file"));
    };
    let mut file: DriveFile = Value::Table(table).try_into().map_err(|error: toml::de::Error| {
        refuse(&format!("it was edited or is no drive file ({})", error.message().replace('\n', " ")))
    })?;
    if seal(&canonical(&file)?) != sealed {
        return Err(refuse("the seal does not match, so it was edited or cut off since it was written"));
    }
    file.check().map_err(|why| refuse(&why))?;
    file.path = path.to_owned();
    Ok(file)
}

/// Before anything else, so that a newer file is told from a damaged one.
fn check_version(table: &Table, path: &Path) -> Result<()> {
    match table.get("version").and_then(Value::as_integer) {
        Some(version) if version == i64::from(VERSION) => Ok(()),
        Some(version) if version > i64::from(VERSION) => Err(Error::failed(format!(
            "{}: written by a newer Cheetah (format {version}; this one reads {VERSION}); use that version or later",
            path.display()
        ))),
        _ => Err(Error::failed(format!(
            "{}: not a Cheetah drive file; name the file that `cheetah create` wrote",
            path.display()
        ))),
    }
}

fn canonical(file: &DriveFile) -> Result<String> {
    toml::to_string(file).map_err(|error| Error::failed(format!("{}: cannot be written as TOML: {error}", file.name)))
}

fn seal(body: &str) -> String {
    blake3::hash(body.as_bytes()).to_hex().to_string()
}
