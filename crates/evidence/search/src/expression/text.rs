//! Bytes as ASCII characters of an encoding.

use crate::encoding::TextEncoding;

/// Bytes that are searched in an encoding.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The encoding.
    pub encoding: TextEncoding,
}

impl Text<'_> {
    /// The bytes of a character.
    pub const fn unit_bytes(self) -> usize {
        self.encoding.unit_bytes()
    }

    /// The ASCII character at `at`; `None` if there is none.
    pub fn ascii(self, at: usize) -> Option<u8> {
        let byte = match self.encoding {
            TextEncoding::Utf16Le => match self.bytes.get(at..at + 2)? {
                [byte, 0] => *byte,
                _ => return None,
            },
            TextEncoding::Utf16Be => match self.bytes.get(at..at + 2)? {
                [0, byte] => *byte,
                _ => return None,
            },
            TextEncoding::Utf8 | TextEncoding::CodePage(_) => *self.bytes.get(at)?,
        };
        byte.is_ascii().then_some(byte)
    }
}
