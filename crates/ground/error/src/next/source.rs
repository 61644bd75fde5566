//! What can be done about a source that cannot be used as it was asked for.

use serde::{Deserialize, Serialize};

/// What can be done about a source that cannot be used as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Source {
    /// Evidence is only ever read.
    WriteApart,
    /// A drive that is being filled can only be read.
    WriteApartOrFinish,
    /// The right to write is of no use to an opening that only reads.
    OpenWritable,
    /// The profile of the object store gets its key in a way that is not supported.
    ExportKey {
        /// The profile's name.
        profile: String,
    },
    /// Several volumes are open, and one of them is meant.
    ChooseVolume,
    /// Compressed data can only be read from start to end.
    AcquireOrRepack {
        /// The compressed image.
        name: String,
        /// The command that compresses in blocks.
        command: String,
    },
}
