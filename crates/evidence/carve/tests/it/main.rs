//! Files of each format, in noise at any offset: the length is exact; what is cut short or altered is no file.

#![allow(clippy::unwrap_used)]

mod files;
mod limits;
mod unpack;

use std::sync::Arc;

use cheetah_carve::{Carver, Counts, Format, Progress, length, write_table};
use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error, Geometry, Io};
use cheetah_kit::folder::Folder;
use proptest::prelude::*;

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let bytes = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    });
    bytes.take(len).collect()
}

fn device(content: Vec<u8>) -> DynDevice {
    Arc::new(Memory::new(content))
}

/// A device with a range that cannot be read.
struct Scratched {
    inner: Memory,
    bad: ByteRange,
    error: Error,
}

impl Scratched {
    fn new(content: Vec<u8>, bad: ByteRange) -> Self {
        let error = Error::Unreadable { device: "disk".into(), range: bad, why: "bad sector".into() };
        Self { inner: Memory::new(content), bad, error }
    }
}

impl Device for Scratched {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        match self.bad.intersection(range) {
            Some(_) => Io::fail(self.error.clone()),
            None => self.inner.read(range),
        }
    }
}

fn carved(content: Vec<u8>, offset: usize, format: Format) -> Option<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(length(&device(content), offset as u64, format)).unwrap()
}

#[test]
fn each_file_is_found_with_its_exact_length_in_noise() {
    for (format, file) in files::all() {
        for offset in [0, 1, 511, 70_000] {
            let content = [noise(3, offset), file.clone(), noise(9, 4000)].concat();
            assert_eq!(carved(content, offset, format), Some(file.len() as u64), "{format:?} at {offset}");
        }
        // It may end where the device does.
        assert_eq!(carved(file.clone(), 0, format), Some(file.len() as u64), "{format:?}");
    }
}

#[test]
fn a_file_that_is_cut_short_is_none() {
    for (format, file) in files::all() {
        for len in [16, file.len() / 3, file.len() - 1] {
            let found = carved(file[..len].to_vec(), 0, format);
            let expected = match format {
                // A document counts without the end of its last line, and a member without the one after it.
                Format::Pdf if len == file.len() - 1 => Some(len as u64),
                Format::Gzip if len == file.len() - 1 => Some(files::gzip_member(4).len() as u64),
                _ => None,
            };
            assert_eq!(found, expected, "{format:?}, {len} of {}", file.len());
        }
    }
}

#[test]
fn a_byte_that_a_checksum_covers_cannot_be_altered() {
    for (format, file) in files::all() {
        let places: &[usize] = match format {
            Format::Png => &[20, 45, file.len() - 2],
            // In the first member; a whole one before an altered one counts.
            Format::Gzip => &[100, 200_000],
            Format::SevenZip => &[14, file.len() - 3],
            Format::Evtx | Format::Registry => &[10, 100],
            _ => continue,
        };
        for place in places {
            let mut altered = file.clone();
            altered[*place] ^= 0x10;
            assert_eq!(carved(altered, 0, format), None, "{format:?}, byte {place}");
        }
    }
}

#[tokio::test]
async fn files_are_saved_with_a_table_and_those_inside_others_are_left_out() {
    let png = files::all().into_iter().find(|(format, _)| *format == Format::Png).unwrap().1;
    let gif = files::all().into_iter().find(|(format, _)| *format == Format::Gif).unwrap().1;
    let content = [noise(1, 1000), png.clone(), noise(2, 24), gif.clone(), noise(5, 100)].concat();
    let gif_at = 1024 + png.len() as u64;
    let device = device(content);
    let folder = tempfile::tempdir().unwrap();
    let (mut progress, mut files) = (Progress::default(), Vec::new());
    for (offset, format) in [
        (10, Format::Jpeg),
        (1000, Format::Png),
        (1010, Format::Gif),
        (gif_at, Format::Gif),
        (gif_at + 200_000, Format::Gif),
    ] {
        // Carving that goes on where it was is carving in one go.
        let mut carver = Carver::resume(Folder::open(folder.path()).unwrap(), folder.path(), progress);
        files.extend(carver.carve(&device, offset, format).await.unwrap());
        carver.sync().unwrap();
        progress = *carver.progress();
    }
    let counts = progress.counts;
    let bytes = (png.len() + gif.len()) as u64;
    assert_eq!(counts, Counts { files: 2, bytes, inside: 1, invalid: 2, unreadable: 0, given_up: 0 });
    assert!(std::fs::read(folder.path().join("00000000001000.png")).unwrap() == png);
    let mut table = Vec::new();
    write_table(&files, &mut table).unwrap();
    let table = String::from_utf8(table).unwrap();
    let rows: Vec<_> = table.lines().map(|line| line.split(',').take(3).collect::<Vec<_>>().join(",")).collect();
    assert_eq!(
        rows,
        ["offset,length,format", &format!("1000,{},png", png.len()), &format!("{gif_at},{},gif", gif.len())]
    );
}

#[tokio::test]
async fn of_many_files_few_are_open_at_once_and_all_are_there() {
    let gif = files::all().into_iter().find(|(format, _)| *format == Format::Gif).unwrap().1;
    let step = (gif.len() as u64).next_multiple_of(512);
    let padded = [gif.clone(), vec![0; (step - gif.len() as u64) as usize]].concat();
    let (device, folder) = (device(padded.repeat(600)), tempfile::tempdir().unwrap());
    let mut carver = Carver::new(folder.path()).unwrap();
    for number in 0..600 {
        let carved = carver.carve(&device, number * step, Format::Gif).await.unwrap().unwrap();
        assert!(std::fs::read(folder.path().join(carved.name())).unwrap() == gif);
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, |open| {
            let leads = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
            open.filter_map(leads).filter(|file| file.starts_with(folder.path())).count()
        });
        assert!(open <= 300, "{open}");
    }
    carver.sync().unwrap();
    assert_eq!(carver.progress().counts.files, 600);
}

#[tokio::test]
async fn a_file_in_front_of_a_sector_that_cannot_be_read_is_saved_and_one_over_it_is_counted() {
    let png = files::all().into_iter().find(|(format, _)| *format == Format::Png).unwrap().1;
    let bad = (png.len() as u64).next_multiple_of(512);
    for (bad, expected) in [(bad, (1, 0)), (bad - 512, (0, 1))] {
        let content = [png.clone(), noise(2, 4000)].concat();
        let device: DynDevice = Arc::new(Scratched::new(content, ByteRange::new(bad, 512)));
        let folder = tempfile::tempdir().unwrap();
        let mut carver = Carver::new(folder.path()).unwrap();
        carver.carve(&device, 0, Format::Png).await.unwrap();
        let counts = carver.progress().counts;
        assert_eq!((counts.files, counts.unreadable), expected, "{bad}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn altered_files_of_each_format_end_within_the_device(
        index in 0..Format::ALL.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let (format, mut file) = files::all().swap_remove(index);
        for (place, value) in changes {
            let place = place.index(file.len());
            file[place] = value;
        }
        file.truncate(cut.index(file.len()) + 1);
        let len = file.len() as u64;
        prop_assert!(carved(file, 0, format).is_none_or(|found| found <= len));
    }

    #[test]
    fn noise_with_a_signature_ends_within_the_device(index in 0..Format::ALL.len(), seed in any::<u64>(), len in 0usize..3000) {
        let (format, file) = files::all().swap_remove(index);
        let content = [&file[..16.min(file.len())], &noise(seed, len)].concat();
        let size = content.len() as u64;
        prop_assert!(carved(content, 0, format).is_none_or(|found| found <= size));
    }
}
