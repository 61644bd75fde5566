//! Little-endian numbers in bytes that may be shorter than they should be.

/// The two bytes at `at`; 0 where there are none.
pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    array(bytes, at).map_or(0, u16::from_le_bytes)
}

/// The four bytes at `at`; 0 where there are none.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    array(bytes, at).map_or(0, u32::from_le_bytes)
}

/// The eight bytes at `at`; 0 where there are none.
pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    array(bytes, at).map_or(0, u64::from_le_bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
