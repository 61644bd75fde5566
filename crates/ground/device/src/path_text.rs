//! Paths as text, for JSON, logs and journals, without loss. A path on Linux is a sequence of arbitrary bytes, and text
//! is UTF-8.
//!
//! A path that is UTF-8 is written unchanged. Any other is written as `bytes:` and the path, in which each byte that
//! does not belong to a UTF-8 sequence is `%` and two hexadecimal digits, as are control characters and the percent
//! sign itself: `bytes:/cases/caf%E9.raw`. So is a path that begins with `bytes:`. Every path has one text, and no two
//! have the same.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::PathBuf;

use cheetah_kit::path::from_bytes;

/// The prefix of the text of a path that is not written unchanged.
pub const PREFIX: &str = "bytes:";

/// Returns the text of a path.
pub fn path_to_text(path: &(impl AsRef<OsStr> + ?Sized)) -> Cow<'_, str> {
    let path = path.as_ref();
    match path.to_str() {
        Some(text) if !text.starts_with(PREFIX) => Cow::Borrowed(text),
        _ => Cow::Owned(encode(path.as_encoded_bytes())),
    }
}

/// Returns an argument as text. UTF-8 stays unchanged, so that a path may be typed in either form.
pub fn typed_to_text(typed: &OsStr) -> Cow<'_, str> {
    typed.to_str().map_or_else(|| path_to_text(typed), Cow::Borrowed)
}

/// Returns the path of a text. A percent sign without two digits after it stands for itself.
pub fn text_to_path(text: &str) -> PathBuf {
    text.strip_prefix(PREFIX).map_or_else(|| text.into(), |encoded| from_bytes(decode(encoded)).into())
}

fn encode(path: &[u8]) -> String {
    let mut text = PREFIX.to_owned();
    let escape = |bytes: &[u8], text: &mut String| bytes.iter().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '%' => escape(b"%", &mut text),
                c if c.is_ascii_control() => escape(&[c as u8], &mut text),
                c => text.push(c),
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

fn decode(text: &str) -> Vec<u8> {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        let digit = |at: usize| behind.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        let escaped = (*byte == b'%').then(|| Some((digit(0)? * 16 + digit(1)?) as u8)).flatten();
        path.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &behind[2..] } else { behind };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    #[test]
    fn every_path_has_one_text_and_comes_back_from_it() {
        let paths: [(&[u8], &str); 6] = [
            (b"/cases/caf\xe9.raw", "bytes:/cases/caf%E9.raw"),
            ("/cases/caf\u{e9} 100%.raw".as_bytes(), "/cases/caf\u{e9} 100%.raw"),
            (b"100%\xff\n\x1b", "bytes:100%25%FF%0A%1B"),
            (b"bytes:x", "bytes:bytes:x"),
            (b"a\x1b[2J.raw", "a\x1b[2J.raw"),
            (b"\xf0\x9f\x90", "bytes:%F0%9F%90"),
        ];
        for (bytes, text) in paths {
            let path = Path::new(OsStr::from_bytes(bytes));
            assert_eq!(path_to_text(path), text);
            assert_eq!(text_to_path(text), path);
        }
        assert_eq!(text_to_path("bytes:a%zz%4"), Path::new("a%zz%4"));
        assert_eq!(typed_to_text(OsStr::new("bytes:caf%E9")), "bytes:caf%E9");
        assert_eq!(typed_to_text(OsStr::from_bytes(b"caf\xe9")), "bytes:caf%E9");
    }
}
