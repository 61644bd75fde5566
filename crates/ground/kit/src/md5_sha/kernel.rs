//! The steps of the three hashes in turns, for x86-64 with the SHA extensions.
//!
//! A block has 64 steps of MD5, 80 of SHA-1 and 64 of SHA-256. An instruction makes four of SHA-1 or two of SHA-256. So there are 16 turns,
//! of four steps of MD5, four of SHA-256, and four or eight of SHA-1. The processor looks about 250 instructions ahead: four turns.

use std::arch::asm;
use std::arch::x86_64::*;
use std::array::from_fn;

use crate::blocks::BLOCK_BYTES;
use crate::md5;

/// The state of SHA-1 before the first block (FIPS 180-4, section 5.3.1).
const SHA1_BEGINNING: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
/// The state of SHA-256 before the first block (section 5.3.3).
const SHA256_BEGINNING: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
/// What each step of SHA-256 adds, by fours (section 4.2.2). The instructions of SHA-1 have its own in them.
const SHA256_CONSTANTS: [[u32; 4]; 16] = [
    [0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5],
    [0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5],
    [0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3],
    [0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174],
    [0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc],
    [0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da],
    [0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7],
    [0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967],
    [0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13],
    [0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85],
    [0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3],
    [0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070],
    [0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5],
    [0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3],
    [0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208],
    [0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2],
];

/// The states after the blocks so far. They exist only where the processor has the instructions.
#[derive(Debug, Clone)]
pub struct States {
    md5: [u32; 4],
    sha1: [u32; 5],
    sha256: [u32; 8],
}

impl States {
    /// Returns the states before the first block; `None` if this processor lacks the instructions.
    pub fn new() -> Option<Self> {
        let is_able =
            is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1") && is_x86_feature_detected!("ssse3");
        is_able.then_some(Self { md5: md5::BEGINNING, sha1: SHA1_BEGINNING, sha256: SHA256_BEGINNING })
    }

    /// Adds blocks.
    pub fn compress(&mut self, blocks: &[[u8; BLOCK_BYTES]]) {
        // SAFETY: this processor has the instructions, or `new` would have returned nothing.
        unsafe { compress(self, blocks) };
    }

    /// Returns the digest of MD5, if the last block was its last.
    pub fn md5(&self) -> [u8; 16] {
        md5::digest(self.md5)
    }

    /// Returns the digest of SHA-1, if the last block was its last.
    pub fn sha1(&self) -> [u8; 20] {
        digest(&self.sha1)
    }

    /// Returns the digest of SHA-256, if the last block was its last.
    pub fn sha256(&self) -> [u8; 32] {
        digest(&self.sha256)
    }
}

fn digest<const BYTES: usize>(words: &[u32]) -> [u8; BYTES] {
    let mut digest = [0; BYTES];
    for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
    digest
}

/// SHA-1 within a block: the words a to d with a on top, e on top of the next, and the last 16 words of the message.
#[derive(Clone, Copy)]
struct Sha1 {
    abcd: __m128i,
    e: __m128i,
    message: [__m128i; 4],
}

/// SHA-256 within a block: its words as the instructions want them, the first of each name on top, and the last 16 words of the message.
#[derive(Clone, Copy)]
struct Sha256 {
    abef: __m128i,
    cdgh: __m128i,
    message: [__m128i; 4],
}

/// All three within a block.
#[derive(Clone, Copy)]
struct Working {
    md5: [u32; 4],
    sha1: Sha1,
    sha256: Sha256,
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
fn compress(states: &mut States, blocks: &[[u8; BLOCK_BYTES]]) {
    let mut md5 = states.md5;
    let [a, b, c, d, e] = states.sha1;
    let (mut abcd, mut e) = (vector([d, c, b, a]), vector([0, 0, 0, e]));
    let (mut abef, mut cdgh) = {
        let [a, b, c, d, e, f, g, h] = states.sha256;
        (vector([f, e, b, a]), vector([h, g, d, c]))
    };
    let first_on_top = _mm_set_epi64x(0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
    let first_lowest = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    for block in blocks {
        let sha1 = Sha1 { abcd, e, message: message(block, first_on_top) };
        let sha256 = Sha256 { abef, cdgh, message: message(block, first_lowest) };
        let last = turns(Working { md5, sha1, sha256 }, &md5::words(block));
        md5 = md5::sum(md5, last.md5);
        e = _mm_sha1nexte_epu32(last.sha1.e, e);
        abcd = _mm_add_epi32(abcd, last.sha1.abcd);
        abef = _mm_add_epi32(abef, last.sha256.abef);
        cdgh = _mm_add_epi32(cdgh, last.sha256.cdgh);
    }
    let ([d, c, b, a], [.., e]) = (words(abcd), words(e));
    let sha1 = [a, b, c, d, e];
    let ([f, e, b, a], [h, g, d, c]) = (words(abef), words(cdgh));
    *states = States { md5, sha1, sha256: [a, b, c, d, e, f, g, h] };
}

/// Returns the working words after all steps of a block.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn turns(mut working: Working, words: &[u32; 16]) -> Working {
    // The number of a turn, which is that of its four steps of MD5 and SHA-256, and those of the fours of SHA-1.
    macro_rules! turn {
        ($turn:literal: $($four:literal)+) => {
            working.sha256 = sha256_four::<$turn>(working.sha256);
            $(working.sha1 = sha1_four::<$four, { $four / 5 }>(working.sha1);)+
            for step in 0..4 {
                working.md5 = md5::step::<{ $turn / 4 }>(working.md5, words, 4 * ($turn % 4) + step);
            }
            working = after_turn(working);
        };
    }
    turn!(0: 0);
    turn!(1: 1);
    turn!(2: 2);
    turn!(3: 3 4);
    turn!(4: 5);
    turn!(5: 6);
    turn!(6: 7);
    turn!(7: 8 9);
    turn!(8: 10);
    turn!(9: 11);
    turn!(10: 12);
    turn!(11: 13 14);
    turn!(12: 15);
    turn!(13: 16);
    turn!(14: 17);
    turn!(15: 18 19);
    working
}

/// Returns `working`, and keeps the compiler from making steps of this turn behind those of the next. It would make all of MD5 first, and
/// the processor could do less at once.
#[inline(always)]
fn after_turn(mut working: Working) -> Working {
    let Working { md5: [_, newest, ..], sha1: Sha1 { abcd, .. }, sha256: Sha256 { abef, .. } } = &mut working;
    // SAFETY: there is no instruction, only a comment that names the registers.
    unsafe {
        asm!(
            "/* {0:e} {1} {2} */",
            inout(reg) * newest,
            inout(xmm_reg) * abcd,
            inout(xmm_reg) * abef,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    working
}

/// Makes four steps of SHA-1, whose function is that of its round (FIPS 180-4, section 6.1.2).
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn sha1_four<const FOUR: usize, const ROUND: i32>(Sha1 { abcd, e, mut message }: Sha1) -> Sha1 {
    let [now, next, second, last] = from_fn(|i| (FOUR + i) % 4);
    if FOUR >= 4 {
        let sum = _mm_xor_si128(_mm_sha1msg1_epu32(message[now], message[next]), message[second]);
        message[now] = _mm_sha1msg2_epu32(sum, message[last]);
    }
    let sum = if FOUR == 0 { _mm_add_epi32(e, message[now]) } else { _mm_sha1nexte_epu32(e, message[now]) };
    Sha1 { abcd: _mm_sha1rnds4_epu32::<ROUND>(abcd, sum), e: abcd, message }
}

/// Makes four steps of SHA-256 (section 6.2.2).
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn sha256_four<const FOUR: usize>(Sha256 { abef, cdgh, mut message }: Sha256) -> Sha256 {
    let [now, next, second, last] = from_fn(|i| (FOUR + i) % 4);
    if FOUR >= 4 {
        let ninth = _mm_alignr_epi8::<4>(message[last], message[second]);
        let sum = _mm_add_epi32(_mm_sha256msg1_epu32(message[now], message[next]), ninth);
        message[now] = _mm_sha256msg2_epu32(sum, message[last]);
    }
    let sum = _mm_add_epi32(message[now], vector(SHA256_CONSTANTS[FOUR]));
    let cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
    // The steps use the lower half.
    let abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32::<0b_11_10>(sum));
    Sha256 { abef, cdgh, message }
}

/// Returns the words of a block, four to a register, with its bytes in an order in which the lowest byte of each word comes first.
#[target_feature(enable = "ssse3")]
#[inline]
fn message(block: &[u8; BLOCK_BYTES], order: __m128i) -> [__m128i; 4] {
    let (quarters, _) = block.as_chunks::<16>();
    // SAFETY: each chunk has the 16 bytes of a register, and the load needs no alignment.
    from_fn(|i| _mm_shuffle_epi8(unsafe { _mm_loadu_si128(quarters[i].as_ptr().cast()) }, order))
}

/// Returns a register of words, the first lowest.
#[target_feature(enable = "sse2")]
#[inline]
fn vector(words: [u32; 4]) -> __m128i {
    let [w0, w1, w2, w3] = words.map(u32::cast_signed);
    _mm_set_epi32(w3, w2, w1, w0)
}

/// Returns the words of a register, the lowest first.
#[target_feature(enable = "sse4.1")]
#[inline]
fn words(register: __m128i) -> [u32; 4] {
    [
        _mm_extract_epi32::<0>(register),
        _mm_extract_epi32::<1>(register),
        _mm_extract_epi32::<2>(register),
        _mm_extract_epi32::<3>(register),
    ]
    .map(i32::cast_unsigned)
}
