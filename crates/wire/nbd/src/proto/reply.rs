//! Replies of the transmission phase, simple and structured.
//!
//! A server writes them with the functions named after them. If the data of a read follows, these write only the bytes
//! before it, so that the data is sent from its own buffer. A client parses the [`Header`] and then, once it has the
//! payload, parses that with [`ErrorPayload`], [`hole`] and [`extents`].

use bytes::{BufMut, BytesMut};
use cheetah_device::Extent;

use super::wire::Reader;
use super::{ErrorCode, SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO, STRING_LEN_MAX, STRUCTURED_REPLY_MAGIC, Violation};

/// Length of a simple reply in bytes, without data.
pub const SIMPLE_LEN: usize = 16;
/// Length of the header of a structured reply's chunk in bytes.
pub const CHUNK_LEN: usize = 20;
/// `NBD_REPLY_FLAG_DONE`: the last chunk of its reply.
const DONE: u16 = 1;

/// The type of a chunk of a structured reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// `NBD_REPLY_TYPE_NONE`
    None,
    /// `NBD_REPLY_TYPE_OFFSET_DATA`: 64 bits of offset, then bytes read.
    OffsetData,
    /// `NBD_REPLY_TYPE_OFFSET_HOLE`: see [`hole`].
    OffsetHole,
    /// `NBD_REPLY_TYPE_BLOCK_STATUS`: see [`extents`].
    BlockStatus,
    /// Packed content, if it was negotiated: see [`packed`](super::packed).
    Packed,
    /// `NBD_REPLY_TYPE_ERROR`: see [`ErrorPayload`].
    Error,
    /// `NBD_REPLY_TYPE_ERROR_OFFSET`: see [`ErrorPayload`].
    ErrorOffset,
    /// An error of a type that the specification does not define; it begins like an [`ErrorPayload`].
    OtherError(u16),
    /// Any other type.
    Unknown(u16),
}

/// The type of a chunk of packed content: "CP". The specification assigns no type this high.
const PACKED: u16 = 0x4350;

impl ChunkKind {
    fn from_wire(number: u16) -> Self {
        match number {
            0 => Self::None,
            1 => Self::OffsetData,
            2 => Self::OffsetHole,
            5 => Self::BlockStatus,
            PACKED => Self::Packed,
            0x8001 => Self::Error,
            0x8002 => Self::ErrorOffset,
            number if number & 0x8000 != 0 => Self::OtherError(number),
            number => Self::Unknown(number),
        }
    }

    fn wire(self) -> u16 {
        match self {
            Self::None => 0,
            Self::OffsetData => 1,
            Self::OffsetHole => 2,
            Self::BlockStatus => 5,
            Self::Packed => PACKED,
            Self::Error => 0x8001,
            Self::ErrorOffset => 0x8002,
            Self::OtherError(number) | Self::Unknown(number) => number,
        }
    }

    /// Returns whether a chunk of this type makes the reply an error.
    pub fn is_error(self) -> bool {
        matches!(self, Self::Error | Self::ErrorOffset | Self::OtherError(_))
    }
}

/// The header of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// A simple reply. After a successful read, the data follows; its length is that of the request.
    Simple {
        /// The request's cookie.
        cookie: u64,
        /// The result.
        result: Result<(), ErrorCode>,
    },
    /// One chunk of a structured reply.
    Chunk {
        /// The request's cookie.
        cookie: u64,
        /// The type of the payload.
        kind: ChunkKind,
        /// Whether this is the last chunk of the reply.
        done: bool,
        /// Length of the payload in bytes, as the server claims: unchecked.
        len: u32,
    },
}

impl Header {
    /// Parses a header at the start of `bytes`, and returns it with its length. `None` if more bytes are needed.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Violation> {
        let mut reader = Reader::new(bytes);
        match reader.u32() {
            None => Ok(None),
            Some(SIMPLE_REPLY_MAGIC) => Ok(Self::simple(reader).map(|header| (header, SIMPLE_LEN))),
            Some(STRUCTURED_REPLY_MAGIC) => Ok(Self::chunk(reader).map(|header| (header, CHUNK_LEN))),
            Some(magic) => Err(Violation::new(format!("a reply starts with {magic:#010x}, which is no magic number"))),
        }
    }

    fn simple(mut reader: Reader<'_>) -> Option<Self> {
        let error = reader.u32()?;
        Some(Self::Simple { cookie: reader.u64()?, result: ErrorCode::from_wire(error) })
    }

    fn chunk(mut reader: Reader<'_>) -> Option<Self> {
        let flags = reader.u16()?;
        let kind = ChunkKind::from_wire(reader.u16()?);
        Some(Self::Chunk { kind, cookie: reader.u64()?, done: flags & DONE != 0, len: reader.u32()? })
    }
}

/// Appends a simple reply. After a successful read, the data must follow.
pub fn simple(out: &mut BytesMut, cookie: u64, result: Result<(), ErrorCode>) {
    out.put_u32(SIMPLE_REPLY_MAGIC);
    out.put_u32(result.map_or_else(ErrorCode::wire, |()| 0));
    out.put_u64(cookie);
}

/// Appends the header of a chunk; `len` bytes of payload must follow.
pub fn chunk(out: &mut BytesMut, cookie: u64, kind: ChunkKind, done: bool, len: u32) {
    out.put_u32(STRUCTURED_REPLY_MAGIC);
    out.put_u16(if done { DONE } else { 0 });
    out.put_u16(kind.wire());
    out.put_u64(cookie);
    out.put_u32(len);
}

/// Appends a final chunk without content.
pub fn none(out: &mut BytesMut, cookie: u64) {
    chunk(out, cookie, ChunkKind::None, true, 0);
}

/// Appends the header for `len` bytes of data read at `offset` (absolute); the bytes must follow. `len` is at least 1
/// and at most 2³² − 9.
pub fn offset_data(out: &mut BytesMut, cookie: u64, done: bool, offset: u64, len: u32) {
    chunk(out, cookie, ChunkKind::OffsetData, done, len.saturating_add(8));
    out.put_u64(offset);
}

/// Appends a hole: `len` bytes of zeros at `offset` (absolute). `len` must not be 0.
pub fn offset_hole(out: &mut BytesMut, cookie: u64, done: bool, offset: u64, len: u32) {
    chunk(out, cookie, ChunkKind::OffsetHole, done, 12);
    out.put_u64(offset);
    out.put_u32(len);
}

/// Appends a chunk with `extents` for the metadata context numbered `context`. Extents whose length exceeds 32 bits are
/// split.
///
/// A reply to a block status request needs one such chunk for *every* context selected in the handshake.
pub fn block_status(out: &mut BytesMut, cookie: u64, done: bool, context: u32, extents: &[Extent]) {
    // A multiple of every sensible block size, so that cuts fall on block boundaries.
    const LEN_MAX: u64 = 1 << 31;
    let start = out.len();
    chunk(out, cookie, ChunkKind::BlockStatus, done, 0);
    let payload = out.len();
    out.put_u32(context);
    for extent in extents {
        let status = if extent.hole { STATE_HOLE } else { 0 } | if extent.zero { STATE_ZERO } else { 0 };
        let mut rest = extent.len;
        while rest > 0 {
            let here = rest.min(LEN_MAX);
            out.put_u32(u32::try_from(here).unwrap_or(u32::MAX));
            out.put_u32(status);
            rest -= here;
        }
    }
    let len = u32::try_from(out.len() - payload).unwrap_or(u32::MAX);
    out[start + CHUNK_LEN - 4..payload].copy_from_slice(&len.to_be_bytes());
}

/// Appends an error chunk. A message longer than the protocol allows is truncated.
pub fn error(out: &mut BytesMut, cookie: u64, done: bool, code: ErrorCode, message: &str) {
    put_error(out, cookie, done, code, message, None);
}

/// Appends an error chunk for a failure at `offset` (absolute).
pub fn error_offset(out: &mut BytesMut, cookie: u64, done: bool, code: ErrorCode, message: &str, offset: u64) {
    put_error(out, cookie, done, code, message, Some(offset));
}

fn put_error(out: &mut BytesMut, cookie: u64, done: bool, code: ErrorCode, message: &str, offset: Option<u64>) {
    let message = &message[..message.floor_char_boundary(STRING_LEN_MAX)];
    // At most STRING_LEN_MAX.
    let message_len = u16::try_from(message.len()).unwrap_or(0);
    let (kind, extra) = if offset.is_some() { (ChunkKind::ErrorOffset, 8) } else { (ChunkKind::Error, 0) };
    chunk(out, cookie, kind, done, 6 + u32::from(message_len) + extra);
    out.put_u32(code.wire());
    out.put_u16(message_len);
    out.put_slice(message.as_bytes());
    if let Some(offset) = offset {
        out.put_u64(offset);
    }
}

/// The payload of an error chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPayload {
    /// The error.
    pub code: ErrorCode,
    /// A message for people; may be empty.
    pub message: String,
    /// The offset of the failure (absolute), in a [`ChunkKind::ErrorOffset`].
    pub offset: Option<u64>,
}

impl ErrorPayload {
    /// Parses the payload of an error chunk of this `kind`.
    pub fn parse(kind: ChunkKind, payload: &[u8]) -> Result<Self, Violation> {
        let malformed = || Violation::new("an error chunk is malformed");
        let mut reader = Reader::new(payload);
        let code = ErrorCode::from_wire(reader.u32().ok_or_else(malformed)?);
        let len = reader.u16().ok_or_else(malformed)?;
        let message = reader.bytes(usize::from(len)).ok_or_else(malformed)?;
        let offset = match kind {
            ChunkKind::ErrorOffset => Some(reader.u64().ok_or_else(malformed)?),
            _ => None,
        };
        // An error chunk whose error number is 0 still fails the reply: "MUST consider the current reply as errored".
        let code = code.err().unwrap_or(ErrorCode::Inval);
        Ok(Self { code, message: String::from_utf8_lossy(message).into_owned(), offset })
    }
}

/// Parses the payload of a hole: absolute offset and length.
pub fn hole(payload: &[u8]) -> Result<(u64, u32), Violation> {
    let mut reader = Reader::new(payload);
    match (reader.u64(), reader.u32(), reader.is_empty()) {
        (Some(offset), Some(len), true) if len > 0 => Ok((offset, len)),
        _ => Err(Violation::new("a hole chunk is malformed")),
    }
}

/// Parses the payload of a block status chunk: the number of its metadata context, and the extents as
/// `base:allocation` defines them.
pub fn extents(payload: &[u8]) -> Result<(u32, impl Iterator<Item = Extent>), Violation> {
    let malformed = || Violation::new("a block status chunk is malformed");
    let mut reader = Reader::new(payload);
    let context = reader.u32().ok_or_else(malformed)?;
    let rest = reader.rest();
    let whole = rest.len().is_multiple_of(8) && !rest.is_empty();
    if !whole || rest.chunks_exact(8).any(|one| one[..4] == [0; 4]) {
        return Err(malformed());
    }
    let extents = rest.chunks_exact(8).filter_map(|one| {
        let mut one = Reader::new(one);
        let (len, status) = (one.u32()?, one.u32()?);
        Some(Extent { len: u64::from(len), hole: status & STATE_HOLE != 0, zero: status & STATE_ZERO != 0 })
    });
    Ok((context, extents))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Splits an encoded chunk into header and payload, and checks that the lengths agree.
    fn split(out: &BytesMut) -> (Header, &[u8]) {
        let (header, len) = Header::parse(out).unwrap().unwrap();
        if let Header::Chunk { len: payload, .. } = header {
            assert_eq!(out.len(), len + payload as usize);
        }
        (header, &out[len..])
    }

    proptest! {
        #[test]
        fn encoded_replies_parse_to_themselves(cookie: u64, done: bool, offset: u64, len in 1u32..u32::MAX - 8) {
            let mut out = BytesMut::new();
            simple(&mut out, cookie, Err(ErrorCode::Io));
            prop_assert_eq!(split(&out).0, Header::Simple { cookie, result: Err(ErrorCode::Io) });
            out.clear();
            offset_data(&mut out, cookie, done, offset, len);
            let (header, _) = Header::parse(&out).unwrap().unwrap();
            prop_assert_eq!(header, Header::Chunk { cookie, kind: ChunkKind::OffsetData, done, len: len + 8 });
            out.clear();
            offset_hole(&mut out, cookie, done, offset, len);
            prop_assert_eq!(hole(split(&out).1), Ok((offset, len)));
        }

        #[test]
        fn encoded_errors_parse_to_themselves(message in ".{0,3000}", offset: Option<u64>) {
            let mut out = BytesMut::new();
            put_error(&mut out, 7, true, ErrorCode::NoSpc, &message, offset);
            let (header, payload) = split(&out);
            let Header::Chunk { kind, .. } = header else { panic!("not a chunk") };
            let read = ErrorPayload::parse(kind, payload).unwrap();
            prop_assert_eq!((read.code, read.offset), (ErrorCode::NoSpc, offset));
            let len = read.message.len();
            prop_assert!(message.get(..len) == Some(&*read.message) && len <= STRING_LEN_MAX);
        }

        #[test]
        fn encoded_extents_parse_to_themselves(
            given in prop::collection::vec((1u64..1 << 40, any::<bool>(), any::<bool>()), 1..20)
        ) {
            let given: Vec<_> = given.into_iter().map(|(len, hole, zero)| Extent { len, hole, zero }).collect();
            let mut out = BytesMut::new();
            block_status(&mut out, 1, true, 42, &given);
            let (context, read) = extents(split(&out).1).unwrap();
            let merge = |list: Vec<Extent>| {
                let mut merged = Vec::new();
                list.into_iter().for_each(|extent| extent.push(&mut merged));
                merged
            };
            prop_assert_eq!(context, 42);
            prop_assert_eq!(merge(read.collect()), merge(given));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Header::parse(&bytes);
            let _ = hole(&bytes);
            let _ = extents(&bytes).map(|(_, list)| list.count());
            let _ = ErrorPayload::parse(ChunkKind::ErrorOffset, &bytes);
        }
    }
}
