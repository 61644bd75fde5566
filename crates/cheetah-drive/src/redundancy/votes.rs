//! Majorities. Each Cheetah node of a drive has a vote, and the drive file has one; foreign servers hold no maps.

use crate::file::SetNode;

/// Whether the drive file and `nodes` of the drive's nodes, of which `all` are Cheetah nodes, are a majority.
pub(crate) fn is_majority(nodes: usize, all: usize) -> bool {
    (nodes + 1) * 2 > all + 1
}

/// The number of nodes that vote.
pub(crate) fn voters(nodes: &[SetNode]) -> usize {
    nodes.iter().filter(|node| node.http.is_some()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_majorities_have_a_node_in_common_or_the_drive_file() {
        assert!(is_majority(1, 2), "one of two nodes, and the drive file");
        assert!(is_majority(2, 3) && !is_majority(1, 3));
        assert!(is_majority(2, 4) && !is_majority(1, 4));
        assert!(is_majority(0, 0), "of a drive of foreign servers, the drive file is all there is");
        for all in 0..9 {
            for part in 0..=all {
                assert!(!is_majority(part, all) || !is_majority(all - part, all) || part * 2 == all);
            }
        }
    }
}
