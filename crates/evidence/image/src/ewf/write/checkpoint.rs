//! The checkpoint from which an interrupted acquisition resumes.

use serde::{Deserialize, Serialize};

use super::options::{Compression, E01Options};
use cheetah_error::{Error, Result};

/// Everything before [`offset`](Self::offset) is on stable storage, and a writer can resume from there.
/// The caller stores it; its content is private to the writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Bytes of the evidence that are durable in the image: a multiple of the chunk size, or the size of the evidence.
    pub offset: u64,
    /// Unreadable ranges before `offset`, in order, as offset and length in bytes.
    pub unreadable: Vec<(u64, u64)>,
    /// The part that is final.
    pub(super) shape: Shape,
    /// Where the files end.
    pub(super) open: Open,
}

/// The properties that are fixed when a set is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shape {
    /// The size of the evidence, in bytes.
    pub size: u64,
    pub compression: Compression,
    pub chunk_sectors: u32,
    pub sector_size: u32,
    /// The maximum size of a segment file, in bytes (a list of unreadable sectors may exceed it).
    pub segment_size: u64,
    pub guid: [u8; 16],
}

/// The open segment, and its open table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Open {
    /// Counted from 1.
    pub segment: u16,
    /// Its size so far, in bytes.
    pub end: u64,
    /// The offset of the section of the chunks in `entries`; meaningless while there are none.
    pub section: u64,
    /// The table's entries: chunk offsets from `section`, with a flag for compressed ones.
    pub entries: Vec<u32>,
}

impl Shape {
    /// The size of a chunk; the last one may be shorter.
    pub fn chunk_bytes(&self) -> u64 {
        u64::from(self.chunk_sectors) * u64::from(self.sector_size)
    }

    /// The size of the leading evidence whose sector numbers fit the 32 bits of the list of unreadable sectors.
    pub fn listable_bytes(&self) -> u64 {
        u64::from(self.sector_size) << 32
    }

    /// The shape of a new set.
    pub fn new(size: u64, options: &E01Options) -> Result<Self> {
        options.check()?;
        if size == 0 {
            return Err(Error::misuse("an E01 image of 0 bytes cannot be written"));
        }
        let guid = match options.guid {
            Some(guid) => guid,
            None => random_guid()?,
        };
        let mut shape = Self {
            size,
            compression: options.compression,
            chunk_sectors: options.chunk_sectors,
            sector_size: options.sector_size,
            segment_size: options.segment_bytes(),
            guid,
        };
        // The format counts sectors, and readers assume whole sectors: of 300001 bytes that `ewfacquire` stores with
        // sectors of 512 bytes, `ewfexport` returns 299520. A size that is no multiple therefore gets smaller sectors,
        // so that no byte is lost or added. The sector size is halved, so that unreadable ranges still end at sector
        // boundaries.
        while !size.is_multiple_of(u64::from(shape.sector_size)) {
            shape.sector_size /= 2;
            shape.chunk_sectors *= 2;
        }
        Ok(shape)
    }

    /// Fails unless `options` would have made this shape.
    pub fn check(&self, size: u64, options: &E01Options) -> Result<()> {
        let guid = Some(options.guid.unwrap_or(self.guid));
        if Self::new(size, &E01Options { guid, ..options.clone() })? == *self {
            return Ok(());
        }
        Err(Error::misuse(
            "the E01 image was started with another size, compression, chunk size, segment size or GUID; use those",
        ))
    }
}

/// A random UUID (version 4, RFC 9562), as EnCase makes them.
fn random_guid() -> Result<[u8; 16]> {
    let mut guid: [u8; 16] = cheetah_kit::random::bytes()?;
    // The preceding fields are little-endian in the file, so the version is in byte 7.
    guid[7] = guid[7] & 0x0f | 0x40;
    guid[8] = guid[8] & 0x3f | 0x80;
    Ok(guid)
}
