//! The writers of a drive, as its maps name them.

use serde::{Deserialize, Serialize};

/// The writers before that of a map that it names at most; of older maps it is not known whether it comes from them.
pub(super) const LINEAGE_MAX: usize = 32;
/// The digits of a writer's id in a lineage.
const ID_DIGITS: usize = 16;

/// A writer in a lineage, as text `ID@EPOCH`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub(crate) struct Ancestor {
    /// Its id, in short.
    pub writer: String,
    /// The epoch of the map that it began with, if known: it does not know what the writer before changed later.
    pub began_with: Option<u64>,
}

impl From<String> for Ancestor {
    fn from(text: String) -> Self {
        match text.split_once('@') {
            Some((writer, epoch)) => Self { writer: writer.into(), began_with: epoch.parse().ok() },
            None => Self { writer: text, began_with: None },
        }
    }
}

impl From<Ancestor> for String {
    fn from(ancestor: Ancestor) -> Self {
        match ancestor.began_with {
            Some(epoch) => format!("{}@{epoch}", ancestor.writer),
            None => ancestor.writer,
        }
    }
}

/// The writer's id as a lineage has it.
pub(super) fn short(writer: &str) -> String {
    writer.chars().take(ID_DIGITS).collect()
}
