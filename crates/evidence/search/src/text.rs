//! Bytes of the evidence as text.

use std::fmt::Write as _;

use cheetah_device::visible::is_control;

use crate::encoding::TextEncoding;

/// The bytes as text in an encoding. Control characters, and bytes that are no text, are shown as `\xNN` or `\u{NNNN}`.
pub fn shown(bytes: &[u8], encoding: TextEncoding) -> String {
    let mut text = String::new();
    match encoding {
        TextEncoding::Utf8 => {
            for chunk in bytes.utf8_chunks() {
                chunk.valid().chars().for_each(|c| push(&mut text, c));
                chunk.invalid().iter().for_each(|byte| push_number(&mut text, u32::from(*byte)));
            }
        }
        TextEncoding::Utf16Le => push_wide(&mut text, bytes, u16::from_le_bytes),
        TextEncoding::Utf16Be => push_wide(&mut text, bytes, u16::from_be_bytes),
        TextEncoding::CodePage(_) => encoding.decode(bytes).chars().for_each(|c| push(&mut text, c)),
    }
    text
}

fn push_wide(text: &mut String, bytes: &[u8], unit: fn([u8; 2]) -> u16) {
    let (pairs, rest) = bytes.as_chunks::<2>();
    for decoded in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        match decoded {
            Ok(c) => push(text, c),
            Err(error) => push_number(text, u32::from(error.unpaired_surrogate())),
        }
    }
    rest.iter().for_each(|byte| push_number(text, u32::from(*byte)));
}

fn push(text: &mut String, c: char) {
    if is_control(c) { push_number(text, u32::from(c)) } else { text.push(c) }
}

fn push_number(text: &mut String, number: u32) {
    // A String takes everything.
    let _ = if number < 0x100 { write!(text, "\\x{number:02x}") } else { write!(text, "\\u{{{number:04x}}}") };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_and_what_is_no_text_as_numbers() {
        assert_eq!(shown(b"a\0\n\xff C:\\b \xc3\xbc", TextEncoding::Utf8), "a\\x00\\x0a\\xff C:\\b ü");
        assert_eq!(shown(b"a\0\xfc\0\0\xd8b\0c", TextEncoding::Utf16Le), "aü\\u{d800}b\\x63");
        assert_eq!(shown(b"\0a\0\xfc", TextEncoding::Utf16Be), "aü");
        assert_eq!(shown(b"\xfcber\x01", "cp1252".parse().unwrap()), "über\\x01");
    }
}
