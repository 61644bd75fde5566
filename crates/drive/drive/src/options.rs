//! How to open a drive.

use std::time::Duration;

use crate::session::Session;

/// The default time after which a lost node is replaced by a spare. Most nodes that return do so sooner, and then need
/// only the writes that they missed.
pub const REPLACE_AFTER: Duration = Duration::from_secs(30);

/// How to open a drive.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Open for writing: takes the write lease, and marks a loaded image as modified.
    pub writable: bool,
    /// Take the write lease from its holder.
    pub force_lease: bool,
    /// Open even if nodes are lost; reads of their ranges fail. Not together with `writable`.
    pub allow_lost: bool,
    /// Open for reading even if the load of the image never finished: missing ranges read as zeros.
    pub half_loaded: bool,
    /// The time after which a lost node of a redundant drive is replaced by a spare. A reader replaces nodes, too,
    /// under the write lease, if no process has the drive open for writing. `None`: a writer replaces nodes only when
    /// [`repair`](crate::repair) asks for it, and a reader never does.
    pub replace_after: Option<Duration>,
    /// What the drive is opened with. A node that does not answer within its time-out counts as lost.
    pub session: Session,
    /// Bytes of memory for read-ahead; 0 for none.
    pub prefetch_budget: u64,
    /// The number of NBD connections to each node.
    pub connections: usize,
}

impl OpenOptions {
    /// For reading a drive of which every node is there, with read-ahead.
    pub fn new(session: Session) -> Self {
        Self {
            writable: false,
            force_lease: false,
            allow_lost: false,
            half_loaded: false,
            replace_after: None,
            session,
            prefetch_budget: 64 << 20,
            connections: 2,
        }
    }
}
