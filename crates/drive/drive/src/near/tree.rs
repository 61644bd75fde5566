//! The chaining values of the units of a text become its hash, as BLAKE3 merges the subtrees of its tree. Does no I/O.
//!
//! All units have one size, a power of two, but the last, which may be smaller; each value is that of its unit at its place of
//! the text (`blake3::hazmat`). The root of a text of one unit cannot be computed from its value.

use blake3::hazmat::{ChainingValue, HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};
use cheetah_device::Data;

/// The hash of a text, whose units are pushed in order.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// The values of complete subtrees, the largest first.
    subtrees: Vec<ChainingValue>,
    units: u64,
}

impl Tree {
    /// The hash of a text with these units; `None` of fewer than two.
    pub fn hash(values: impl IntoIterator<Item = ChainingValue>) -> Option<blake3::Hash> {
        let mut tree = Self::default();
        values.into_iter().for_each(|value| tree.push(value));
        tree.finish()
    }

    /// Adds the value of the next unit.
    pub fn push(&mut self, value: ChainingValue) {
        // Now that a unit follows them, none of these is the root.
        while self.subtrees.len() > self.units.count_ones() as usize {
            self.merge();
        }
        self.subtrees.push(value);
        self.units += 1;
    }

    /// The hash; `None` of fewer than two units.
    pub fn finish(mut self) -> Option<blake3::Hash> {
        while self.subtrees.len() > 2 {
            self.merge();
        }
        match self.subtrees[..] {
            [left, right] => Some(merge_subtrees_root(&left, &right, Mode::Hash)),
            _ => None,
        }
    }

    fn merge(&mut self) {
        if let (Some(right), Some(left)) = (self.subtrees.pop(), self.subtrees.pop()) {
            self.subtrees.push(merge_subtrees_non_root(&left, &right, Mode::Hash));
        }
    }
}

/// The chaining value of a unit at `offset` of its text, a multiple of the unit's size.
pub(crate) fn value(offset: u64, unit: &Data) -> ChainingValue {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset);
    unit.runs().for_each(|run| {
        hasher.update(run);
    });
    hasher.finalize_non_root()
}

#[cfg(test)]
mod tests {
    use cheetah_device::ByteRange;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_units_of_a_text_give_its_hash(len in 1u64..300_000, unit_bits in 12u32..18) {
            let text: Vec<u8> = (0..len).map(|at| (at % 253) as u8).collect();
            let text = Data::from(text);
            let units = ByteRange::new(0, len).split_at_multiples(1 << unit_bits);
            let values = units.map(|unit| value(unit.offset, &text.slice(unit.offset, unit.len)));
            let expected = (len > 1 << unit_bits).then(|| blake3::hash(&text.clone().into_bytes()));
            prop_assert_eq!(Tree::hash(values), expected);
        }
    }
}
