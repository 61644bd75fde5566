//! Generated containers, and the standard's reference images.

use std::cell::RefCell;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use cheetah_device::error::Withheld;
use cheetah_device::memory::Memory;
use cheetah_testing::evidence;
use proptest::prelude::*;
use sha1::{Digest as _, Sha1};
use sha2::{Sha256, Sha512};
use tempfile::NamedTempFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::*;
use crate::hash::hex;
use crate::identity::Kind;
use crate::source::{OpenOptions, SourceFile};

const CHUNK: usize = 4096;
const CHUNKS_IN_BEVY: usize = 3;

/// The members of a container as `(name, content)`; tests edit them before the container is written.
struct Container {
    members: Vec<(String, Vec<u8>)>,
}

fn noise(len: usize) -> Vec<u8> {
    // Every other chunk can be compressed.
    (0..len).map(|at| if (at / CHUNK).is_multiple_of(2) { ((at * at) >> 7) as u8 } else { (at / 99) as u8 }).collect()
}

fn pack(method: &str, chunk: &[u8]) -> Vec<u8> {
    match Codec::of(method) {
        Some(Codec::Snappy) => snap::raw::Encoder::new().compress_vec(chunk).unwrap(),
        Some(Codec::Lz4) => lz4_flex::block::compress(chunk),
        Some(Codec::Zlib) => {
            let mut out = vec![0; 2 * CHUNK];
            let len = libdeflater::Compressor::new(Default::default()).zlib_compress(chunk, &mut out).unwrap();
            out[..len].to_vec()
        }
        _ => chunk.to_vec(),
    }
}

use super::chunk::Codec;

impl Container {
    /// An image: 4 KiB of zeros, the stream, 4 KiB of 0xff, a gap of 4 KiB, and, if `holed`, 4 KiB unreadable and 4 KiB
    /// unknown.
    fn of(content: &[u8], method: &str, holed: bool) -> Self {
        let stream = "aff4://stream";
        let mut members = vec![
            ("container.description".to_owned(), b"aff4://volume".to_vec()),
            ("version.txt".to_owned(), b"major=1\r\nminor=0\r\ntool=test\r\n".to_vec()),
        ];
        for (number, bevy) in content.chunks(CHUNK * CHUNKS_IN_BEVY).enumerate() {
            let (mut data, mut index, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
            for chunk in bevy.chunks(CHUNK) {
                let mut chunk = chunk.to_vec();
                chunk.resize(CHUNK, 0);
                let mut packed = pack(method, &chunk);
                if packed.len() >= CHUNK {
                    packed = chunk.clone();
                }
                index.extend((data.len() as u64).to_le_bytes());
                index.extend((packed.len() as u32).to_le_bytes());
                data.extend(packed);
                hashes.extend(Sha1::digest(&chunk));
            }
            let name = format!("aff4%3A%2F%2Fstream/{number:08}");
            members.extend([
                (name.clone(), data),
                (format!("{name}.index"), index),
                (format!("{name}.blockHash.sha1"), hashes),
            ]);
        }
        let len = content.len() as u64;
        let k4 = 4096u64;
        let mut entries = vec![(0, k4, 0, 1), (k4, len, 0, 0), (k4 + len, k4, 0, 2)];
        let mut size = len + 3 * k4;
        if holed {
            entries.extend([(size, k4, 0, 3), (size + k4, k4, 0, 4)]);
            size += 2 * k4;
        }
        let mut map = Vec::new();
        for (at, len, offset, target) in entries {
            map.extend([at, len, offset].iter().flat_map(|number: &u64| number.to_le_bytes()));
            map.extend(u32::to_le_bytes(target));
        }
        let schema = facts::SCHEMA;
        let idx =
            format!("{stream}\n{schema}Zero\n{schema}SymbolicStreamFF\n{schema}UnreadableData\n{schema}UnknownData\n");
        let turtle = format!(
            r#"@prefix aff4: <{schema}> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
            <aff4://image> a aff4:DiskImage, aff4:Image ; aff4:dataStream <aff4://map> ; aff4:size {size} ;
                aff4:blockSize 512 ; aff4:diskSerial "S1" ; aff4:hash "{:032x}"^^aff4:MD5 .
            <aff4://map> a aff4:Map ; aff4:size "{size}"^^xsd:long ; aff4:mapPointHash "{}"^^aff4:SHA512 ;
                aff4:mapIdxHash "{}"^^aff4:SHA512 .
            <{stream}> a aff4:ImageStream ; aff4:size {len} ; aff4:chunkSize {CHUNK} ;
                aff4:chunksInSegment {CHUNKS_IN_BEVY} ; aff4:compressionMethod <{method}> .
            <aff4://notes> a aff4:CaseNotes ; aff4:target <aff4://image> ; aff4:examiner "E" ; aff4:notes "N" ."#,
            7,
            hex(&Sha512::digest(&map)),
            hex(&Sha512::digest(idx.as_bytes())),
        );
        members.extend([
            ("aff4%3A%2F%2Fmap/map".to_owned(), map),
            ("aff4%3A%2F%2Fmap/idx".to_owned(), idx.into_bytes()),
            ("information.turtle".to_owned(), turtle.into_bytes()),
        ]);
        Self { members }
    }

    fn change(mut self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        change(&mut self.members.iter_mut().find(|(other, _)| other.ends_with(name)).unwrap().1);
        self
    }

    fn replace(self, from: &str, to: &str) -> Self {
        self.change("information.turtle", |turtle| {
            let text = String::from_utf8(turtle.clone()).unwrap();
            assert!(text.contains(from), "{from}");
            *turtle = text.replacen(from, to, 1).into_bytes();
        })
    }

    fn without(mut self, name: &str) -> Self {
        self.members.retain(|(other, _)| !other.ends_with(name));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, content) in &self.members {
            let method = match name.as_str() {
                "information.turtle" => CompressionMethod::Deflated,
                _ => CompressionMethod::Stored,
            };
            let options = SimpleFileOptions::default().compression_method(method).large_file(true);
            zip.start_file(name.as_str(), options).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn open(&self) -> Result<Aff4> {
        open(&self.bytes())
    }

    fn refusal(&self) -> Error {
        self.open().err().unwrap()
    }
}

thread_local! {
    /// The files of a test, until it ends: removing one changes its time of change, which is noticed.
    static FILES: RefCell<Vec<NamedTempFile>> = const { RefCell::new(Vec::new()) };
}

/// Writes a file that is there until the test ends; returns its path.
pub(super) fn file_of(bytes: &[u8], at: u64) -> PathBuf {
    let mut file = NamedTempFile::new().unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
    let path = file.path().to_owned();
    FILES.with_borrow_mut(|files| files.push(file));
    path
}

fn open(bytes: &[u8]) -> Result<Aff4> {
    Aff4::open(&file_of(bytes, 0))
}

fn read(aff4: &Aff4, range: ByteRange) -> cheetah_device::Result<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { aff4.read(range).await.map(|data| data.into_bytes().into()) })
}

fn image(content: &[u8]) -> Vec<u8> {
    [&[0; 4096][..], content, &[0xff; 4096], &[0; 4096]].concat()
}

const METHODS: [&str; 5] = [
    "http://code.google.com/p/snappy/",
    "https://code.google.com/p/lz4/",
    "https://www.ietf.org/rfc/rfc1950.txt",
    "http://aff4.org/Schema#NullCompressor",
    "http://aff4.org/Schema#compression/stored",
];

#[tokio::test]
async fn an_image_behind_a_link_is_the_image_and_its_file_is_hashed_as_it_is_read() {
    let content = noise(40 * CHUNK + 5);
    let container = Container::of(&content, METHODS[0], true);
    let (file, whole) = (container.bytes(), image(&content));
    for in_order in [false, true] {
        let device = Arc::new(Memory::new(file.clone()));
        let options = OpenOptions { in_order, ..OpenOptions::default() };
        let (location, name) = ("https://lab/case/disk.aff4", "disk.aff4");
        let source = crate::open_behind(device, location, name, None, &options).await.unwrap();
        let identity = &source.identity;
        assert_eq!((identity.kind, identity.location.as_str(), source.name.as_str()), (Kind::Aff4, location, "disk"));
        assert_eq!(identity.serial.as_deref(), Some("S1"));
        assert_eq!(identity.size, whole.len() as u64 + 2 * 4096);
        assert_eq!(source.files, [SourceFile { path: location.into(), size: file.len() as u64 }]);
        let read = source.device.read(ByteRange::new(0, whole.len() as u64)).await.unwrap();
        assert!(read == whole[..]);
        let hole = source.device.read(ByteRange::new(whole.len() as u64, 1)).await;
        assert!(matches!(hole, Err(DeviceError::Withheld { .. })), "{hole:?}");
        match &source.hashed {
            Some(hashed) => assert_eq!(hashed.finish().await, [Ok(hex(&Sha256::digest(&file)))]),
            None => assert!(!in_order),
        }
    }
}

#[tokio::test]
async fn an_image_behind_a_link_that_is_cut_short_is_refused() {
    let file = Container::of(&noise(CHUNK), METHODS[0], false).bytes();
    let cut = Arc::new(Memory::new(file[..file.len() - 9].to_vec()));
    let opened = crate::open_behind(cut, "https://lab/disk.aff4", "disk.aff4", None, &OpenOptions::default()).await;
    let error = opened.err().unwrap();
    assert!(error.is_evidence(), "{error}");
}

#[test]
fn images_of_every_codec_read_as_written() {
    for (method, len) in METHODS.into_iter().zip([10 * CHUNK, 10 * CHUNK + 1, 3 * CHUNK, CHUNK - 1, 7 * CHUNK + 77]) {
        let content = noise(len);
        let aff4 = Container::of(&content, method, false).open().unwrap();
        let whole = image(&content);
        assert_eq!(aff4.geometry().size, whole.len() as u64);
        assert!(read(&aff4, ByteRange::new(0, whole.len() as u64)).unwrap() == whole, "{method}");
        for (at, len) in [(1, 1), (4095, 2), (5000, 3000), (whole.len() - 8200, 100), (0, 0)] {
            let range = ByteRange::new(at as u64, len as u64);
            assert!(read(&aff4, range).unwrap() == whole[at..at + len], "{method} {range}");
        }
        assert!(read(&aff4, ByteRange::new(whole.len() as u64, 1)).is_err());
    }
}

#[test]
fn missing_ranges_are_errors_and_listed() {
    let content = noise(5 * CHUNK);
    let aff4 = Container::of(&content, METHODS[0], true).open().unwrap();
    let start = image(&content).len() as u64;
    assert!(read(&aff4, ByteRange::new(0, start)).unwrap() == image(&content));
    let when = "when the image was made";
    for (range, missing, why) in [
        (ByteRange::new(start - 10, 20), ByteRange::new(start, 10), Withheld::WasUnreadable(when)),
        (ByteRange::new(start + 4096, 1), ByteRange::new(start + 4096, 1), Withheld::NotRead(when)),
    ] {
        let error = read(&aff4, range).unwrap_err();
        let is_told =
            matches!(&error, DeviceError::Withheld { range, reason, .. } if (*range, *reason) == (missing, why));
        assert!(is_told, "{error}");
    }
    let identity = aff4.identity("a.aff4");
    assert_eq!(identity.unreadable, [ByteRange::new(start, 8192)]);
    assert_eq!((identity.serial.as_deref(), identity.sector_size), (Some("S1"), Some(512)));
    assert_eq!((identity.case.examiner.as_deref(), identity.case.notes.as_deref()), (Some("E"), Some("N")));
    assert_eq!(identity.hashes.md5.as_deref(), Some("00000000000000000000000000000007"));
}

#[test]
fn a_flipped_bit_in_a_chunk_corrupts_only_that_chunk() {
    let content = noise(5 * CHUNK);
    let damaged = Container::of(&content, METHODS[0], false).change("00000001", |bevy| bevy[CHUNK + 100] ^= 1);
    let aff4 = damaged.open().unwrap();
    let first = 4096 + 3 * CHUNK as u64;
    assert!(read(&aff4, ByteRange::new(0, first)).is_ok());
    let error = read(&aff4, ByteRange::new(first, 2 * CHUNK as u64)).unwrap_err();
    assert!(matches!(error, DeviceError::Corrupt { range, .. } if range.offset == first), "{error}");
}

#[test]
fn unsupported_images_are_refused_by_name() {
    let made = || Container::of(&noise(5 * CHUNK), METHODS[0], false);
    let encrypted = made().replace("<aff4://map> a aff4:Map", "<aff4://map> a aff4:EncryptedStream");
    let striped = made()
        .replace("<aff4://stream> a aff4:ImageStream ; aff4:size 20480 ;", "<aff4://stream> a aff4:ImageStream ;");
    let logical = made().replace("a aff4:DiskImage, aff4:Image", "a aff4:FileImage, aff4:Image");
    let two = made()
        .replace("<aff4://notes>", "<aff4://second> a aff4:Image ; aff4:dataStream <aff4://map> . <aff4://notes>");
    for (container, code, names) in [
        (encrypted, 1, &["aff4://map"][..]),
        (striped, 1, &["aff4://stream"]),
        (logical, 1, &[]),
        (two, 1, &["aff4://image", "aff4://second"]),
        (
            made().replace("http://code.google.com/p/snappy/", "https://example.org/best"),
            1,
            &["https://example.org/best"],
        ),
        (made().without("version.txt"), 1, &["version.txt"]),
        (made().change("version.txt", |text| *text = b"major=2\nminor=0\n".to_vec()), 1, &["2.0"]),
        (made().without("information.turtle"), 1, &["information.turtle"]),
        (made().without("information.turtle").without("container.description"), 1, &["raw:"]),
        (made().without("00000001.index"), 3, &["00000001.index"]),
        (made().without("00000001"), 3, &["00000001"]),
        (made().without("map"), 3, &["map"]),
        (made().change("map/map", |map| map[30] ^= 1), 3, &["map"]),
        (made().change("idx", |idx| idx[8] ^= 1), 3, &["idx"]),
        (made().change("00000001.index", |index| index.truncate(20)), 3, &["00000001.index"]),
        (made().replace("aff4:size 20480", "aff4:size 20479"), 3, &["20480", "20479"]),
        (made().replace("aff4:chunkSize 4096", "aff4:chunkSize 0"), 3, &["aff4://stream"]),
        (made().replace("aff4:chunkSize 4096", "aff4:chunkSize 99999999999"), 3, &["aff4://stream"]),
        (made().replace("aff4:chunksInSegment 3", "aff4:chunksInSegment 0"), 3, &["aff4://stream"]),
    ] {
        let refusal = container.refusal();
        assert_eq!(refusal.exit_code(), code, "{refusal}");
        assert!(names.iter().all(|name| refusal.to_string().contains(name)), "{names:?}: {refusal}");
    }
}

#[test]
fn a_stream_that_is_named_many_times_is_opened_once() {
    let content = noise(5 * CHUNK);
    let names = "aff4://stream\n".repeat(1000);
    let mut container = Container::of(&content, METHODS[0], false);
    let mut map = Vec::new();
    for (number, at) in (0..1000u64).zip((0..).step_by(8)) {
        map.extend([at, 8, at % 4096].iter().flat_map(|number: &u64| number.to_le_bytes()));
        map.extend((number as u32).to_le_bytes());
    }
    container = container.change("map/map", |old| *old = map).change("map/idx", |idx| *idx = names.into_bytes());
    container = container.change("information.turtle", |turtle| {
        let text = String::from_utf8(turtle.clone()).unwrap();
        *turtle = text.replace("aff4:mapPointHash", "aff4:other").replace("aff4:mapIdxHash", "aff4:other").into_bytes();
    });
    let aff4 = container.open().unwrap();
    let first = aff4.inner.streams[0].as_ref().unwrap();
    assert!(aff4.inner.streams.iter().flatten().all(|stream| Arc::ptr_eq(stream, first)));
    assert_eq!((aff4.inner.streams.len(), Arc::strong_count(first)), (1000, 1000));
    assert!(read(&aff4, ByteRange::new(0, 8000)).unwrap() == [&content[..4096], &content[..3904]].concat());
}

#[test]
fn the_limit_of_segments_holds_for_all_streams_together() {
    let made = Container::of(&noise(5 * CHUNK), METHODS[0], false);
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&made.bytes()).unwrap();
    let volume = Volume::open(Arc::new(RawFile::open(file.path()).unwrap())).unwrap();
    let image = Image::find(&volume).unwrap();
    let mut left = 3;
    ImageStream::open(0, "aff4://stream", &image, &volume, &mut left).unwrap();
    assert_eq!(left, 1);
    let refused = ImageStream::open(1, "aff4://stream", &image, &volume, &mut left).err().unwrap();
    assert!(refused.is_evidence(), "{refused}");
}

#[test]
fn a_truncated_image_is_refused() {
    let bytes = Container::of(&noise(4 * CHUNK), METHODS[0], false).bytes();
    for len in (0..bytes.len()).step_by(97).skip(1) {
        let refusal = open(&bytes[..len]).err().unwrap_or_else(|| panic!("opened with {len} of {} bytes", bytes.len()));
        assert_eq!(refusal.exit_code(), 3, "{refusal}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_flipped_bit_is_an_error_or_changes_nothing(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let content = noise(2 * CHUNK + 100);
        let mut bytes = Container::of(&content, METHODS[0], false).bytes();
        *at.get_mut(&mut bytes) ^= 1 << bit;
        if let Ok(aff4) = open(&bytes) {
            let whole = image(&content);
            if let Ok(read) = read(&aff4, ByteRange::new(0, aff4.geometry().size.min(1 << 20))) {
                prop_assert!(read == whole);
            }
        }
    }
}

/// SHA-1 of the image stream, and of the image with the standard's fill pattern in place of missing bytes.
fn hashes(aff4: &Aff4) -> (String, String) {
    let stream = aff4.inner.streams[0].as_ref().unwrap();
    let mut hash = Sha1::new();
    for piece in ByteRange::new(0, stream.size()).split_at_multiples(1 << 20) {
        hash.update(stream.read(&aff4.inner.volume, &aff4.inner.cache, piece).unwrap().into_bytes());
    }
    let of_stream = hex(&hash.finalize());
    let mut hash = Sha1::new();
    let unreadable = b"UNREADABLEDATA".repeat((1 << 20) / 14 + 1);
    for piece in ByteRange::new(0, aff4.geometry().size).split_at_multiples(1 << 20) {
        for run in aff4.inner.map.runs(piece) {
            match aff4.inner.run(run) {
                Ok(data) => hash.update(data.into_bytes()),
                Err(DeviceError::Withheld { range, .. }) => {
                    assert_eq!(range, run.range);
                    hash.update(&unreadable[(run.range.offset % (1 << 20)) as usize..][..run.range.len as usize]);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    (of_stream, hex(&hash.finalize()))
}

/// The hash of the stream is stored in the image, the hash of the whole in pyaff4's tests.
#[test]
fn the_reference_image_is_read_whole() {
    let Some(path) = evidence("Base-Linear.aff4") else { return };
    let aff4 = Aff4::open(&path).unwrap();
    let (stream, whole) = hashes(&aff4);
    assert_eq!(stream, "fbac22cca549310bc5df03b7560afcf490995fbb");
    assert_eq!(whole, "7d3d27f667f95f7ec5b9d32121622c0f4b60b48d");
    let identity = aff4.identity("Base-Linear.aff4");
    assert_eq!((identity.size, identity.sector_size), (268_435_456, Some(512)));
    assert_eq!(identity.model.as_deref(), Some("Seagate ST-506"));
    assert_eq!(identity.serial.as_deref(), Some("SGAT5060001234"));
    assert_eq!(identity.case.case_number.as_deref(), Some("Case ID: 1SR Canonical"));
    assert_eq!(identity.case.evidence_number.as_deref(), Some("Drive 1"));
    assert_eq!(identity.case.examiner.as_deref(), Some("Administrator"));
    assert_eq!(identity.case.description.as_deref(), Some("Canonical Image Generation Test Case"));
    let notes = "This is an appended case note; This is another appended case note";
    assert_eq!(identity.case.notes.as_deref(), Some(notes));
    assert_eq!(identity.hashes, Default::default(), "the stream's hashes are not the image's");
    assert_eq!(identity.unreadable, []);
}

#[test]
fn the_read_error_of_the_reference_image_is_unreadable() {
    let Some(path) = evidence("Base-Linear-ReadError.aff4") else { return };
    let aff4 = Aff4::open(&path).unwrap();
    let (stream, whole) = hashes(&aff4);
    assert_eq!(stream, "ac152b5b8598aef49f21e6e23e8fdc40d2946a6e");
    assert_eq!(whole, "67e245a640e2784ead30c1ff1a3f8d237b58310f");
    let unreadable = [ByteRange::new(15 << 20, 1 << 20), ByteRange::new(85 << 20, 1 << 20)];
    assert_eq!(aff4.identity("").unreadable, unreadable);
    assert!(read(&aff4, ByteRange::new(15 << 20, 512)).is_err());
    assert!(read(&aff4, ByteRange::new((15 << 20) - 512, 512)).is_ok());
}
