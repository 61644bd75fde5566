//! Reading everything back, and comparing it with what was loaded.

use std::time::Duration;

use cheetah_device::ByteRange;
use serde::Serialize;

use crate::copy::Progress;
use crate::error::{Error, Result};
use crate::file::DriveFile;
use crate::hash::{HashChoice, Hashes};

/// How to verify.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Hashes of the whole to recompute, of those that were recorded at load. Chunk digests are always compared.
    pub hashes: HashChoice,
    /// How long a node may take to answer.
    pub timeout: Duration,
}

/// What was found. Unread, unreadable and mismatched are three different things.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// Bytes looked at: the image's, or the drive's where there is none to compare with.
    pub size: u64,
    /// Whether there was something to compare with; if not, why not.
    pub compared: Compared,
    /// Bytes that were read and are as loaded (or merely readable, where nothing could be compared).
    pub ok_bytes: u64,
    /// Ranges that were read, and differ from what was loaded: whole chunks.
    pub mismatched: Vec<Found>,
    /// Ranges that could not be read.
    pub unreadable: Vec<Found>,
    /// Hashes recomputed; only if everything could be read.
    pub hashes: Hashes,
    /// The recomputed hashes that differ from those recorded.
    pub hashes_differing: Vec<String>,
}

/// What the drive's content was compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compared {
    /// The digests made when the image was loaded.
    Digests,
    /// Nothing: no image was loaded.
    Empty,
    /// Nothing: the drive was opened for writing since.
    Modified,
    /// Nothing: the load never finished.
    Loading,
}

/// A bad range and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// What is wrong with it.
    pub why: String,
}

impl Found {
    /// Where it is.
    pub const fn range(&self) -> ByteRange {
        ByteRange::new(self.offset, self.len)
    }
}

impl VerifyReport {
    /// Whether everything could be read and nothing differs (exit code 0, otherwise 3).
    pub fn is_ok(&self) -> bool {
        self.mismatched.is_empty()
            && self.unreadable.is_empty()
            && self.hashes_differing.is_empty()
            && self.compared != Compared::Loading
    }
}

/// Reads the drive and compares it with the digests made at load. Lost nodes make unreadable ranges, not an error.
pub async fn verify(
    file: &DriveFile,
    options: VerifyOptions,
    progress: impl FnMut(Progress) + Send,
) -> Result<VerifyReport> {
    let _ = (file, options, progress);
    Err(Error::failed("not built yet"))
}
