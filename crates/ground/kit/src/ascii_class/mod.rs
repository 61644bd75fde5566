//! Sets of ASCII characters, and where bytes of a set stand, 64 at a time.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "AVX2, which looks at 32 bytes at once: loads, and the call after detection")]
mod wide;

/// The bytes whose places one mask has.
pub const BLOCK_BYTES: usize = 64;

type Block = [u8; BLOCK_BYTES];

/// A set of ASCII characters: for each byte, whether it is one of them.
pub struct Class([bool; 256]);

impl Class {
    /// The characters between the brackets of such a class of an expression: characters, ranges, and a `-` at the end.
    #[must_use]
    pub const fn of(class: &str) -> Self {
        let (bytes, mut has, mut at) = (class.as_bytes(), [false; 256], 0);
        while at < bytes.len() {
            let is_range = at + 2 < bytes.len() && bytes[at + 1] == b'-';
            let (mut c, last) = (bytes[at], if is_range { bytes[at + 2] } else { bytes[at] });
            while c <= last {
                has[c as usize] = true;
                c += 1;
            }
            at += if is_range { 3 } else { 1 };
        }
        Self(has)
    }

    /// Whether it has the character that is this byte.
    #[must_use]
    pub const fn has(&self, byte: u8) -> bool {
        self.0[byte as usize]
    }

    fn mask(&self, block: &Block) -> u64 {
        block.iter().rev().fold(0, |mask, byte| mask << 1 | u64::from(self.has(*byte)))
    }
}

/// Whether this processor makes masks of many bytes at once: else it takes less time to look only at those bytes that decide.
#[must_use]
pub fn are_masks_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Calls `take` for each 64 bytes with where they begin, and with a mask for each class: bit *i* is set if byte *i* is of the class. The
/// last bytes are followed by NULs.
///
/// # Errors
///
/// The first error of `take`.
pub fn each_mask<const N: usize, E>(
    classes: [&Class; N],
    bytes: &[u8],
    mut take: impl FnMut(usize, [u64; N]) -> Result<(), E>,
) -> Result<(), E> {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
    let mut last = [0; BLOCK_BYTES];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    #[cfg(target_arch = "x86_64")]
    if let Some(taken) = wide::each_mask(classes, blocks, &last, &mut take) {
        return taken;
    }
    let all = blocks.iter().chain([&last]);
    all.enumerate().try_for_each(|(number, block)| take(number * BLOCK_BYTES, classes.map(|class| class.mask(block))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_masks_of_bytes_have_a_bit_for_each_byte_of_the_class() {
        static CLASSES: [Class; 5] = [
            Class::of("0-9 -"),
            Class::of("1-9A-HJ-NP-Za-km-z"),
            Class::of("\0"),
            Class::of("\0-\x7f"),
            Class::of("x"),
        ];
        let bytes: Vec<u8> = (0..2_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
        for len in [0, 1, 31, 32, 33, 63, 64, 65, 127, 1_999, 2_000] {
            let mut ends = Vec::new();
            let done: Result<(), ()> = each_mask(CLASSES.each_ref(), &bytes[..len], |at, masks| {
                for (class, mask) in CLASSES.iter().zip(masks) {
                    for bit in 0..BLOCK_BYTES {
                        let byte = bytes[..len].get(at + bit).copied().unwrap_or_default();
                        assert_eq!(mask >> bit & 1 == 1, class.has(byte), "{byte:#x} at {at} + {bit} of {len}");
                    }
                }
                ends.push(at + BLOCK_BYTES);
                Ok(())
            });
            assert!(done.is_ok());
            assert_eq!(ends, (1..=len / 64 + 1).map(|number| number * 64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_ends_the_masks() {
        let mut seen = 0;
        let ended = each_mask([&Class::of("a")], &[b'a'; 1_000], |at, _| {
            seen = at;
            if at < 128 { Ok(()) } else { Err(at) }
        });
        assert_eq!((ended, seen), (Err(128), 128));
    }
}
