//! JPEG, PNG and GIF.

use cheetah_device::Result;

use crate::reader::{Reader, u16_be, u32_be};

/// Markers of JPEG (ITU-T T.81, table B.1).
const TABLES: [u8; 3] = [0xc4, 0xc8, 0xcc];
const FRAMES: std::ops::RangeInclusive<u8> = 0xc0..=0xcf;
const RESTARTS: std::ops::RangeInclusive<u8> = 0xd0..=0xd7;
const END: u8 = 0xd9;
const SCAN: u8 = 0xda;

/// A picture ends after a frame and at least one scan.
pub async fn jpeg(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let (mut at, mut has_frame, mut has_scan) = (2, false, false);
    loop {
        let Some(head) = reader.array::<4>(at).await? else {
            // The end has no length.
            let Some([0xff, END]) = reader.array::<2>(at).await? else { return Ok(None) };
            return Ok(Some(at + 2).filter(|_| has_scan));
        };
        let (marker, len) = (head[1], u64::from(u16_be(&head, 2)));
        match (head[0], marker) {
            // Any number of fill bytes.
            (0xff, 0xff) => {
                at += 1;
                continue;
            }
            (0xff, END) => return Ok(Some(at + 2).filter(|_| has_scan)),
            (0xff, 0xc0..=0xfe) if len >= 2 && !RESTARTS.contains(&marker) && marker != 0xd8 => {}
            _ => return Ok(None),
        }
        if FRAMES.contains(&marker) && !TABLES.contains(&marker) {
            let Some([bits, height_high, height_low, width_high, width_low]) = reader.array(at + 4).await? else {
                return Ok(None);
            };
            // A height of 0 comes later.
            let _ = (height_high, height_low);
            if !matches!(bits, 8 | 12 | 16) || (width_high, width_low) == (0, 0) {
                return Ok(None);
            }
            has_frame = true;
        }
        at += 2 + len;
        if marker == SCAN {
            if !has_frame {
                return Ok(None);
            }
            let Some(end) = scan_end(reader, at).await? else { return Ok(None) };
            at = end;
            has_scan = true;
        }
    }
}

/// Where the next marker stands that ends the data of a scan.
async fn scan_end(reader: &mut Reader<'_>, mut at: u64) -> Result<Option<u64>> {
    loop {
        let Some(mark) = reader.find(&[0xff], at, u64::MAX).await? else { return Ok(None) };
        match reader.array::<2>(mark).await? {
            Some([_, 0 | 0xd0..=0xd7]) => at = mark + 2,
            Some([_, 0xff]) => at = mark + 1,
            Some(_) => return Ok(Some(mark)),
            None => return Ok(None),
        }
    }
}

/// Chunks with checksums: the first is the header, and the last the end.
pub async fn png(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let mut at = 8;
    loop {
        let Some(head) = reader.array::<8>(at).await? else { return Ok(None) };
        let (len, kind) = (u64::from(u32_be(&head, 0)), &head[4..]);
        let is_first = at == 8;
        if is_first != (kind == b"IHDR") || !kind.iter().all(u8::is_ascii_alphabetic) || len >= 1 << 31 {
            return Ok(None);
        }
        // Nothing is read of a chunk that does not fit.
        if 12 + len > reader.len().saturating_sub(at) {
            return Ok(None);
        }
        let Some(sum) = reader.crc32(at + 4, 4 + len).await? else { return Ok(None) };
        match reader.array::<4>(at + 8 + len).await? {
            Some(stored) if u32_be(&stored, 0) == sum => {}
            _ => return Ok(None),
        }
        at += 12 + len;
        if kind == b"IEND" {
            return Ok(Some(at));
        }
    }
}

/// Blocks of images and extensions, each a chain of pieces, up to the trailer. At least one image.
pub async fn gif(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let Some(screen) = reader.array::<13>(0).await? else { return Ok(None) };
    let (mut at, mut has_image) = (13 + colours(screen[10]), false);
    loop {
        let Some([block]) = reader.array(at).await? else { return Ok(None) };
        let pieces = match block {
            0x3b => return Ok(Some(at + 1).filter(|_| has_image)),
            0x21 => at + 2,
            0x2c => {
                let Some(image) = reader.array::<10>(at).await? else { return Ok(None) };
                has_image = true;
                // With the size of the first code.
                at + 10 + colours(image[9]) + 1
            }
            _ => return Ok(None),
        };
        let Some(end) = pieces_end(reader, pieces).await? else { return Ok(None) };
        at = end;
    }
}

/// Bytes of the table of colours that these flags announce.
fn colours(flags: u8) -> u64 {
    if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) }
}

async fn pieces_end(reader: &mut Reader<'_>, mut at: u64) -> Result<Option<u64>> {
    loop {
        match reader.array(at).await? {
            Some([0]) => return Ok(Some(at + 1)),
            Some([len]) => at += 1 + u64::from(len),
            None => return Ok(None),
        }
    }
}
