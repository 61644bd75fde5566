//! MP4 and its kin, and RIFF.

use cheetah_device::Result;

use crate::reader::{Reader, u32_be, u32_le, u64_be};

/// The boxes that files consist of (ISO/IEC 14496-12, 8.1 to 8.16; QuickTime).
const BOXES: [&[u8; 4]; 17] = [
    b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"uuid", b"meta", b"moof", b"mfra", b"sidx", b"styp",
    b"pdin", b"ssix", b"prft", b"emsg", b"pnot",
];
/// The most boxes of a file: a stream has two for each piece.
const BOXES_MAX: usize = 1 << 20;

/// Boxes one after the other, up to one that is none: the index and the data among them.
pub async fn mp4(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let (mut at, mut has_index, mut has_data) = (0, false, false);
    for _ in 0..BOXES_MAX {
        let Some(head) = reader.array::<8>(at).await? else { break };
        let kind = &head[4..];
        if !BOXES.iter().any(|known| *known == kind) || (at == 0) != (kind == b"ftyp") {
            break;
        }
        let len = match u32_be(&head, 0) {
            1 => reader.array::<8>(at + 8).await?.map_or(0, |bytes| u64_be(&bytes, 0)),
            len => u64::from(len),
        };
        // A box up to the end of the file does not say where that is.
        if len < 8 || len > reader.len() - at {
            break;
        }
        has_index |= matches!(kind, b"moov" | b"moof" | b"meta");
        has_data |= kind == b"mdat";
        at += len;
    }
    Ok(Some(at).filter(|_| has_index && has_data))
}

/// The most chunks of a file.
const CHUNKS_MAX: usize = 1 << 20;

/// Chunks that fill the length in the header exactly, of which the first is that of its kind.
pub async fn riff(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let Some(head) = reader.array::<16>(0).await? else { return Ok(None) };
    let first_is_right = match &head[8..12] {
        b"WAVE" => matches!(&head[12..], b"fmt " | b"JUNK" | b"bext" | b"LIST" | b"fact"),
        b"AVI " => &head[12..] == b"LIST",
        b"WEBP" => matches!(&head[12..], b"VP8 " | b"VP8L" | b"VP8X"),
        _ => false,
    };
    let end = 8 + u64::from(u32_le(&head, 4));
    if !first_is_right || end > reader.len() {
        return Ok(None);
    }
    let mut at = 12;
    for _ in 0..CHUNKS_MAX {
        if at >= end {
            break;
        }
        let Some(chunk) = reader.array::<8>(at).await? else { return Ok(None) };
        if !chunk[..4].iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Ok(None);
        }
        // Padded to an even length.
        at += 8 + u64::from(u32_le(&chunk, 4)).next_multiple_of(2);
    }
    // Some programs leave out the last padding.
    Ok(Some(end).filter(|_| at == end || at == end + 1))
}
