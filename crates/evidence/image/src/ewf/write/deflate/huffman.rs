//! Huffman codes for one block (RFC 1951, section 3.2.2).

/// More than the depth of the deepest tree that the frequencies in one window can produce.
const DEPTHS: usize = 32;
/// Symbols in the largest alphabet.
const SYMBOLS_MAX: usize = 286;
/// The length of the longest code, in bits.
const BITS_MAX: usize = 15;

/// A code as it is written.
#[derive(Clone, Copy, Default)]
pub struct Code {
    /// Lowest first.
    pub bits: u32,
    /// The number of bits; 0 for a symbol that does not occur.
    pub count: u32,
}

/// Returns the code lengths of symbols with the frequencies `freqs` (each below 2^16), at most `bits_max`; 0 for a
/// symbol that does not occur. At least two symbols get a code, since decoders require a complete code.
pub fn lengths<const N: usize>(freqs: &[u32; N], bits_max: usize) -> [u8; N] {
    let mut lengths = [0; N];
    // Frequency and symbol in one word, so that one sort suffices. Symbols are below 2^9.
    let mut sorted = [0; SYMBOLS_MAX];
    let mut used = 0;
    for (symbol, freq) in (0u32..).zip(freqs).filter(|(_, freq)| **freq > 0) {
        sorted[used] = freq << 9 | symbol;
        used += 1;
    }
    let symbol = |entry: u32| entry as usize & 511;
    if used < 2 {
        let only = symbol(sorted[0]);
        lengths[only] = 1;
        lengths[usize::from(only == 0)] = 1;
        return lengths;
    }
    let sorted = &mut sorted[..used];
    sorted.sort_unstable();
    let mut leaves = leaves(sorted);
    limit(&mut leaves, bits_max);
    // The rarest symbols get the longest codes.
    let mut entries = sorted.iter();
    for bits in (1..=bits_max).rev() {
        for entry in entries.by_ref().take(leaves[bits] as usize) {
            // At most 15.
            lengths[symbol(*entry)] = bits as u8;
        }
    }
    lengths
}

/// Returns the number of leaves at each depth of the tree, for at least two entries in ascending order. Of two queues,
/// leaves and inner nodes, the lighter head is taken, twice for each new inner node. Branches on it would be
/// mispredicted.
fn leaves(sorted: &[u32]) -> [u32; DEPTHS] {
    let len = sorted.len();
    // Behind its last node, a queue is never the lighter one.
    let (mut rare, mut weights) = ([u32::MAX; SYMBOLS_MAX + 1], [u32::MAX; SYMBOLS_MAX + 1]);
    rare.iter_mut().zip(sorted).for_each(|(weight, entry)| *weight = entry >> 9);
    let mut parents = [0; SYMBOLS_MAX + 1];
    let (mut leaf, mut inner) = (0, 0);
    for next in 0..len - 1 {
        let mut sum = 0;
        for _ in 0..2 {
            let takes_inner = weights[inner] < rare[leaf];
            sum += weights[inner].min(rare[leaf]);
            // Overwritten until the node is taken.
            parents[inner] = next as u32;
            inner += usize::from(takes_inner);
            leaf += usize::from(!takes_inner);
        }
        weights[next] = sum;
    }
    // From the root on, which comes last, parents' indices become depths.
    let mut inners = [0; DEPTHS];
    inners[0] = 1;
    parents[len - 2] = 0;
    for node in (0..len - 2).rev() {
        let depth = (parents[parents[node] as usize] + 1).min(DEPTHS as u32 - 1);
        parents[node] = depth;
        inners[depth as usize] += 1;
    }
    // Places at a depth are twice the inner nodes above; those without an inner node are leaves.
    let mut places = 1;
    inners.map(|inner| {
        let leaves = places - inner;
        places = 2 * inner;
        leaves
    })
}

/// Moves leaves up until none is deeper than `bits_max`; other leaves move down in exchange.
fn limit(leaves: &mut [u32; DEPTHS], bits_max: usize) {
    let deep: u32 = leaves[bits_max + 1..].iter().sum();
    leaves[bits_max + 1..].fill(0);
    leaves[bits_max] += deep;
    // In units of the deepest level's places (Kraft's inequality).
    let mut taken: u32 = (1..=bits_max).map(|bits| leaves[bits] << (bits_max - bits)).sum();
    while taken > 1 << bits_max {
        // A leaf above moves one level down, and one of the deepest becomes its sibling. There is always a leaf above,
        // since all symbols together do not fill the deepest level.
        let Some(above) = (1..bits_max).rev().find(|bits| leaves[*bits] > 0) else { break };
        leaves[above] -= 1;
        leaves[above + 1] += 2;
        leaves[bits_max] -= 1;
        taken -= 1;
    }
}

/// Returns the canonical codes with these `lengths`.
pub fn codes<const N: usize>(lengths: &[u8; N]) -> [Code; N] {
    let mut counts = [0; BITS_MAX + 1];
    lengths.iter().for_each(|bits| counts[usize::from(*bits & 15)] += 1);
    counts[0] = 0;
    let mut next = [0u16; BITS_MAX + 1];
    for bits in 1..=BITS_MAX {
        next[bits] = (next[bits - 1] + counts[bits - 1]) << 1;
    }
    lengths.map(|bits| {
        if bits == 0 {
            return Code::default();
        }
        let code = &mut next[usize::from(bits & 15)];
        *code += 1;
        // Huffman codes are written highest bit first, unlike everything else.
        Code { bits: ((*code - 1).reverse_bits() >> (16 - bits)).into(), count: bits.into() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn codes_are_complete_and_no_longer_than_allowed(
            freqs in prop::collection::vec(prop_oneof![Just(0u32), 1u32..4, 1u32..32_000], 286),
            bits_max in 9usize..16,
        ) {
            let freqs: [u32; 286] = freqs.try_into().unwrap();
            let lengths = lengths(&freqs, bits_max);
            let used = freqs.iter().filter(|freq| **freq > 0).count();
            prop_assert_eq!(lengths.iter().filter(|bits| **bits > 0).count(), used.max(2));
            let taken: usize = lengths.iter().filter(|bits| **bits > 0).map(|bits| 1 << (bits_max - usize::from(*bits))).sum();
            prop_assert_eq!(taken, 1 << bits_max);
            // The code of a more frequent symbol is never longer.
            for (a, b) in (0..286).zip(1..286).filter(|(a, b)| freqs[*a] > freqs[*b] && freqs[*b] > 0) {
                prop_assert!(lengths[a] <= lengths[b]);
            }
        }
    }
}
