//! Recognising a source that is opened again, before anything more is read from it: for acquisitions and for lazy
//! drives.
//!
//! Three questions, in order; the first one with an answer decides:
//!
//! 1. **Is anything known to differ?** Serial number, model, path, the machine, the export ([`Identity::differences`]):
//!    equal bytes never outweigh a difference.
//! 2. **Is it the same process?** An agent has a random id. While the id stays the same, the disk has been open all the
//!    time.
//! 3. **Does it hold the bytes read before?** An agent makes new digests of all of them, which takes a pass over its
//!    disk and hardly any bandwidth ([`Comparing::by_digests`]). From any other source a random sample is read
//!    ([`Comparing::by_samples`]), and the bound on the rest ([`mod@sample_size`]) is recorded ([`Opening`]).
//!
//! [`Identity::differences`]: cheetah_image::Identity::differences

mod opening;
mod pieces;
mod sample_size;

use cheetah_device::{ByteRange, Data, DynDevice, Error as DeviceError};
use cheetah_error::{Error, Result};
use cheetah_kit::random;
use cheetah_nbd::client::Client;
use futures::{StreamExt as _, stream};

pub use self::opening::{Cause, Comparison, DiskCompared, Opening, OpeningNote};
pub use self::pieces::Pieces;
use self::sample_size::{choose, differing_max, sample_size};
use crate::copy::read_exactly;
pub use crate::file::CONFIDENCE_PERCENT;
use crate::file::digests::{CHUNK_BYTES, ChunkDigest};

/// Bytes of content in one request for digests.
const REQUEST_BYTES: u64 = 8 * CHUNK_BYTES;
/// Requests for digests, or pieces of a sample, in flight at once.
const AT_ONCE: usize = 8;

/// Called with the number of bytes compared so far, and of those to compare.
pub type Compared<'a> = &'a mut (dyn FnMut(u64, u64) + Send);

/// A comparison of a source with the data read from it before.
pub struct Comparing<'a> {
    /// The source's name in errors.
    pub location: &'a str,
    /// Makes the error for a range with other content.
    pub changed: &'a (dyn Fn(ByteRange) -> Error + Sync),
    /// Called as the comparison proceeds.
    pub compared: Compared<'a>,
    /// Whether all pieces are read, rather than a sample.
    pub all: bool,
}

/// The result of comparing some pieces. None was found to differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Equal {
    /// Bytes that are equal.
    pub bytes: u64,
    /// Bytes that could be read before, and cannot be read now.
    pub unreadable_bytes: u64,
    /// The most bytes among the uncompared ones that may differ, with a confidence of [`CONFIDENCE_PERCENT`].
    pub differ_bytes_max: u64,
    /// Whether an agent's digests equal the recorded ones.
    pub by_digests: bool,
}

impl Equal {
    /// Returns the result for the pieces of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            unreadable_bytes: self.unreadable_bytes + other.unreadable_bytes,
            differ_bytes_max: self.differ_bytes_max + other.differ_bytes_max,
            by_digests: self.by_digests || other.by_digests,
        }
    }
}

impl Comparing<'_> {
    /// Has an agent digest all of `chunks`, pieces of [`CHUNK_BYTES`], again. `is_known` is called with a chunk and its
    /// new digest.
    ///
    /// # Errors
    ///
    /// `Kind::Evidence` if a chunk differs; `Kind::Device` if the source cannot be read.
    pub async fn by_digests(
        &mut self,
        client: &Client,
        chunks: &Pieces,
        is_known: impl Fn(ByteRange, &ChunkDigest) -> Result<bool> + Send + Sync,
    ) -> Result<Equal> {
        let (mut equal, mut done) = (Equal { by_digests: true, ..Equal::default() }, 0);
        let ask = |range: ByteRange| async move { (range, digests_of(client, range).await) };
        let mut answers = std::pin::pin!(stream::iter(requests(chunks)).map(ask).buffered(AT_ONCE));
        while let Some((range, digests)) = answers.next().await {
            let digests = digests.map_err(|error| self.failed(error))?;
            for (chunk, found) in range.split_at_multiples(CHUNK_BYTES).zip(digests) {
                match found {
                    Some(found) if is_known(chunk, &found)? => equal.bytes += chunk.len,
                    Some(_) => return Err((self.changed)(chunk)),
                    None => equal.unreadable_bytes += chunk.len,
                }
                done += chunk.len;
                (self.compared)(done, chunks.bytes());
            }
        }
        equal.differ_bytes_max = equal.unreadable_bytes;
        Ok(equal)
    }

    /// Reads a random sample of `pieces` from the source, or all of them where that is wanted. `is_known` is called with a piece and its content.
    ///
    /// # Errors
    ///
    /// As [`by_digests`](Self::by_digests).
    pub async fn by_samples(
        &mut self,
        source: &DynDevice,
        pieces: &Pieces,
        is_known: impl Fn(ByteRange, &Data) -> Result<bool> + Send + Sync,
    ) -> Result<Equal> {
        let population = pieces.count();
        let (count, unit) = if self.all { (0, pieces.unit()) } else { (sample_size(population), 0) };
        let chosen = choose(population, count, random::bits_64)?;
        let sample: Vec<ByteRange> = chosen.into_iter().filter_map(|index| pieces.nth(index)).collect();
        let total = if self.all { pieces.bytes() } else { sample.iter().map(|piece| piece.len).sum() };
        let all = pieces.runs().filter(|_| unit > 0).flat_map(|run| run.split_at_multiples(unit));
        let read = |piece: ByteRange| async move { (piece, read_exactly(source, piece).await) };
        let mut reads = std::pin::pin!(stream::iter(all.chain(sample)).map(read).buffered(AT_ONCE));
        let (mut equal, mut count, mut done) = (Equal::default(), 0, 0);
        while let Some((piece, read)) = reads.next().await {
            match read {
                Ok(data) if is_known(piece, &data)? => {
                    count += 1;
                    equal.bytes += piece.len;
                }
                Ok(_) => return Err((self.changed)(piece)),
                // A sector that became unreadable meanwhile is not a difference.
                Err(error) if error.is_bad_sector() => equal.unreadable_bytes += piece.len,
                Err(error) => return Err(self.failed(error)),
            }
            done += piece.len;
            (self.compared)(done, total);
        }
        equal.differ_bytes_max =
            (differing_max(population, count).saturating_mul(pieces.unit())).min(pieces.bytes() - equal.bytes);
        Ok(equal)
    }

    /// Concludes the comparison of `of_bytes` that were read before.
    ///
    /// # Errors
    ///
    /// `Kind::Device` if none of them can be read any more: the source is lost then. It has not changed, and cannot
    /// be recognised either.
    pub fn conclude(&self, equal: Equal, of_bytes: u64) -> Result<Comparison> {
        let Equal { bytes: compared_bytes, unreadable_bytes, differ_bytes_max, by_digests } = equal;
        if compared_bytes == 0 && unreadable_bytes > 0 {
            let why = "nothing can be read any more of what could be read before".into();
            let range = ByteRange::new(0, unreadable_bytes);
            return Err(self.failed(DeviceError::Lost { device: "the source".into(), range, why }));
        }
        let is_complete = compared_bytes + unreadable_bytes == of_bytes;
        Ok(match by_digests && is_complete {
            _ if of_bytes == 0 => Comparison::Nothing,
            true => Comparison::Digests { compared_bytes, unreadable_bytes },
            false => {
                let differ_bytes_max = differ_bytes_max.min(of_bytes.saturating_sub(compared_bytes));
                Comparison::Samples { compared_bytes, of_bytes, differ_bytes_max }
            }
        })
    }

    fn failed(&self, error: DeviceError) -> Error {
        Error::device(format!("comparing {} with its earlier reads", self.location))(error)
    }
}

/// Requests for digests: neighbouring chunks together.
fn requests(chunks: &Pieces) -> impl Iterator<Item = ByteRange> {
    chunks.runs().flat_map(|run| {
        let starts = (run.offset..run.end()).step_by(REQUEST_BYTES as usize);
        starts.map(move |start| ByteRange::between(start, (start + REQUEST_BYTES).min(run.end())))
    })
}

/// The digests of the chunks in `range`; `None` for those that cannot be read.
async fn digests_of(client: &Client, range: ByteRange) -> cheetah_device::Result<Vec<Option<ChunkDigest>>> {
    match client.digests(range).await {
        Ok(digests) => Ok(digests.into_iter().map(Some).collect()),
        // One bad sector fails the whole request.
        Err(error) if error.is_bad_sector() => {
            let mut digests = Vec::new();
            for chunk in range.split_at_multiples(CHUNK_BYTES) {
                match client.digests(chunk).await {
                    Ok(one) => digests.extend(one.into_iter().map(Some)),
                    Err(error) if error.is_bad_sector() => digests.push(None),
                    Err(error) => return Err(error),
                }
            }
            Ok(digests)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_chunks_are_asked_for_together() {
        let chunks = |first: u64, count: u64| ByteRange::new(first * CHUNK_BYTES, count * CHUNK_BYTES);
        let size = 20 * CHUNK_BYTES + 5;
        let read = [chunks(0, 10), chunks(12, 1), ByteRange::between(19 * CHUNK_BYTES, size)];
        let pieces = Pieces::within(read, CHUNK_BYTES, size);
        let asked: Vec<_> = requests(&pieces).map(|range| (range.offset / CHUNK_BYTES, range.len)).collect();
        assert_eq!(asked, [(0, 8 << 20), (8, 2 << 20), (12, 1 << 20), (19, (1 << 20) + 5)]);
    }
}
