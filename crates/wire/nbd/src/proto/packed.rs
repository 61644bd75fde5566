//! Chunks of packed (compressed and digested) content in replies to reads. No I/O.
//!
//! If the context `x-cheetah:packed/METHOD` was granted, the content of a reply arrives in structured chunks of a type
//! of our own, [`ChunkKind::Packed`]. Holes and errors have their usual types. The payload of such a chunk:
//!
//! | bytes | field |
//! |---|---|
//! | 8 | offset of the content (absolute) |
//! | 4 | length of the content: 1 to [`CONTENT_LEN_MAX`] |
//! | 1 | codec: 0 stored, 1 LZ4 block, 2 Zstandard frame, 3 omitted |
//! | 3 | zeros |
//! | 32 | BLAKE3 of the content |
//! | the rest | the packed content: as long as the content if stored, shorter if compressed, empty if omitted |
//!
//! Content is omitted only if the context `x-cheetah:digests` was granted instead: replies to reads then consist of the
//! digests of the content, one for each MiB.
//!
//! Each chunk can be unpacked and checked independently of all others.

use std::cell::RefCell;

use bytes::{BufMut, Bytes, BytesMut};
use cheetah_device::Data;

use super::Violation;
use super::reply::{self, ChunkKind};
use super::wire::Reader;

/// The most content in one chunk, in bytes.
pub const CONTENT_LEN_MAX: u32 = 1 << 20;
/// Bytes before the packed content.
pub const HEAD_LEN: usize = 48;

/// The codec of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Not compressed.
    Stored = 0,
    /// One LZ4 block, without a frame.
    Lz4 = 1,
    /// One Zstandard frame.
    Zstd = 2,
    /// Omitted: only the digest is sent.
    Omitted = 3,
}

impl Codec {
    fn from_wire(number: u8) -> Option<Self> {
        [Self::Stored, Self::Lz4, Self::Zstd, Self::Omitted].into_iter().find(|codec| *codec as u8 == number)
    }
}

/// The header before the packed content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Offset of the content (absolute).
    pub offset: u64,
    /// Length of the content in bytes.
    pub len: u32,
    /// The codec.
    pub codec: Codec,
    /// BLAKE3 of the content.
    pub digest: [u8; 32],
}

impl Head {
    /// Parses the header of a chunk's payload, which is followed by `packed_len` bytes.
    ///
    /// # Errors
    ///
    /// If a field is invalid: then the server does not speak this protocol.
    pub fn parse(bytes: &[u8; HEAD_LEN], packed_len: usize) -> Result<Self, Violation> {
        let mut reader = Reader::new(bytes);
        let fields = (|| Some((reader.u64()?, reader.u32()?, reader.array()?, reader.array()?)))();
        let malformed = || Violation::new("the head of a chunk of packed content is malformed");
        let (offset, len, [codec, 0, 0, 0], digest) = fields.ok_or_else(malformed)? else {
            return Err(malformed());
        };
        let codec = Codec::from_wire(codec).ok_or_else(|| Violation::new(format!("packed by codec {codec}")))?;
        let fits = match codec {
            Codec::Stored => packed_len == len as usize,
            Codec::Lz4 | Codec::Zstd => (1..len as usize).contains(&packed_len),
            Codec::Omitted => packed_len == 0,
        };
        if !(1..=CONTENT_LEN_MAX).contains(&len) || !fits {
            return Err(Violation::new(format!("{len} bytes of content packed into {packed_len}")));
        }
        Ok(Self { offset, len, codec, digest })
    }

    /// Appends the chunk's own header and this one; `packed_len` bytes of packed content must follow.
    pub fn encode(&self, out: &mut BytesMut, cookie: u64, done: bool, packed_len: u32) {
        let head_len = HEAD_LEN as u32;
        reply::chunk(out, cookie, ChunkKind::Packed, done, packed_len.saturating_add(head_len));
        out.put_u64(self.offset);
        out.put_u32(self.len);
        out.put_slice(&[self.codec as u8, 0, 0, 0]);
        out.put_slice(&self.digest);
    }
}

/// The content does not match its digest, or cannot be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorruptContent;

/// Unpacks into `out`, which must be as long as the content, and checks the digest. Uses no more memory than that for
/// any `packed`.
///
/// # Errors
///
/// If the content is corrupt. `out` is then undefined.
pub fn unpack(head: &Head, packed: &[u8], out: &mut [u8]) -> Result<(), CorruptContent> {
    thread_local! {
        static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }
    let len = match head.codec {
        Codec::Stored if packed.len() == out.len() => {
            out.copy_from_slice(packed);
            packed.len()
        }
        Codec::Stored | Codec::Omitted => return Err(CorruptContent),
        Codec::Lz4 => lz4_flex::block::decompress_into(packed, out).map_err(|_| CorruptContent)?,
        Codec::Zstd => ZSTD.with_borrow_mut(|kept| {
            let zstd = match kept {
                Some(zstd) => zstd,
                None => kept.insert(zstd::bulk::Decompressor::new().map_err(|_| CorruptContent)?),
            };
            zstd.decompress_to_buffer(packed, out).map_err(|_| CorruptContent)
        })?,
    };
    if len == out.len() && len == head.len as usize { check(head, out) } else { Err(CorruptContent) }
}

/// Checks the digest of stored content.
///
/// # Errors
///
/// If the digest differs.
pub fn check(head: &Head, content: &[u8]) -> Result<(), CorruptContent> {
    if blake3::hash(content) == head.digest { Ok(()) } else { Err(CorruptContent) }
}

/// The compression of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// None.
    Stored,
    /// LZ4.
    Lz4,
    /// Zstandard at this level, 1 to 19.
    Zstd(u8),
}

/// Packs content. Keeps its working memory for the next call.
#[derive(Default)]
pub struct Compressor {
    zstd: Option<(u8, zstd::bulk::Compressor<'static>)>,
    scratch: Vec<u8>,
}

impl Compressor {
    /// Digests and compresses the content at `offset`, at most [`CONTENT_LEN_MAX`] bytes. Incompressible content is
    /// stored.
    pub fn pack(&mut self, offset: u64, content: &Bytes, how: Compression) -> (Head, Bytes) {
        let digest = *blake3::hash(content).as_bytes();
        let (codec, packed) = match self.shrink(content, how) {
            Some(packed) => packed,
            None => (Codec::Stored, content.clone()),
        };
        // Not truncated: at most 1 MiB.
        (Head { offset, len: content.len() as u32, codec, digest }, packed)
    }

    /// Digests the content at `offset`, at most [`CONTENT_LEN_MAX`] bytes, and omits it.
    pub fn digest(offset: u64, content: &Data) -> Head {
        let mut hasher = blake3::Hasher::new();
        for run in content.runs() {
            hasher.update(run);
        }
        // Not truncated: at most 1 MiB.
        Head { offset, len: content.len() as u32, codec: Codec::Omitted, digest: *hasher.finalize().as_bytes() }
    }

    fn shrink(&mut self, content: &[u8], how: Compression) -> Option<(Codec, Bytes)> {
        let room = lz4_flex::block::get_maximum_output_size(content.len());
        if self.scratch.len() < room && how != Compression::Stored {
            self.scratch.resize(room, 0);
        }
        let (codec, len) = match how {
            Compression::Stored => return None,
            Compression::Lz4 => (Codec::Lz4, lz4_flex::block::compress_into(content, &mut self.scratch).ok()?),
            Compression::Zstd(level) => {
                // The buffer is one byte shorter than the content, so that compressing incompressible content fails;
                // the content is then stored.
                let room = content.len().saturating_sub(1);
                let zstd = self.zstd(level)?;
                (Codec::Zstd, zstd.0.compress_to_buffer(content, &mut zstd.1[..room]).ok()?)
            }
        };
        (len < content.len()).then(|| (codec, Bytes::copy_from_slice(&self.scratch[..len])))
    }

    fn zstd(&mut self, level: u8) -> Option<(&mut zstd::bulk::Compressor<'static>, &mut [u8])> {
        let kept = match self.zstd.take() {
            Some((known, mut zstd)) => {
                if known != level {
                    zstd.set_compression_level(level.into()).ok()?;
                }
                zstd
            }
            None => zstd::bulk::Compressor::new(level.into()).ok()?,
        };
        let (_, zstd) = self.zstd.insert((level, kept));
        Some((zstd, &mut self.scratch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Random content: noise, repetition, or both.
    fn content() -> impl Strategy<Value = Vec<u8>> {
        let noise = prop::collection::vec(any::<u8>(), 1..3000);
        (noise, 1usize..40, prop::option::of(any::<u8>())).prop_map(|(noise, times, fill)| {
            let mut bytes = noise.repeat(times);
            bytes.extend(fill.map(|fill| vec![fill; 5000]).unwrap_or_default());
            bytes
        })
    }

    fn how() -> impl Strategy<Value = Compression> {
        prop_oneof![Just(Compression::Stored), Just(Compression::Lz4), (1u8..7).prop_map(Compression::Zstd)]
    }

    fn unpacked(head: &Head, packed: &[u8]) -> Result<Vec<u8>, CorruptContent> {
        let mut out = vec![0; head.len as usize];
        unpack(head, packed, &mut out).map(|()| out)
    }

    proptest! {
        #[test]
        fn packed_content_unpacks_to_the_same_bytes(contents in prop::collection::vec((content(), how()), 1..4), offset: u64, done: bool) {
            let mut compressor = Compressor::default();
            for (content, how) in contents {
                let (head, packed) = compressor.pack(offset, &content.clone().into(), how);
                prop_assert!(packed.len() <= content.len());
                let mut wire = BytesMut::new();
                head.encode(&mut wire, 7, done, packed.len() as u32);
                let (header, len) = reply::Header::parse(&wire).unwrap().unwrap();
                let payload_len = (HEAD_LEN + packed.len()) as u32;
                prop_assert_eq!(
                    header, reply::Header::Chunk { cookie: 7, kind: ChunkKind::Packed, done, len: payload_len }
                );
                prop_assert_eq!(Head::parse(wire[len..].first_chunk().unwrap(), packed.len()), Ok(head));
                prop_assert!(unpacked(&head, &packed) == Ok(content));
            }
        }

        #[test]
        fn a_chunk_of_omitted_content_holds_its_digest(
            parts in prop::collection::vec((content(), any::<bool>()), 1..4), offset: u64, done: bool
        ) {
            let (mut data, mut bytes) = (Data::new(), Vec::new());
            for (part, is_zeros) in parts {
                let part = if is_zeros { vec![0; part.len()] } else { part };
                bytes.extend_from_slice(&part);
                data.push_part(if is_zeros { cheetah_device::data::Part::Zeros(part.len() as u64) } else { cheetah_device::data::Part::Bytes(part.into()) });
            }
            let head = Compressor::digest(offset, &data);
            prop_assert_eq!(head.digest, *blake3::hash(&bytes).as_bytes());
            let mut wire = BytesMut::new();
            head.encode(&mut wire, 7, done, 0);
            let (_, len) = reply::Header::parse(&wire).unwrap().unwrap();
            prop_assert_eq!(Head::parse(wire[len..].first_chunk().unwrap(), 0), Ok(head));
            prop_assert!(unpacked(&head, &[]).is_err(), "a digest is never taken for content");
        }

        #[test]
        fn a_flipped_bit_is_detected(content in content(), how in how(), at: prop::sample::Index, bit in 0u8..8) {
            let (head, packed) = Compressor::default().pack(0, &content.clone().into(), how);
            let mut damaged = packed.to_vec();
            let at = at.index(damaged.len());
            damaged[at] ^= 1 << bit;
            // A decoder may overlook it where it changes nothing.
            prop_assert!(unpacked(&head, &damaged).is_err() || unpacked(&head, &damaged) == Ok(content));
        }

        #[test]
        fn arbitrary_bytes_neither_panic_nor_unpack(head: [u8; 48], packed in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(head) = Head::parse(&head, packed.len()) {
                prop_assert!(unpacked(&head, &packed).is_err());
            }
            for codec in [Codec::Lz4, Codec::Zstd] {
                let head = Head { offset: 0, len: 4096, codec, digest: [0; 32] };
                prop_assert!(unpacked(&head, &packed).is_err());
            }
        }
    }

    #[test]
    fn invalid_lengths_are_refused() {
        let head = |len: u32, codec: u8, pad: u8| {
            let mut head = [0; HEAD_LEN];
            head[8..12].copy_from_slice(&len.to_be_bytes());
            (head[12], head[13]) = (codec, pad);
            head
        };
        assert!(Head::parse(&head(100, 0, 0), 100).is_ok());
        assert!(Head::parse(&head(1 << 20, 2, 0), 5).is_ok());
        assert!(Head::parse(&head(1 << 20, 3, 0), 0).is_ok());
        for (len, codec, pad, packed) in [
            (0, 0, 0, 0),
            (100, 0, 0, 99),
            (100, 1, 0, 100),
            (100, 2, 0, 0),
            (100, 3, 0, 50),
            (100, 4, 0, 50),
            (100, 1, 1, 50),
            ((1 << 20) + 1, 2, 0, 50),
        ] {
            assert!(Head::parse(&head(len, codec, pad), packed).is_err(), "{len} {codec} {pad} {packed}");
        }
    }

    #[test]
    fn a_decompression_bomb_fills_no_more_than_its_stated_length() {
        let bomb = zstd::bulk::compress(&vec![7; 64 << 20], 1).unwrap();
        let head = Head { offset: 0, len: CONTENT_LEN_MAX, codec: Codec::Zstd, digest: [0; 32] };
        assert!(bomb.len() < 64 << 10 && unpacked(&head, &bomb).is_err());
        let bomb = lz4_flex::block::compress(&vec![7; 64 << 20]);
        let head = Head { codec: Codec::Lz4, ..head };
        assert!(unpacked(&head, &bomb).is_err());
        // Content shorter than stated is refused like longer content.
        let short = zstd::bulk::compress(&[7; 1000], 1).unwrap();
        assert!(unpacked(&Head { codec: Codec::Zstd, len: 1001, ..head }, &short).is_err());
    }
}
