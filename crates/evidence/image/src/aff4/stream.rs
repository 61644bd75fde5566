//! An image stream: chunks of equal length, compressed one by one, in segments called bevies, each with an index and
//! optional digests of its chunks (AFF4 Standard v1.0, sections 3 and 6.2).

use std::ops::Range;

use bytes::Bytes;
use cheetah_device::{ByteRange, Data, Error as DeviceError};

use super::cache::Cache;
use super::chunk::{BlockHash, Codec};
use super::image::{Image, folders};
use super::volume::Volume;
use cheetah_error::{Error, Result};

/// The maximum size of a chunk, in bytes. Writers use 32 KiB.
const CHUNK_LEN_MAX: u64 = 8 << 20;

/// The size of an index entry: a chunk's offset in the bevy (u64) and packed length (u32), little-endian.
const ENTRY_LEN: u64 = 12;

/// The maximum number of chunks in one read.
const RUN_MAX: u64 = 32;

/// A stream of chunks.
pub(super) struct ImageStream {
    /// The stream's number in the cache.
    number: usize,
    size: u64,
    chunk_len: u64,
    chunks_in_bevy: u64,
    codec: Codec,
    bevies: Vec<Bevy>,
}

/// The segments of a bevy, by their numbers in the volume.
struct Bevy {
    data: usize,
    index: usize,
    hashes: Option<(BlockHash, usize)>,
}

/// Why the segments of a bevy cannot be used.
#[derive(Debug, thiserror::Error)]
enum BadBevy {
    /// The volume does not have one of them.
    #[error("lacks its segment {0}")]
    Missing(String),
    /// Ranges of one cannot be read.
    #[error("has the segment {0} compressed as a whole, so ranges of it cannot be read")]
    Compressed(String),
    /// The index has fewer entries than there are chunks.
    #[error("has an index {0}.index that is too short")]
    ShortIndex(String),
}

impl ImageStream {
    /// Finds the stream `urn`, and checks that all of its segments exist. Deducts its bevies from `bevies_left`, and
    /// fails below 0.
    pub fn open(number: usize, urn: &str, image: &Image, volume: &Volume, bevies_left: &mut u64) -> Result<Self> {
        let Image { facts, volume_urn, .. } = image;
        let refuse = |why: String| Error::evidence(format!("{}: its image stream {urn} {why}", volume.path()));
        let size = facts.number(urn, "size").ok_or_else(|| refuse("has no size in the metadata".into()))?;
        let chunk_len = facts.number(urn, "chunkSize").filter(|len| (1..=CHUNK_LEN_MAX).contains(len));
        let chunk_len = chunk_len.ok_or_else(|| refuse("has chunks of no size, or of more than 8 MiB".into()))?;
        let chunks_in_bevy = facts.number(urn, "chunksInSegment").filter(|count| *count > 0);
        let chunks_in_bevy =
            chunks_in_bevy.ok_or_else(|| refuse("has no number of chunks per segment in the metadata".into()))?;
        let codec = match facts.iri(urn, "compressionMethod") {
            None => Codec::Stored,
            Some(method) => Codec::of(method).ok_or_else(|| {
                Error::failed(format!("{}: it is compressed with {method}, which is not supported", volume.path()))
            })?,
        };
        let bevies = size.div_ceil(chunk_len).div_ceil(chunks_in_bevy);
        *bevies_left = bevies_left
            .checked_sub(bevies)
            .ok_or_else(|| refuse(format!("has {bevies} segments, which is more than the limit")))?;
        let mut stream = Self { number, size, chunk_len, chunks_in_bevy, codec, bevies: Vec::new() };
        if bevies > 0 {
            let name = |name: &str| volume.find(&format!("{name}/00000000"));
            let folder = folders(urn, volume_urn).into_iter().find(|folder| name(folder).is_some());
            let folder = folder.ok_or_else(|| refuse("is not in this file".into()))?;
            for number in 0..bevies {
                let bevy = stream.bevy(volume, &format!("{folder}/{number:08}"), number);
                let bevy = bevy.map_err(|why| refuse(why.to_string()))?;
                stream.bevies.push(bevy);
            }
        }
        Ok(stream)
    }

    fn bevy(&self, volume: &Volume, name: &str, number: u64) -> std::result::Result<Bevy, BadBevy> {
        let find = |name: &str| {
            let member = volume.find(name).ok_or_else(|| BadBevy::Missing(name.to_owned()))?;
            match volume.is_stored(member) {
                true => Ok(member),
                false => Err(BadBevy::Compressed(name.to_owned())),
            }
        };
        let (data, index) = (find(name)?, find(&format!("{name}.index"))?);
        let chunks = self.chunks(number).end - self.chunks(number).start;
        if volume.len(index) < chunks.saturating_mul(ENTRY_LEN) {
            return Err(BadBevy::ShortIndex(name.to_owned()));
        }
        // Evimetry's names first, then those of the standard's text.
        let hashes = BlockHash::ALL.into_iter().find_map(|hash| {
            let names = [format!("{name}.blockHash.{}", hash.name()), format!("{name}.{}", hash.name())];
            let member = names.iter().find_map(|name| volume.find(name))?;
            let whole =
                volume.is_stored(member) && volume.len(member) >= chunks.saturating_mul(hash.digest_len() as u64);
            whole.then_some((hash, member))
        });
        Ok(Bevy { data, index, hashes })
    }

    /// The chunks of a bevy.
    fn chunks(&self, bevy: u64) -> Range<u64> {
        let all = self.size.div_ceil(self.chunk_len);
        let first = bevy.saturating_mul(self.chunks_in_bevy);
        first..first.saturating_add(self.chunks_in_bevy).min(all)
    }

    /// The byte range of some chunks.
    fn bytes(&self, chunks: Range<u64>) -> ByteRange {
        let at = |chunk: u64| chunk.saturating_mul(self.chunk_len).min(self.size);
        ByteRange::between(at(chunks.start), at(chunks.end))
    }

    /// The size of the stream, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes in a chunk.
    pub fn chunk_len(&self) -> u64 {
        self.chunk_len
    }

    /// Reads the range, if all of it is cached.
    pub fn at_hand(&self, cache: &Cache, range: ByteRange) -> Option<Data> {
        let mut data = Data::new();
        for piece in range.split_at_multiples(self.chunk_len) {
            let chunk = cache.get((self.number, piece.offset / self.chunk_len))?;
            data.append(self.slice(&chunk, piece));
        }
        Some(data)
    }

    /// Reads a range of the stream, which must lie within it. Blocks.
    pub fn read(&self, volume: &Volume, cache: &Cache, range: ByteRange) -> cheetah_device::Result<Data> {
        let mut data = Data::new();
        let mut pieces = range.split_at_multiples(self.chunk_len).peekable();
        while let Some(piece) = pieces.next() {
            let first = piece.offset / self.chunk_len;
            if let Some(chunk) = cache.get((self.number, first)) {
                data.append(self.slice(&chunk, piece));
                continue;
            }
            let end = range.end().div_ceil(self.chunk_len).min(first + RUN_MAX);
            let mut next = Some(piece);
            for (chunk, number) in self.fetch(volume, first..end)?.into_iter().zip(first..) {
                cache.put((self.number, number), chunk.clone());
                if let Some(piece) = next.take().or_else(|| pieces.next()) {
                    data.append(self.slice(&chunk, piece));
                }
            }
        }
        match data.len() == range.len {
            true => Ok(data),
            false => Err(self.corrupt(volume, range, "a chunk is too short")),
        }
    }

    fn slice(&self, chunk: &Bytes, piece: ByteRange) -> Data {
        Data::from(chunk.clone()).slice(piece.offset % self.chunk_len, piece.len)
    }

    /// Reads and unpacks the chunks in the same bevy as the first.
    fn fetch(&self, volume: &Volume, chunks: Range<u64>) -> cheetah_device::Result<Vec<Bytes>> {
        let number = chunks.start / self.chunks_in_bevy;
        let here = self.chunks(number);
        let chunks = chunks.start..chunks.end.min(here.end);
        let (from, count) = (chunks.start - here.start, chunks.end - chunks.start);
        let asked = self.bytes(chunks.clone());
        let bevy = usize::try_from(number).ok().and_then(|number| self.bevies.get(number));
        let bevy = bevy.ok_or_else(|| self.corrupt(volume, asked, "there is no such segment"))?;
        let index = volume.read(bevy.index, ByteRange::new(from * ENTRY_LEN, count * ENTRY_LEN))?;
        let entries: Vec<_> = index.chunks_exact(ENTRY_LEN as usize).map(entry).collect();
        let known = volume.len(bevy.data);
        if entries.iter().any(|entry| !entry.fits(known) || entry.is_empty() || entry.len > self.chunk_len) {
            return Err(self.corrupt(volume, asked, "the index refers to bytes beyond the segment"));
        }
        let digests = match bevy.hashes {
            None => None,
            Some((hash, member)) => {
                let len = hash.digest_len() as u64;
                Some((hash, volume.read(member, ByteRange::new(from * len, count * len))?))
            }
        };
        let packed = read_together(volume, bevy.data, &entries)?;
        let mut out = Vec::with_capacity(entries.len());
        for (place, (chunk, packed)) in chunks.zip(packed).enumerate() {
            let range = self.bytes(chunk..chunk.saturating_add(1));
            // Chunks are at most 8 MiB, so their lengths fit in usize.
            let unpacked = self.codec.unpack(&packed, self.chunk_len as usize, range.len as usize);
            let mut unpacked = unpacked.map_err(|why| self.corrupt(volume, range, why))?;
            if let Some((hash, digests)) = &digests {
                let digest = &digests[place * hash.digest_len()..][..hash.digest_len()];
                if !self.is_as_hashed(*hash, &mut unpacked, range, digest) {
                    return Err(self.corrupt(volume, range, "a chunk does not match its digest"));
                }
            }
            out.push(unpacked.into());
        }
        Ok(out)
    }

    /// The last chunk is padded with zeros if the stream ends within it. The standard does not say whether the digest
    /// covers the padding.
    fn is_as_hashed(&self, hash: BlockHash, chunk: &mut Vec<u8>, range: ByteRange, digest: &[u8]) -> bool {
        // As above, a chunk's length fits in usize.
        let (wanted, whole) = (range.len as usize, self.chunk_len as usize);
        if wanted < whole && hash.fits(&chunk[..wanted], digest) {
            return true;
        }
        chunk.resize(whole, 0);
        hash.fits(chunk, digest)
    }

    fn corrupt(&self, volume: &Volume, range: ByteRange, why: &str) -> DeviceError {
        tracing::error!("{}: bytes {range} of image stream {}: {why}", volume.path(), self.number);
        DeviceError::Corrupt { device: volume.path().into(), range }
    }
}

/// Reads ranges of a segment, with one read if they are contiguous, as most writers arrange them.
fn read_together(volume: &Volume, member: usize, ranges: &[ByteRange]) -> cheetah_device::Result<Vec<Bytes>> {
    let follow = ranges.windows(2).all(|pair| pair[0].end() == pair[1].offset);
    let (Some(first), Some(last), true) = (ranges.first(), ranges.last(), follow) else {
        return ranges.iter().map(|range| volume.read(member, *range)).collect();
    };
    let all = volume.read(member, ByteRange::between(first.offset, last.end()))?;
    // Not truncated: positions within `all`, which is in memory.
    let at = |range: &ByteRange| (range.offset - first.offset) as usize..(range.end() - first.offset) as usize;
    Ok(ranges.iter().map(|range| all.slice(at(range))).collect())
}

fn entry(bytes: &[u8]) -> ByteRange {
    let offset = bytes.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes));
    let len = bytes.get(8..).and_then(<[u8]>::first_chunk).map_or(u32::MAX, |bytes| u32::from_le_bytes(*bytes));
    ByteRange::new(offset, len.into())
}
