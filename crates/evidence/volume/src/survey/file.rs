//! The extents of a file.

use cheetah_device::ByteRange;
use smallvec::SmallVec;

/// A file and the extents of its content. Or a directory, without extents, which determines the order in which files
/// are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRuns {
    /// The file system's number of the file: MFT record, inode, or the offset of a FAT directory entry.
    pub id: u64,
    /// The number of its directory; if it is in several, one of them.
    pub directory: u64,
    /// Its position among the directory's entries, in the order in which tools list them. There may be gaps.
    pub place: u32,
    /// The extents of its content, in the file's order; no holes, and nothing past its end.
    pub runs: SmallVec<[ByteRange; 2]>,
}
