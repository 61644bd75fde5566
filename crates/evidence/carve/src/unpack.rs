//! Unpacks data that are compressed with deflate (RFC 1951) and begin at a known place.
//!
//! Such data may be cut short, overwritten in the middle, or made to take as much memory and time as possible: what was unpacked up to
//! there counts, and it is said why it ends.

use cheetah_device::around::is_local;
use cheetah_device::{DynDevice, Error, Result};
use flate2::{Crc, Decompress, FlushDecompress, Status};

use crate::archives::{ZIP_FILE_BYTES, ZIP_STREAMED, ZIP_SUMS, gzip_header};
use crate::reader::{Reader, u16_le, u32_le};

/// The most compressed bytes that are read.
const PACKED_BYTES_MAX: u64 = 1 << 30;
/// Bytes that are unpacked at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Data that grow by more than this, beyond the first mebibyte, are cut: text grows by 3 to 20.
const GROWTH_MAX: u64 = 256;
const GROWTH_FREE_BYTES: u64 = 1 << 20;
/// Data that take more than this many times what they hold, beyond the first 64 KiB, are cut: only blocks without content do, and flushes.
const SHRINK_MAX: u64 = 8;
const SHRINK_FREE_BYTES: u64 = 64 << 10;
/// The flag of a file in a ZIP archive that is encrypted.
const ZIP_ENCRYPTED: u16 = 1;

/// What stands around the deflated data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// The header and the sums of a member of a gzip file (RFC 1952).
    Gzip,
    /// The header of a file in a ZIP archive, and its sums, in the header or behind the data.
    Zip,
    /// The header and the sum of zlib (RFC 1950).
    Zlib,
}

/// Where what was unpacked ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At the end of the data, and their checksum is right.
    Whole,
    /// At a limit.
    Cut,
    /// Where the data are no longer valid, or at their end, with a wrong checksum.
    Damaged,
    /// Where the device cannot be read.
    Unreadable,
    /// Where they should begin: there are no such data.
    Nothing,
}

/// What compressed data hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Where they end.
    pub end: End,
    /// How many bytes were read for that.
    pub read_bytes: u64,
}

/// The deflated data, and the checksum that is expected of what they hold.
struct Data {
    begin: u64,
    sum: Sum,
}

/// Where a CRC-32 stands.
enum Sum {
    /// In zlib's own trailer, which the decoder checks.
    Own,
    /// Before the data.
    Known(u32),
    /// Behind the data, after the mark, if that is there.
    Behind { mark: &'static [u8] },
}

/// Unpacks the data at an offset, up to `bytes_max` bytes.
///
/// # Errors
///
/// If the device fails as a whole.
pub async fn unpack(device: &DynDevice, offset: u64, packing: Packing, bytes_max: usize) -> Result<Unpacked> {
    let mut reader = Reader::new(device, offset, PACKED_BYTES_MAX);
    let (bytes, end) = match begin(&mut reader, packing).await {
        Ok(Some(data)) => inflate(&mut reader, &data, bytes_max).await?,
        Ok(None) => (Vec::new(), End::Nothing),
        Err(error) => (Vec::new(), unreadable(error)?),
    };
    // Not even the first byte was valid.
    let end = if bytes.is_empty() && end == End::Damaged { End::Nothing } else { end };
    Ok(Unpacked { bytes, end, read_bytes: reader.bytes_read() })
}

/// The end of data that cannot be read there, unless the device fails as a whole.
fn unreadable(error: Error) -> Result<End> {
    if is_local(&error) { Ok(End::Unreadable) } else { Err(error) }
}

/// The data behind the header.
async fn begin(reader: &mut Reader<'_>, packing: Packing) -> Result<Option<Data>> {
    Ok(match packing {
        Packing::Gzip => gzip_header(reader, 0).await?.map(|begin| Data { begin, sum: Sum::Behind { mark: &[] } }),
        Packing::Zip => reader.array::<{ ZIP_FILE_BYTES as usize }>(0).await?.and_then(|head| in_zip(&head)),
        Packing::Zlib => Some(Data { begin: 0, sum: Sum::Own }),
    })
}

/// The data behind the header of a file in a ZIP archive.
fn in_zip(head: &[u8]) -> Option<Data> {
    let flags = u16_le(head, 6);
    let sum = match flags & ZIP_STREAMED {
        0 => Sum::Known(u32_le(head, 14)),
        _ => Sum::Behind { mark: ZIP_SUMS },
    };
    let begin = ZIP_FILE_BYTES + u64::from(u16_le(head, 26)) + u64::from(u16_le(head, 28));
    (flags & ZIP_ENCRYPTED == 0).then_some(Data { begin, sum })
}

/// The bytes that the data hold, and where they end.
async fn inflate(reader: &mut Reader<'_>, data: &Data, bytes_max: usize) -> Result<(Vec<u8>, End)> {
    let (mut inflater, mut crc) = (Decompress::new(matches!(data.sum, Sum::Own)), Crc::new());
    let (mut bytes, mut piece, mut at) = (Vec::new(), vec![0; PIECE_BYTES], data.begin);
    let end = loop {
        let packed = match reader.some(at).await {
            Ok(packed) => packed,
            Err(error) => break unreadable(error)?,
        };
        let (read, written) = (inflater.total_in(), inflater.total_out());
        let status = inflater.decompress(packed, &mut piece, FlushDecompress::None);
        let (read, written) = (inflater.total_in() - read, inflater.total_out() - written);
        // Not truncated: no more than the piece has.
        let new = piece.get(..written as usize).unwrap_or_default();
        crc.update(new);
        bytes.extend_from_slice(new);
        at += read;
        let (packed_bytes, len) = (at - data.begin, bytes.len() as u64);
        let is_beyond = len > GROWTH_FREE_BYTES + GROWTH_MAX * packed_bytes
            || packed_bytes > SHRINK_FREE_BYTES + SHRINK_MAX * len
            || bytes.len() >= bytes_max;
        match status {
            Ok(Status::StreamEnd) => break checked(reader, at, &data.sum, crc.sum()).await?,
            Err(_) => break End::Damaged,
            // The device ends before the data do.
            Ok(_) if read == 0 && written == 0 => break End::Damaged,
            Ok(_) if is_beyond => break End::Cut,
            Ok(_) => {}
        }
    };
    if bytes.len() > bytes_max {
        bytes.truncate(bytes_max);
        return Ok((bytes, End::Cut));
    }
    Ok((bytes, end))
}

/// How data end that are valid up to `at`, and whose content has this checksum.
async fn checked(reader: &mut Reader<'_>, at: u64, expected: &Sum, found: u32) -> Result<End> {
    let expected = match expected {
        Sum::Own => return Ok(End::Whole),
        Sum::Known(sum) => Some(*sum),
        Sum::Behind { mark } => match behind(reader, at, mark).await {
            Ok(sum) => sum,
            Err(error) => return unreadable(error),
        },
    };
    Ok(if expected == Some(found) { End::Whole } else { End::Damaged })
}

/// The checksum at `at`, or after the mark there; `None` if the device ends before.
async fn behind(reader: &mut Reader<'_>, at: u64, mark: &[u8]) -> Result<Option<u32>> {
    let len = mark.len() as u64;
    let is_marked = len > 0 && reader.up_to(at, len).await? == mark;
    let sum = reader.array::<4>(if is_marked { at + len } else { at }).await?;
    Ok(sum.map(u32::from_le_bytes))
}
