//! The digest of every chunk of an image, in a file beside the drive file.

/// Bytes a digest covers.
pub const CHUNK_BYTES: u64 = 1 << 20;
