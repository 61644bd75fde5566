//! gzip (RFC 1952), and its blocked form BGZF, whose members have their size in an extra field.

use std::io::{Error as IoError, Read as _, Result as IoResult};

use cheetah_device::ByteRange;
use cheetah_error::{Error, Result};

use super::frames::Frames;
use super::packed::{PackedReader, read_some};
use crate::file::{ImageFile, SharedFile};

/// The first bytes of a member: the signature, and the only method.
pub(super) const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
/// Bytes of a member's header without the optional fields.
const HEADER_LEN: usize = 10;
/// The flag of a header with extra fields.
const EXTRA: u8 = 4;
/// The bytes read of a member's header: those that BGZF's writers make have 18.
const HEADER_READ: u64 = 64;
/// The maximum content of a BGZF member.
const CONTENT_MAX: u64 = 64 << 10;
/// The last member of a BGZF file, which is empty.
const END: [u8; 28] = *b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0\x42\x43\x02\0\x1b\0\x03\0\0\0\0\0\0\0\0\0";

/// Returns the members of a BGZF file, recorded together up to `together_max` bytes of content; `None` for any other gzip
/// file.
///
/// # Errors
///
/// `Kind::Evidence` if the file's end is missing.
pub(super) fn index(file: &dyn ImageFile, together_max: u64) -> Result<Option<Frames>> {
    let (mut frames, mut at) = (Frames::together(together_max), 0);
    let mut header = read_some(file, 0, HEADER_READ)?;
    while at < file.len() {
        let Some(len) = member_len(&header).filter(|len| at + len <= file.len()) else {
            // Other members, or a member that is cut off: found when all members are decompressed.
            return Ok(None);
        };
        let ends_and_next = read_some(file, at + len - 4, 4 + HEADER_READ)?;
        let Some((ends, next)) = ends_and_next.split_first_chunk::<4>() else { return Ok(None) };
        let content_len = u64::from(u32::from_le_bytes(*ends));
        if content_len > CONTENT_MAX || frames.push(ByteRange::new(at, len), content_len).is_none() {
            return Ok(None);
        }
        header = ends_and_next.slice_ref(next);
        at += len;
    }
    if read_some(file, file.len().saturating_sub(END.len() as u64), END.len() as u64)? != END[..] {
        return Err(Error::evidence(format!(
            "{} lacks the end mark of its format (BGZF), so its end is probably missing; copy it again, or, if it is \
             complete, decompress it with gzip -d",
            file.name()
        )));
    }
    Ok(Some(frames))
}

/// Returns the end in the file, and the size of the content, of the damaged member at `start`, if both are certain: by its
/// compressed data, which end where they must, and the length recorded behind them; or by the sizes that BGZF records. What
/// fails then is only its checksum.
pub(super) fn extent(file: &SharedFile, start: u64) -> IoResult<Option<(u64, u64)>> {
    let head = read_some(&**file, start, HEADER_READ).map_err(IoError::other)?;
    if let Some(len) = member_len(&head).filter(|len| start + len <= file.len()) {
        let ends = read_some(&**file, start + len - 4, 4 + MAGIC.len() as u64).map_err(IoError::other)?;
        let (ends, next) = ends.split_at_checked(4).unwrap_or_default();
        let content_len = ends.first_chunk().map_or(u64::MAX, |len| u64::from(u32::from_le_bytes(*len)));
        let is_end = next == MAGIC || start + len == file.len();
        return Ok((is_end && content_len <= CONTENT_MAX).then_some((start + len, content_len)));
    }
    let mut packed = PackedReader::new(file, ByteRange::between(start, file.len()));
    if !skip_header(&mut packed)? {
        return Ok(None);
    }
    let mut decoder = flate2::bufread::DeflateDecoder::new(packed);
    let Ok(content_len) = std::io::copy(&mut decoder, &mut std::io::sink()) else { return Ok(None) };
    let mut packed = decoder.into_inner();
    let mut trailer = [0; 8];
    let read = packed.read_exact(&mut trailer);
    // The length is recorded modulo 2^32.
    let is_same = trailer[4..] == (content_len as u32).to_le_bytes();
    Ok((read.is_ok() && is_same).then(|| (packed.offset(), content_len)))
}

/// Skips the header of a member; false if there is none.
fn skip_header(packed: &mut PackedReader) -> IoResult<bool> {
    let head = packed.peek(HEADER_LEN as u64)?;
    let Some(flags) = head.get(3).copied().filter(|_| head.starts_with(&MAGIC) && head.len() == HEADER_LEN) else {
        return Ok(false);
    };
    packed.skip(HEADER_LEN as u64)?;
    if flags & EXTRA != 0 {
        let len = packed.peek(2)?;
        let Some(len) = len.first_chunk().map(|len| u16::from_le_bytes(*len)) else { return Ok(false) };
        packed.skip(2 + u64::from(len))?;
    }
    // The name and the comment, each with a zero behind it.
    let texts = [8, 16].into_iter().filter(|flag| flags & flag != 0).count();
    for _ in 0..texts {
        loop {
            let mut byte = [0];
            if packed.read(&mut byte)? == 0 {
                return Ok(false);
            }
            if byte == [0] {
                break;
            }
        }
    }
    packed.skip(if flags & 2 != 0 { 2 } else { 0 })?;
    Ok(true)
}

/// Returns the size of the BGZF member that begins with this header, in bytes; `None` for other members.
fn member_len(header: &[u8]) -> Option<u64> {
    if !header.starts_with(&MAGIC) || header.get(3)? & EXTRA == 0 {
        return None;
    }
    let (len, fields) = header.get(HEADER_LEN..)?.split_first_chunk::<2>()?;
    let mut fields = fields.get(..usize::from(u16::from_le_bytes(*len)))?;
    while let Some((&[id_1, id_2, len_1, len_2], rest)) = fields.split_first_chunk() {
        let (field, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([len_1, len_2])))?;
        if let (b"BC", &[size_1, size_2]) = (&[id_1, id_2], field) {
            let len = u64::from(u16::from_le_bytes([size_1, size_2])) + 1;
            // A header, an empty block, a CRC and a length at least.
            return (len >= HEADER_LEN as u64 + 16).then_some(len);
        }
        fields = rest;
    }
    None
}
