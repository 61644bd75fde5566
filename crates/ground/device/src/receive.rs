//! Receiving replies so that large payloads are not copied: shared by the clients of NBD and iSCSI. No I/O.
//!
//! The parser of a protocol names the [`Target`] of the next bytes, and parses the bytes that arrive in its input. A
//! large payload is received straight into the memory handed up, with some room behind it for the next header.

use bytes::BytesMut;

/// Payloads from this size on are received straight into their own buffer; smaller ones are cheaper to copy.
pub const DIRECT_LEN_MIN: usize = 16 << 10;
/// Room behind such a payload, so that the same system call receives the next header.
pub const SURPLUS_LEN: usize = 256;
/// The most received at once while large payloads are expected: enough for a header, so that little is copied.
pub const HEAD_LEN: usize = 4 << 10;
/// The most received at once otherwise: many small replies.
pub const INPUT_LEN: usize = 256 << 10;

/// Where the next bytes are to be received.
pub enum Target<'a> {
    /// Into the parser's input, up to this many bytes.
    Input(usize),
    /// Into this buffer of a payload, up to this many bytes; the parser must then be told their number.
    Payload(&'a mut BytesMut, usize),
}

impl Target<'_> {
    /// Receives from memory, for tests without a socket: moves up to `len_max` bytes from `wire` to the target. Returns
    /// the number of bytes that went into a payload's buffer, or `None` if they went into `input`.
    pub fn receive_from(self, wire: &mut &[u8], len_max: usize, input: &mut BytesMut) -> Option<usize> {
        let (buffer, room, direct) = match self {
            Target::Input(room) => (input, room, false),
            Target::Payload(buffer, room) => (buffer, room, true),
        };
        let (received, rest) = wire.split_at(room.min(len_max).min(wire.len()));
        buffer.extend_from_slice(received);
        *wire = rest;
        direct.then_some(received.len())
    }
}

/// Accounts for `len` bytes received into the buffer of a payload that lacked `missing` bytes: moves those behind the
/// payload to `input`. Returns the number of bytes still missing.
pub fn split_surplus(buffer: &mut BytesMut, missing: usize, len: usize, input: &mut BytesMut) -> usize {
    let surplus = len.saturating_sub(missing);
    let end = buffer.len() - surplus;
    input.extend_from_slice(&buffer[end..]);
    buffer.truncate(end);
    missing - (len - surplus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_a_payload_move_to_the_input() {
        let (mut buffer, mut input) = (BytesMut::from(&b"payload, header"[..]), BytesMut::from(&b"<"[..]));
        assert_eq!(split_surplus(&mut buffer, 5, 13, &mut input), 0);
        assert_eq!((&buffer[..], &input[..]), (&b"payload"[..], &b"<, header"[..]));
        assert_eq!(split_surplus(&mut buffer, 9, 2, &mut input), 7);
        assert_eq!((buffer.len(), input.len()), (7, 9));
    }
}
