//! Digests of an export's content, made at the server from a fresh read, without the content.
//!
//! A client that was connected with [`Method::Omit`] reads nothing else: replies to its
//! reads hold a BLAKE3 digest of each MiB, 68 bytes on the wire. So a client that has read an export before can tell
//! whether the export still holds the same, at the cost of the server's disk and not of the link.

use cheetah_device::{ByteRange, Error, Result};

use super::Client;
use super::inflight::{Answer, ReadChunk, ReadChunks};
use super::recover::ClientRequest;
use crate::packing::Method;
use crate::proto::packed::{CONTENT_LEN_MAX, Codec};
use crate::proto::{Command, CommandFlags};

impl Client {
    /// Returns the BLAKE3 digests of the content of `range`, one for each piece between multiples of 1 MiB.
    ///
    /// # Errors
    ///
    /// Those of reading, and [`Error::Unsupported`] unless the server granted [`Method::Omit`]. [`Error::Invalid`] for
    /// a range longer than one request.
    pub async fn digests(&self, range: ByteRange) -> Result<Vec<[u8; 32]>> {
        let shared = &*self.shared;
        if shared.packed != Some(Method::Omit) {
            return Err(Error::Unsupported("the NBD server sends no digests"));
        }
        shared.check(range)?;
        if range.is_empty() || range.len > shared.payload_len_max {
            return Err(Error::Invalid(format!("digests of {range} in one request").into()));
        }
        let request = ClientRequest { command: Command::Read, flags: CommandFlags::NONE, range, payload: None };
        match shared.call(request).await? {
            Answer::Packed(pieces) => digests_of(pieces, range),
            _ => Err(mismatch()),
        }
    }
}

/// The digests in a reply, which must be cut at multiples of 1 MiB.
fn digests_of(pieces: ReadChunks, range: ByteRange) -> Result<Vec<[u8; 32]>> {
    let expected: Vec<_> = range.split_at_multiples(CONTENT_LEN_MAX.into()).collect();
    if pieces.len() != expected.len() {
        return Err(mismatch());
    }
    let digest = |(range, (offset, piece)): (ByteRange, (u64, ReadChunk))| match piece {
        ReadChunk::Packed(packed)
            if packed.0.codec == Codec::Omitted && range == ByteRange::new(offset, packed.0.len.into()) =>
        {
            Ok(packed.0.digest)
        }
        _ => Err(mismatch()),
    };
    expected.into_iter().zip(pieces).map(digest).collect()
}

fn mismatch() -> Error {
    Error::Invalid("the NBD server's digests do not fit the request".into())
}
