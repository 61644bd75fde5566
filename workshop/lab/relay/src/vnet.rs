//! The header that the kernel puts before each frame, which describes the remaining segmentation.

use crate::line::Frame;

/// Bytes of `struct virtio_net_hdr`.
pub const HEADER_BYTES: usize = 10;

/// Parses a frame received from the socket; `None` if it is too short.
pub fn frame(read: &[u8]) -> Option<Frame> {
    let (header, payload) = read.split_at_checked(HEADER_BYTES)?;
    let gso_type = header[1] & 0x7f;
    let headers_bytes = u64::from(u16::from_le_bytes([header[2], header[3]]));
    let segment_bytes = u64::from(u16::from_le_bytes([header[4], header[5]]));
    let frame_bytes = payload.len() as u64;
    let mut packets = 1;
    if gso_type != 0 && segment_bytes > 0 && frame_bytes > headers_bytes {
        packets = (frame_bytes - headers_bytes).div_ceil(segment_bytes);
    }
    Some(Frame { bytes: read.into(), wire_bytes: frame_bytes + (packets - 1) * headers_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_super_frame_is_charged_for_every_header() {
        let mut read = vec![0; HEADER_BYTES + 66 + 2 * 1448];
        read[1] = 1;
        read[2..4].copy_from_slice(&66u16.to_le_bytes());
        read[4..6].copy_from_slice(&1448u16.to_le_bytes());
        let frame = frame(&read).unwrap();
        assert_eq!(frame.wire_bytes, 2 * (66 + 1448));
    }

    #[test]
    fn a_plain_frame_is_charged_as_it_is() {
        let frame = frame(&[0; HEADER_BYTES + 60]).unwrap();
        assert_eq!(frame.wire_bytes, 60);
    }

    #[test]
    fn input_shorter_than_a_header_is_not_a_frame() {
        assert!(frame(&[0; HEADER_BYTES - 1]).is_none());
    }
}
