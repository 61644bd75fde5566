//! Images made by libewf's programs, in every format and shape they offer.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use cheetah_image::ewf::{BadSegment, Defect, Ewf, EwfFormat};
use cheetah_image::hash::hex;
use md5::Digest as _;

use super::sections::{find, seal};
use super::support::{Desk, bad_segment, compare, first_segment, refusal};
use crate::need;

/// Not a whole number of chunks.
const SIZE: usize = (3 << 20) + 5 * 512;

const CASE: [&str; 10] =
    ["-C", "2026/7", "-E", "42.1", "-e", "M. Poirot", "-D", "a disk in small", "-N", "found under the bed"];

#[test]
fn all_formats_of_ewfacquire_read_the_same() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(SIZE);
    let md5 = hex(&md5::Md5::digest(&desk.raw));
    let formats = [
        "ewf", "smart", "ftk", "encase1", "encase2", "encase3", "encase4", "encase5", "encase6", "encase7", "linen5",
        "linen6", "linen7", "ewfx",
    ];
    for format in formats {
        let args = [&["-f", format, "-c", "fast", "-S", "1048576", "-d", "sha1"], &CASE[..]].concat();
        let image = compare(&desk.acquire(format, &args), &desk.raw);
        let info = image.info();
        let s01 = ["ewf", "smart"].contains(&format);
        assert_eq!(info.format, if s01 { EwfFormat::S01 } else { EwfFormat::E01 }, "{format}");
        assert_eq!(info.hashes.md5.as_deref(), Some(md5.as_str()), "{format}");
        assert_eq!(info.case.case_number.as_deref(), Some("2026/7"), "{format}");
        assert_eq!(info.case.evidence_number.as_deref(), Some("42.1"), "{format}");
        assert_eq!(info.case.examiner.as_deref(), Some("M. Poirot"), "{format}");
        assert_eq!(info.case.description.as_deref(), Some("a disk in small"), "{format}");
        assert_eq!(info.case.notes.as_deref(), Some("found under the bed"), "{format}");
        assert_eq!((info.sector_size, info.chunk_size), (512, 32 << 10), "{format}");
        assert_eq!(info.unreadable, []);
    }
}

#[test]
fn chunks_of_every_size_and_compression_are_read() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(SIZE);
    for compression in ["none", "empty-block", "fast", "best"] {
        for (sectors, chunk_size) in [("16", 8 << 10), ("64", 32 << 10), ("1024", 512 << 10), ("32768", 16 << 20)] {
            let name = format!("{compression}-{sectors}");
            let image = compare(&desk.acquire(&name, &["-c", compression, "-b", sectors]), &desk.raw);
            assert_eq!(image.info().chunk_size, chunk_size);
        }
    }
}

#[test]
fn other_sector_sizes_and_images_below_a_chunk_are_read() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    for (len, sector) in [(512, 512), (4096, 4096), (40 << 10, 2048), (33_280, 512)] {
        let desk = Desk::new(len);
        let image = compare(&desk.acquire("small", &["-P", &sector.to_string()]), &desk.raw);
        assert_eq!(image.info().sector_size, sector);
    }
}

#[test]
fn an_image_of_a_stream_of_unknown_length_is_read() {
    if !need::programs(&["ewfacquirestream"]) {
        return;
    }
    let desk = Desk::new(SIZE);
    let target = desk.path("stream");
    let mut command = Command::new(need::find("ewfacquirestream").unwrap());
    command.args(["-q", "-S", "1048576", "-c", "none", "-d", "sha1", "-t"]).arg(&target);
    let source = std::fs::File::open(desk.path("source.raw")).unwrap();
    let output = command.stdin(source).stdout(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let image = compare(&first_segment(&target), &desk.raw);
    assert_eq!(image.info().segments.len(), 4);
    assert_eq!(image.info().hashes.sha1.as_deref(), Some(hex(&sha1::Sha1::digest(&desk.raw)).as_str()));
}

#[test]
fn segments_are_found_regardless_of_case_and_missing_ones_are_named() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(SIZE);
    let first = desk.acquire("set", &["-c", "none", "-S", "1048576"]);
    let rename = |from: &str, to: &str| std::fs::rename(desk.path(from), desk.path(to)).unwrap();
    rename("set.E02", "Set.e02");
    let image = compare(&first, &desk.raw);
    assert_eq!(image.info().segments.len(), 4);
    assert_eq!(image.info().segments[1], desk.path("Set.e02"));

    let bad = |number, why| BadSegment { number, why };
    let later = Defect::NotFirst { number: 3, ending: ".E01" };
    assert_eq!(bad_segment(Ewf::open(&desk.path("set.E03"))), bad(1, later));
    let file = |name: &str| desk.path(name).display().to_string();
    rename("set.E04", "away");
    let missing = Defect::Missing { name: file("set.E04"), before: file("set.E03") };
    assert_eq!(bad_segment(Ewf::open(&first)), bad(4, missing));
    rename("set.E03", "set.E04");
    let missing = Defect::Missing { name: file("set.E03"), before: file("Set.e02") };
    assert_eq!(bad_segment(Ewf::open(&first)), bad(3, missing));
    rename("set.E04", "set.E03");
    std::fs::copy(desk.path("set.E03"), desk.path("set.E04")).unwrap();
    assert_eq!(bad_segment(Ewf::open(&first)), bad(4, Defect::OtherNumber { number: 3, wanted: 4 }));
    rename("away", "set.E04");

    // EnCase marks the segments of a set, so that a segment of another set is recognised.
    for (name, mark) in [("set.E01", 1), ("set.E02", 1), ("set.E03", 2), ("set.E04", 1)] {
        let path = if name == "set.E02" { desk.path("Set.e02") } else { desk.path(name) };
        let mut bytes = std::fs::read(&path).unwrap();
        let volume = if name == "set.E01" { find(&bytes, "volume") } else { find(&bytes, "data") };
        bytes[volume.data.start + 64..volume.data.start + 80].fill(mark);
        seal(&mut bytes[volume.data]);
        std::fs::write(path, bytes).unwrap();
    }
    assert_eq!(bad_segment(Ewf::open(&first)), bad(3, Defect::OtherImage { first: file("set.E01") }));
}

#[test]
fn a_file_that_is_not_an_image_is_refused_in_one_sentence() {
    let desk = Desk::new(4096);
    let refused = |name: &str, content: &[u8]| {
        std::fs::write(desk.path(name), content).unwrap();
        let refused = refusal(Ewf::open(&desk.path(name)));
        assert!(refused.contains(name), "{refused}");
    };
    let why = |path: &Path| Ewf::open(path).err().unwrap().cause::<std::io::Error>().map(std::io::Error::kind);
    assert_eq!(why(&desk.path("absent.E01")), Some(ErrorKind::NotFound));
    assert_eq!(why(&desk.path("no/folder/absent.E01")), Some(ErrorKind::NotFound));
    assert_eq!(why(desk.dir.path()), Some(ErrorKind::InvalidInput));
    refused("empty.E01", b"");
    refused("text.E01", b"Dear diary, today");
    refused("files.L01", b"LVF\x09\x0d\x0a\xff\0\x01\x01\0\0\0");
    refused("files.Lx01", &[b"LEF2\r\n\x81\0", &[0; 64][..]].concat());
    refused("crypt.E01", b"ADCRYPT\0\0\0\0\x01");
    refused("short.E01", b"EVF\x09\x0d\x0a\xff\0\x01\x01\0\0\0");
}

#[test]
fn an_image_that_changes_while_it_is_read_is_refused() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(SIZE);
    let first = desk.acquire("changing", &["-c", "none"]);
    let image = Ewf::open(&first).unwrap();
    let file = std::fs::File::options().append(true).open(&first).unwrap();
    file.set_len(file.metadata().unwrap().len() + 1).unwrap();
    assert!(super::support::read(&image, 0, 4096).is_err());
}
