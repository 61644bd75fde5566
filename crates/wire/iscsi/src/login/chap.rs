//! CHAP (RFC 1994, as used by RFC 7143, 12.1.3): the initiator proves its knowledge of the secret.

use md5::{Digest, Md5};

use crate::pdu::Violation;

/// The algorithm's number: MD5.
pub const MD5: &str = "5";

/// The longest challenge or response allowed, in bytes (RFC 7143, 12.1.3).
const BINARY_LEN_MAX: usize = 1024;

/// Computes the response to a challenge: the value of `CHAP_R`.
pub fn response(id: u8, secret: &[u8], challenge: &[u8]) -> String {
    let mut hash = Md5::new();
    hash.update([id]);
    hash.update(secret);
    hash.update(challenge);
    let digits = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("0x{digits}")
}

/// Decodes a binary value: hexadecimal after `0x`, base64 after `0b` (RFC 7143, 6.1).
///
/// # Errors
///
/// If it is neither, empty, or longer than 1024 bytes.
pub fn binary(text: &str) -> Result<Vec<u8>, Violation> {
    let bytes = match text.get(..2) {
        Some("0x" | "0X") => hexadecimal(&text[2..]),
        Some("0b" | "0B") => base64(&text[2..]),
        _ => None,
    };
    let bytes = bytes.filter(|bytes| (1..=BINARY_LEN_MAX).contains(&bytes.len()));
    bytes.ok_or(Violation::new("a CHAP challenge that is not a binary value of 1 to 1024 bytes"))
}

/// With an odd number of digits, the first is a byte of its own.
fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    if digits.len() > 2 * BINARY_LEN_MAX {
        return None;
    }
    let values = digits.bytes().map(|digit| char::from(digit).to_digit(16)).collect::<Option<Vec<u32>>>()?;
    let odd = values.len() % 2;
    let pairs = values[odd..].chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]);
    values[..odd].iter().copied().chain(pairs).map(|value| u8::try_from(value).ok()).collect()
}

fn base64(text: &str) -> Option<Vec<u8>> {
    if text.len() > 2 * BINARY_LEN_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            // The next eight bits; higher ones were consumed before.
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_response_is_md5_of_id_secret_and_challenge() {
        // md5sum of the bytes 01, "secret", 00 01 02.
        assert_eq!(response(1, b"secret", &[0, 1, 2]), "0xc4081e0c9f89346155ddb08f0bf91611");
    }

    #[test]
    fn binary_values_come_in_two_notations() {
        assert_eq!(binary("0x0aFF"), Ok(vec![0x0A, 0xFF]));
        assert_eq!(binary("0xaff"), Ok(vec![0x0A, 0xFF]));
        assert_eq!(binary("0bTWFu"), Ok(b"Man".to_vec()));
        assert_eq!(binary("0bTQ=="), Ok(b"M".to_vec()));
        for bad in ["", "0x", "0xg0", "12", "0b", "0bT!", "0é"] {
            assert!(binary(bad).is_err(), "{bad}");
        }
        assert!(binary(&format!("0x{}", "00".repeat(1025))).is_err());
    }

    proptest! {
        #[test]
        fn hexadecimal_is_read_back(bytes in prop::collection::vec(any::<u8>(), 1..50)) {
            let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            prop_assert_eq!(binary(&format!("0x{text}")), Ok(bytes));
        }

        #[test]
        fn anything_is_a_value_or_a_violation(text in ".{0,40}", letters in "0[bBxX][A-Za-z0-9+/=]{0,40}") {
            let _ = (binary(&text), binary(&letters));
        }
    }
}
