//! Little-endian numbers.

/// The 16-bit number at `at`, which must lie within `bytes`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes[at..].first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

/// The 32-bit number at `at`, which must lie within `bytes`.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The 64-bit number at `at`, which must lie within `bytes`.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Whether `bytes` end with the Adler-32 of the preceding bytes.
pub(super) fn sealed(bytes: &[u8]) -> bool {
    let Some((before, sum)) = bytes.split_last_chunk() else { return false };
    libdeflater::adler32(before) == u32::from_le_bytes(*sum)
}
