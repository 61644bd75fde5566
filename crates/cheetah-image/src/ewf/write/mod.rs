//! Writing E01 images, in one pass, on all cores, with interruptions.

use std::path::{Path, PathBuf};

use cheetah_device::{ByteRange, Data, DynDevice};

use crate::error::{Error, Result};
use crate::hash::Hashes;

mod checkpoint;
mod options;

pub use checkpoint::Checkpoint;
pub use options::{Compression, E01Options, Media};

/// Writes one E01 set. While it is under way its files are called `NAME.E01.partial`, `NAME.E02.partial` …; only
/// [`finish`](Self::finish) gives them their names. Dropped before that, it leaves what is there for
/// [`resume`](Self::resume).
pub struct E01Writer {}

fn missing<T>() -> Result<T> {
    Err(Error::failed("writing E01 images is not built yet"))
}

impl E01Writer {
    /// Starts the set whose first segment is to be called `path` (`NAME.E01`), for `size` bytes of evidence.
    /// Refuses to overwrite a set of that name, whole or partial, unless the options say `force`.
    pub fn create(path: &Path, size: u64, options: E01Options) -> Result<Self> {
        let _ = (path, size, options);
        missing()
    }

    /// Goes on behind `checkpoint` as if nothing had happened; whatever was written after it is discarded. Size and
    /// options must be those it was created with; what is already in the files (case data, times) stays as it is.
    pub fn resume(path: &Path, size: u64, options: E01Options, checkpoint: &Checkpoint) -> Result<Self> {
        let _ = (path, size, options, checkpoint);
        missing()
    }

    /// Bytes of evidence pushed so far, those before the checkpoint included: where the next push goes.
    pub fn offset(&self) -> u64 {
        0
    }

    /// Bytes written to the files so far.
    pub fn written(&self) -> u64 {
        0
    }

    /// Appends the next bytes of the evidence; waits while compression or the disk is too far behind.
    pub async fn push(&mut self, data: Data) -> Result<()> {
        let _ = data;
        missing()
    }

    /// Says that the evidence cannot be read there; what is pushed for it is but a stand-in. Rounded out to sectors.
    pub fn unreadable(&mut self, range: ByteRange) {
        let _ = range;
    }

    /// Finishes when what was pushed before, but for the begun chunk, is on stable storage.
    pub async fn checkpoint(&mut self) -> Result<Checkpoint> {
        missing()
    }

    /// Writes the rest, with MD5 and SHA-1 where known, makes it durable, and gives the files their names, the first
    /// segment last. Returns the paths, first segment first.
    pub async fn finish(self, hashes: &Hashes) -> Result<Vec<PathBuf>> {
        let _ = hashes;
        missing()
    }
}

/// What a partial set holds before `checkpoint`, as a device of [`Checkpoint::offset`] bytes, checked against the
/// image's own checksums: for hashing it again before going on. `path` is the name the set is to have in the end.
pub fn open_partial(path: &Path, checkpoint: &Checkpoint) -> Result<DynDevice> {
    let _ = (path, checkpoint);
    missing()
}
