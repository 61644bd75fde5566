//! Predicting how far content can be packed, from small samples of it. No I/O.

/// Bytes of each sample.
const SAMPLE_LEN: usize = 4 << 10;
/// Content whose ratio is above this is not worth packing.
const HOPELESS: f64 = 0.97;

/// The prediction from a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// LZ4's ratio, at most 1: detects repetition.
    pub lz4: f64,
    /// The ratio of an ideal order-0 code, at most 1: detects content that only Zstandard shrinks, such as Base64.
    pub entropy: f64,
}

impl Sample {
    /// Samples two places, a quarter from either end.
    pub fn of(content: &[u8]) -> Self {
        let parts = if content.len() <= 2 * SAMPLE_LEN {
            [content, &[]]
        } else {
            let at = content.len() / 4;
            let last = content.len() - at - SAMPLE_LEN;
            [&content[at..at + SAMPLE_LEN], &content[last..last + SAMPLE_LEN]]
        };
        let mut scratch = [0; lz4_flex::block::get_maximum_output_size(2 * SAMPLE_LEN)];
        let (mut packed, mut counts) = (0, [0u32; 256]);
        for part in parts {
            packed += lz4_flex::block::compress_into(part, &mut scratch).unwrap_or(part.len());
            part.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        }
        let len = (parts[0].len() + parts[1].len()).max(1) as f64;
        Self { lz4: (packed as f64 / len).min(1.0), entropy: entropy(&counts, len) }
    }

    /// Whether packing is pointless.
    pub fn is_hopeless(&self) -> bool {
        self.lz4.min(self.entropy) >= HOPELESS
    }
}

/// The order-0 entropy of a byte, as a fraction of eight bits.
fn entropy(counts: &[u32; 256], len: f64) -> f64 {
    let bits: f64 = counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| {
            let count = f64::from(*count);
            count * (len / count).log2()
        })
        .sum();
    (bits / len / 8.0).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u64;
        (0..len)
            .map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x9e37_79b9);
                (state >> 56) as u8
            })
            .collect()
    }

    #[test]
    fn a_sample_of_noise_is_incompressible_and_one_of_text_is_not() {
        assert!(Sample::of(&noise(1 << 20)).is_hopeless());
        assert!(Sample::of(&noise(3000)).lz4 >= HOPELESS);
        let text = b"the quick brown fox jumps over the lazy dog; ".repeat(20_000);
        let sample = Sample::of(&text);
        assert!(sample.lz4 < 0.1 && sample.entropy < 0.7, "{sample:?}");
        let base64: Vec<u8> = noise(1 << 16).into_iter().map(|byte| b'A' + byte % 64).collect();
        let sample = Sample::of(&base64);
        assert!(sample.lz4 > 0.95 && sample.entropy < 0.8 && !sample.is_hopeless(), "{sample:?}");
        assert_eq!(Sample::of(&[]).entropy, 0.0);
    }
}
