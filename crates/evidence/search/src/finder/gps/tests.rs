use cheetah_device::ByteRange;

use super::*;
use crate::finder::Finder;
use crate::order::Order;
use crate::seam::Window;
use crate::search::Search;

/// Writes metadata by hand, in one of the two byte orders.
struct Writer {
    is_little: bool,
}

impl Writer {
    fn u16(&self, value: u16) -> [u8; 2] {
        if self.is_little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn u32(&self, value: u32) -> [u8; 4] {
        if self.is_little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    fn entry(&self, tag: u16, kind: u16, count: u32, value: [u8; 4]) -> Vec<u8> {
        [&self.u16(tag)[..], &self.u16(kind), &self.u32(count), &value].concat()
    }

    /// Both headers and the first directory, which leads to a GPS directory at this offset.
    fn header(&self, gps_at: u32) -> Vec<u8> {
        let order: &[u8] = if self.is_little { b"II" } else { b"MM" };
        let make = self.entry(0x0112, 3, 1, [0; 4]);
        let gps = self.entry(GPS_DIRECTORY, LONG, 1, self.u32(gps_at));
        [&b"Exif\0\0"[..], order, &self.u16(42), &self.u32(8), &self.u16(2), &make, &gps, &self.u32(0)].concat()
    }

    /// Metadata with a GPS directory at this offset, and its values behind it.
    fn metadata(&self, gps_at: u32, values: &Values) -> Vec<u8> {
        let mut next = gps_at + 2 + 8 * ENTRY_BYTES as u32 + 4;
        let mut behind = Vec::new();
        let mut rationals = |fractions: &[(u32, u32)]| {
            let at = next;
            for (numerator, denominator) in fractions {
                behind.extend_from_slice(&self.u32(*numerator));
                behind.extend_from_slice(&self.u32(*denominator));
            }
            next += 8 * fractions.len() as u32;
            self.u32(at)
        };
        let entries = [
            self.entry(1, ASCII, 2, [values.sides[0], 0, 0, 0]),
            self.entry(2, RATIONAL, 3, rationals(&values.latitude)),
            self.entry(3, ASCII, 2, [values.sides[1], 0, 0, 0]),
            self.entry(4, RATIONAL, 3, rationals(&values.longitude)),
            self.entry(5, 1, 1, [values.below, 0, 0, 0]),
            self.entry(6, RATIONAL, 1, rationals(&[values.altitude])),
            self.entry(7, RATIONAL, 3, rationals(&values.time)),
            self.entry(29, ASCII, 11, self.u32(next)),
        ];
        let mut bytes = self.header(gps_at);
        bytes.resize(TIFF_AT + gps_at as usize, 0);
        bytes.extend_from_slice(&self.u16(8));
        bytes.extend(entries.concat());
        bytes.extend_from_slice(&self.u32(0));
        bytes.extend(behind);
        bytes.extend_from_slice(values.date);
        bytes
    }
}

#[derive(Clone, Copy)]
struct Values {
    sides: [u8; 2],
    latitude: [(u32, u32); 3],
    longitude: [(u32, u32); 3],
    below: u8,
    altitude: (u32, u32),
    time: [(u32, u32); 3],
    date: &'static [u8],
}

const BERLIN: Values = Values {
    sides: *b"NE",
    latitude: [(52, 1), (31, 1), (120_288, 10_000)],
    longitude: [(13, 1), (24, 1), (178_344, 10_000)],
    below: 0,
    altitude: (345, 10),
    time: [(6, 1), (21, 1), (1075, 100)],
    date: b"2026:11:29\0",
};
const BERLIN_SHOWN: &str = "52.520008,13.404954,34.5,2026-11-29T06:21:10Z";

fn both() -> [Writer; 2] {
    [true, false].map(|is_little| Writer { is_little })
}

#[track_caller]
fn assert_shown(values: Values, expected: Option<&str>) {
    for writer in both() {
        assert_eq!(shown(&writer.metadata(200, &values)).as_deref(), expected, "little: {}", writer.is_little);
    }
}

#[test]
fn a_position_is_read_in_both_byte_orders() {
    assert_shown(BERLIN, Some(BERLIN_SHOWN));
    let south = Values {
        sides: *b"SW",
        latitude: [(33_856_784, 1_000_000), (0, 1), (0, 1)],
        longitude: [(70, 1), (3999, 100), (0, 1)],
        below: 1,
        altitude: (7, 2),
        ..BERLIN
    };
    assert_shown(south, Some("-33.856784,-70.666500,-3.5,2026-11-29T06:21:10Z"));
    let zero = Values { sides: *b"SW", latitude: [(0, 1); 3], longitude: [(0, 1); 3], ..BERLIN };
    assert_shown(zero, Some("0.000000,0.000000,34.5,2026-11-29T06:21:10Z"));
}

#[test]
fn a_latitude_or_longitude_out_of_its_range_is_no_position() {
    let latitude = |latitude| Values { latitude, ..BERLIN };
    for wrong in [
        latitude([(91, 1), (0, 1), (0, 1)]),
        latitude([(90, 1), (0, 1), (1, 1)]),
        latitude([(52, 0), (31, 1), (0, 1)]),
        latitude([(52, 1), (61, 1), (0, 1)]),
        Values { longitude: [(180, 1), (1, 1), (0, 1)], ..BERLIN },
        Values { sides: *b"XE", ..BERLIN },
        Values { sides: *b"EN", ..BERLIN },
    ] {
        assert_shown(wrong, None);
    }
    let edge = Values { latitude: [(90, 1), (0, 1), (0, 1)], longitude: [(179, 1), (60, 1), (0, 1)], ..BERLIN };
    assert_shown(edge, Some("90.000000,180.000000,34.5,2026-11-29T06:21:10Z"));
}

#[test]
fn an_altitude_or_a_time_out_of_its_range_is_left_out() {
    assert_shown(Values { altitude: (1, 0), ..BERLIN }, Some("52.520008,13.404954,,2026-11-29T06:21:10Z"));
    assert_shown(Values { altitude: (u32::MAX, 1), ..BERLIN }, Some("52.520008,13.404954,,2026-11-29T06:21:10Z"));
    let time = [(24, 1), (0, 1), (0, 1)];
    assert_shown(Values { time, ..BERLIN }, Some("52.520008,13.404954,34.5,2026-11-29"));
    assert_shown(Values { date: b"2026:13:29\0", ..BERLIN }, Some("52.520008,13.404954,34.5,06:21:10Z"));
    assert_shown(Values { date: b"xxxx:xx:xx\0", time, ..BERLIN }, Some("52.520008,13.404954,34.5,"));
}

#[test]
fn what_lies_beyond_the_reach_is_said_and_not_read() {
    for writer in both() {
        // 8 entries, 10 fractions of 8 bytes, and the date.
        let behind = 2 + 8 * ENTRY_BYTES + 4 + 10 * 8 + 11;
        let last = (REACH_BYTES - TIFF_AT - behind) as u32;
        assert_eq!(shown(&writer.metadata(last, &BERLIN)).as_deref(), Some(BERLIN_SHOWN));
        let beyond = shown(&writer.metadata(REACH_BYTES as u32, &BERLIN)).unwrap();
        assert_eq!(beyond, format!("out of reach: {} bytes after the header", REACH_BYTES + TIFF_AT));
        assert_eq!(shown(&writer.header(0x1_0000)), None);
    }
}

#[test]
fn directories_that_lead_to_themselves_and_numbers_of_entries_beyond_the_limit_end() {
    for writer in both() {
        assert_eq!(shown(&writer.header(8)), None);
        let mut many = writer.metadata(200, &BERLIN);
        many[TIFF_AT + 200..TIFF_AT + 202].copy_from_slice(&writer.u16(u16::MAX));
        assert_eq!(shown(&many), None);
    }
}

#[test]
fn the_bytes_of_a_hit_say_what_the_metadata_say() {
    for writer in both() {
        let metadata = writer.metadata(3000, &BERLIN);
        let (gps, len) = read(&[&metadata[..], &[7; 9000]].concat()).unwrap();
        assert_eq!((len, gps.to_string()), (metadata.len() - 1, BERLIN_SHOWN.to_owned()));
        assert_eq!(
            read(&metadata[..len]).map(|(gps, len)| (gps.to_string(), len)),
            Some((BERLIN_SHOWN.to_owned(), len))
        );
        // A byte less: the date is cut, and the rest is read.
        assert_eq!(shown(&metadata[..len - 1]).as_deref(), Some("52.520008,13.404954,34.5,06:21:10Z"));
    }
}

#[test]
fn metadata_within_what_other_metadata_lead_to_are_found_too() {
    let encodings = vec!["utf-8".parse().unwrap()];
    let search = Search::new(&Order { finders: vec![Finder::Gps], encodings, ..Order::default() }).unwrap();
    for writer in both() {
        let south = Values { sides: *b"SW", ..BERLIN };
        let (inner, mut bytes) = (writer.metadata(200, &south), writer.metadata(3000, &BERLIN));
        bytes[1000..1000 + inner.len()].copy_from_slice(&inner);
        let own = ByteRange::new(0, bytes.len() as u64);
        let hits = search.scan(&Window { offset: 0, own, bytes: bytes.into() }).unwrap();
        let found: Vec<_> = hits.iter().map(|hit| (hit.offset, search.text(hit))).collect();
        let expected = [(0_u64, BERLIN_SHOWN), (1000, "-52.520008,-13.404954,34.5,2026-11-29T06:21:10Z")];
        assert_eq!(found, expected.map(|(offset, text)| (offset, text.to_owned())));
    }
}

#[test]
fn positions_are_found_in_pictures_and_are_the_text_of_their_hits() {
    let order = Order {
        finders: vec![Finder::Gps],
        encodings: vec!["utf-8".parse().unwrap(), "utf-16le".parse().unwrap()],
        context_bytes: 4,
        ..Order::default()
    };
    let search = Search::new(&order).unwrap();
    let metadata = Writer { is_little: false }.metadata(200, &BERLIN);
    let bytes = [&[9; 20_000][..], b"\xff\xd8\xff\xe1\x01\x90", &metadata, b"\xff\xdb", &[9; 20_000]].concat();
    let alone = search.scan_alone(0, &bytes, usize::MAX).unwrap();
    let window = Window { offset: 0, own: ByteRange::new(0, bytes.len() as u64), bytes: bytes.into() };
    assert_eq!(search.scan(&window).unwrap(), alone);
    let [hit] = &alone[..] else { panic!("{alone:?}") };
    assert_eq!((hit.offset, hit.len()), (20_006, metadata.len() as u64 - 1));
    assert_eq!(search.text(hit), BERLIN_SHOWN);
    assert_eq!(search.context(hit), format!("\\xff\\xe1\\x01\\x90{BERLIN_SHOWN}\\x00\\xff\\xdb\\x09"));
}
