//! Messages of unprivileged sockets: ICMP messages without the IP header, of which the kernel sets the identifier and
//! the checksum, and the data of UDP datagrams, which are [`Session::payload`].

use super::{SEQ_MAX, Session, TAG_BYTES};

const HEADER_BYTES: usize = 8;

/// Returns an echo request for a datagram ICMP socket, of `bytes` bytes with its header, or the minimum if that is
/// more.
#[must_use]
pub fn echo_request(ipv4: bool, session: &Session, seq: u32, bytes: usize) -> Vec<u8> {
    let kind = if ipv4 { 8 } else { 128 };
    let [.., seq1, seq0] = (seq & SEQ_MAX).to_be_bytes();
    let [id1, id0] = session.id().to_be_bytes();
    let mut message = vec![kind, 0, 0, 0, id1, id0, seq1, seq0];
    message.extend(session.payload(seq, bytes.max(HEADER_BYTES + TAG_BYTES) - HEADER_BYTES));
    message
}

/// Returns the sequence number of the request that a message echoes.
#[must_use]
pub fn echo_reply(ipv4: bool, session: &Session, message: &[u8]) -> Option<u32> {
    sequence(if ipv4 { 0 } else { 129 }, session, message)
}

/// Returns the sequence number of the request that a datagram ICMP socket's error queue quotes.
#[must_use]
pub fn quoted_request(ipv4: bool, session: &Session, message: &[u8]) -> Option<u32> {
    sequence(if ipv4 { 8 } else { 128 }, session, message)
}

/// Ignores the identifier, which the kernel sets and checks.
fn sequence(kind: u8, session: &Session, message: &[u8]) -> Option<u32> {
    let ([found_kind, code, _, _, _, _, seq1, seq0], data) = message.split_first_chunk::<HEADER_BYTES>()?;
    let seq = session.sequence(data)?;
    let right = (*found_kind, *code) == (kind, 0) && u32::from(u16::from_be_bytes([*seq1, *seq0])) == seq;
    right.then_some(seq)
}
