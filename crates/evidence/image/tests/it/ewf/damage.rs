//! Damaged, truncated and forged images: reads return an error that names the place, and never other bytes.

use cheetah_device::{ByteRange, Error as DeviceError};
use cheetah_image::ewf::{BadSegment, Defect, Ewf};

use super::sections::{DESCRIPTOR, descriptor, errors, find, insert, seal, sections};
use super::support::{Desk, Noise, bad_segment, disk, read, read_memory, refusal};
use crate::need;

/// The number of bits to flip in each image.
const FLIPS: usize = 1500;

/// A small image in memory.
fn image(desk: &Desk, name: &str, args: &[&str]) -> Vec<u8> {
    std::fs::read(desk.acquire(name, args)).unwrap()
}

#[test]
fn a_flipped_bit_is_an_error_or_changes_nothing() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new((300 << 10) + 512);
    for (format, compression) in [("encase6", "fast"), ("encase6", "none"), ("smart", "fast"), ("encase1", "none")] {
        let mut good = image(&desk, &format!("{format}-{compression}"), &["-f", format, "-c", compression]);
        if format == "encase6" {
            insert(&mut good, "error2", &errors(&[]));
        }
        assert!(read_memory(vec![good.clone()]).unwrap() == desk.raw);
        let mut noise = Noise(1);
        let (mut errors, mut harmless) = (0, 0);
        for turn in 0..FLIPS {
            // Half of them anywhere, half outside the chunks, which is a small part.
            let at = match turn % 2 {
                0 => noise.below(good.len() as u64) as usize,
                _ => meta(&good, &mut noise),
            };
            let mut bad = good.clone();
            bad[at] ^= 1 << noise.below(8);
            match read_memory(vec![bad]) {
                Err(_) => errors += 1,
                Ok(content) => {
                    assert!(content == desk.raw, "{format} {compression}: bit flipped at {at}");
                    harmless += 1;
                }
            }
        }
        assert!(errors > FLIPS / 2, "{format} {compression}: {errors} errors, {harmless} harmless");
    }
}

/// Returns a random offset in a section without chunks.
fn meta(bytes: &[u8], noise: &mut Noise) -> usize {
    loop {
        let sections = sections(bytes);
        let section = &sections[noise.below(sections.len() as u64) as usize];
        let len = (section.data.end - section.start).min(700);
        if section.name != "sectors" {
            return section.start + noise.below(len as u64) as usize;
        }
    }
}

#[test]
fn an_image_truncated_anywhere_is_refused() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(200 << 10);
    for format in ["encase6", "smart"] {
        let good = image(&desk, format, &["-f", format]);
        let mut noise = Noise(2);
        let random = (0..200).map(|_| noise.below(good.len() as u64) as usize);
        for len in random.collect::<Vec<_>>().into_iter().chain(good.len() - DESCRIPTOR..good.len()) {
            assert!(Ewf::from_memory(vec![good[..len].to_vec()]).is_err(), "{format} cut off at {len}");
        }
    }
}

#[test]
fn a_damaged_table_is_replaced_by_its_copy() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(300 << 10);
    let good = image(&desk, "tables", &[]);
    let (table, copy) = (find(&good, "table"), find(&good, "table2"));
    for offset in [0, 20, 24, 28] {
        let mut bad = good.clone();
        bad[table.data.start + offset] ^= 1;
        assert!(read_memory(vec![bad.clone()]).unwrap() == desk.raw);
        bad[copy.data.start + offset] ^= 4;
        let BadSegment { number, why } = bad_segment(Ewf::from_memory(vec![bad]));
        assert!(number == 1 && matches!(why, Defect::Checksum { .. } | Defect::TableChecksum { .. }), "{why}");
    }
    // Without a copy.
    let mut bad = good.clone();
    bad[table.data.start] ^= 1;
    bad[copy.start..copy.start + DESCRIPTOR].copy_from_slice(&descriptor(
        "other",
        copy.data.end,
        copy.data.end - copy.start,
    ));
    let why = Defect::Checksum { name: "'table'".into(), at: table.start as u64 };
    assert_eq!(bad_segment(Ewf::from_memory(vec![bad])), BadSegment { number: 1, why });
}

#[test]
fn a_damaged_header_is_replaced_by_its_copies() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(64 << 10);
    let mut bad = image(&desk, "headers", &["-C", "77"]);
    for (turn, section) in sections(&bad)[..3].to_vec().into_iter().enumerate() {
        let image = Ewf::from_memory(vec![bad.clone()]).unwrap();
        assert_eq!(image.info().case.case_number.as_deref(), Some("77"), "{turn} headers damaged");
        bad[section.data.start + 20] ^= 0x55;
    }
    let why = Defect::NotUnpacked { name: "'header2'".into(), at: 13 };
    assert_eq!(bad_segment(Ewf::from_memory(vec![bad])), BadSegment { number: 1, why });
}

#[test]
fn a_damaged_chunk_is_named_and_the_others_are_read() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(1 << 20);
    for compression in ["none", "fast"] {
        let first = desk.acquire(compression, &["-c", compression]);
        let mut bytes = std::fs::read(&first).unwrap();
        let table = find(&bytes, "table").data.start;
        let entry = table + 24 + 5 * 4;
        let offset = u32::from_le_bytes(bytes[entry..entry + 4].try_into().unwrap()) & 0x7fff_ffff;
        let at = (u64::from_le_bytes(bytes[table + 8..table + 16].try_into().unwrap()) + u64::from(offset)) as usize;
        bytes[at + 9] ^= 0x10;
        std::fs::write(&first, &bytes).unwrap();
        let image = Ewf::open(&first).unwrap();
        let bad = 5 * (32 << 10)..6 * (32 << 10);
        for (offset, len) in [(bad.start, 1), (bad.end - 1, 100_000), (0, 1 << 20)] {
            let corrupt = read(&image, offset, len).unwrap_err();
            let DeviceError::Corrupt { device, range } = &corrupt else { panic!("{corrupt}") };
            let place = format!("{compression}.E01, chunk 5 at offset {at} of the file");
            assert!(device.contains(&place) && *range == ByteRange::new(bad.start, 32 << 10), "{corrupt}");
        }
        assert!(read(&image, 0, bad.start).unwrap() == desk.raw[..bad.start as usize]);
        assert!(read(&image, bad.end, (1 << 20) - bad.end).unwrap() == desk.raw[bad.end as usize..]);
    }
}

#[test]
fn inconsistent_segments_are_refused() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(300 << 10);
    let good = image(&desk, "good", &[]);
    let with = |name: &str, change: &dyn Fn(&mut [u8])| {
        let mut bad = good.clone();
        let section = find(&bad, name);
        change(&mut bad[section.start..section.data.end]);
        seal(&mut bad[section.start..section.data.start]);
        refusal(Ewf::from_memory(vec![bad]))
    };
    let number = |bytes: &mut [u8], at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    let volume = |at: usize, value: u32| {
        with("volume", &|section| {
            let data = &mut section[DESCRIPTOR..];
            data[at..at + 4].copy_from_slice(&value.to_le_bytes());
            seal(data);
        })
    };
    // A chain that leads outside the file, is cyclic, or contradicts itself.
    assert!(with("sectors", &|bytes| number(bytes, 16, 1 << 60)).contains("'sectors'"));
    assert!(with("sectors", &|bytes| number(bytes, 16, 13)).contains("an end at offset 13"));
    assert!(with("sectors", &|bytes| number(bytes, 24, 100)).contains("is 100 bytes long by its descriptor"));
    // Sizes.
    assert!(volume(16, 641).contains("328192 bytes make 11 chunks"));
    assert!(volume(16, 6000).contains("but the tables of its 1 segments list 10"));
    assert!(volume(20, u32::MAX).contains("claims to be an image of"));
    assert!(volume(12, 0).contains("cannot be read"));
    assert!(volume(8, 1 << 31).contains("cannot be read"));
    assert!(volume(0, 0x0e).contains("logical evidence file"));
    assert!(
        with("table", &|section| {
            section[DESCRIPTOR..DESCRIPTOR + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            seal(&mut section[DESCRIPTOR..DESCRIPTOR + 24]);
            section[..6].copy_from_slice(b"table2");
        })
        .contains("list 0")
    );
    // The sections that identify the file as an image.
    let inserted = |name: &str, data: &[u8]| {
        let mut bad = good.clone();
        insert(&mut bad, name, data);
        refusal(Ewf::from_memory(vec![bad]))
    };
    assert!(inserted("ltree", &[0; 48]).contains("logical evidence file"));
    assert!(inserted("incomplete", &[]).contains("was interrupted"));
    let mut hash = [1; 36];
    seal(&mut hash);
    assert!(inserted("hash", &hash).contains("two different MD5"));
    assert!(inserted("error2", &[0xff; 600]).contains("too short"));
    assert!(inserted("error2", &errors(&[(1, 1)])[..530]).contains("too short"));
}

#[test]
fn a_chunk_that_unpacks_to_another_length_is_corrupt() {
    if !need::programs(&["ewfacquire"]) {
        return;
    }
    let desk = Desk::new(96 << 10);
    let good = image(&desk, "good", &["-c", "none"]);
    for len in [1000, 32 << 10, (32 << 10) + 1] {
        let mut packer = libdeflater::Compressor::new(libdeflater::CompressionLvl::best());
        let content = disk(len);
        let mut packed = vec![0; packer.zlib_compress_bound(len)];
        let used = packer.zlib_compress(&content, &mut packed).unwrap();
        let mut bad = good.clone();
        let (sectors, table) = (find(&bad, "sectors").data, find(&bad, "table").data);
        bad[sectors.start..sectors.start + used].copy_from_slice(&packed[..used]);
        bad[table.start + 24 + 3] |= 0x80;
        seal(&mut bad[table.start + 24..table.end]);
        match read_memory(vec![bad]) {
            Ok(read) => assert!(len == 32 << 10 && read[..len] == content),
            Err(error) => {
                let is_corrupt = matches!(error.device_error(), Some(DeviceError::Corrupt { .. }));
                assert!(len != 32 << 10 && is_corrupt, "{error}");
            }
        }
    }
}
