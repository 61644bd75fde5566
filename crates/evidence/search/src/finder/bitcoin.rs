//! Bitcoin addresses.

use sha2::{Digest as _, Sha256};

use crate::expression::{Candidate, Class, Lead, Sign};

/// An address in Base58, or one of segregated witness in Bech32.
pub const ADDRESS: &str = r"[13][1-9A-HJ-NP-Za-km-z]{25,34}|bc1[02-9ac-hj-np-z]{11,71}";

/// Where one is looked for: the shortest one in Base58 has 26 characters, and the shortest one in Bech32 11 behind `bc1`.
pub static LEAD: Lead = Lead {
    sign: Sign::RunOrText {
        class: Class::of("1-9A-HJ-NP-Za-km-z"),
        len: 26,
        text: "bc1",
        then: Class::of("02-9ac-hj-np-z"),
        then_len: 11,
    },
    not_after: Class::of("A-Za-z0-9"),
    first: Class::of("13b"),
};

/// The digits of Base58.
const BASE58: &[u8] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// A version, 20 bytes of a hash, and 4 of the checksum.
const ADDRESS_BYTES: usize = 25;

/// An address.
pub fn address(candidate: &Candidate<'_>) -> Option<usize> {
    let text = candidate.text;
    if candidate.continues_a_word() || candidate.after.is_some_and(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let is_right = match text.starts_with(b"bc1") {
        true => {
            let decoded = std::str::from_utf8(text).ok().and_then(|text| bech32::segwit::decode(text).ok());
            decoded.is_some_and(|(part, ..)| part.as_str() == "bc")
        }
        false => base58(text).is_some_and(|bytes| has_checksum(&bytes)),
    };
    is_right.then_some(text.len())
}

/// The bytes of an address in Base58; `None` if it has others than an address has.
fn base58(text: &[u8]) -> Option<[u8; ADDRESS_BYTES]> {
    let mut bytes = [0; ADDRESS_BYTES];
    for digit in text {
        let mut carry = u32::try_from(BASE58.iter().position(|other| other == digit)?).ok()?;
        for byte in bytes.iter_mut().rev() {
            carry += u32::from(*byte) * 58;
            *byte = carry.to_le_bytes()[0];
            carry >>= 8;
        }
        if carry > 0 {
            return None;
        }
    }
    // Each zero byte at the start is a digit of its own.
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    (zeros == text.iter().take_while(|digit| **digit == b'1').count()).then_some(bytes)
}

fn has_checksum(bytes: &[u8; ADDRESS_BYTES]) -> bool {
    let (content, checksum) = bytes.split_at(ADDRESS_BYTES - 4);
    let hash = Sha256::digest(Sha256::digest(content));
    matches!(content.first(), Some(0 | 5)) && hash.starts_with(checksum)
}
