//! The chunks of an image stream: compression (AFF4 Standard v1.0, section 3.2) and digests (section 6.2).

use libdeflater::Decompressor;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// A stream's compression. A chunk as long as its content is always uncompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Uncompressed.
    Stored,
    /// Snappy's raw format.
    Snappy,
    /// RFC 1950.
    Zlib,
    /// RFC 1951.
    Deflate,
    /// LZ4's block format.
    Lz4,
}

impl Codec {
    /// The codec that a `compressionMethod` names.
    pub fn of(method: &str) -> Option<Self> {
        let name = method.split_once("://").map_or(method, |(_, name)| name).trim_end_matches('/');
        match name {
            "aff4.org/Schema#compression/stored" | "aff4.org/Schema#NullCompressor" => Some(Self::Stored),
            "code.google.com/p/snappy" | "github.com/google/snappy" => Some(Self::Snappy),
            "www.ietf.org/rfc/rfc1950.txt" | "tools.ietf.org/html/rfc1950" => Some(Self::Zlib),
            "www.ietf.org/rfc/rfc1951.txt" | "tools.ietf.org/html/rfc1951" => Some(Self::Deflate),
            "code.google.com/p/lz4" | "github.com/lz4/lz4" => Some(Self::Lz4),
            _ => None,
        }
    }

    /// Unpacks a chunk of up to `len` and at least `wanted` bytes: the last chunk of a stream may be short.
    ///
    /// A chunk as long as its content is stored, by the standard. That rule is ambiguous for a short last chunk: its packed form
    /// may happen to have the size of a chunk, and some writers store it without padding. There, what it unpacks to decides.
    ///
    /// # Errors
    ///
    /// The reason, if the chunk cannot be unpacked, or is too short or too long.
    pub fn unpack(self, packed: &[u8], len: usize, wanted: usize) -> Result<Vec<u8>, &'static str> {
        if packed.len() > len {
            return Err("a packed chunk is longer than the chunk size");
        }
        let is_short = wanted < len;
        if packed.len() == len
            && !(is_short && self.inflate(packed, len).is_some_and(|content| content.len() == wanted))
        {
            return Ok(packed.to_vec());
        }
        match self.inflate(packed, len) {
            Some(content) if content.len() >= wanted => Ok(content),
            _ if is_short && packed.len() == wanted => Ok(packed.to_vec()),
            _ if is_short => Err("the last chunk is neither packed nor as long as its content"),
            Some(_) => Err("a chunk is too short once it is unpacked"),
            None => Err("a chunk cannot be unpacked"),
        }
    }

    /// Unpacks at most `len` bytes; `None` if that is not possible.
    fn inflate(self, packed: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; len];
        let unpacked = match self {
            Self::Stored => {
                out.get_mut(..packed.len())?.copy_from_slice(packed);
                packed.len()
            }
            Self::Snappy => snap::raw::Decoder::new().decompress(packed, &mut out).ok()?,
            Self::Zlib => Decompressor::new().zlib_decompress(packed, &mut out).ok()?,
            Self::Deflate => Decompressor::new().deflate_decompress(packed, &mut out).ok()?,
            Self::Lz4 => lz4_flex::block::decompress_into(packed, &mut out).ok()?,
        };
        out.truncate(unpacked);
        Some(out)
    }
}

/// The digest algorithm of a stream's chunks. If a stream has several, the cheapest is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockHash {
    /// 20 bytes.
    Sha1,
    /// 32 bytes.
    Sha256,
    /// 16 bytes.
    Md5,
}

impl BlockHash {
    /// The supported algorithms, the cheapest first on processors with SHA instructions.
    pub const ALL: [Self; 3] = [Self::Sha1, Self::Sha256, Self::Md5];

    /// The suffix of a segment's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Md5 => "md5",
        }
    }

    /// The length of a digest, in bytes.
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Md5 => 16,
        }
    }

    /// Whether `digest` is the digest of `chunk`.
    pub fn fits(self, chunk: &[u8], digest: &[u8]) -> bool {
        match self {
            Self::Sha1 => Sha1::digest(chunk)[..] == *digest,
            Self::Sha256 => Sha256::digest(chunk)[..] == *digest,
            Self::Md5 => md5::Md5::digest(chunk)[..] == *digest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CODECS: [Codec; 5] = [Codec::Stored, Codec::Snappy, Codec::Zlib, Codec::Deflate, Codec::Lz4];

    fn pack(codec: Codec, chunk: &[u8]) -> Vec<u8> {
        let mut deflate = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
        let mut out = vec![0; 2 * chunk.len() + 100];
        let len = match codec {
            Codec::Stored => return chunk.to_vec(),
            Codec::Snappy => return snap::raw::Encoder::new().compress_vec(chunk).unwrap(),
            Codec::Lz4 => return lz4_flex::block::compress(chunk),
            Codec::Zlib => deflate.zlib_compress(chunk, &mut out).unwrap(),
            Codec::Deflate => deflate.deflate_compress(chunk, &mut out).unwrap(),
        };
        out.truncate(len);
        out
    }

    #[test]
    fn every_codec_unpacks_to_the_content() {
        let chunk: Vec<u8> = (0..4096u32).map(|at| (at / 50) as u8).collect();
        for codec in CODECS {
            let packed = pack(codec, &chunk);
            assert_eq!(codec.unpack(&packed, 4096, 4096), Ok(chunk.clone()), "{codec:?}");
            let short = pack(codec, &chunk[..1000]);
            assert_eq!(codec.unpack(&short, 4096, 1000), Ok(chunk[..1000].to_vec()), "{codec:?}");
            assert!(codec.unpack(&short, 4096, 1001).is_err(), "{codec:?}");
        }
    }

    #[test]
    fn codecs_are_recognised_by_name() {
        assert_eq!(Codec::of("http://code.google.com/p/snappy/"), Some(Codec::Snappy));
        assert_eq!(Codec::of("https://tools.ietf.org/html/rfc1951"), Some(Codec::Deflate));
        assert_eq!(Codec::of("https://example.org/best"), None);
    }

    #[test]
    fn digests_of_every_kind_match_only_their_data() {
        for hash in BlockHash::ALL {
            assert!(!hash.fits(b"abc", &vec![0; hash.digest_len()]));
        }
        let digest = [0x90, 0x01, 0x50, 0x98, 0x3c, 0xd2, 0x4f, 0xb0, 0xd6, 0x96, 0x3f, 0x7d, 0x28, 0xe1, 0x7f, 0x72];
        assert!(BlockHash::Md5.fits(b"abc", &digest));
    }

    #[test]
    fn a_short_last_chunk_is_what_it_unpacks_to() {
        let pack = |content: &[u8]| {
            let mut out = vec![0; 2 * content.len() + 100];
            let len = libdeflater::Compressor::new(Default::default()).zlib_compress(content, &mut out).unwrap();
            out.truncate(len);
            out
        };
        let mut state = 1u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        let noise: Vec<u8> = (0..4096).map(|_| noise()).collect();
        // Noise grows by some bytes when it is packed: to the size of a chunk, if it is that much shorter.
        let content = (4000..4096).map(|len| &noise[..len]).find(|content| pack(content).len() == 4096).unwrap();
        assert_eq!(Codec::Zlib.unpack(&pack(content), 4096, content.len()).unwrap(), content);
        // Stored and padded, and stored without padding.
        let padded = [content, &vec![0; 4096 - content.len()]].concat();
        assert_eq!(Codec::Zlib.unpack(&padded, 4096, content.len()).unwrap(), padded);
        assert_eq!(Codec::Zlib.unpack(content, 4096, content.len()).unwrap(), content);
        assert!(Codec::Zlib.unpack(&content[1..], 4096, content.len()).is_err());
        // A whole chunk of that size is stored, whatever it would unpack to.
        assert_eq!(Codec::Zlib.unpack(&pack(content), 4096, 4096).unwrap(), pack(content));
        assert!(Codec::Zlib.unpack(&noise[..9], 4096, 4096).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(packed in prop::collection::vec(any::<u8>(), 0..300), len in 1usize..300) {
            for codec in CODECS {
                if let Ok(chunk) = codec.unpack(&packed, len, len.min(10)) {
                    prop_assert!(chunk.len() <= len);
                }
            }
        }
    }
}
