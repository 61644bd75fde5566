//! The encodings of text.

use std::fmt;
use std::str::FromStr;

use encoding_rs::{Encoding, ISO_2022_JP, REPLACEMENT, UTF_8, UTF_16BE, UTF_16LE};

/// An encoding in which text is searched and shown. A character has the same bytes wherever it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextEncoding {
    /// UTF-8; also ASCII.
    Utf8,
    /// UTF-16, little-endian, as Windows stores text.
    Utf16Le,
    /// UTF-16, big-endian.
    Utf16Be,
    /// Another encoding, such as windows-1252.
    CodePage(&'static Encoding),
}

/// A text that names no encoding in which text can be searched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no encoding that can be searched: use utf-8, utf-16le, utf-16be, or a code page such as windows-1252, cp1251, latin1, \
     ibm866, koi8-r, macintosh, shift_jis, gbk, big5 or euc-kr"
)]
pub struct UnknownEncoding(String);

impl FromStr for TextEncoding {
    type Err = UnknownEncoding;

    /// Reads a label of the Encoding Standard, in either case.
    fn from_str(text: &str) -> Result<Self, UnknownEncoding> {
        let unknown = || UnknownEncoding(text.to_owned());
        match Encoding::for_label(text.as_bytes()).ok_or_else(unknown)? {
            found if found == UTF_8 => Ok(Self::Utf8),
            found if found == UTF_16LE => Ok(Self::Utf16Le),
            found if found == UTF_16BE => Ok(Self::Utf16Be),
            // In the first, the bytes of a character depend on what stands before it; the second has no text.
            found if found == ISO_2022_JP || found == REPLACEMENT => Err(unknown()),
            found => Ok(Self::CodePage(found)),
        }
    }
}

impl fmt::Display for TextEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

impl TextEncoding {
    /// Its name, in lower case.
    pub fn name(self) -> String {
        self.standard().name().to_ascii_lowercase()
    }

    fn standard(self) -> &'static Encoding {
        match self {
            Self::Utf8 => UTF_8,
            Self::Utf16Le => UTF_16LE,
            Self::Utf16Be => UTF_16BE,
            Self::CodePage(page) => page,
        }
    }

    /// The bytes of a character; `None` if it has none in this encoding.
    pub fn encode(self, c: char) -> Option<Vec<u8>> {
        let units =
            |bytes: fn(u16) -> [u8; 2]| c.encode_utf16(&mut [0; 2]).iter().flat_map(|unit| bytes(*unit)).collect();
        match self {
            Self::Utf8 => Some(c.encode_utf8(&mut [0; 4]).as_bytes().to_vec()),
            Self::Utf16Le => Some(units(u16::to_le_bytes)),
            Self::Utf16Be => Some(units(u16::to_be_bytes)),
            Self::CodePage(page) => {
                let mut text = [0; 4];
                let (bytes, _, failed) = page.encode(c.encode_utf8(&mut text));
                (!failed).then(|| bytes.into_owned())
            }
        }
    }

    /// The number of bytes in the smallest character.
    pub const fn unit_bytes(self) -> usize {
        match self {
            Self::Utf16Le | Self::Utf16Be => 2,
            Self::Utf8 | Self::CodePage(_) => 1,
        }
    }

    /// Decodes text of a code page.
    pub(crate) fn decode(self, bytes: &[u8]) -> String {
        self.standard().decode_without_bom_handling(bytes).0.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_known_by_their_usual_names() {
        for (label, name) in [
            ("UTF-8", "utf-8"),
            ("utf-16le", "utf-16le"),
            ("utf-16be", "utf-16be"),
            ("cp1252", "windows-1252"),
            ("latin1", "windows-1252"),
            ("koi8-r", "koi8-r"),
            ("Shift_JIS", "shift_jis"),
        ] {
            assert_eq!(label.parse::<TextEncoding>().map(TextEncoding::name).as_deref(), Ok(name));
        }
        for label in ["", "cp9999", "iso-2022-jp", "replacement"] {
            assert!(label.parse::<TextEncoding>().is_err(), "{label}");
        }
    }

    #[test]
    fn a_character_has_its_bytes_in_each_encoding_or_none() {
        let bytes = |label: &str, c| label.parse::<TextEncoding>().unwrap().encode(c);
        assert_eq!(bytes("utf-8", 'ü'), Some(vec![0xc3, 0xbc]));
        assert_eq!(bytes("utf-16le", 'ü'), Some(vec![0xfc, 0]));
        assert_eq!(bytes("utf-16be", '😀'), Some(vec![0xd8, 0x3d, 0xde, 0]));
        assert_eq!(bytes("cp1252", 'ü'), Some(vec![0xfc]));
        assert_eq!(bytes("shift_jis", 'ア'), Some(vec![0x83, 0x41]));
        assert_eq!(bytes("cp1252", 'ア'), None);
    }
}
