//! Percent encoding in URIs (RFC 3986, section 2.1).

use std::fmt;

/// Decodes percent encoding of text.
///
/// # Errors
///
/// If a percent sign is not followed by two hexadecimal digits, or the result is not UTF-8.
pub fn decode(text: &str) -> Result<String, &'static str> {
    String::from_utf8(decode_bytes(text)?).map_err(|_| "it must be UTF-8")
}

/// Decodes percent encoding of any bytes.
///
/// # Errors
///
/// If a percent sign is not followed by two hexadecimal digits.
pub fn decode_bytes(text: &str) -> Result<Vec<u8>, &'static str> {
    const BAD: &str = "a percent sign must be followed by two hexadecimal digits; write %25 for the sign itself";
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or(BAD);
        let value = digit()? * 16 + digit()?;
        out.push(u8::try_from(value).map_err(|_| BAD)?);
    }
    Ok(out)
}

/// Percent-encodes everything except letters, digits, `-`, `_`, `.`, `~` and the bytes in `plain`.
pub fn encode(text: &(impl AsRef<[u8]> + ?Sized), plain: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for &byte in text.as_ref() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => write!(f, "{}", char::from(byte))?,
            byte if plain.contains(&byte) => write!(f, "{}", char::from(byte))?,
            other => write!(f, "%{other:02X}")?,
        }
    }
    Ok(())
}
