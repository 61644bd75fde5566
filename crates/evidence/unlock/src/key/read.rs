//! Reads key files.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use cheetah_device::Size;
use cheetah_error::{Error, Result};
use cheetah_kit::locked::LockedBytes;

use super::{DetachedHeader, KEYS_MAX, Key, Keys, key_files};

/// The longest key file, in bytes: that of cryptsetup.
const FILE_BYTES_MAX: usize = 8 << 20;
/// The longest header of LUKS that is kept in a file of its own. cryptsetup makes headers of 16 MiB.
const HEADER_BYTES_MAX: u64 = 64 << 20;
/// How a header of LUKS begins.
const HEADER_MAGIC: &[u8] = b"LUKS\xba\xbe";
/// The memory with which reading begins. A pipe does not say how long it is.
const FIRST_BYTES: usize = 4096;

pub(super) fn read<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<Keys> {
    let (mut keys, mut headers) = (Vec::new(), Vec::new());
    for path in paths {
        let name = path.display().to_string();
        match content(path, &name)? {
            Content::Key(content) => keys.extend(parse(&content)?),
            Content::Header(content) => headers.push(DetachedHeader::new(name, content)),
        }
    }
    Ok(Keys { keys: limited(keys)?.into_iter().map(Arc::new).collect(), headers })
}

fn limited(keys: Vec<Key>) -> Result<Vec<Key>> {
    match keys.len() {
        0..=KEYS_MAX => Ok(keys),
        more => Err(Error::misuse(format!(
            "{more} keys are given, and at most {KEYS_MAX} are tried; give those that belong to the volumes"
        ))),
    }
}

/// The lines of a text, and the whole file unless it is one line.
pub(super) fn parse(content: &[u8]) -> Result<Vec<Key>> {
    let key = |bytes: &[u8], is_file| -> Result<Key> {
        let bytes = LockedBytes::copy_of(bytes).map_err(|error| Error::io("taking memory for a key", &error))?;
        Ok(Key { bytes, is_file })
    };
    let mut keys = Vec::new();
    if is_text(content) {
        for line in content.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match key_files::mixed(line)? {
                Some(bytes) => keys.push(Key { bytes, is_file: false }),
                None if line.is_empty() => {}
                None => keys.push(key(line, false)?),
            }
        }
    }
    // A key file of LUKS counts with the ends of its lines.
    let is_one_line = keys.len() == 1 && keys[0].bytes.len() == content.len();
    if !is_one_line && !content.is_empty() {
        keys.push(key(content, true)?);
    }
    limited(keys)
}

fn is_text(content: &[u8]) -> bool {
    let is_plain = |character: char| !character.is_control() || matches!(character, '\n' | '\r' | '\t');
    std::str::from_utf8(content).is_ok_and(|text| text.chars().all(is_plain))
}

/// The content of a file.
enum Content {
    /// Keys, in locked memory only.
    Key(LockedBytes),
    /// A header of LUKS.
    Header(Vec<u8>),
}

/// Reads a file or a pipe.
fn content(path: &Path, name: &str) -> Result<Content> {
    let failed = |error: std::io::Error| Error::io(format!("reading the key file {name}"), &error).as_misuse();
    let mut file = File::open(path).map_err(failed)?;
    let mut content = LockedBytes::zeroed(FIRST_BYTES).map_err(failed)?;
    let mut len = 0;
    loop {
        match file.read(&mut content[len..]).map_err(failed)? {
            0 => break,
            read => len += read,
        }
        if len >= HEADER_MAGIC.len() && content.starts_with(HEADER_MAGIC) {
            return header(&content[..len], file, name).map(Content::Header);
        }
        if len > FILE_BYTES_MAX {
            let most = Size(FILE_BYTES_MAX as u64);
            return Err(Error::misuse(format!("the key file {name} is longer than {most}, so it is no key file")));
        }
        if len == content.len() {
            let mut more = LockedBytes::zeroed(2 * len).map_err(failed)?;
            more[..len].copy_from_slice(&content);
            content = more;
        }
    }
    content.truncate(len);
    Ok(Content::Key(content))
}

/// Reads the rest of a header.
fn header(start: &[u8], rest: File, name: &str) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Error::io(format!("reading the header {name}"), &error).as_misuse();
    let mut content = start.to_vec();
    rest.take(HEADER_BYTES_MAX).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > HEADER_BYTES_MAX {
        let most = Size(HEADER_BYTES_MAX);
        return Err(Error::misuse(format!(
            "{name} begins as a header of LUKS and is longer than {most}: it is a volume and no header"
        )));
    }
    Ok(content)
}
