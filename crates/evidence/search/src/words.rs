//! Lists of words.

use cheetah_device::visible::is_control;
use cheetah_error::{Error, Result};
use encoding_rs::{Encoding, UTF_8};

/// Reads a list of words: one a line, without the blanks around it; empty lines are left out. The text is UTF-8, or UTF-16 with a
/// byte order mark.
///
/// # Errors
///
/// `Kind::Misuse` if it is not text, or a line has a control character.
pub fn read_words(bytes: &[u8]) -> Result<Vec<String>> {
    let (encoding, mark) = Encoding::for_bom(bytes).unwrap_or((UTF_8, 0));
    let text = encoding.decode_without_bom_handling_and_without_replacement(bytes.get(mark..).unwrap_or_default());
    let text = text.ok_or_else(|| {
        Error::misuse("the list of words is no text: store it as UTF-8, or as UTF-16 with a byte order mark")
    })?;
    let lines = text.split(['\n', '\r', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']);
    let mut words = Vec::new();
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        if line.contains(is_control) {
            return Err(Error::misuse(format!(
                "the word '{}' has a control character: remove it",
                line.escape_debug()
            )));
        }
        words.push(line.to_owned());
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_lines_of_text_in_any_unicode_encoding_and_with_any_ends() {
        let words = |bytes: &[u8]| read_words(bytes).unwrap();
        assert_eq!(words("\u{feff}eins\r\n\r\n zwei drei \rvier".as_bytes()), ["eins", "zwei drei", "vier"]);
        assert_eq!(words(b"\xff\xfea\0\n\0\xfc\0"), ["a", "ü"]);
        assert_eq!(words(b"\xfe\xff\0a"), ["a"]);
        assert!(words(b"").is_empty());
        assert!(read_words(b"a\xff").is_err() && read_words(b"ok\na\0b").is_err());
    }
}
