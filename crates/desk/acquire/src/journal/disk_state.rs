//! The disks and images that a volume lies on, as they were when the acquisition of its content began.
//!
//! The content that was acquired before shows only what it was made of. A disk may have changed where nothing of it was read yet, and
//! an array reads without one of its members. So each disk is recorded by itself, and compared whenever the volume is opened again.

use cheetah_image::Identity;
use cheetah_kit::file::Time;
use serde::{Deserialize, Serialize};

/// A disk or an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskState {
    /// Its identity.
    pub identity: Identity,
    /// The files of this machine that it is read from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileState>,
    /// Samples of its content, in order.
    pub samples: Vec<ContentSample>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileState {
    /// Its path, as text.
    pub path: String,
    /// Its length, in bytes.
    pub size_bytes: u64,
    /// When its content was changed last: seconds since 1970 (UTC), and nanoseconds.
    pub modified: Time,
}

/// A sample of content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentSample {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// BLAKE3 of them, in hexadecimal; `None` if they could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
}
