//! Positions in Exif metadata: whatever directories say, a hit lies within the bytes, and its position is on the earth.

use std::sync::LazyLock;

use cheetah_device::ByteRange;
use cheetah_search::seam::Window;
use cheetah_search::{Finder, Order, Search, TextEncoding};

/// Bytes before the metadata.
const BEFORE: usize = 7;

static SEARCH: LazyLock<Search> = LazyLock::new(|| {
    let order = Order { finders: vec![Finder::Gps], encodings: vec![TextEncoding::Utf8], ..Order::default() };
    Search::new(&order).unwrap()
});

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let content = match choice % 4 {
        0 => [&[0; BEFORE][..], b"Exif\0\0II\x2a\0", data].concat(),
        1 => [&[0; BEFORE][..], b"Exif\0\0MM\0\x2a", data].concat(),
        little => super::edited(&valid(little == 2), data),
    };
    let own = ByteRange::new(0, content.len() as u64);
    let hits = SEARCH.scan(&Window { offset: 0, bytes: content.clone().into(), own }).unwrap();
    for hit in hits {
        let at = hit.offset as usize;
        assert_eq!(content.get(at..at + hit.bytes.len()), Some(&hit.bytes[..]));
        let text = SEARCH.text(&hit);
        if text.starts_with("out of reach") {
            continue;
        }
        let fields: Vec<_> = text.split(',').collect();
        let [latitude, longitude, ..] = fields[..] else { panic!("{text}") };
        let degrees = |field: &str| field.parse::<f64>().unwrap().abs();
        assert!(fields.len() == 4 && degrees(latitude) <= 90.0 && degrees(longitude) <= 180.0, "{text}");
    }
}

/// Metadata with a position.
fn valid(is_little: bool) -> Vec<u8> {
    let u16 = |value: u16| if is_little { value.to_le_bytes() } else { value.to_be_bytes() };
    let u32 = |value: u32| if is_little { value.to_le_bytes() } else { value.to_be_bytes() };
    let entry =
        |tag: u16, kind: u16, count: u32, value: [u8; 4]| [&u16(tag)[..], &u16(kind), &u32(count), &value].concat();
    let order: &[u8] = if is_little { b"II" } else { b"MM" };
    // The GPS directory lies at 26 and its values at 80.
    let parts = [
        [&b"Exif\0\0"[..], order, &u16(42), &u32(8), &u16(1)].concat(),
        entry(0x8825, 4, 1, u32(26)),
        u32(0).to_vec(),
        u16(4).to_vec(),
        entry(1, 2, 2, *b"N\0\0\0"),
        entry(2, 5, 3, u32(80)),
        entry(3, 2, 2, *b"E\0\0\0"),
        entry(4, 5, 3, u32(80)),
        u32(0).to_vec(),
        [52, 1, 31, 1, 12, 1].map(u32).concat(),
    ];
    parts.concat()
}
