//! Knowing a source again that is opened anew, before anything more is acquired from it.
//!
//! Three questions, the first that is answered decides:
//!
//! 1. **Is anything known to differ?** Serial number, model, path, the machine, the export: a difference is never outvoted
//!    by equal bytes. It is an evidence problem, unless the examiner says that it is the same source (`--same-source`).
//! 2. **Is it the same process?** An agent of ours has a random id. While that stays, the disk has been open all the time.
//! 3. **Does it hold what was acquired?** An agent is asked for new digests of all of it, which costs its disk a pass and
//!    the link next to nothing. From any other source a random sample is read ([`sample_size`]), and the bound goes into
//!    the report.

use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage, DynDevice, Error as DeviceError};
use cheetah_drive::copy::read_exactly;
use cheetah_drive::digests::{CHUNK_BYTES, Digests, digest};
use cheetah_error::{Error, Result};
use cheetah_nbd::client::Client;
use futures::{StreamExt as _, stream};

use super::sample_size::{choose, differing_max, sample_size};
use crate::acquire::Evidence;
use crate::journal::{self, Cause, Comparison, Opening, Past};
use crate::reader::is_bad_sector;

/// Chunks in one request for digests.
const CHUNKS_ASKED: u64 = 8;
/// Requests for digests, or chunks of a sample, in flight at once.
const AT_ONCE: usize = 8;

/// Is told how many more bytes were compared, of how many.
pub type Compared<'a> = &'a mut (dyn FnMut(u64, u64) + Send);

/// Compares a source with what was acquired of it.
///
/// # Errors
///
/// [`Error::Evidence`] if it is not, or may not be, the source that was acquired from; [`Error::Device`] if it cannot be
/// read.
pub async fn recognise(
    done: &Past,
    evidence: &Evidence,
    (cause, same_source): (Cause, bool),
    compared: Compared<'_>,
) -> Result<Opening> {
    let now = &evidence.source.identity;
    let mut vouched = journal::known_changes(&done.start.source, now, same_source)?;
    done.start.same_protection(now)?;
    let instance = now.server.as_ref().and_then(|server| server.instance.clone());
    let comparison = if instance.is_some() && instance == done.instance {
        Comparison::SameInstance
    } else {
        let comparing = Comparing { done, chunks: good_chunks(done), device: &evidence.source.device, compared };
        match digests_client(evidence, &now.location).await? {
            Some(client) => comparing.by_digests(&client).await?,
            None => {
                if done.instance.is_some() {
                    let why = "it is served by another process, which makes no digests to compare";
                    if !same_source {
                        return Err(journal::unknown_source(&now.location, why));
                    }
                    vouched.push(why.to_owned());
                }
                comparing.by_samples().await?
            }
        }
    };
    Ok(Opening {
        at_s: journal::now_s(),
        at: done.at,
        cause,
        instance,
        write_protected: now.write_protected,
        vouched,
        comparison,
    })
}

/// A connection to the agent for digests; `None` where it makes none.
async fn digests_client(evidence: &Evidence, location: &str) -> Result<Option<Client>> {
    let Some(connect) = &evidence.digests else { return Ok(None) };
    connect().await.map_err(Error::device(format!("asking {location} for digests")))
}

/// The chunks that were acquired whole, in order.
fn good_chunks(done: &Past) -> Vec<ByteRange> {
    let coverage: Coverage = done.coverage();
    let is_good = |chunk: &ByteRange| coverage.runs(*chunk).all(|(_, state)| state == State::Read);
    ByteRange::new(0, done.at).split_at_multiples(CHUNK_BYTES).filter(is_good).collect()
}

struct Comparing<'a, 'b> {
    done: &'a Past,
    /// What there is to compare.
    chunks: Vec<ByteRange>,
    device: &'a DynDevice,
    compared: Compared<'b>,
}

impl Comparing<'_, '_> {
    fn digests(&self) -> &Digests {
        &self.done.digests
    }

    fn differs(&self, chunk: ByteRange) -> Error {
        journal::changed(&self.done.start.source.location, format_args!("{chunk} has another content now"))
    }

    fn failed(&self, error: DeviceError) -> Error {
        let location = &self.done.start.source.location;
        Error::device(format!("comparing {location} with what was acquired of it"))(error)
    }

    /// Has the agent digest all of it again.
    async fn by_digests(self, client: &Client) -> Result<Comparison> {
        let total = bytes(&self.chunks);
        let (mut compared_bytes, mut unreadable_bytes) = (0, 0);
        let requests = requests(&self.chunks);
        let ask = |range: ByteRange| async move { (range, digests_of(client, range).await) };
        let mut answers = std::pin::pin!(stream::iter(requests).map(ask).buffered(AT_ONCE));
        while let Some((range, digests)) = answers.next().await {
            let digests = digests.map_err(|error| self.failed(error))?;
            for (chunk, found) in range.split_at_multiples(CHUNK_BYTES).zip(digests) {
                match found {
                    Some(found) if self.digests().get(chunk.offset) == Some(&found) => compared_bytes += chunk.len,
                    Some(_) => return Err(self.differs(chunk)),
                    None => unreadable_bytes += chunk.len,
                }
                (self.compared)(chunk.len, total);
            }
        }
        if compared_bytes == 0 && unreadable_bytes > 0 {
            return Err(self.failed(nothing_readable(ByteRange::new(0, unreadable_bytes))));
        }
        Ok(match total {
            0 => Comparison::Nothing,
            _ => Comparison::Digests { compared_bytes, unreadable_bytes },
        })
    }

    /// Reads a random sample of it.
    async fn by_samples(self) -> Result<Comparison> {
        let population = self.chunks.len() as u64;
        let random = || getrandom::u64().map_err(|error| Error::failed(format!("getting random numbers: {error}")));
        let chosen = choose(population, sample_size(population), random)?;
        // Not truncated: indices of a list in memory.
        let sample: Vec<ByteRange> = chosen.into_iter().map(|index| self.chunks[index as usize]).collect();
        let total = bytes(&sample);
        let device = self.device;
        let read = |chunk: ByteRange| async move { (chunk, read_exactly(device, chunk).await) };
        let mut reads = std::pin::pin!(stream::iter(sample).map(read).buffered(AT_ONCE));
        let (mut equal, mut compared_bytes, mut unreadable) = (0, 0, None);
        while let Some((chunk, read)) = reads.next().await {
            match read {
                Ok(data) if self.digests().get(chunk.offset) == Some(&digest(&data)) => {
                    equal += 1;
                    compared_bytes += chunk.len;
                }
                Ok(_) => return Err(self.differs(chunk)),
                // What became a bad sector meanwhile says nothing.
                Err(error) if is_bad_sector(&error) => unreadable = Some(chunk),
                Err(error) => return Err(self.failed(error)),
            }
            (self.compared)(chunk.len, total);
        }
        if let Some(chunk) = unreadable.filter(|_| equal == 0) {
            return Err(self.failed(nothing_readable(chunk)));
        }
        if population == 0 {
            return Ok(Comparison::Nothing);
        }
        let of_bytes = bytes(&self.chunks);
        let differ_bytes_max = (differing_max(population, equal) * CHUNK_BYTES).min(of_bytes - compared_bytes);
        Ok(Comparison::Samples { compared_bytes, of_bytes, differ_bytes_max })
    }
}

/// A source of which nothing can be read any more is lost: it has not changed, and cannot be known again either.
fn nothing_readable(range: ByteRange) -> DeviceError {
    let why = "nothing can be read any more of what could be read before".into();
    DeviceError::Lost { device: "the source".into(), range, why }
}

fn bytes(ranges: &[ByteRange]) -> u64 {
    ranges.iter().map(|range| range.len).sum()
}

/// Neighbouring chunks joined, up to the length of a request.
fn requests(chunks: &[ByteRange]) -> Vec<ByteRange> {
    let mut requests: Vec<ByteRange> = Vec::new();
    for chunk in chunks {
        match requests.last_mut() {
            Some(last) if last.end() == chunk.offset && last.len < CHUNKS_ASKED * CHUNK_BYTES => last.len += chunk.len,
            _ => requests.push(*chunk),
        }
    }
    requests
}

/// The digests of the chunks in `range`; `None` for those that cannot be read.
async fn digests_of(client: &Client, range: ByteRange) -> cheetah_device::Result<Vec<Option<[u8; 32]>>> {
    match client.digests(range).await {
        Ok(digests) => Ok(digests.into_iter().map(Some).collect()),
        // One bad sector fails the request.
        Err(error) if is_bad_sector(&error) => {
            let mut digests = Vec::new();
            for chunk in range.split_at_multiples(CHUNK_BYTES) {
                match client.digests(chunk).await {
                    Ok(one) => digests.extend(one.into_iter().map(Some)),
                    Err(error) if is_bad_sector(&error) => digests.push(None),
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
        let chunk = |index: u64| ByteRange::new(index * CHUNK_BYTES, CHUNK_BYTES);
        let last = ByteRange::new(20 * CHUNK_BYTES, 5);
        let chunks: Vec<_> = (0..10).map(chunk).chain([chunk(12), chunk(19), last]).collect();
        let asked: Vec<_> = requests(&chunks).iter().map(|range| (range.offset / CHUNK_BYTES, range.len)).collect();
        assert_eq!(asked, [(0, 8 << 20), (8, 2 << 20), (12, 1 << 20), (19, (1 << 20) + 5)]);
    }
}
