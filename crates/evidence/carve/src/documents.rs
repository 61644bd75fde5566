//! PDF and SQLite.

use cheetah_device::Result;

use crate::reader::{Reader, u16_be, u32_be};

/// Where a document begins.
const BEGIN: &[u8] = b"%PDF-";
/// What stands at its end, and what the number before that is the place of.
const END: &[u8] = b"%%EOF";
const PLACE: &[u8] = b"startxref";
/// How far before the end the place may stand.
const PLACE_BYTES_MAX: u64 = 64;
/// The ends of a document: one more each time it was saved.
const ENDS_MAX: usize = 10_000;

/// A document ends with the last end mark before which the place of a table stands that is there. A document that was saved again has
/// several.
pub async fn pdf(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let next = reader.find(BEGIN, BEGIN.len() as u64, u64::MAX).await?.unwrap_or(u64::MAX);
    let (mut at, mut found) = (BEGIN.len() as u64, None);
    for _ in 0..ENDS_MAX {
        let Some(end) = reader.find(END, at, next).await? else { break };
        at = end + END.len() as u64;
        if has_table(reader, end).await? {
            found = Some(at);
        }
    }
    let Some(end) = found else { return Ok(None) };
    // The end of the line belongs to it.
    let line = match reader.up_to(end, 2).await? {
        [b'\r', b'\n'] => 2,
        [b'\r' | b'\n', ..] => 1,
        _ => 0,
    };
    Ok(Some(end + line))
}

/// Whether a table stands where the number before an end mark says. Of a document for the web, the first such number is 0.
async fn has_table(reader: &mut Reader<'_>, end: u64) -> Result<bool> {
    let before = end.min(PLACE_BYTES_MAX);
    let bytes = reader.up_to(end - before, before).await?;
    let Some(place) = bytes.windows(PLACE.len()).rposition(|window| window == PLACE) else { return Ok(false) };
    let digits = bytes[place + PLACE.len()..].trim_ascii();
    let Some(place) = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok()) else {
        return Ok(false);
    };
    if place >= end {
        return Ok(false);
    }
    let table = reader.up_to(place, 16).await?.trim_ascii_start();
    // An old table, or the object of a new one.
    Ok(table.starts_with(b"xref") || table.first().is_some_and(u8::is_ascii_digit))
}

/// The header says how many pages there are, and of what size, if the same program wrote it that wrote last.
pub async fn sqlite(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    let Some(header) = reader.array::<101>(0).await? else { return Ok(None) };
    let page = match u16_be(&header, 16) {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    let pages = u64::from(u32_be(&header, 28));
    let is_right = page.is_power_of_two()
        && page >= 512
        && header[18..20].iter().all(|version| matches!(version, 1 | 2))
        && header[21..24] == [64, 32, 32]
        && pages > 0
        && u32_be(&header, 24) == u32_be(&header, 92)
        // The first page is one of a table.
        && matches!(header[100], 0x05 | 0x0d);
    Ok(Some(page * pages).filter(|_| is_right))
}
