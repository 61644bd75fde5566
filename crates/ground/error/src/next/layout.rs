//! What can be done if a drive cannot be laid out over its nodes.

use serde::{Deserialize, Serialize};

/// What can be done if a drive cannot be laid out over its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Layout {
    /// No spare can take the place of a lost node.
    NameMoreNodes {
        /// How many nodes are lost.
        lost: usize,
    },
    /// The layout needs another number of nodes.
    ChooseLayout,
    /// The added part would survive less than the drive does.
    ChooseLayoutLike,
    /// Spares are of no use without redundancy.
    ChooseRedundancy,
    /// Parts are of no use without redundancy.
    LeaveOutParts,
    /// Redundancy reserves its memory.
    LeaveOutThin,
    /// Two nodes have one address.
    NameOnce,
    /// The nodes lend too little memory.
    AddMemory,
}
