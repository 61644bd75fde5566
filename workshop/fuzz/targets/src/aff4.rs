//! AFF4 containers: opening and reading one neither panics nor exceeds its memory limits, and two reads of a range
//! agree. The ZIP archive around the members is valid, so that the fuzzer reaches the members.

use std::cell::LazyCell;
use std::path::PathBuf;

use cheetah_device::{ByteRange, Device as _};
use cheetah_image::aff4::Aff4;
use cheetah_image::aff4::chunk::Codec;
use cheetah_image::aff4::facts::Facts;
use cheetah_image::aff4::map::{Map, Target};
use tokio::runtime::Runtime;

/// The number of ranges to read: a few reach every target of a small map.
const READS_MAX: usize = 8;
const READ_LEN: u64 = 4096;

const TURTLE: &str = r#"@prefix aff4: <http://aff4.org/Schema#> .
<aff4://i> a aff4:Image ; aff4:dataStream <aff4://m> ; aff4:size 4096 .
<aff4://m> a aff4:Map ; aff4:size 4096 ; aff4:mapGapDefaultStream aff4:SymbolicStream41 .
<aff4://s> a aff4:ImageStream ; aff4:size 1500 ; aff4:chunkSize 512 ; aff4:chunksInSegment 2 ;
  aff4:compressionMethod <http://code.google.com/p/snappy/> .
"#;
const INDEX: &str = "aff4://s\nhttp://aff4.org/Schema#Zero\nhttp://aff4.org/Schema#UnreadableData\n";

thread_local! {
    static RUNTIME: LazyCell<Runtime> = LazyCell::new(|| {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    });
    static FILE: LazyCell<PathBuf> = LazyCell::new(|| {
        std::env::temp_dir().join(format!("cheetah-fuzz-{}.aff4", std::process::id()))
    });
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    match choice % 5 {
        0 => drop(Facts::parse(data)),
        1 => map(data),
        2 => unpack(data),
        3 => open(data),
        _ => open(&container(data)),
    }
}

fn map(data: &[u8]) {
    let Some((size, entries)) = data.split_first_chunk() else { return };
    let size = u64::from_le_bytes(*size);
    let Ok(map) = Map::parse(entries, size, &[Target::Stream(0), Target::Fill(1)], Target::Unreadable) else { return };
    let mut at = 0;
    for run in map.runs(ByteRange::new(0, size)) {
        assert!(run.range.offset == at && !run.range.is_empty());
        at = run.range.end();
    }
    assert_eq!(at, size);
}

fn unpack(data: &[u8]) {
    for codec in [Codec::Stored, Codec::Snappy, Codec::Zlib, Codec::Deflate, Codec::Lz4] {
        if let Ok(chunk) = codec.unpack(data, 4096, 10) {
            assert!((10..=4096).contains(&chunk.len()));
        }
    }
}

fn open(bytes: &[u8]) {
    FILE.with(|path| {
        std::fs::write(&**path, bytes).expect("room for a small file");
        let Ok(image) = Aff4::open(path) else { return };
        let identity = image.identity("fuzz");
        assert!(identity.unreadable.iter().all(|range| range.fits(identity.size) && !range.is_empty()));
        for range in ByteRange::new(0, identity.size).split_at_multiples(READ_LEN).take(READS_MAX) {
            let read = || RUNTIME.with(|runtime| runtime.block_on(image.read(range)).map(|data| data.into_bytes()));
            let first = read();
            assert!(first.as_ref().map_or(true, |bytes| bytes.len() as u64 == range.len));
            assert_eq!(first, read());
        }
    });
}

/// A container whose members come from the input: the turtle with some bytes changed, then the others, with lengths
/// from the input.
fn container(mut data: &[u8]) -> Vec<u8> {
    let mut take = || {
        let (len, rest) = data.split_first().map_or((0, data), |(len, rest)| (usize::from(*len) * 2, rest));
        let (taken, rest) = rest.split_at(len.min(rest.len()));
        data = rest;
        taken
    };
    let mut turtle = TURTLE.as_bytes().to_vec();
    for edit in take().chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % turtle.len();
        turtle[at] = edit[2];
    }
    archive(&[
        ("version.txt", b"major=1\nminor=0\n"),
        ("information.turtle", &turtle),
        ("aff4%3A%2F%2Fm/idx", INDEX.as_bytes()),
        ("aff4%3A%2F%2Fm/map", take()),
        ("aff4%3A%2F%2Fs/00000000", take()),
        ("aff4%3A%2F%2Fs/00000000.index", take()),
        ("aff4%3A%2F%2Fs/00000001", take()),
        ("aff4%3A%2F%2Fs/00000001.index", take()),
    ])
}

/// A ZIP archive (APPNOTE.TXT) of uncompressed members.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in members {
        let len = (content.len() as u32).to_le_bytes();
        let shared =
            [&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &crc32(content).to_le_bytes(), &len, &len, &[name.len() as u8, 0]];
        let shared = shared.concat();
        directory.extend([b"PK\x01\x02\x14\0", &shared[..], &[0; 12], &(out.len() as u32).to_le_bytes()].concat());
        directory.extend(name.as_bytes());
        out.extend([b"PK\x03\x04", &shared[..], &[0; 2], name.as_bytes(), content].concat());
    }
    let count = (members.len() as u16).to_le_bytes();
    let (start, len) = ((out.len() as u32).to_le_bytes(), (directory.len() as u32).to_le_bytes());
    out.extend(directory);
    out.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count, &len, &start, &[0; 2]].concat());
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(!0, |crc: u32, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1))))
}
