//! Where a file's content lies.

use cheetah_device::ByteRange;
use smallvec::SmallVec;

/// A file, as far as who reads ahead of its readers cares; or a directory, which has no content here, but is needed to
/// know in which order files are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRuns {
    /// The file system's number for it: MFT record, inode, or for FAT the offset of its directory entry.
    pub id: u64,
    /// The same for the directory it is in; where it is in several, one of them.
    pub directory: u64,
    /// Its place among the directory's entries, in the order in which tools list them. There may be gaps.
    pub place: u32,
    /// Where its content lies, in the file's order; no holes, nothing behind its end.
    pub runs: SmallVec<[ByteRange; 2]>,
}
