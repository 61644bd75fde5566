//! The smallest files of each format that have all that is checked.

use std::io::{Cursor, Write as _};
use std::sync::LazyLock;

use cheetah_carve::Format;
use flate2::Crc;

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// A file of each format.
pub fn all() -> Vec<(Format, Vec<u8>)> {
    static ALL: LazyLock<Vec<(Format, Vec<u8>)>> = LazyLock::new(made);
    ALL.clone()
}

fn made() -> Vec<(Format, Vec<u8>)> {
    vec![
        (Format::Jpeg, jpeg()),
        (Format::Png, png()),
        (Format::Gif, gif()),
        (Format::Pdf, pdf()),
        (Format::Zip, zip()),
        (Format::Gzip, gzip()),
        (Format::SevenZip, seven_zip()),
        (Format::Sqlite, sqlite()),
        (Format::Mp4, mp4()),
        (Format::Riff, riff()),
        (Format::Evtx, evtx()),
        (Format::Registry, registry()),
    ]
}

/// With a preview in it, restarts, fill bytes and two scans.
fn jpeg() -> Vec<u8> {
    let segment = |marker: u8, body: &[u8]| {
        let len = u16::try_from(body.len() + 2).unwrap().to_be_bytes();
        [&[0xff, marker][..], &len, body].concat()
    };
    let frame = [8, 0, 16, 0, 16, 1, 1, 0x11, 0];
    let scan = [1, 1, 0, 0, 63, 0];
    [
        &[0xff, 0xd8][..],
        &segment(0xe1, b"Exif\0\0\xff\xd8\xff\xdb preview \xff\xd9"),
        &segment(0xdb, &[1; 65]),
        &[0xff],
        &segment(0xc2, &frame),
        &segment(0xc4, &[0; 20]),
        &segment(0xda, &scan),
        &[1, 2, 0xff, 0, 3, 0xff, 0xd0, 4, 0xff, 0xff, 0xd7, 5],
        &segment(0xda, &scan),
        &[7; 300_000],
        &[0xff, 0xd9],
    ]
    .concat()
}

fn png() -> Vec<u8> {
    let chunk = |kind: &[u8], body: &[u8]| {
        let content = [kind, body].concat();
        [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], &content, &crc32(&content).to_be_bytes()].concat()
    };
    let header = [0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0];
    let data = chunk(b"IDAT", &[0x55; 500_000]);
    [b"\x89PNG\r\n\x1a\n", &chunk(b"IHDR", &header)[..], &data, &chunk(b"tEXt", b"a\0b"), &chunk(b"IEND", b"")].concat()
}

fn gif() -> Vec<u8> {
    let screen = [1, 0, 1, 0, 0x80, 0, 0];
    let image = [0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0x81];
    let colours = [9; 12];
    [
        b"GIF89a",
        &screen[..],
        &[0; 6],
        &[0x21, 0xf9, 4, 0, 0, 0, 0, 0],
        &image,
        &colours,
        &[2, 2, 0x44, 1, 0],
        &[0x21, 0xfe, 3, b'a', b';', b'c', 0],
        &[0x3b],
    ]
    .concat()
}

/// A document that was saved again.
fn pdf() -> Vec<u8> {
    let mut file = b"%PDF-1.7\n1 0 obj\n<</Type /Catalog>>\nendobj\n".to_vec();
    for _ in 0..2 {
        let table = file.len();
        write!(file, "xref\n0 1\n0000000000 65535 f\r\ntrailer\n<</Size 1>>\nstartxref\n{table}\n%%EOF\n").unwrap();
    }
    file
}

fn zip() -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for name in ["a.txt", "b/c.txt"] {
        writer.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(&[b'z'; 100_000]).unwrap();
    }
    writer.set_comment("of the archive").unwrap();
    writer.finish().unwrap().into_inner()
}

/// Two members, as `cat a.gz b.gz` makes.
fn gzip() -> Vec<u8> {
    [gzip_member(4), gzip_member(5)].concat()
}

pub fn gzip_member(seed: u64) -> Vec<u8> {
    let builder = flate2::GzBuilder::new().filename("letter.txt").comment("a comment");
    let mut writer = builder.write(Vec::new(), flate2::Compression::fast());
    writer.write_all(&super::noise(seed, 400_000)).unwrap();
    writer.finish().unwrap()
}

fn seven_zip() -> Vec<u8> {
    let packed = [0x33; 100];
    let second = *b"\x01\x04\x06\x00\x01\x09\x64\x00\x00\x00";
    let start =
        [&(packed.len() as u64).to_le_bytes()[..], &(second.len() as u64).to_le_bytes(), &crc32(&second).to_le_bytes()];
    let start = start.concat();
    [b"7z\xbc\xaf\x27\x1c\x00\x04", &crc32(&start).to_le_bytes()[..], &start, &packed, &second].concat()
}

fn sqlite() -> Vec<u8> {
    let mut file = vec![0; 3 * 4096];
    file[..16].copy_from_slice(b"SQLite format 3\0");
    file[16..24].copy_from_slice(&[0x10, 0, 1, 1, 0, 64, 32, 32]);
    file[24..28].copy_from_slice(&7_u32.to_be_bytes());
    file[28..32].copy_from_slice(&3_u32.to_be_bytes());
    file[92..96].copy_from_slice(&7_u32.to_be_bytes());
    file[100] = 0x0d;
    file
}

fn mp4() -> Vec<u8> {
    let part =
        |kind: &[u8], body: &[u8]| [&(8 + u32::try_from(body.len()).unwrap()).to_be_bytes()[..], kind, body].concat();
    let long = [&1_u32.to_be_bytes()[..], b"mdat", &(16 + 5000_u64).to_be_bytes(), &[0x77; 5000]].concat();
    [part(b"ftyp", b"isom\0\0\x02\0isommp41"), part(b"free", b""), long, part(b"moov", &[1; 200])].concat()
}

fn riff() -> Vec<u8> {
    let chunk = |kind: &[u8], body: &[u8]| {
        let len = u32::try_from(body.len()).unwrap();
        [kind, &len.to_le_bytes(), body, &[0][..body.len() % 2]].concat()
    };
    let body =
        [b"WAVE", &chunk(b"fmt ", &[1; 16])[..], &chunk(b"LIST", &[2; 25]), &chunk(b"data", &[3; 1000])].concat();
    chunk(b"RIFF", &body)
}

fn evtx() -> Vec<u8> {
    let mut file = vec![0; 4096 + 2 * 65_536];
    file[..8].copy_from_slice(b"ElfFile\0");
    file[40..44].copy_from_slice(&[0, 0x10, 2, 0]);
    let sum = crc32(&file[..120]);
    file[124..128].copy_from_slice(&sum.to_le_bytes());
    for chunk in [4096, 4096 + 65_536] {
        file[chunk..chunk + 8].copy_from_slice(b"ElfChnk\0");
    }
    file
}

fn registry() -> Vec<u8> {
    let mut file = vec![0; 3 * 4096];
    file[..4].copy_from_slice(b"regf");
    file[20] = 1;
    file[24] = 5;
    file[40..44].copy_from_slice(&8192_u32.to_le_bytes());
    let sum = file[..508].chunks(4).fold(0, |sum, word| sum ^ u32::from_le_bytes(word.try_into().unwrap()));
    file[508..512].copy_from_slice(&sum.to_le_bytes());
    for (bin, place) in [4096, 8192].into_iter().zip(0_u32..) {
        file[bin..bin + 4].copy_from_slice(b"hbin");
        file[bin + 4..bin + 8].copy_from_slice(&(4096 * place).to_le_bytes());
        file[bin + 8..bin + 12].copy_from_slice(&4096_u32.to_le_bytes());
    }
    file
}
