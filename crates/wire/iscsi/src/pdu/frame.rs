//! Framing of PDUs: padding and digests (RFC 7143, 11.1 and 11.2.3).

use bytes::{Buf, BufMut, Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, Digest};

use super::{HEADER_LEN, Header, Violation};

/// The parts of a PDU followed by a CRC32C.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Digests {
    /// After the header segments.
    pub header: bool,
    /// After a data segment that is not empty.
    pub data: bool,
}

/// The length of a digest, in bytes.
pub const DIGEST_LEN: usize = 4;

/// The padding that brings `len` to a multiple of four.
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// The CRC32C of the concatenated parts, in wire order.
pub fn digest(parts: &[&[u8]]) -> [u8; DIGEST_LEN] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().filter(|part| !part.is_empty()).for_each(|part| digest.update(part));
    // A 32-bit CRC fits. The lowest byte is sent first (RFC 7143, 13.1 maps its bits to those of SCSI's polynomials).
    (digest.finalize() as u32).to_le_bytes()
}

/// Appends a PDU, and sets the length in its header.
pub fn put(out: &mut BytesMut, mut header: Header, data: &[u8], digests: Digests) {
    // The initiator's PDUs are short; a test's target sends up to 256 KiB.
    header.set_data_len(data.len() as u32);
    out.put_slice(&header.0);
    if digests.header {
        out.put_slice(&digest(&[&header.0]));
    }
    let start = out.len();
    out.put_slice(data);
    out.put_bytes(0, padding(data.len()));
    if digests.data && !data.is_empty() {
        let digest = digest(&[&out[start..]]);
        out.put_slice(&digest);
    }
}

/// Consumes the next PDU's header, additional header segments and header digest from `input`. `None` if incomplete.
///
/// # Errors
///
/// If its digest does not match.
pub fn take_header(input: &mut BytesMut, digests: Digests) -> Result<Option<Header>, Violation> {
    let Some(header) = input.first_chunk::<HEADER_LEN>().copied().map(Header) else { return Ok(None) };
    let head_len = HEADER_LEN + header.ahs_len();
    let digest_len = if digests.header { DIGEST_LEN } else { 0 };
    if input.len() < head_len + digest_len {
        return Ok(None);
    }
    if digests.header && digest(&[&input[..head_len]]) != input[head_len..head_len + DIGEST_LEN] {
        return Err(Violation::new("a header whose digest does not match"));
    }
    input.advance(head_len + digest_len);
    Ok(Some(header))
}

/// Consumes a data segment's padding and digest from `input`, and checks the digest. `None` if incomplete.
///
/// # Errors
///
/// If the digest does not match.
pub fn take_trailer(input: &mut BytesMut, data: &[u8], digests: Digests) -> Result<Option<()>, Violation> {
    let padding = padding(data.len());
    let digest_len = if digests.data && !data.is_empty() { DIGEST_LEN } else { 0 };
    if input.len() < padding + digest_len {
        return Ok(None);
    }
    if digest_len > 0 && digest(&[data, &input[..padding]]) != input[padding..padding + DIGEST_LEN] {
        return Err(Violation::new("a data segment whose digest does not match"));
    }
    input.advance(padding + digest_len);
    Ok(Some(()))
}

/// Consumes a whole PDU without digests from `input`. `None` if incomplete.
///
/// # Errors
///
/// If its data segment has more than `data_len_max` bytes.
pub fn take_plain(input: &mut BytesMut, data_len_max: usize) -> Result<Option<(Header, Bytes)>, Violation> {
    let Some(header) = input.first_chunk::<HEADER_LEN>().copied().map(Header) else { return Ok(None) };
    let len = header.data_len();
    if len > data_len_max {
        return Err(Violation::new(format!("a data segment of {len} bytes where at most {data_len_max} are allowed")));
    }
    let head_len = HEADER_LEN + header.ahs_len();
    if input.len() < head_len + len + padding(len) {
        return Ok(None);
    }
    input.advance(head_len);
    let data = input.split_to(len).freeze();
    input.advance(padding(len));
    Ok(Some((header, data)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pdu::Opcode;
    use proptest::prelude::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        // RFC 7143, appendix A.4: CRC32C of 32 bytes of zeros, of ones, and counting up.
        assert_eq!(digest(&[&[0; 32]]), [0xAA, 0x36, 0x91, 0x8A]);
        assert_eq!(digest(&[&[0xFF; 16], &[0xFF; 16]]), [0x43, 0xAB, 0xA8, 0x62]);
        let up: Vec<u8> = (0..32).collect();
        assert_eq!(digest(&[&up]), [0x4E, 0x79, 0xDD, 0x46]);
    }

    proptest! {
        #[test]
        fn what_is_put_is_taken(data in prop::collection::vec(any::<u8>(), 0..50), header: bool, body: bool, flip in any::<usize>()) {
            let digests = Digests { header, data: body };
            let mut wire = BytesMut::new();
            put(&mut wire, Header::new(Opcode::DataIn), &data, digests);
            let mut input = wire.clone();
            let head = take_header(&mut input, digests).unwrap().unwrap();
            prop_assert_eq!(head.data_len(), data.len());
            let segment = input.split_to(data.len());
            prop_assert_eq!(&segment[..], &data[..]);
            prop_assert_eq!(take_trailer(&mut input, &segment, digests), Ok(Some(())));
            prop_assert!(input.is_empty());
            // With both digests any flipped bit is detected.
            if header && body {
                let mut input = wire.clone();
                let bit = flip % (input.len() * 8);
                input[bit / 8] ^= 1 << (bit % 8);
                let noticed = match take_header(&mut input, digests) {
                    Ok(None) | Err(_) => true,
                    Ok(Some(head)) => {
                        let segment = input.split_to(head.data_len().min(input.len()));
                        take_trailer(&mut input, &segment, digests) != Ok(Some(()))
                    }
                };
                prop_assert!(noticed);
            }
        }

        #[test]
        fn a_part_of_a_pdu_waits_for_the_rest(data in prop::collection::vec(any::<u8>(), 0..50), cut in any::<usize>()) {
            let mut wire = BytesMut::new();
            put(&mut wire, Header::new(Opcode::TextResponse), &data, Digests::default());
            let mut part = BytesMut::from(&wire[..cut % wire.len()]);
            prop_assert_eq!(take_plain(&mut part, 50), Ok(None));
            let (_, taken) = take_plain(&mut wire, 50).unwrap().unwrap();
            prop_assert_eq!(&taken[..], &data[..]);
        }
    }
}
