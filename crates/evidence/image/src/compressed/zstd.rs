//! zstd (RFC 8878): its frames, and the table of frames that the seekable form has at its end.

use cheetah_device::ByteRange;
use cheetah_error::{Error, Result};

use super::frames::Frames;
use super::packed::{PackedReader, read_some};
use crate::detect::zstd::{MAGIC, SKIPPABLE_HEAD_LEN, is_skippable};
use crate::file::{ImageFile, SharedFile};

/// The bytes at the end of the seekable form's table.
const TABLE_MAGIC: [u8; 4] = 0x8f92_eab1_u32.to_le_bytes();
/// Bytes of the end of the table: the number of frames, a descriptor, and the signature.
const TABLE_END_LEN: u64 = 9;
/// The largest header of a frame, in bytes.
const HEADER_LEN_MAX: u64 = 18;

/// Returns the frames of a file that records their sizes, recorded together up to `together_max` bytes of content; `None` for
/// any other file.
///
/// # Errors
///
/// If the file cannot be read.
pub(super) fn index(file: &SharedFile, together_max: u64) -> Result<Option<Frames>> {
    match seek_table(file, Frames::together(together_max))? {
        Some(frames) => Ok(Some(frames)),
        None => walk(&**file, Frames::together(together_max)),
    }
}

/// Returns the frames in the table of a seekable file. `None` if there is no table, or it does not match the file.
fn seek_table(file: &SharedFile, mut frames: Frames) -> Result<Option<Frames>> {
    let Some(end_at) = file.len().checked_sub(TABLE_END_LEN) else { return Ok(None) };
    let end = read_some(&**file, end_at, TABLE_END_LEN)?;
    let Some((count, &[descriptor, ref magic @ ..])) = end.split_first_chunk::<4>() else { return Ok(None) };
    // The descriptor's other bits are reserved, but two that are unused.
    if *magic != TABLE_MAGIC || descriptor & 0x7c != 0 {
        return Ok(None);
    }
    let entry_len = if descriptor & 0x80 == 0 { 8 } else { 12 };
    let entries_len = u64::from(u32::from_le_bytes(*count)) * entry_len;
    let Some(entries_at) = end_at.checked_sub(entries_len) else { return Ok(None) };
    let Some(table_at) = entries_at.checked_sub(SKIPPABLE_HEAD_LEN) else { return Ok(None) };
    let head = read_some(&**file, table_at, SKIPPABLE_HEAD_LEN)?;
    let len = head.get(4..).and_then(|len| len.first_chunk()).map_or(0, |len| u32::from_le_bytes(*len));
    if !head.starts_with(&[0x5e, 0x2a, 0x4d, 0x18]) || u64::from(len) != entries_len + TABLE_END_LEN {
        return Ok(None);
    }
    let mut entries = PackedReader::new(file, ByteRange::new(entries_at, entries_len));
    let (mut at, mut entry) = (0, [0; 12]);
    while entries.left() > 0 {
        let entry = &mut entry[..entry_len as usize];
        let read = std::io::Read::read_exact(&mut entries, entry);
        read.map_err(|error| Error::io(format_args!("reading {}", file.name()), &error))?;
        let number = |at: usize| entry[at..].first_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)));
        let (packed, content_len) = (ByteRange::new(at, number(0)), number(4));
        if packed.end() > table_at || frames.push(packed, content_len).is_none() {
            return Ok(None);
        }
        at = packed.end();
    }
    Ok((at == table_at).then_some(frames))
}

/// Finds the frames by the headers of their blocks. `None` if a frame does not record the size of its content, or
/// anything is wrong, which decompressing will find.
fn walk(file: &dyn ImageFile, mut frames: Frames) -> Result<Option<Frames>> {
    let mut at = 0;
    while at < file.len() {
        let head = read_some(file, at, HEADER_LEN_MAX)?;
        if is_skippable(&head) {
            let Some(len) = head.get(4..).and_then(|len| len.first_chunk()) else { return Ok(None) };
            at += SKIPPABLE_HEAD_LEN + u64::from(u32::from_le_bytes(*len));
            continue;
        }
        let Some((end, content_len)) = frame(file, at, &head)? else { return Ok(None) };
        if frames.push(ByteRange::between(at, end), content_len).is_none() {
            return Ok(None);
        }
        at = end;
    }
    Ok((at == file.len()).then_some(frames))
}

/// Returns the end in the file, and the size of the content, of the frame at `start`, which begins with `head`. `None` if it
/// does not record them, or they lead beyond the file.
fn frame(file: &dyn ImageFile, start: u64, head: &[u8]) -> Result<Option<(u64, u64)>> {
    let Some(Header { len, content_len, has_checksum }) = header(head) else { return Ok(None) };
    let mut at = start + len;
    loop {
        let block = read_some(file, at, 3)?;
        let &[first, second, third] = &block[..] else { return Ok(None) };
        let block = u32::from_le_bytes([first, second, third, 0]);
        at += 3 + match block >> 1 & 3 {
            // One byte, which is repeated.
            1 => 1,
            3 => return Ok(None),
            _ => u64::from(block >> 3),
        };
        if block & 1 != 0 {
            break;
        }
    }
    at += if has_checksum { 4 } else { 0 };
    Ok((at <= file.len()).then_some((at, content_len)))
}

/// Returns the end in the file, and the size of the content, of the damaged frame at `start`, if both are certain: it records
/// them, and another frame begins there, or the file ends.
pub(super) fn extent(file: &SharedFile, start: u64) -> Result<Option<(u64, u64)>> {
    let head = read_some(&**file, start, HEADER_LEN_MAX)?;
    let Some((end, content_len)) = frame(&**file, start, &head)? else { return Ok(None) };
    let next = read_some(&**file, end, SKIPPABLE_HEAD_LEN)?;
    Ok((next.is_empty() || next.starts_with(&MAGIC) || is_skippable(&next)).then_some((end, content_len)))
}

struct Header {
    len: u64,
    content_len: u64,
    has_checksum: bool,
}

/// Parses the header of a frame; `None` if it does not record the size of the content.
fn header(head: &[u8]) -> Option<Header> {
    let descriptor = *head.strip_prefix(&MAGIC)?.first()?;
    let is_single = descriptor & 0x20 != 0;
    let dictionary_len = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let at = 5 + usize::from(!is_single) + dictionary_len;
    let (content_len, len) = match (descriptor >> 6, is_single) {
        (0, false) => return None,
        (0, true) => (u64::from(*head.get(at)?), 1),
        (1, _) => (u64::from(u16::from_le_bytes(*head.get(at..)?.first_chunk()?)) + 256, 2),
        (2, _) => (u64::from(u32::from_le_bytes(*head.get(at..)?.first_chunk()?)), 4),
        _ => (u64::from_le_bytes(*head.get(at..)?.first_chunk()?), 8),
    };
    Some(Header { len: (at + len) as u64, content_len, has_checksum: descriptor & 4 != 0 })
}
