use std::io::Write as _;

use cheetah_device::{ByteRange, Device as _};
use cheetah_error::Next;
use cheetah_error::next::Source;
use proptest::prelude::*;

use super::decoder::OtherData;
use super::*;

/// Makes a compressed file of content, in pieces of a size.
type Maker = fn(&[u8], usize) -> Vec<u8>;

/// The formats: those that record the sizes of their frames, and those that do not.
const MAKERS: [(&str, Compression, Maker); 8] = [
    ("gzip members", Compression::Gzip, gzip),
    ("BGZF", Compression::Gzip, bgzf),
    ("bzip2 streams", Compression::Bzip2, bzip2),
    ("xz blocks", Compression::Xz, xz_blocks),
    ("xz streams", Compression::Xz, xz_streams),
    ("zstd frames", Compression::Zstd, zstd_frames),
    ("zstd frames without sizes", Compression::Zstd, zstd_unsized),
    ("seekable zstd", Compression::Zstd, zstd_seekable),
];

fn each(content: &[u8], piece: usize, pack: impl FnMut(&[u8]) -> Vec<u8>) -> Vec<u8> {
    content.chunks(piece).flat_map(pack).collect()
}

fn member(content: &[u8], extra: Option<Vec<u8>>) -> Vec<u8> {
    let builder = flate2::GzBuilder::new();
    let builder = if let Some(extra) = extra { builder.extra(extra) } else { builder.filename("disk.raw") };
    let mut encoder = builder.write(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn gzip(content: &[u8], piece: usize) -> Vec<u8> {
    each(content, piece, |piece| member(piece, None))
}

fn bgzf(content: &[u8], piece: usize) -> Vec<u8> {
    let pack = |piece: &[u8]| {
        let extra = |size: u16| [b"BC\x02\0".as_slice(), &size.to_le_bytes()].concat();
        let size = member(piece, Some(extra(0))).len() as u16 - 1;
        member(piece, Some(extra(size)))
    };
    let mut file = each(content, piece.min(60_000), pack);
    file.extend(b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0\x42\x43\x02\0\x1b\0\x03\0\0\0\0\0\0\0\0\0");
    file
}

fn bzip2(content: &[u8], piece: usize) -> Vec<u8> {
    each(content, piece, |piece| {
        let mut encoder = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
        encoder.write_all(piece).unwrap();
        encoder.finish().unwrap()
    })
}

fn xz_blocks(content: &[u8], piece: usize) -> Vec<u8> {
    let mut options = lzma_rust2::XzOptions::with_preset(0);
    options.set_block_size(std::num::NonZeroU64::new(piece as u64));
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

fn xz_streams(content: &[u8], piece: usize) -> Vec<u8> {
    let kinds = [lzma_rust2::CheckType::Crc32, lzma_rust2::CheckType::Sha256, lzma_rust2::CheckType::None];
    let mut number = 0;
    each(content, piece, |piece| {
        let mut options = lzma_rust2::XzOptions::with_preset(0);
        options.set_check_sum_type(kinds[number % 3]);
        let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
        writer.write_all(piece).unwrap();
        let mut stream = writer.finish().unwrap();
        stream.resize(stream.len() + number % 3 * 4, 0);
        number += 1;
        stream
    })
}

fn zstd_frames(content: &[u8], piece: usize) -> Vec<u8> {
    let mut packer = ::zstd::bulk::Compressor::new(1).unwrap();
    packer.set_parameter(::zstd::zstd_safe::CParameter::ChecksumFlag(true)).unwrap();
    // As pzstd writes: a skippable frame before each frame.
    each(content, piece, |piece| [b"\x50\x2a\x4d\x18\x04\0\0\0size".to_vec(), packer.compress(piece).unwrap()].concat())
}

fn zstd_one_unsized(content: &[u8]) -> Vec<u8> {
    let mut encoder = ::zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd_unsized(content: &[u8], piece: usize) -> Vec<u8> {
    each(content, piece, zstd_one_unsized)
}

fn zstd_seekable(content: &[u8], piece: usize) -> Vec<u8> {
    let (mut entries, mut count) = (Vec::new(), 0u32);
    let mut file = each(content, piece, |piece| {
        let frame = zstd_one_unsized(piece);
        entries.extend((frame.len() as u32).to_le_bytes());
        entries.extend((piece.len() as u32).to_le_bytes());
        count += 1;
        frame
    });
    file.extend([0x5e, 0x2a, 0x4d, 0x18]);
    file.extend((entries.len() as u32 + 9).to_le_bytes());
    file.extend(entries);
    file.extend(count.to_le_bytes());
    file.extend([0, 0xb1, 0xea, 0x92, 0x8f]);
    file
}

/// Content that compresses somewhat, with long runs of zeros.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let run = (any::<u8>(), 1usize..40_000, prop::bool::ANY);
    prop::collection::vec(run, 1..8).prop_map(|runs| {
        let runs = runs.into_iter().flat_map(|(seed, len, is_zero)| {
            (0..len).map(move |at| if is_zero { 0 } else { seed.wrapping_add((at * at / 7 % 251) as u8) })
        });
        // No signature of another format.
        std::iter::once(b'.').chain(runs).collect()
    })
}

/// Reads as tools do, without a runtime's threads for images that are read at random.
fn read(image: &Compressed, range: ByteRange) -> DeviceResult<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { image.read(range).await }).map(|data| data.into_bytes().to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_range_of_any_format_equals_the_naive_decompressors(
        content in content(),
        piece in 500usize..50_000,
        reads in prop::collection::vec((any::<prop::sample::Index>(), 0u64..70_000), 1..8),
    ) {
        for (what, compression, make) in MAKERS {
            let file = make(&content, piece);
            // At random, and, as if the frames were too large for that, in order.
            for frame_max in [FRAME_MAX, 100] {
                let image = Compressed::from_memory(file.clone(), compression, true, frame_max).unwrap();
                prop_assert_eq!(image.geometry().size, content.len() as u64, "{}", what);
                for (at, len) in &reads {
                    let from = at.index(content.len());
                    let range = ByteRange::new(from as u64, (*len).min((content.len() - from) as u64));
                    prop_assert!(read(&image, range).unwrap() == content[from..range.end() as usize], "{} {}", what, range);
                }
            }
        }
    }

    #[test]
    fn damage_is_an_error_or_changes_no_byte(
        content in content(),
        piece in 500usize..50_000,
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
        is_cut in prop::bool::ANY,
    ) {
        for (what, compression, make) in MAKERS {
            let mut file = make(&content, piece);
            let at = at.index(file.len());
            if is_cut { file.truncate(at) } else { file[at] ^= flip }
            // A cut between two members leaves a whole file.
            let is_whole = |read: &[u8]| if is_cut { content.starts_with(read) } else { read == content };
            // The streams without a checksum are none of ours to judge.
            if what == "xz streams" {
                continue;
            }
            for frame_max in [FRAME_MAX, 100] {
                let Ok(image) = Compressed::from_memory(file.clone(), compression, true, frame_max) else { continue };
                match read(&image, ByteRange::new(0, image.geometry().size)) {
                    Ok(bytes) => prop_assert!(is_whole(&bytes), "{} {} {}", what, at, frame_max),
                    Err(error) => prop_assert!(matches!(error, DeviceError::Corrupt { .. }), "{what} {error}"),
                }
            }
        }
    }
}

#[test]
fn formats_with_an_index_are_opened_without_decompressing_and_the_others_are_hashed() {
    let content = vec![7; 300_000];
    for (what, compression, make) in MAKERS {
        let file = make(&content, 100_000);
        let hash = sha256(&file);
        let image = Compressed::from_memory(file, compression, false, FRAME_MAX).unwrap();
        let has_index = !["gzip members", "bzip2 streams", "zstd frames without sizes"].contains(&what);
        assert_eq!(image.sha256(), (!has_index).then_some(hash.as_str()), "{what}");
    }
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn one_large_frame_is_refused_where_reads_are_at_random() {
    for (what, compression, make) in MAKERS {
        let file = make(&[7; 70_000], usize::MAX);
        let error = Compressed::from_memory(file, compression, false, 1000).err().unwrap();
        let command = compression.in_blocks().to_owned();
        let repack =
            matches!(error.steps(), [Next::Source(Source::AcquireOrRepack { command: its, .. })] if *its == command);
        assert!(error.is_misuse() && repack, "{what}: {error}");
    }
}

#[test]
fn reads_in_order_go_back_within_what_is_kept_and_start_again_before_it() {
    let content: Vec<u8> = (0..5u32 << 20).map(|at| (at / 1000 * 7919 % 256) as u8).collect();
    let image = Compressed::from_memory(gzip(&content, usize::MAX), Compression::Gzip, true, 1000).unwrap();
    for (offset, len) in [(0, 1 << 20), (3 << 20, 1 << 20), (2 << 20, 1 << 20), (0, 5 << 20), (4096, 100)] {
        let range = ByteRange::new(offset, len);
        assert!(read(&image, range).unwrap() == content[offset as usize..range.end() as usize], "{range}");
    }
}

#[test]
fn a_damaged_frame_fails_and_its_neighbours_do_not() {
    let content = noise(1_200_000);
    for (what, compression, make) in [MAKERS[1], MAKERS[3], MAKERS[5], MAKERS[7]] {
        let mut file = make(&content, 300_000);
        // Within a frame, and no boundary between two.
        let middle = file.len() / 3;
        file[middle] ^= 0x55;
        let image = Compressed::from_memory(file, compression, false, FRAME_MAX).unwrap();
        let reads = content.chunks(10_000).enumerate().map(|(number, piece)| {
            let result = read(&image, ByteRange::new(number as u64 * 10_000, 10_000));
            result.map(|bytes| assert!(bytes == piece, "{what} {number}")).is_err()
        });
        let failed = reads.filter(|failed| *failed).count();
        assert!((1..=32).contains(&failed), "{what}: {failed}");
    }
}

#[test]
fn what_follows_the_compressed_data_is_corrupt_content_unless_it_is_zeros() {
    for (what, compression, make) in [MAKERS[0], MAKERS[2], MAKERS[6]] {
        let mut file = make(&[7; 5000], 1000);
        file.extend([0; 700]);
        let open = |file: &[u8]| Compressed::from_memory(file.to_vec(), compression, false, FRAME_MAX);
        assert_eq!(open(&file).unwrap().geometry().size, 5000, "{what}");
        file.push(1);
        let image = open(&file).unwrap();
        let Some(ImageNote::EndUnknown { refused, .. }) = image.note() else { panic!("{what}: {:?}", image.note()) };
        let inner = refused.cause::<std::io::Error>().and_then(std::io::Error::get_ref);
        assert!(inner.is_some_and(|inner| inner.is::<OtherData>()), "{what}: {refused}");
        assert!(read(&image, ByteRange::new(0, 5000)).unwrap() == [7; 5000], "{what}");
        assert!(read(&image, ByteRange::new(5000, 1)).is_err(), "{what}");
    }
}

#[test]
fn the_end_of_an_xz_or_bgzf_file_is_missed_when_it_is_opened() {
    for (what, compression, make) in [MAKERS[1], MAKERS[3], MAKERS[4]] {
        let mut file = make(&[7; 100_000], 30_000);
        file.truncate(file.len() - 28);
        let error = Compressed::from_memory(file, compression, true, FRAME_MAX).err().unwrap();
        assert!(error.is_evidence(), "{what}: {error}");
    }
}

#[test]
fn content_in_another_format_is_refused_by_name() {
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    for (content, name) in [(&b"EVF\x09\x0d\x0a\xff\x00 and more"[..], "an E01 image"), (&tar, "a tar archive")] {
        for (what, compression, make) in MAKERS {
            let error = Compressed::from_memory(make(content, 5000), compression, true, FRAME_MAX).err().unwrap();
            assert!(error.to_string().contains(name), "{what}: {error}");
        }
    }
}

#[test]
fn a_dictionary_or_a_window_that_takes_too_much_memory_is_refused() {
    let mut options = lzma_rust2::XzOptions::with_preset(0);
    options.lzma_options.dict_size = 512 << 20;
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    writer.write_all(&[7; 5000]).unwrap();
    let image = Compressed::from_memory(writer.finish().unwrap(), Compression::Xz, false, FRAME_MAX).unwrap();
    assert!(read(&image, ByteRange::new(0, 1)).is_err());
    // A frame whose header requires a window of 2 GiB.
    let frame = b"\x28\xb5\x2f\xfd\x00\xa8\x01\0\0".to_vec();
    assert!(Compressed::from_memory(frame, Compression::Zstd, false, FRAME_MAX).is_err());
}

/// Bytes that do not compress, so any byte in the middle of a file of them is content.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 7u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((state >> 24) as u8)
    };
    std::iter::from_fn(next).take(len).collect()
}

/// The pieces of 10 000 bytes of the content that cannot be read. All others must be right.
fn missing(image: &Compressed, content: &[u8], what: &str) -> Vec<usize> {
    let pieces = content.chunks(10_000).enumerate().filter(|(number, piece)| {
        let range = ByteRange::new(*number as u64 * 10_000, piece.len() as u64);
        let range = range.intersection(ByteRange::new(0, image.geometry().size)).unwrap_or_default();
        match read(image, range) {
            Ok(bytes) => {
                assert!(piece.starts_with(&bytes), "{what} {number}");
                bytes.len() < piece.len()
            }
            Err(error) => {
                assert!(matches!(error, DeviceError::Corrupt { .. }), "{what} {error}");
                true
            }
        }
    });
    pieces.map(|(number, _)| number).collect()
}

#[test]
fn a_damaged_piece_of_a_file_without_an_index_is_a_range_if_the_place_of_what_follows_is_certain() {
    let content = noise(1_200_000);
    // gzip stores noise as it is, so the structure of the member is sound.
    let mut file = gzip(&content, 300_000);
    file[400_000] ^= 0x55;
    for (in_order, frame_max) in [(false, FRAME_MAX), (true, 1000)] {
        let image = Compressed::from_memory(file.clone(), Compression::Gzip, in_order, frame_max).unwrap();
        assert_eq!((image.geometry().size, image.note()), (1_200_000, None));
        assert_eq!(missing(&image, &content, "gzip"), Vec::from_iter(30..60));
    }
}

#[test]
fn all_content_behind_a_damaged_piece_is_corrupt_if_its_place_is_not_certain_and_that_is_said() {
    let content = noise(1_200_000);
    // A member's header is gone; a block of bzip2 and a frame of zstd do not record how much they hold.
    for (what, compression, make, place, sound) in [
        ("gzip members", Compression::Gzip, gzip as Maker, 300_030, 300_000),
        ("bzip2 streams", Compression::Bzip2, bzip2, 560_000, 499_000),
        ("zstd frames without sizes", Compression::Zstd, zstd_unsized, 400_000, 300_000),
    ] {
        let mut file = make(&content, 300_000);
        match what {
            "gzip members" => {
                let start = file.windows(3).enumerate().filter(|(_, bytes)| *bytes == gzip::MAGIC).nth(1).unwrap().0;
                file[start] ^= 1;
            }
            _ => file[place] ^= 0x55,
        }
        for (in_order, frame_max) in [(false, FRAME_MAX), (true, 1000)] {
            let image = Compressed::from_memory(file.clone(), compression, in_order, frame_max).unwrap();
            let missing = missing(&image, &content, what);
            assert!(missing.contains(&119) && !missing.contains(&(sound / 10_000 - 1)), "{what}: {missing:?}");
            assert!(image.geometry().size.is_multiple_of(512) && image.geometry().size > sound as u64, "{what}");
            assert!(matches!(image.note(), Some(ImageNote::EndUnknown { .. })), "{what}: {:?}", image.note());
            let last = ByteRange::new(image.geometry().size - 1, 1);
            assert!(matches!(read(&image, last), Err(DeviceError::Corrupt { .. })), "{what}");
        }
    }
}

#[test]
fn a_file_of_which_no_piece_is_sound_is_refused() {
    let content = noise(60_000);
    for (what, compression, make) in [MAKERS[0], MAKERS[2], MAKERS[6]] {
        let mut file = make(&content, usize::MAX);
        file[30_000] ^= 0x55;
        let error = Compressed::from_memory(file, compression, true, FRAME_MAX).err().unwrap();
        assert!(error.is_evidence(), "{what}: {error}");
    }
}

#[test]
fn a_damaged_large_frame_of_a_file_with_an_index_is_a_range() {
    let content = noise(1_200_000);
    for (what, compression, make) in [MAKERS[3], MAKERS[5], MAKERS[7]] {
        let mut file = make(&content, 300_000);
        file[400_000] ^= 0x55;
        let image = Compressed::from_memory(file, compression, true, 1000).unwrap();
        // Backwards and again, as readers do that look for the ends of what is bad.
        for _ in 0..2 {
            assert_eq!(missing(&image, &content, what), Vec::from_iter(30..60), "{what}");
        }
    }
}
