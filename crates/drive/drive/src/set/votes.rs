//! The votes of a drive's nodes.

use cheetah_redundancy::Votes;

use crate::file::SetNode;

/// The votes of a drive over these nodes that survives `losses_max` losses. Foreign servers store no maps, and have no
/// vote.
pub(crate) fn votes(nodes: &[SetNode], losses_max: usize) -> Votes {
    Votes::new(nodes.iter().filter(|node| node.http.is_some()).count(), losses_max)
}
