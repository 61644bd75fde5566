//! Which bytes of a fetched range have been read.

use crate::ByteRange;

/// The parts of a fetched range that have been read, with a resolution of 1/256 of it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ReadBitmap([u64; 4]);

impl ReadBitmap {
    const GRAINS: u64 = 256;

    fn grain(len: u64) -> u64 {
        len.div_ceil(Self::GRAINS).max(1)
    }

    /// Marks `part`, counted from the start of a range of `len` bytes, as read.
    pub(crate) fn mark(&mut self, part: ByteRange, len: u64) {
        let grain = Self::grain(len);
        let (first, last) = (part.offset / grain, part.end().div_ceil(grain));
        for (word, base) in self.0.iter_mut().zip((0..).step_by(64)) {
            let from = first.clamp(base, base + 64) - base;
            let to = last.clamp(base, base + 64) - base;
            *word |= low_bits(to) & !low_bits(from);
        }
    }

    /// Returns the bytes marked, of a range of `len`.
    pub(crate) fn bytes(&self, len: u64) -> u64 {
        let grains: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        (u64::from(grains) * Self::grain(len)).min(len)
    }
}

fn low_bits(count: u64) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_byte_read_is_counted_once(len in 1u64..3000, reads in prop::collection::vec((0u64..3000, 1u64..600), 0..20)) {
            let mut read_bitmap = ReadBitmap::default();
            let mut model = vec![false; len as usize];
            let grain = ReadBitmap::grain(len);
            for (offset, count) in reads {
                let part = ByteRange::between(offset.min(len), (offset + count).min(len));
                if part.is_empty() { continue }
                read_bitmap.mark(part, len);
                let whole = part.aligned_to(grain);
                (whole.offset..whole.end().min(len)).for_each(|i| model[i as usize] = true);
            }
            let expected = model.iter().filter(|read| **read).count() as u64;
            prop_assert!(read_bitmap.bytes(len).abs_diff(expected) < grain);
        }
    }
}
