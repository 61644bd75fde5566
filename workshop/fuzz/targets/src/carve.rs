//! Files and compressed data that begin at a known place: whatever they say, files end within the device, and no more than the limit is
//! unpacked.

use std::sync::Arc;

use cheetah_carve::{Format, Packing, length, unpack};
use cheetah_device::DynDevice;
use cheetah_device::memory::Memory;
use futures::FutureExt as _;

/// Bytes before the file.
const BEFORE: usize = 7;
/// The most bytes that are unpacked.
const UNPACKED_BYTES_MAX: usize = 1 << 20;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let format = Format::ALL[usize::from(*choice) % Format::ALL.len()];
    // What is checked first.
    let start: &[u8] = match format {
        Format::Jpeg => b"\xff\xd8\xff\xc0\0\x08\x08\0\x10\0\x10\x01",
        Format::Png => b"\x89PNG\r\n\x1a\n\0\0\0\0IEND\xae\x42\x60\x82",
        Format::Gif => b"GIF89a\x01\0\x01\0\0\0\0\x2c",
        Format::Pdf => b"%PDF-1.7\nxref\nstartxref\n9\n%%EOF",
        Format::Zip => b"PK\x03\x04\x14\0",
        Format::Gzip => b"\x1f\x8b\x08\0\0\0\0\0\0\x03",
        Format::SevenZip => b"7z\xbc\xaf\x27\x1c\0\x04",
        Format::Sqlite => b"SQLite format 3\0\x10\0\x01\x01\0@  ",
        Format::Mp4 => b"\0\0\0\x10ftypisom\0\0\0\0",
        Format::Riff => b"RIFF\x40\0\0\0WAVEfmt ",
        Format::Evtx => b"ElfFile\0",
        Format::Registry => b"regf",
    };
    let content = [&[0; BEFORE], start, data].concat();
    let len = (content.len() - BEFORE) as u64;
    let device: DynDevice = Arc::new(Memory::new(content));
    let found = length(&device, BEFORE as u64, format).now_or_never().unwrap().unwrap();
    assert!(found.is_none_or(|found| found > 0 && found <= len), "{format:?}: {found:?} of {len}");
    for packing in [Packing::Gzip, Packing::Zip, Packing::Zlib] {
        let unpacked = unpack(&device, BEFORE as u64, packing, UNPACKED_BYTES_MAX).now_or_never().unwrap().unwrap();
        assert!(unpacked.bytes.len() <= UNPACKED_BYTES_MAX, "{packing:?}");
    }
}
