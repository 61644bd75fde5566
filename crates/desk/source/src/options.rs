//! How to open a source.

use cheetah_drive::Session;

use crate::link::LinkUse;

/// How to open a source.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// How to use the link to a source that is behind one.
    pub link: LinkUse,
    /// What a drive is opened with. Any peer may be silent as long as a node.
    pub session: Session,
    /// Whether reads of ranges that the coverage map beside an image calls missing fail. If not, they return the zeros
    /// in the file.
    pub apply_map: bool,
    /// Whether a server that replaces a lost connection is taken for the same one, though it cannot prove it. If not, reads
    /// fail with [`cheetah_device::Error::Lost`] once a connection is lost, and the source must be opened again.
    pub trust_reconnects: bool,
    /// Whether the source will be read from start to end. Otherwise an image that can only be read so is refused.
    pub in_order: bool,
    /// Whether the buffer of each read is its reader's alone, to be altered in place, where the source allows that.
    pub exclusive: bool,
}

impl SourceOptions {
    /// Maps are applied, reconnects trusted, and the source is read at random.
    pub fn new(link: LinkUse, session: Session) -> Self {
        Self { link, session, apply_map: true, trust_reconnects: true, in_order: false, exclusive: false }
    }
}
