//! Votes on maps. A map counts as found, or as stored, once more than half of the votes have returned or stored it. The
//! drive's nodes vote, and its drive file where there are too few nodes.
//!
//! Any two deciding sets share a node or the drive file. Therefore two writers cannot both continue, and a reader that
//! has heard a deciding set knows of every loss that was stored before it asked.
//!
//! The remaining nodes must still decide when as many are missing as the drive survives the loss of. A majority of `2 f
//! + 1` or more nodes does; with fewer nodes, the drive file has the votes that are missing.

/// The votes of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Votes {
    nodes: usize,
    losses_max: usize,
}

impl Votes {
    /// The votes of a drive that survives `losses_max` losses and has `nodes` members that store maps. Foreign servers
    /// store none.
    pub const fn new(nodes: usize, losses_max: usize) -> Self {
        Self { nodes, losses_max }
    }

    /// The votes of the drive file. Each node has one vote.
    pub const fn of_file(self) -> usize {
        (2 * self.losses_max + 1).saturating_sub(self.nodes)
    }

    /// Whether this number of nodes, with the drive file if `with_file`, has more than half of all votes.
    pub const fn decide(self, nodes: usize, with_file: bool) -> bool {
        let file = self.of_file();
        let votes = if with_file { nodes + file } else { nodes };
        2 * votes > self.nodes + file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sets_that_decide_have_a_node_in_common_or_the_drive_file() {
        for nodes in 0..12 {
            for losses_max in 0..4 {
                let votes = Votes::new(nodes, losses_max);
                for part in 0..=nodes {
                    assert!(!(votes.decide(part, true) && votes.decide(nodes - part, false)), "{votes:?} {part}");
                }
            }
        }
    }

    #[test]
    fn the_nodes_that_are_left_after_as_many_losses_as_are_survived_decide() {
        for (nodes, losses_max) in [(2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (4, 3), (5, 2), (7, 1)] {
            let votes = Votes::new(nodes, losses_max);
            assert!(votes.decide(nodes - losses_max, true), "{votes:?}");
            assert_eq!(votes.of_file() == 0, nodes > 2 * losses_max, "{votes:?}");
        }
        assert!(Votes::new(0, 1).decide(0, true), "of a drive of foreign servers, the drive file is all there is");
    }
}
