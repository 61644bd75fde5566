//! The checksum at the end of headers and tables.

/// Whether `bytes` end with the Adler-32 of the preceding bytes.
pub(super) fn is_sealed(bytes: &[u8]) -> bool {
    let Some((before, sum)) = bytes.split_last_chunk() else { return false };
    libdeflater::adler32(before) == u32::from_le_bytes(*sum)
}
