//! The `key=value` texts of login and text PDUs (RFC 7143, 6.1).

use bytes::{BufMut, BytesMut};

use super::Violation;

/// The maximum length of a text from a target, in bytes, over all its PDUs.
pub const TEXT_LEN_MAX: usize = 64 << 10;

/// The maximum number of pairs in a text.
const PAIRS_MAX: usize = 1024;

/// Appends one pair.
pub fn put(out: &mut BytesMut, key: &str, value: &str) {
    out.put_slice(key.as_bytes());
    out.put_u8(b'=');
    out.put_slice(value.as_bytes());
    out.put_u8(0);
}

/// Parses a text.
///
/// # Errors
///
/// If it is not UTF-8, has a pair without `=` or without a key, or too many of them.
pub fn parse(text: &[u8]) -> Result<Vec<(&str, &str)>, Violation> {
    let text = std::str::from_utf8(text).map_err(|_| Violation::new("a text that is not UTF-8"))?;
    let mut pairs = Vec::new();
    for pair in text.split('\0').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() && pairs.len() < PAIRS_MAX => pairs.push((key, value)),
            Some(("", _)) | None => return Err(Violation::new("a text that is not made of key=value pairs")),
            Some(_) => return Err(Violation::new(format!("a text of more than {PAIRS_MAX} pairs"))),
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_is_parsed(pairs in prop::collection::vec(("[A-Za-z]{1,9}", "[^\0]{0,9}"), 0..9)) {
            let mut out = BytesMut::new();
            pairs.iter().for_each(|(key, value)| put(&mut out, key, value));
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            prop_assert_eq!(parse(&out), Ok(pairs));
        }

        #[test]
        fn anything_is_pairs_or_a_violation(text in prop::collection::vec(any::<u8>(), 0..99)) {
            let _ = parse(&text);
        }
    }
}
