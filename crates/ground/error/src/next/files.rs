//! What can be done about files that are in the way, or do not fit.

use serde::{Deserialize, Serialize};

/// What can be done about files that are in the way, or do not fit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Files {
    /// A file or an object has the name already.
    Replace,
    /// A file has the name of an image already.
    MoveAwayOrReplace,
    /// A file that is not ours has the name.
    MoveAway,
    /// A drive holds an image already.
    Overwrite,
    /// There is too little space for what may be written.
    MakeSpace,
    /// The same, and the source may have less content than it is long.
    MakeSpaceOrSkip,
    /// The same, and much of the drive may be zeros.
    MakeSpaceOrSkipZeros,
}
