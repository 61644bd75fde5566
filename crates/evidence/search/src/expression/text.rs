//! Bytes as ASCII characters of an encoding.

use super::class::Class;
use crate::encoding::TextEncoding;

/// Bytes as characters of one encoding, for loops over many of them.
pub trait Characters: Copy {
    /// The bytes of a character.
    const BYTES: usize;

    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// Whether there is a character at `at`, and it is of the class.
    fn is(self, at: usize, class: &Class) -> bool;
}

/// Characters of one byte, in ASCII or an encoding that has all of it.
#[derive(Clone, Copy)]
pub struct Narrow<'a>(pub &'a [u8]);

/// Characters of UTF-16, big-endian or little-endian.
#[derive(Clone, Copy)]
pub struct Wide<'a, const BIG_ENDIAN: bool>(pub &'a [u8]);

impl Characters for Narrow<'_> {
    const BYTES: usize = 1;

    fn bytes(&self) -> &[u8] {
        self.0
    }

    #[inline]
    fn is(self, at: usize, class: &Class) -> bool {
        self.0.get(at).is_some_and(|byte| class.has(*byte))
    }
}

impl<const BIG_ENDIAN: bool> Characters for Wide<'_, BIG_ENDIAN> {
    const BYTES: usize = 2;

    fn bytes(&self) -> &[u8] {
        self.0
    }

    #[inline]
    fn is(self, at: usize, class: &Class) -> bool {
        match self.0.get(at..at + 2) {
            Some([0, byte]) if BIG_ENDIAN => class.has(*byte),
            Some([byte, 0]) if !BIG_ENDIAN => class.has(*byte),
            _ => false,
        }
    }
}

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
