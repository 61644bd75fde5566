//! Where an interrupted acquisition goes on.

use serde::{Deserialize, Serialize};

/// Everything before [`offset`](Self::offset) is on stable storage, and this is what it takes to go on behind it.
/// To be kept by whoever runs the acquisition; what is in it is the writer's business.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Bytes of the evidence that are in the image for good: a multiple of the chunk size, or all there are.
    pub offset: u64,
    /// Unreadable ranges before `offset`, in order, as offset and length in bytes.
    pub unreadable: Vec<(u64, u64)>,
}
