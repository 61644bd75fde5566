//! The next move that spreads a drive more evenly over nodes. Does no I/O.
//!
//! Reads of a bundle go to all its nodes at once, so first the parts of each bundle are spread, and then the bytes of
//! the drive. The measure is the sum of the squares of each node's bytes, which is least if they are equal. Each move
//! lowers it, so moves come to an end.

/// A node's part of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The set.
    pub set: usize,
    /// Its bundle.
    pub bundle: usize,
    /// The member of the set.
    pub member: usize,
    /// The node that has it.
    pub node: usize,
    /// Its bytes.
    pub bytes: u64,
}

/// A part that moves to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    /// The part.
    pub part: Part,
    /// The node that takes it.
    pub to: usize,
}

/// The unevenness of a drive: of its bundles, and of the whole.
type Unevenness = (u128, u128);

/// The move that makes the drive the most even; `None` if no possible move makes it more even. `free` has the free bytes of
/// each node, `moves` the moves of each set so far: of equally good moves, one of a set with few moves is taken. No node
/// takes two parts of one set: its loss would be two losses.
pub(crate) fn next(parts: &[Part], free: &[u64], moves: &[usize]) -> Option<Move> {
    let now = unevenness(parts, free.len());
    let mut best: Option<(Unevenness, usize, Move)> = None;
    for (index, part) in parts.iter().enumerate() {
        for to in (0..free.len()).filter(|to| takes(parts, free, *part, *to)) {
            let mut moved = parts.to_vec();
            moved[index].node = to;
            let then = (unevenness(&moved, free.len()), moves[part.set]);
            let is_best = best.is_none_or(|(unevenness, moves, _)| then < (unevenness, moves));
            if then.0 < now && is_best {
                best = Some((then.0, then.1, Move { part: *part, to }));
            }
        }
    }
    best.map(|(_, _, step)| step)
}

fn takes(parts: &[Part], free: &[u64], part: Part, to: usize) -> bool {
    free[to] >= part.bytes && !parts.iter().any(|other| other.set == part.set && other.node == to)
}

fn unevenness(parts: &[Part], nodes: usize) -> Unevenness {
    let bundles = parts.iter().map(|part| part.bundle + 1).max().unwrap_or(0);
    let mut of_bundles = vec![vec![0u128; nodes]; bundles];
    let mut whole = vec![0u128; nodes];
    for part in parts {
        of_bundles[part.bundle][part.node] += u128::from(part.bytes);
        whole[part.node] += u128::from(part.bytes);
    }
    // Sizes are below 2^60, and there are at most 2^10 parts, so squares may exceed 128 bits: count in KiB.
    let squares = |bytes: &[u128]| bytes.iter().map(|bytes| (bytes >> 10).pow(2)).sum::<u128>();
    (of_bundles.iter().map(|bytes| squares(bytes)).sum(), squares(&whole))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Sets of a bundle, each over these nodes.
    fn bundle(bundle: usize, first: usize, nodes: &[&[usize]]) -> Vec<Part> {
        let of_set = |(set, nodes): (usize, &&[usize])| -> Vec<Part> {
            let part =
                |(member, node): (usize, &usize)| Part { set: first + set, bundle, member, node: *node, bytes: MIB };
            nodes.iter().enumerate().map(part).collect()
        };
        nodes.iter().enumerate().flat_map(of_set).collect()
    }

    /// Carries out all moves. Returns their number.
    fn balance(parts: &mut [Part], free: &mut [u64]) -> usize {
        let (mut moves, mut of_sets) = (0, vec![0; parts.len()]);
        while let Some(Move { part, to }) = next(parts, free, &of_sets) {
            of_sets[part.set] += 1;
            assert!(free[to] >= part.bytes, "it has room");
            free[to] -= part.bytes;
            free[part.node] += part.bytes;
            parts.iter_mut().find(|other| **other == part).unwrap().node = to;
            moves += 1;
            assert!(moves <= 10_000, "moves come to an end");
        }
        moves
    }

    fn parts_at(parts: &[Part], bundle: usize, nodes: usize) -> Vec<usize> {
        let at = |node| parts.iter().filter(|part| part.bundle == bundle && part.node == node).count();
        (0..nodes).map(at).collect()
    }

    #[test]
    fn two_parts_on_each_of_two_nodes_become_one_on_each_of_four() {
        let mut parts = bundle(0, 0, &[&[0, 1], &[0, 1]]);
        let moves = balance(&mut parts, &mut [0, 0, MIB, MIB]);
        assert_eq!((moves, parts_at(&parts, 0, 4)), (2, vec![1, 1, 1, 1]));
        for set in [0, 1] {
            assert_eq!(parts.iter().filter(|part| part.set == set && part.node > 1).count(), 1, "one part of each set");
        }
    }

    #[test]
    fn the_bundles_of_an_enlarged_drive_are_each_spread_over_all_nodes() {
        let mut parts = bundle(0, 0, &[&[0, 1], &[0, 1]]);
        parts.extend(bundle(1, 2, &[&[2, 3], &[2, 3]]));
        balance(&mut parts, &mut [MIB; 4]);
        assert_eq!((parts_at(&parts, 0, 4), parts_at(&parts, 1, 4)), (vec![1, 1, 1, 1], vec![1, 1, 1, 1]));
    }

    #[test]
    fn nothing_moves_to_full_nodes_or_if_all_is_even() {
        let parts = bundle(0, 0, &[&[0, 1], &[0, 1]]);
        assert_eq!(next(&parts, &[MIB, MIB, MIB - 1, 0], &[0; 2]), None);
        assert_eq!(next(&bundle(0, 0, &[&[0, 1, 2]]), &[MIB, MIB, MIB, MIB], &[0]), None);
    }

    proptest! {
        #[test]
        fn no_node_gets_two_parts_of_a_set_and_moves_come_to_an_end(
            sets in prop::collection::vec((0usize..3, prop::sample::subsequence((0..6).collect::<Vec<usize>>(), 2..5)), 1..6),
            mut free in prop::collection::vec(0..4 * MIB, 6),
        ) {
            let mut parts = Vec::new();
            for (set, (bundle, nodes)) in sets.iter().enumerate() {
                let part = |(member, node): (usize, &usize)| Part { set, bundle: *bundle, member, node: *node, bytes: MIB };
                parts.extend(nodes.iter().enumerate().map(part));
            }
            balance(&mut parts, &mut free);
            for (index, part) in parts.iter().enumerate() {
                prop_assert!(!parts[..index].iter().any(|other| other.set == part.set && other.node == part.node));
            }
        }
    }
}
