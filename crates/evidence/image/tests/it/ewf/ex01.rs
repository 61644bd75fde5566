//! Ex01. The libewf that distributions package cannot write it, so the tests encode images after the specification.

use std::io::Read as _;

use cheetah_device::{ByteRange, Device as _, Error};
use cheetah_image::ewf::{BadSegment, Defect, Ewf, EwfFormat};
use cheetah_image::hash::hex;
use md5::Digest as _;

use super::sections::seal;
use super::support::{Noise, bad_segment, compare, disk, read, read_memory, refusal};

const CHUNK: usize = 32 << 10;
/// Not a whole number of chunks.
const SIZE: usize = (1 << 20) + 3 * 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    None,
    Zlib,
    Bzip2,
}

impl Method {
    fn pack(self, content: &[u8]) -> Vec<u8> {
        match self {
            Self::None => content.to_vec(),
            Self::Zlib => {
                let mut packer = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
                let mut packed = vec![0; packer.zlib_compress_bound(content.len())];
                let used = packer.zlib_compress(content, &mut packed).unwrap();
                packed.truncate(used);
                packed
            }
            Self::Bzip2 => {
                let mut packed = Vec::new();
                let mut packer = bzip2::read::BzEncoder::new(content, bzip2::Compression::best());
                packer.read_to_end(&mut packed).unwrap();
                packed
            }
        }
    }
}

/// One segment under construction.
struct Segment {
    bytes: Vec<u8>,
    method: Method,
    /// The offset of the last section descriptor.
    last: usize,
}

impl Segment {
    fn new(number: u32, method: Method, signature: &[u8; 8]) -> Self {
        let mut bytes = signature.to_vec();
        bytes.extend([2, 1]);
        bytes.extend((method as u16).to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend([0x5e; 16]);
        Self { bytes, method, last: 0 }
    }

    /// Appends the descriptor of the section whose data, `len` bytes, was appended before.
    fn close(&mut self, kind: u32, flags: u32, len: usize) {
        let padding = len.next_multiple_of(16) - len;
        self.bytes.extend(vec![0; padding]);
        let data = &self.bytes[self.bytes.len() - len - padding..];
        let mut descriptor = Vec::new();
        descriptor.extend(kind.to_le_bytes());
        descriptor.extend(flags.to_le_bytes());
        descriptor.extend((self.last as u64).to_le_bytes());
        descriptor.extend((data.len() as u64).to_le_bytes());
        descriptor.extend(64u32.to_le_bytes());
        descriptor.extend((padding as u32).to_le_bytes());
        descriptor.extend(if flags & 1 == 0 { [0; 16] } else { md5::Md5::digest(data).into() });
        descriptor.extend([0; 16]);
        seal(&mut descriptor);
        self.last = self.bytes.len();
        self.bytes.extend(descriptor);
    }

    fn section(&mut self, kind: u32, flags: u32, data: &[u8]) {
        self.bytes.extend(data);
        self.close(kind, flags, data.len());
    }

    fn text(&mut self, kind: u32, names: &str, values: &str) {
        let text = format!("\u{feff}1\nmain\n{names}\n{values}\n\n");
        let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        // Text has no padding: it ends with zlib's stream.
        let packed = self.method.pack(&bytes);
        self.section(kind, 1, &packed);
    }
}

/// A header of 20 bytes, entries, and their checksum, each followed by 12 bytes of padding.
fn table(header: &[u8], entries: &[u8]) -> Vec<u8> {
    let mut data = header.to_vec();
    data.resize(20, 0);
    seal(&mut data);
    data.extend([0; 12]);
    let mut footer = [entries, &[0; 4]].concat();
    seal(&mut footer);
    data.extend(footer);
    data
}

/// An image of `raw`, in segments of `per_segment` chunks, with tables of at most 10.
fn encode(raw: &[u8], method: Method, per_segment: usize, errors: &[(u64, u32)]) -> Vec<Vec<u8>> {
    let chunks: Vec<_> = raw.chunks(CHUNK).enumerate().collect();
    let parts: Vec<_> = chunks.chunks(per_segment).collect();
    let mut segments = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let mut segment = Segment::new(index as u32 + 1, method, b"EVF2\r\n\x81\0");
        let sectors = raw.len() / 512;
        segment.text(1, "sn\tmd\tts\tbp\tph\tdt", &format!("S123\tTURBO 3000\t{sectors}\t512\t1\tf"));
        segment.text(2, "nm\tcn\ten\tex\tnt\tav\tsb\tcp\tgr", "a disk\t7\t8\tM. Poirot\ta\u{1}b\t7.04\t64\t1\t1");
        for part in part.chunks(10) {
            let start = segment.bytes.len();
            let mut entries = Vec::new();
            for (_, content) in part {
                let (offset, size, flags) = chunk(&mut segment, content);
                entries.extend(offset.to_le_bytes());
                entries.extend(size.to_le_bytes());
                entries.extend(flags.to_le_bytes());
            }
            segment.close(3, 0, segment.bytes.len() - start);
            let header = [&(part[0].0 as u64).to_le_bytes()[..], &(part.len() as u32).to_le_bytes()].concat();
            segment.section(4, 1, &table(&header, &entries));
        }
        if index + 1 < parts.len() {
            segment.section(13, 0, &[]);
        } else {
            if !errors.is_empty() {
                let mut entries = Vec::new();
                for (at, count) in errors {
                    entries.extend(at.to_le_bytes());
                    entries.extend(count.to_le_bytes());
                    entries.extend([0; 4]);
                }
                segment.section(5, 1, &table(&(errors.len() as u32).to_le_bytes(), &entries));
            }
            for (kind, mut hash) in [(8, md5::Md5::digest(raw).to_vec()), (9, sha1::Sha1::digest(raw).to_vec())] {
                hash.extend([0; 4]);
                seal(&mut hash);
                segment.section(kind, 1, &hash);
            }
            segment.section(15, 0, &[]);
        }
        segments.push(segment.bytes);
    }
    segments
}

/// Appends a chunk, and returns offset, size and flags for the table.
fn chunk(segment: &mut Segment, content: &[u8]) -> (u64, u32, u32) {
    let offset = segment.bytes.len() as u64;
    let pattern = *content.first_chunk::<8>().unwrap();
    if segment.method != Method::None && content.chunks(8).all(|part| part == pattern) {
        return (u64::from_le_bytes(pattern), 0, 5);
    }
    let packed = segment.method.pack(content);
    let (stored, flags) = if segment.method != Method::None && packed.len() < content.len() {
        (packed, 1)
    } else {
        let mut stored = [content, &[0; 4]].concat();
        seal(&mut stored);
        (stored, 2)
    };
    segment.bytes.extend(&stored);
    let len = stored.len().next_multiple_of(16) - stored.len();
    segment.bytes.extend(vec![0; len]);
    (offset, stored.len() as u32, flags)
}

#[test]
fn images_of_every_method_read_the_same() {
    let mut raw = disk(SIZE);
    raw[3 * CHUNK..4 * CHUNK].fill(0);
    raw[4 * CHUNK..5 * CHUNK].copy_from_slice(&b"deadbeef".repeat(CHUNK / 8));
    for method in [Method::None, Method::Zlib, Method::Bzip2] {
        let dir = tempfile::tempdir().unwrap();
        let segments = encode(&raw, method, 12, &[]);
        assert_eq!(segments.len(), 3);
        let packed = segments.concat().len() < raw.len() / 2;
        assert_eq!(packed, method != Method::None, "the image has chunks of that kind");
        for (index, segment) in segments.iter().enumerate() {
            std::fs::write(dir.path().join(format!("disk.Ex0{}", index + 1)), segment).unwrap();
        }
        let image = compare(&dir.path().join("disk.Ex01"), &raw);
        let info = image.info();
        assert_eq!((info.format, info.sector_size, info.chunk_size), (EwfFormat::Ex01, 512, CHUNK as u32));
        assert_eq!(info.set_id, [0x5e; 16]);
        assert!(info.physical);
        assert_eq!((info.model.as_deref(), info.serial.as_deref()), (Some("TURBO 3000"), Some("S123")));
        assert_eq!(info.case.description.as_deref(), Some("a disk"));
        assert_eq!(info.case.notes.as_deref(), Some("a\nb"));
        assert_eq!(info.hashes.md5.as_deref(), Some(hex(&md5::Md5::digest(&raw)).as_str()));
        assert_eq!(info.hashes.sha1.as_deref(), Some(hex(&sha1::Sha1::digest(&raw)).as_str()));

        std::fs::remove_file(dir.path().join("disk.Ex03")).unwrap();
        let BadSegment { number, why } = bad_segment(Ewf::open(&dir.path().join("disk.Ex01")));
        let missing = dir.path().join("disk.Ex03").display().to_string();
        assert!(number == 3 && matches!(&why, Defect::Missing { name, .. } if *name == missing), "{why}");
    }
}

#[test]
fn unreadable_ranges_are_errors() {
    let raw = disk(SIZE);
    let image = Ewf::from_memory(encode(&raw, Method::Zlib, 100, &[(70, 3), (2000, 1)])).unwrap();
    assert_eq!(image.info().unreadable, [ByteRange::new(70 * 512, 3 * 512), ByteRange::new(2000 * 512, 512)]);
    assert!(matches!(read(&image, 0, SIZE as u64).unwrap_err(), Error::Unreadable { .. }));
    assert!(read(&image, 73 * 512, 10_000).unwrap() == raw[73 * 512..73 * 512 + 10_000]);
    assert_eq!(image.geometry().size, SIZE as u64);
}

#[test]
fn encrypted_images_and_unknown_ones_are_refused() {
    let raw = disk(64 << 10);
    let good = encode(&raw, Method::Zlib, 100, &[]).remove(0);
    let rebuilt = |change: &dyn Fn(&mut Segment)| {
        let mut segment = Segment { last: good.len() - 64, bytes: good.clone(), method: Method::Zlib };
        change(&mut segment);
        refusal(Ewf::from_memory(vec![segment.bytes]))
    };
    assert!(rebuilt(&|segment| segment.section(11, 1, &[0; 32])).contains("neither 'next' nor 'done'"));
    let ended = |kind: u32, flags: u32| {
        rebuilt(&|segment| {
            segment.section(kind, flags, &[0; 32]);
            segment.section(15, 0, &[]);
        })
    };
    assert!(ended(11, 1).contains("the image is encrypted"));
    assert!(ended(4, 2).contains("the image is encrypted"));
    assert!(ended(0x20, 1).contains("logical evidence file"));
    assert!(rebuilt(&|segment| segment.bytes[8] = 3).contains("version 3.1"));
    assert!(rebuilt(&|segment| segment.bytes[10] = 9).contains("compression method 9"));
    assert!(rebuilt(&|segment| segment.bytes[12] = 2).contains("this is segment 2"));
}

#[test]
fn a_flipped_bit_or_a_missing_end_is_an_error_or_changes_nothing() {
    let raw = disk((200 << 10) + 512);
    for method in [Method::None, Method::Zlib, Method::Bzip2] {
        let good = encode(&raw, method, 4, &[]);
        let mut noise = Noise(3);
        let mut errors = 0;
        for _ in 0..800 {
            let mut bad = good.clone();
            let segment = noise.below(bad.len() as u64) as usize;
            let at = noise.below(bad[segment].len() as u64) as usize;
            bad[segment][at] ^= 1 << noise.below(8);
            match read_memory(bad) {
                Err(_) => errors += 1,
                Ok(content) => assert!(content == raw, "{method:?}: segment {segment}, bit flipped at {at}"),
            }
        }
        assert!(errors > 600, "{method:?}: {errors} errors");
        for _ in 0..100 {
            let mut bad = good.clone();
            let segment = noise.below(bad.len() as u64) as usize;
            let len = noise.below(bad[segment].len() as u64) as usize;
            bad[segment].truncate(len);
            assert!(Ewf::from_memory(bad).is_err(), "{method:?}: segment {segment} cut off at {len}");
        }
    }
}
