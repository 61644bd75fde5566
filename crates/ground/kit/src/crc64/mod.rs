//! CRC-64/NVME, the digest of pages of memory and of files.
//!
//! The library has kernels for SSE and AVX-512. The kernel here is for processors between them: it folds four registers of
//! 32 bytes over the content with AVX2 and VPCLMULQDQ, as "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction" (Gopal et al., Intel, 2009) does with registers of 16 bytes, and the library computes the CRC of the 128
//! bytes that are left. It takes half the time on a page in the processor's cache.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "AVX2, which is twice as fast: loads, stores, and the call after detection")]
mod fold;

/// Returns the CRC-64/NVME (NVM Express NVM Command Set Specification, revision 1.0d, section 5.2.1.3.4) of `bytes`.
#[must_use]
pub fn crc64_nvme(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(folded) = fold::fold(bytes) {
        return folded;
    }
    crc_fast::crc64_nvme(bytes)
}

/// The bytes of a page of memory.
const PAGE_BYTES: usize = 4096;
/// CRC-64/NVME of a page of zeros.
const ZERO_PAGE: u64 = 0x6482_d367_eb22_b64e;

/// Returns the digest of a page of memory, 4096 bytes long: its CRC-64/NVME, XORed with that of a page of zeros, so that fresh
/// memory has the digest 0. The CRC detects every error burst of up to 64 bits, and misses other errors with probability
/// 2^-64. It protects against defective memory and software, not against forgery.
#[must_use]
pub fn page_digest(page: &[u8]) -> u64 {
    debug_assert_eq!(page.len(), PAGE_BYTES);
    crc64_nvme(page) ^ ZERO_PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_have_the_crc_of_the_library() {
        let bytes: Vec<u8> = (0..1_500_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for from in [0, 1, 7] {
            for to in from..bytes.len() {
                assert_eq!(crc64_nvme(&bytes[from..to]), crc_fast::crc64_nvme(&bytes[from..to]), "{from}..{to}");
            }
        }
    }

    #[test]
    fn the_check_value_of_the_catalogue_is_returned() {
        assert_eq!(crc64_nvme(b"123456789"), 0xae8b_1486_0a79_9888);
    }

    #[test]
    fn a_zero_page_has_digest_zero() {
        assert_eq!(page_digest(&[0; PAGE_BYTES]), 0, "CRC of a zero page: {:#x}", crc64_nvme(&[0; PAGE_BYTES]));
    }

    #[test]
    fn a_page_with_one_bit_changed_has_another_crc() {
        let mut page = vec![0; 4096];
        let before = crc64_nvme(&page);
        for bit in (0..8 * 4096).step_by(97) {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(crc64_nvme(&page), before, "{bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
