//! Little-endian numbers in bytes that may be shorter than they should be.

/// The two bytes at `at`; 0 if `bytes` is too short.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    array(bytes, at).map_or(0, u16::from_le_bytes)
}

/// The four bytes at `at`; 0 if `bytes` is too short.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    array(bytes, at).map_or(0, u32::from_le_bytes)
}

/// The eight bytes at `at`; 0 if `bytes` is too short.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    array(bytes, at).map_or(0, u64::from_le_bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_the_end_are_0() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(
            (u16_at(&bytes, 1), u32_at(&bytes, 0), u64_at(&bytes, 1)),
            (0x0302, 0x0403_0201, 0x0908_0706_0504_0302)
        );
        assert_eq!((u16_at(&bytes, 8), u32_at(&bytes, 6), u64_at(&bytes, 2), u16_at(&bytes, usize::MAX)), (0, 0, 0, 0));
    }
}
