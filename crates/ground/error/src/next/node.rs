//! What can be done about a node.

use serde::{Deserialize, Serialize};

/// What can be done about a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Node {
    /// No node announced itself.
    StartAnnouncing,
    /// No node answers at the address.
    CheckNode,
    /// Not every node could free its memory.
    AskStatus,
    /// The node is draining.
    Undrain,
    /// The node does not know the file of the drive.
    NameDrive,
    /// No node offers memory.
    NameDestination,
    /// The control API has no port.
    GiveHttp,
    /// A foreign server holds data.
    OverwriteServer,
}
