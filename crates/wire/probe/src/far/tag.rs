//! The payload of a train's packets: the token and the sequence number, in the format of probes ([`Session`]).

use crate::frame::{Session, TAG_BYTES};

use super::api::Token;

/// Bytes of an IPv4 header without options, and of a UDP header.
const HEADERS_V4_BYTES: usize = 20 + 8;
/// The same with IPv6.
const HEADERS_V6_BYTES: usize = 40 + 8;
/// The smallest packet with room for the tag, with either.
pub const IP_BYTES_MIN: u32 = (HEADERS_V6_BYTES + TAG_BYTES) as u32;

/// Returns the payload of packet `seq`, so that the packet has `ip_bytes` in all; at least the tag.
#[must_use]
pub fn payload(token: Token, seq: u32, ip_bytes: u32, v4: bool) -> Vec<u8> {
    let len = (ip_bytes as usize).saturating_sub(headers_bytes(v4));
    session(token).payload(seq, len.max(TAG_BYTES))
}

/// Returns the sequence number of a payload, if it is of the train `token`.
#[must_use]
pub fn seq_of(token: Token, payload: &[u8]) -> Option<u32> {
    session(token).sequence(payload)
}

/// Returns the size of the packet that carried `payload_bytes`, IP header included.
#[must_use]
pub fn ip_bytes(payload_bytes: usize, v4: bool) -> u32 {
    u32::try_from(payload_bytes.saturating_add(headers_bytes(v4))).unwrap_or(u32::MAX)
}

/// The ports are not used here.
const fn session(token: Token) -> Session {
    Session { nonce: token.0, local_port: 0, port: 0 }
}

const fn headers_bytes(v4: bool) -> usize {
    if v4 { HEADERS_V4_BYTES } else { HEADERS_V6_BYTES }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_tagged_payload_yields_its_sequence_number(token: u64, seq in 0u32..1000, bytes in IP_BYTES_MIN..9000, v4: bool) {
            let payload = payload(Token(token), seq, bytes, v4);
            prop_assert_eq!(ip_bytes(payload.len(), v4), bytes);
            prop_assert_eq!(seq_of(Token(token), &payload), Some(seq));
            prop_assert_eq!(seq_of(Token(!token), &payload), None);
            prop_assert_eq!(seq_of(Token(token), &payload[..TAG_BYTES - 1]), None);
        }

        #[test]
        fn packets_without_the_token_are_rejected(token: u64, bytes: Vec<u8>) {
            if let Some(seq) = seq_of(Token(token), &bytes) {
                prop_assert_eq!(&payload(Token(token), seq, 0, true)[..], &bytes[..TAG_BYTES]);
            }
        }
    }
}
