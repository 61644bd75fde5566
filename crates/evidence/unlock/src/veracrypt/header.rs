//! The header of a volume ("VeraCrypt Volume Format Specification"): a salt, and encrypted bytes that say where the data are.

use cheetah_device::ByteRange;
use crc_fast::{CrcAlgorithm, checksum};

use super::methods::Program;
use crate::refusal::{Refusal, Result};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 512;
/// Bytes of its salt, with which it begins.
pub const SALT_BYTES: usize = 64;
/// Bytes of what is encrypted.
pub const SEALED_BYTES: usize = HEADER_BYTES - SALT_BYTES;
/// The first version that says where the data lie.
const VERSION_MIN: u16 = 4;
/// The unit in which data are encrypted, also where sectors are larger.
pub const UNIT_BYTES: u64 = 512;
/// Where the keys lie in what is encrypted.
const KEYS_AT: usize = 256 - SALT_BYTES;
/// The flag of a system that is encrypted, whose header lies elsewhere.
const SYSTEM: u32 = 1;

/// What a decrypted header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Where the data lie in the volume: whole units.
    pub data: ByteRange,
}

impl Header {
    /// Parses decrypted bytes; `None` unless they are a header of `program` and both their checksums are right. A wrong key gives
    /// such bytes once in 2^96 times.
    pub fn parse(sealed: &[u8; SEALED_BYTES], program: Program) -> Option<Result<Self>> {
        let keys = &sealed[KEYS_AT..];
        let is_right = sealed.starts_with(program.magic())
            && u32_at(sealed, 72) == crc32(keys)
            && u32_at(sealed, 252) == crc32(&sealed[..252 - SALT_BYTES]);
        is_right.then(|| Self::of(sealed))
    }

    /// Parses decrypted bytes, whatever their checksums are.
    pub fn of(sealed: &[u8; SEALED_BYTES]) -> Result<Self> {
        let version = (u32_at(sealed, 68) >> 16) as u16;
        if version < VERSION_MIN {
            return Err(Refusal::Unsupported(format!("a header of version {version}")));
        }
        if u32_at(sealed, 124) & SYSTEM != 0 {
            return Err(Refusal::Unsupported("the encryption of a system".to_owned()));
        }
        let data = ByteRange::new(u64_at(sealed, 108), u64_at(sealed, 116));
        let is_whole = |bytes: u64| bytes.is_multiple_of(UNIT_BYTES);
        match is_whole(data.offset) && is_whole(data.len) && !data.is_empty() {
            true => Ok(Self { data }),
            false => Err(Refusal::Damaged("its data are no whole sectors")),
        }
    }

    /// The keys of the data, in what is encrypted.
    pub fn keys(sealed: &[u8; SEALED_BYTES]) -> &[u8] {
        &sealed[KEYS_AT..]
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    // A sum of 32 bits.
    checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// A number at a place of the whole header, its highest byte first.
fn u32_at(sealed: &[u8; SEALED_BYTES], at: usize) -> u32 {
    sealed[at - SALT_BYTES..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn u64_at(sealed: &[u8; SEALED_BYTES], at: usize) -> u64 {
    sealed[at - SALT_BYTES..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
