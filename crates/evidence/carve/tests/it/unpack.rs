//! Compressed data in noise: whole, cut short, altered, on a damaged disk, and larger than allowed.

use std::io::Write as _;
use std::sync::Arc;

use cheetah_carve::{End, Packing, Unpacked, unpack};
use cheetah_device::{ByteRange, DynDevice, Error};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use super::{Scratched, device, noise};

fn unpacked_of(device: &DynDevice, offset: usize, packing: Packing, bytes_max: usize) -> Result<Unpacked, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(unpack(device, offset as u64, packing, bytes_max))
}

fn unpacked(content: Vec<u8>, offset: usize, packing: Packing, bytes_max: usize) -> Option<Unpacked> {
    let found = unpacked_of(&device(content), offset, packing, bytes_max).unwrap();
    Some(found).filter(|found| found.end != End::Nothing)
}

/// The bytes, packed; in a ZIP archive with the sum before the data, and behind them.
fn packed(bytes: &[u8]) -> Vec<(Packing, Vec<u8>)> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(bytes).unwrap();
    zlib.write_all(bytes).unwrap();
    let mut known = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    known.start_file("a.txt", zip::write::SimpleFileOptions::default().compression_level(Some(9))).unwrap();
    known.write_all(bytes).unwrap();
    let mut behind = zip::ZipWriter::new_stream(Vec::new());
    behind.start_file("a.txt", zip::write::SimpleFileOptions::default().compression_level(Some(9))).unwrap();
    behind.write_all(bytes).unwrap();
    vec![
        (Packing::Gzip, gzip.finish().unwrap()),
        (Packing::Zlib, zlib.finish().unwrap()),
        (Packing::Zip, known.finish().unwrap().into_inner()),
        (Packing::Zip, behind.finish().unwrap().into_inner()),
    ]
}

fn text(len: usize) -> Vec<u8> {
    noise(5, len).iter().map(|byte| b'a' + byte % 20).collect()
}

#[test]
fn data_are_unpacked_wherever_they_begin() {
    let text = text(900_000);
    for (packing, data) in packed(&text) {
        for offset in [0, 1, 70_001] {
            let content = [noise(3, offset), data.clone(), noise(9, 4000)].concat();
            let found = unpacked(content, offset, packing, 1 << 20).unwrap();
            assert_eq!((found.end, found.bytes == text), (End::Whole, true), "{packing:?} at {offset}");
        }
    }
}

#[test]
fn data_that_are_cut_short_or_altered_are_unpacked_up_to_there_and_said_to_be_damaged() {
    let text = text(900_000);
    for (packing, data) in packed(&text) {
        let short = unpacked(data[..data.len() / 2].to_vec(), 0, packing, 1 << 20).unwrap();
        assert_eq!(short.end, End::Damaged, "{packing:?}");
        assert!(short.bytes.len() > 300_000 && text.starts_with(&short.bytes), "{packing:?} {}", short.bytes.len());
        let mut altered = data;
        let middle = altered.len() / 2;
        altered[middle..middle + 40].fill(0xaa);
        assert_eq!(unpacked(altered, 0, packing, 1 << 20).unwrap().end, End::Damaged, "{packing:?}");
    }
}

#[test]
fn data_are_unpacked_up_to_the_sector_that_cannot_be_read_and_whole_data_before_it_are_whole() {
    let text = text(900_000);
    for (packing, data) in packed(&text) {
        let bad = ByteRange::new((data.len() as u64 / 2).next_multiple_of(512), 512);
        let over: DynDevice = Arc::new(Scratched::new(data.clone(), bad));
        let found = unpacked_of(&over, 0, packing, 1 << 20).unwrap();
        assert_eq!(found.end, End::Unreadable, "{packing:?}");
        assert!(found.bytes.len() > 400_000 && text.starts_with(&found.bytes), "{packing:?} {}", found.bytes.len());
        let bad = ByteRange::new((data.len() as u64).next_multiple_of(512), 512);
        let before: DynDevice = Arc::new(Scratched::new([data, noise(9, 2000)].concat(), bad));
        let found = unpacked_of(&before, 0, packing, 1 << 20).unwrap();
        assert_eq!((found.end, found.bytes == text), (End::Whole, true), "{packing:?}");
    }
}

#[test]
fn a_device_that_fails_as_a_whole_is_an_error_and_no_damage() {
    let error = Error::ReadOnly;
    for (packing, data) in packed(&text(900_000)) {
        // At the header, and behind it.
        for at in [0, 100_000] {
            let gone: DynDevice =
                Arc::new(Scratched { error: error.clone(), ..Scratched::new(data.clone(), ByteRange::new(at, 512)) });
            assert_eq!(unpacked_of(&gone, 0, packing, 1 << 20).err(), Some(error.clone()), "{packing:?} {at}");
        }
    }
}

#[test]
fn data_that_grow_beyond_the_limits_are_cut() {
    let (text, zeros) = (text(900_000), vec![0; 32 << 20]);
    for ((packing, data), (_, bomb)) in packed(&text).into_iter().zip(packed(&zeros)) {
        let found = unpacked(data, 0, packing, 100_000).unwrap();
        assert_eq!((found.end, found.bytes == text[..100_000]), (End::Cut, true), "{packing:?}");
        let found = unpacked(bomb, 0, packing, usize::MAX).unwrap();
        assert!(found.end == End::Cut && found.bytes.len() < 16 << 20, "{packing:?} {}", found.bytes.len());
    }
}

#[test]
fn blocks_without_content_are_not_read_to_their_end() {
    // Stored blocks of no bytes.
    let blocks = b"\0\0\0\xff\xff".repeat(1 << 20);
    let content = [b"\x1f\x8b\x08\0\0\0\0\0\0\x03", &blocks[..]].concat();
    let found = unpacked_of(&device(content), 0, Packing::Gzip, 1 << 20).unwrap();
    assert_eq!((found.bytes.len(), found.end), (0, End::Cut));
    assert!(found.read_bytes < 1 << 20, "{}", found.read_bytes);
}

proptest! {
    #[test]
    fn any_bytes_are_taken_without_a_panic_and_within_the_limit(content: Vec<u8>, begin in 0_usize..4, max in 0_usize..500) {
        for (packing, head) in [
            (Packing::Gzip, &b"\x1f\x8b\x08\0\0\0\0\0\0\x03"[..]),
            (Packing::Zip, b"PK\x03\x04\x14\0\0\0\x08\0"),
            (Packing::Zlib, b"\x78\x9c"),
        ] {
            let content = [&content[..begin.min(content.len())], head, &content].concat();
            let begin = begin.min(content.len());
            let found = unpacked(content, begin, packing, max);
            prop_assert!(found.is_none_or(|found| found.bytes.len() <= max));
        }
    }
}
