//! Files that a search keeps in its folder: their digests, by which they are known again before they are trusted.

use std::io::{self, Read as _};

use cheetah_carve::Format;
use cheetah_image::hash::hex;
use cheetah_kit::folder::Folder;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// The deepest folder of a kept file.
const DEPTH_MAX: usize = 4;
/// The fewest digits of the name of a carved file.
const CARVED_DIGITS: usize = 14;

/// A file in the folder of a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptFile {
    /// Its name, with those of the folders that it is in before it, and `/` between them.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// Its SHA-256 in hexadecimal digits.
    pub sha256: String,
}

impl KeptFile {
    /// The file of this name as it is now.
    ///
    /// # Errors
    ///
    /// If it is not there, or is no regular file.
    pub fn read(folder: &Folder, name: &str) -> io::Result<Self> {
        let ways: Vec<&str> = name.split('/').collect();
        let (file, folders) = ways.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        if folders.len() > DEPTH_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut within: Option<Folder> = None;
        for name in folders {
            within = Some(within.as_ref().unwrap_or(folder).folder(name)?);
        }
        let mut file = within.as_ref().unwrap_or(folder).read(file)?;
        let (mut context, mut len, mut piece) = (Context::new(&SHA256), 0, vec![0; PIECE_BYTES]);
        loop {
            match file.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => {
                    context.update(piece.get(..read).unwrap_or_default());
                    len += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { name: name.to_owned(), len, sha256: hex(context.finish().as_ref()) })
    }
}

/// Whether a carved file may have this name, also while it is written.
pub fn is_carved_name(name: &str) -> bool {
    let name = name.strip_suffix(".partial").unwrap_or(name);
    let Some((offset, extension)) = name.split_once('.') else { return false };
    offset.len() >= CARVED_DIGITS
        && offset.bytes().all(|byte| byte.is_ascii_digit())
        && Format::ALL.iter().any(|format| format.extension() == extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_carved_files_are_those_of_carved_files() {
        for name in ["00000000001024.png", "00000000001024.hive.partial", "123456789012345678.7z"] {
            assert!(is_carved_name(name), "{name}");
        }
        for name in ["", "notes.txt", "1024.png", "00000000001024.exe", "0000000000102a.png", "00000000001024.png.txt"]
        {
            assert!(!is_carved_name(name), "{name}");
        }
    }
}
