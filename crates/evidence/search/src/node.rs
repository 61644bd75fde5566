//! What found a hit.

use std::sync::Arc;

/// A node that searched a part of a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchNode {
    /// Its name, as the drive file has it.
    pub name: Arc<str>,
    /// Its instance: another one each time the node starts.
    pub instance: Arc<str>,
}
