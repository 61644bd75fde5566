//! The number of bytes that carving reads, and the headers that it skips within files that it found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cheetah_carve::{Carver, Counts, Format, length};
use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Geometry, Io};

use super::{device, files, noise};

/// A device that counts the bytes that are read.
struct Counting {
    inner: Memory,
    bytes: AtomicU64,
}

impl Device for Counting {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        self.bytes.fetch_add(range.len, Ordering::Relaxed);
        self.inner.read(range)
    }
}

fn counting(content: Vec<u8>) -> Arc<Counting> {
    Arc::new(Counting { inner: Memory::new(content), bytes: AtomicU64::new(0) })
}

fn of(format: Format) -> Vec<u8> {
    files::all().into_iter().find(|(of, _)| *of == format).unwrap().1
}

#[tokio::test]
async fn a_file_is_read_about_once() {
    let jpeg = of(Format::Jpeg);
    let end = jpeg.len() - 2;
    // Entropy-coded data with many marks that are none.
    let jpeg = [&jpeg[..end], &[0xff, 0].repeat(2 << 20), &jpeg[end..]].concat();
    let mut zip = zip::ZipWriter::new_stream(Vec::new());
    for number in 0..200 {
        zip.start_file(format!("{number}"), zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut zip, &noise(number, 20_000)).unwrap();
    }
    let zip = zip.finish().unwrap().into_inner();
    let mut zeros = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut zeros, &vec![0; 64 << 20]).unwrap();
    let cases = [
        (Format::Jpeg, jpeg),
        (Format::Zip, zip),
        (Format::Gzip, zeros.finish().unwrap()),
        (Format::Png, of(Format::Png)),
    ];
    for (format, file) in cases {
        let (len, counted) = (file.len() as u64, counting([file, noise(3, 1 << 20)].concat()));
        let device: DynDevice = counted.clone();
        assert_eq!(length(&device, 0, format).await.unwrap(), Some(len), "{format:?}");
        let read = counted.bytes.load(Ordering::Relaxed);
        assert!(read <= 4 * len + (1 << 20), "{format:?}: {read} bytes for {len}");
    }
}

async fn carved(content: Vec<u8>, places: &[(u64, Format)]) -> (Counts, u64) {
    let counted = counting(content);
    let device: DynDevice = counted.clone();
    let folder = tempfile::tempdir().unwrap();
    let mut carver = Carver::new(folder.path()).unwrap();
    for (offset, format) in places {
        carver.carve(&device, *offset, *format).await.unwrap();
    }
    (carver.progress().counts, counted.bytes.load(Ordering::Relaxed))
}

#[tokio::test]
async fn a_file_whose_frame_alone_was_looked_at_hides_only_its_like() {
    let (mut base, picture) = (of(Format::Sqlite), of(Format::Gif));
    base[8192..8192 + picture.len()].copy_from_slice(&picture);
    let places = [(0, Format::Sqlite), (4096, Format::Sqlite), (8192, Format::Gif)];
    let (counts, _) = carved([base, noise(2, 9000)].concat(), &places).await;
    assert_eq!((counts.files, counts.inside), (2, 1), "{counts:?}");
}

#[tokio::test]
async fn the_files_of_an_archive_without_its_end_are_walked_once_and_the_archive_behind_them_is_found() {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for number in 0..500 {
        writer.start_file(format!("{number}"), zip::write::SimpleFileOptions::default()).unwrap();
        std::io::Write::write_all(&mut writer, &noise(number, 100)).unwrap();
    }
    let whole = writer.finish().unwrap().into_inner();
    let headers = |bytes: &[u8]| -> Vec<u64> {
        let starts = bytes.windows(4).enumerate().filter(|(_, window)| *window == b"PK\x03\x04");
        starts.map(|(at, _)| at as u64).collect()
    };
    let directory = whole.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let content = [&whole[..directory], &of(Format::Zip), &noise(4, 9000)].concat();
    let places: Vec<_> = headers(&content).into_iter().map(|at| (at, Format::Zip)).collect();
    let (counts, read) = carved(content, &places).await;
    assert_eq!((counts.files, counts.invalid + counts.inside), (1, places.len() as u64 - 1), "{counts:?}");
    assert!(read < 16 << 20, "{read}");
}

#[tokio::test]
async fn what_is_read_in_vain_is_limited_and_places_that_are_given_up_are_counted() {
    // Each header of 7z says that a header of almost all of the device follows.
    let size = 8_u64 << 20;
    let mut content = noise(5, size as usize);
    let header = |at: u64| {
        let len = size - at - 64;
        let start = [&0_u64.to_le_bytes()[..], &len.to_le_bytes(), &[0; 4]].concat();
        let mut crc = flate2::Crc::new();
        crc.update(&start);
        [b"7z\xbc\xaf\x27\x1c\x00\x04", &crc.sum().to_le_bytes()[..], &start].concat()
    };
    let places: Vec<_> = (0..200).map(|number| (512 * number, Format::SevenZip)).collect();
    for (at, _) in &places {
        let header = header(*at);
        content[*at as usize..][..header.len()].copy_from_slice(&header);
    }
    let (counts, read) = carved(content, &places).await;
    assert_eq!(counts.files, 0);
    assert!(counts.given_up > 100, "{counts:?}");
    assert!(read < 8 * size, "{read}");
}

#[tokio::test]
async fn a_device_that_fails_as_a_whole_ends_the_carving() {
    struct Gone;
    impl Device for Gone {
        fn geometry(&self) -> Geometry {
            device(vec![0; 1 << 20]).geometry()
        }

        fn read(&self, _: ByteRange) -> Io<'_, Data> {
            Io::done(Err(cheetah_device::Error::ReadOnly))
        }
    }
    let (gone, folder): (DynDevice, _) = (Arc::new(Gone), tempfile::tempdir().unwrap());
    let mut carver = Carver::new(folder.path()).unwrap();
    carver.carve(&gone, 0, Format::Png).await.unwrap_err();
}
