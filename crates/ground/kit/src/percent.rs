//! Percent encoding in URIs (RFC 3986, section 2.1).

use std::fmt::Display;

pub use percent_encoding::AsciiSet;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// What is encoded in a component of a path or a query: everything but letters, digits, `-`, `_`, `.` and `~`.
pub const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Encodes the bytes in `set`, and all that are not ASCII.
pub fn encode<'a>(text: &'a (impl AsRef<[u8]> + ?Sized), set: &'static AsciiSet) -> impl Display + 'a {
    percent_encode(text.as_ref(), set)
}

/// Decodes text.
///
/// # Errors
///
/// If a percent sign is not followed by two hexadecimal digits, or the result is not UTF-8.
pub fn decode(text: &str) -> Result<String, &'static str> {
    String::from_utf8(decode_bytes(text)?).map_err(|_| "it must be UTF-8")
}

/// Decodes any bytes.
///
/// # Errors
///
/// If a percent sign is not followed by two hexadecimal digits.
pub fn decode_bytes(text: &str) -> Result<Vec<u8>, &'static str> {
    let is_encoded = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_encoded) {
        return Err("a percent sign must be followed by two hexadecimal digits; write %25 for the sign itself");
    }
    Ok(percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_a_lone_percent_sign_is_refused() {
        let text = "case 42/\u{e4}%:~a-b_c.d";
        assert_eq!(encode(text, COMPONENT).to_string(), "case%2042%2F%C3%A4%25%3A~a-b_c.d");
        assert_eq!(decode(&encode(text, COMPONENT).to_string()).as_deref(), Ok(text));
        assert_eq!(decode_bytes("%ff%00"), Ok(vec![0xff, 0]));
        assert!(decode("%ff").is_err());
        for lone in ["%", "a%4", "%%41", "%4g", "100%"] {
            assert!(decode_bytes(lone).is_err(), "{lone}");
        }
    }
}
