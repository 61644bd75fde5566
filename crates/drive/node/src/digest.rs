//! The digest of a page: its CRC-64/NVME, XORed with that of a page of zeros.
//!
//! So the digest of a zero page is 0, and fresh memory has valid digests. The CRC detects every error burst of up to 64 bits,
//! and misses other errors with probability 2^-64. It protects against defective memory and software, not against forgery.
//!
//! It is computed from a buffer before the bytes are stored, or, where they are received in place, at once after that, while
//! they are in the processor's cache: defective memory changes them only later.

use cheetah_kit::crc64_nvme;

use crate::arena::PAGE_BYTES;

/// CRC-64/NVME of [`PAGE_BYTES`] zeros.
const ZERO_PAGE: u64 = 0x6482_d367_eb22_b64e;

/// The digest of one page, [`PAGE_BYTES`] long.
pub(crate) fn digest(page: &[u8]) -> u64 {
    debug_assert_eq!(page.len(), PAGE_BYTES);
    crc64_nvme(page) ^ ZERO_PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_page_has_digest_zero() {
        assert_eq!(digest(&[0; PAGE_BYTES]), 0, "CRC of a zero page: {:#x}", crc64_nvme(&[0; PAGE_BYTES]));
    }
}
