//! Reading a whole drive, and comparing its chunks.

use std::collections::BTreeMap;

use cheetah_device::{ByteRange, Data, DynDevice};
use cheetah_error::Result;
use cheetah_image::hash::{HashChoice, Hashes, Hashing};
use futures::StreamExt as _;

use super::{BadRange, Compared, VerifyReport};
use crate::copy::rescue::Rescue;
use crate::copy::{CopyProgress, ReadChunk, chunks};
use crate::file::digests::{ChunkDigest, Digests, digest};

/// A pass over the whole drive.
pub(super) struct Scrub {
    pub device: DynDevice,
    pub rescue: Rescue,
    pub size: u64,
    /// The size of the image, which is compared and hashed, in bytes.
    pub image: u64,
    pub expected: Option<Digests>,
    pub hashes: HashChoice,
}

impl Scrub {
    /// A report on nothing yet.
    pub fn report(&self, compared: Compared) -> VerifyReport {
        VerifyReport {
            size: self.size,
            image_size: self.image,
            compared,
            ok_bytes: 0,
            uncompared_bytes: 0,
            mismatched: Vec::new(),
            unreadable: Vec::new(),
            unverified: Vec::new(),
            altered_units: BTreeMap::new(),
            hashes: Hashes::default(),
            hashes_differing: Vec::new(),
            at_nodes: None,
        }
    }

    /// Reads everything.
    pub async fn run(&self, compared: Compared, mut progress: impl FnMut(CopyProgress) + Send) -> Result<VerifyReport> {
        let mut report = self.report(compared);
        let mut hashing = Some(Hashing::start(self.hashes)?);
        let mut reads = std::pin::pin!(chunks(self.device.clone(), self.size, self.image));
        while let Some(ReadChunk { range, read }) = reads.next().await {
            let readable = match read {
                Ok(readable) => Some(readable),
                Err(_) => self.read_in_pieces(range, &mut report).await.map(|data| (data, None)),
            };
            match readable {
                Some((data, known)) => {
                    if let Some(hashing) = hashing.as_ref().filter(|_| self.is_image(range)) {
                        hashing.push(&data).await?;
                    }
                    self.compare(range, || known.unwrap_or_else(|| digest(&data)), &mut report);
                }
                // Without this part, a hash of the whole means nothing.
                None if self.is_image(range) => hashing = None,
                None => {}
            }
            progress(CopyProgress { done: range.end(), total: self.size });
        }
        if let Some(hashing) = hashing {
            report.hashes = hashing.finish().await?;
        }
        Ok(report)
    }

    /// Whether a chunk belongs to the image. No chunk belongs to it in part.
    pub const fn is_image(&self, range: ByteRange) -> bool {
        range.end() <= self.image
    }

    pub fn compare(&self, range: ByteRange, digest: impl FnOnce() -> ChunkDigest, report: &mut VerifyReport) {
        match &self.expected {
            Some(expected) if self.is_image(range) && expected.get(range.offset) != Some(&digest()) => {
                BadRange::push(range, "differs from what was loaded", &mut report.mismatched);
            }
            _ => report.ok_bytes += range.len,
        }
    }

    /// Reads a chunk again, in pieces, after it could not be read as a whole. Returns its bytes if all pieces can be
    /// read; otherwise reports the unreadable ranges.
    pub async fn read_in_pieces(&self, range: ByteRange, report: &mut VerifyReport) -> Option<Data> {
        let mut whole = Data::new();
        let mut unreadable = 0;
        for (part, read) in self.rescue.read(range).await {
            match read {
                Ok(data) => whole.append(data),
                Err(why) => {
                    unreadable += part.len;
                    BadRange::push(part, &why.to_string(), &mut report.unreadable);
                }
            }
        }
        if unreadable == 0 {
            return Some(whole);
        }
        let readable = range.len - unreadable;
        if self.is_image(range) {
            report.uncompared_bytes += readable
        } else {
            report.ok_bytes += readable
        }
        None
    }
}
