//! Positions in Exif metadata: the GPS directory (CIPA DC-008, Exif 2.32, sections 4.5 and 4.6.6; TIFF 6.0, section 2).
//!
//! The header `Exif\0\0` and a TIFF header begin the metadata in JPEG and HEIF files. WebP, PNG and TIFF files have them without `Exif\0\0`,
//! and are not found. The first directory leads to the GPS directory, and its entries to their values. Two directories are read, each
//! once, and no chain of them is followed, so there is no loop. All must lie within [`REACH_BYTES`] from the header.

use std::fmt;

use crate::expression::Candidate;

/// The header, and the byte order and number of TIFF.
pub const HEADER: &str = r"Exif\x00\x00(?:II\x2a\x00|MM\x00\x2a)";

/// The maximum number of bytes from the header to the end of the last value that is read. Neighbouring parts overlap by as much, so
/// it is less than an eighth of a stripe unit of 64 KiB, and nodes can search such units.
pub const REACH_BYTES: usize = 7680;

/// The TIFF header, from which offsets count, begins behind `Exif\0\0`.
const TIFF_AT: usize = 6;
/// A segment of JPEG has no offset beyond this.
const OFFSET_MAX: u32 = 0xffff;
/// The bytes of an entry of a directory.
const ENTRY_BYTES: usize = 12;
/// The maximum number of entries of the first directory, and of the GPS directory, which has 32 tags.
const ENTRIES_MAX: [u16; 2] = [512, 64];
/// The tag of the GPS directory in the first directory.
const GPS_DIRECTORY: u16 = 0x8825;
/// Altitudes that are taken, in tenths of a metre: from below the deepest sea to above the air.
const ALTITUDES_DM: std::ops::RangeInclusive<i64> = -120_000..=1_000_000;

/// The length of a header whose metadata have a position, up to the last byte that was read.
pub fn position(candidate: &Candidate<'_>) -> Option<usize> {
    read(candidate.reach).map(|(_, len)| len)
}

/// The position in the bytes of a hit, as text: latitude and longitude in decimal degrees, the altitude in metres, and the time in UTC, with
/// commas between them; `None` if there is none.
pub fn shown(bytes: &[u8]) -> Option<String> {
    read(bytes).map(|(gps, _)| gps.to_string())
}

/// What metadata say about the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gps {
    At(Position),
    /// They have a GPS directory, of which something lies this many bytes after the header, which is too far.
    Beyond(usize),
}

/// A position on the earth. Values that are missing, out of their range or out of reach are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    /// In millionths of a degree; north is positive.
    latitude: i64,
    /// In millionths of a degree; east is positive.
    longitude: i64,
    /// In tenths of a metre above the sea.
    altitude: Option<i64>,
    /// Year, month and day, in UTC.
    date: Option<[u16; 3]>,
    /// Hour, minute and whole second, in UTC.
    time: Option<[u8; 3]>,
}

impl fmt::Display for Gps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = match self {
            Self::At(position) => position,
            Self::Beyond(offset) => return write!(f, "out of reach: {offset} bytes after the header"),
        };
        let decimal = |f: &mut fmt::Formatter<'_>, value: i64, unit: u64, digits: usize| {
            let sign = if value < 0 { "-" } else { "" };
            let size = value.unsigned_abs();
            write!(f, "{sign}{}.{:0digits$},", size / unit, size % unit)
        };
        decimal(f, position.latitude, 1_000_000, 6)?;
        decimal(f, position.longitude, 1_000_000, 6)?;
        match position.altitude {
            Some(altitude) => decimal(f, altitude, 10, 1)?,
            None => f.write_str(",")?,
        }
        if let Some([year, month, day]) = position.date {
            write!(f, "{year:04}-{month:02}-{day:02}")?;
        }
        if let Some([hour, minute, second]) = position.time {
            let between = if position.date.is_some() { "T" } else { "" };
            write!(f, "{between}{hour:02}:{minute:02}:{second:02}Z")?;
        }
        Ok(())
    }
}

/// Reads what begins with the header, and returns the number of bytes up to the last one that decides about it; `None` if it has no position.
fn read(bytes: &[u8]) -> Option<(Gps, usize)> {
    let is_little = bytes.get(TIFF_AT..)?.starts_with(b"II");
    let mut tiff = Tiff { bytes, is_little, len: TIFF_AT + 4 };
    let gps = match tiff.position() {
        Ok(position) => Gps::At(position),
        Err(Stop::Beyond(offset)) => Gps::Beyond(offset),
        Err(Stop::None) => return None,
    };
    Some((gps, tiff.len))
}

/// Why there is no position.
enum Stop {
    /// There is none, or none that can be right.
    None,
    /// The bytes at this offset would say it.
    Beyond(usize),
}

/// Reads numbers, and notes how far.
struct Tiff<'a> {
    bytes: &'a [u8],
    is_little: bool,
    /// The end of the last byte that was read, from the header on.
    len: usize,
}

/// An entry of a directory.
#[derive(Clone, Copy)]
struct Entry {
    kind: u16,
    count: u32,
    /// The offset of its value, or the value itself if that has no more than four bytes.
    value: [u8; 4],
}

/// The entries of the GPS directory that are read.
#[derive(Default)]
struct Entries {
    latitude: [Option<Entry>; 2],
    longitude: [Option<Entry>; 2],
    altitude: [Option<Entry>; 2],
    time: Option<Entry>,
    date: Option<Entry>,
}

impl Tiff<'_> {
    fn position(&mut self) -> Result<Position, Stop> {
        let first: [u8; 4] = self.take(TIFF_AT + 4)?;
        let directory = self.first_directory(self.u32(first))?;
        let Entries { latitude, longitude, altitude, time, date } = self.gps_directory(directory)?;
        let latitude = self.degrees(latitude, *b"NS", 90)?;
        let longitude = self.degrees(longitude, *b"EW", 180)?;
        Ok(Position {
            latitude,
            longitude,
            altitude: self.altitude(altitude).ok().flatten(),
            date: self.date(date).ok().flatten(),
            time: self.time(time).ok().flatten(),
        })
    }

    /// Where the GPS directory is, which the first one says. The first one must be within reach: nothing tells that there is a position.
    fn first_directory(&mut self, offset: u32) -> Result<u32, Stop> {
        let at = place(offset).filter(|at| at + 2 <= REACH_BYTES).ok_or(Stop::None)?;
        let count = self.count(at, ENTRIES_MAX[0])?;
        for index in 0..count {
            let (tag, entry) = self.entry(at, index).map_err(|_| Stop::None)?;
            if tag == GPS_DIRECTORY {
                let is_offset = entry.kind == LONG && entry.count == 1;
                return is_offset.then(|| self.u32(entry.value)).ok_or(Stop::None);
            }
        }
        Err(Stop::None)
    }

    fn gps_directory(&mut self, offset: u32) -> Result<Entries, Stop> {
        let at = place(offset).ok_or(Stop::None)?;
        let count = self.count(at, ENTRIES_MAX[1])?;
        let mut entries = Entries::default();
        for index in 0..count {
            let (tag, entry) = self.entry(at, index)?;
            let place = match tag {
                1 => &mut entries.latitude[0],
                2 => &mut entries.latitude[1],
                3 => &mut entries.longitude[0],
                4 => &mut entries.longitude[1],
                5 => &mut entries.altitude[0],
                6 => &mut entries.altitude[1],
                7 => &mut entries.time,
                29 => &mut entries.date,
                _ => continue,
            };
            // Of several with the same tag, the first one counts.
            place.get_or_insert(entry);
        }
        Ok(entries)
    }

    /// An angle of degrees, minutes and seconds, in millionths of a degree: negative on the second side.
    fn degrees(&mut self, [side, value]: [Option<Entry>; 2], sides: [u8; 2], max: u32) -> Result<i64, Stop> {
        let (side, value) = side.zip(value).ok_or(Stop::None)?;
        let side = side.value[0];
        if !sides.contains(&side) {
            return Err(Stop::None);
        }
        let [degrees, minutes, seconds] = self.rationals(value)?.ok_or(Stop::None)?;
        let angle = degrees + minutes / 60.0 + seconds / 3600.0;
        // Some writers round up to 60.
        if minutes > 60.0 || seconds > 60.0 || angle > f64::from(max) {
            return Err(Stop::None);
        }
        let millionths = whole(angle * 1e6).ok_or(Stop::None)?;
        Ok(if side == sides[1] { -millionths } else { millionths })
    }

    fn altitude(&mut self, [side, value]: [Option<Entry>; 2]) -> Result<Option<i64>, Stop> {
        let Some(value) = value else { return Ok(None) };
        let Some([altitude]) = self.rationals(value)? else { return Ok(None) };
        let Some(altitude) = whole(altitude * 10.0) else { return Ok(None) };
        // Without a side, it is above. Exif 3.0 counts 0 and 1 from the ellipsoid, and has 2 and 3 for above and below the sea.
        let is_below = side.is_some_and(|side| matches!(side.value[0], 1 | 3));
        let altitude = if is_below { -altitude } else { altitude };
        Ok(ALTITUDES_DM.contains(&altitude).then_some(altitude))
    }

    fn time(&mut self, entry: Option<Entry>) -> Result<Option<[u8; 3]>, Stop> {
        let Some(entry) = entry else { return Ok(None) };
        let Some([hour, minute, second]) = self.rationals(entry)? else { return Ok(None) };
        // 60 is a leap second.
        let is_time = hour < 24.0 && minute < 60.0 && second < 61.0;
        // Not truncated: less than 61, and never negative. Fractions of seconds are left out.
        Ok(is_time.then_some([hour as u8, minute as u8, second as u8]))
    }

    fn date(&mut self, entry: Option<Entry>) -> Result<Option<[u16; 3]>, Stop> {
        let Some(entry) = entry.filter(|entry| entry.kind == ASCII && (10..=11).contains(&entry.count)) else {
            return Ok(None);
        };
        let text: [u8; 10] = self.take_at(self.u32(entry.value))?;
        let number = |from: usize, to: usize| {
            let digits = text.get(from..to)?;
            digits
                .iter()
                .all(u8::is_ascii_digit)
                .then(|| digits.iter().fold(0u16, |number, digit| number * 10 + u16::from(digit - b'0')))
        };
        let is_apart = text[4] == text[7] && b":-".contains(&text[4]);
        let date = number(0, 4).zip(number(5, 7)).zip(number(8, 10)).filter(|_| is_apart);
        let date = date.map(|((year, month), day)| [year, month, day]);
        // GPS began in 1980.
        Ok(date.filter(|[year, month, day]| *year >= 1980 && (1..=12).contains(month) && (1..=31).contains(day)))
    }

    /// The fractions of an entry; `None` if it has another number of them, or one has no value.
    fn rationals<const N: usize>(&mut self, entry: Entry) -> Result<Option<[f64; N]>, Stop> {
        if entry.kind != RATIONAL || entry.count as usize != N {
            return Ok(None);
        }
        let at = place(self.u32(entry.value)).ok_or(Stop::None)?;
        let mut values = [0.0; N];
        for (index, value) in values.iter_mut().enumerate() {
            let [numerator, denominator] = [0, 4].map(|within| at + 8 * index + within);
            let (numerator, denominator) = (self.take(numerator)?, self.take(denominator)?);
            let (numerator, denominator) = (self.u32(numerator), self.u32(denominator));
            if denominator == 0 {
                return Ok(None);
            }
            *value = f64::from(numerator) / f64::from(denominator);
        }
        Ok(Some(values))
    }

    /// The number of entries of the directory at this place.
    fn count(&mut self, at: usize, max: u16) -> Result<usize, Stop> {
        let count: [u8; 2] = self.take(at)?;
        let count = self.u16(count);
        (1..=max).contains(&count).then(|| usize::from(count)).ok_or(Stop::None)
    }

    /// The tag of an entry of the directory at this place, and the rest of it.
    fn entry(&mut self, at: usize, index: usize) -> Result<(u16, Entry), Stop> {
        let at = at + 2 + ENTRY_BYTES * index;
        let (tag, kind, count) = (self.take(at)?, self.take(at + 2)?, self.take(at + 4)?);
        let (kind, count) = (self.u16(kind), self.u32(count));
        Ok((self.u16(tag), Entry { kind, count, value: self.take(at + 8)? }))
    }

    fn take_at<const N: usize>(&mut self, offset: u32) -> Result<[u8; N], Stop> {
        self.take(place(offset).ok_or(Stop::None)?)
    }

    /// The bytes at this place. Whether they are within reach does not depend on how many bytes there are.
    fn take<const N: usize>(&mut self, at: usize) -> Result<[u8; N], Stop> {
        if at + N > REACH_BYTES {
            return Err(Stop::Beyond(at));
        }
        let bytes = self.bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(Stop::None)?;
        self.len = self.len.max(at + N);
        Ok(*bytes)
    }

    const fn u16(&self, bytes: [u8; 2]) -> u16 {
        if self.is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    const fn u32(&self, bytes: [u8; 4]) -> u32 {
        if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }
}

/// Types of values: text, a number of 32 bits, and a fraction of two.
const ASCII: u16 = 2;
const LONG: u16 = 4;
const RATIONAL: u16 = 5;

/// The place of what has this offset in the TIFF; `None` if no segment can have it.
fn place(offset: u32) -> Option<usize> {
    (8..=OFFSET_MAX).contains(&offset).then_some(TIFF_AT + offset as usize)
}

/// The nearest whole number; `None` if it is too large to be one.
fn whole(value: f64) -> Option<i64> {
    // Not truncated: far less than the largest number, and a whole one.
    (value.abs() < 1e12).then(|| value.round() as i64)
}

#[cfg(test)]
mod tests;
