//! What can be done about a search that writes to a folder.

use serde::{Deserialize, Serialize};

/// What can be done about a search that writes to a folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Search {
    /// The folder holds something else, or what cannot be trusted.
    NameFolder,
    /// The folder is the one of another search.
    RepeatOrNameFolder,
    /// Another process searches into the folder.
    AwaitOrNameFolder,
    /// A set of known files cannot be read.
    MakeSet,
    /// There are more known files than a set may have.
    DivideKnown,
}
