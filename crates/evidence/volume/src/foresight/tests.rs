//! The predictor with traces of readers; hinted data is cached at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cheetah_device::ByteRange;
use cheetah_device::link_estimate::LinkModel;
use proptest::prelude::*;
use smallvec::smallvec;

use super::file_map::{FileMap, FileMapBuilder, FileOrder};
use super::predictor::{HintUsage, ReadPredictor};
use crate::survey::{FileRuns, WINDOW_BYTES};

const MIB: u64 = 1 << 20;
const GRAIN: u64 = 4096;
const DEVICE: ByteRange = ByteRange::new(0, 1 << 50);
const LINK: LinkModel = LinkModel { bandwidth: 125_000_000, round_trip: Duration::from_millis(40) };
const DIRECTORIES: u64 = 20;
const FILES_EACH: u64 = 50;

/// A root with directories, and files in those, some of them fragmented. The files' offsets and numbers are those of a
/// scrambled listing.
fn files() -> Vec<FileRuns> {
    let directory = |nth| FileRuns { id: 1000 + nth, directory: 5, place: nth as u32, runs: smallvec![] };
    let mut all: Vec<_> = (0..DIRECTORIES).map(directory).collect();
    let count = DIRECTORIES * FILES_EACH;
    for nth in 0..count {
        let scrambled = nth * 371 % count;
        let at = MIB + scrambled * 3 * WINDOW_BYTES;
        let mut runs = smallvec![ByteRange::new(at, 10_000 + nth)];
        if nth % 7 == 0 {
            runs.push(ByteRange::new((1 << 40) + at, 70_000));
        }
        let (directory, place) = (1000 + nth / FILES_EACH, (nth % FILES_EACH) as u32);
        all.push(FileRuns { id: 100_000 + scrambled, directory, place, runs });
    }
    all
}

fn file_map() -> FileMap {
    let mut builder = FileMapBuilder::default();
    builder.note(0, &DEVICE.into(), files());
    builder.build()
}

/// A reader that reads files in whole, window by window.
struct Reader {
    predictor: ReadPredictor,
    file_map: FileMap,
    usage: HintUsage,
    /// The grains fetched, each with whether it was read.
    here: BTreeMap<u64, bool>,
    /// The number of reads that had to wait, and of all reads.
    starved: u64,
    reads: u64,
}

impl Reader {
    fn new() -> Self {
        let mut predictor = ReadPredictor::default();
        predictor.learn(file_map().into());
        let (usage, here) = (HintUsage::default(), BTreeMap::new());
        Self { predictor, file_map: file_map(), usage, here, starved: 0, reads: 0 }
    }

    fn read(&mut self, range: ByteRange) {
        let (here, usage) = (&mut self.here, &mut self.usage);
        let held = grains(range).all(|grain| here.contains_key(&grain));
        self.reads += 1;
        self.starved += u64::from(!held);
        let before = *usage;
        for grain in grains(range) {
            match here.insert(grain, true) {
                None => usage.demanded += GRAIN,
                Some(false) => usage.used += GRAIN,
                Some(true) => {}
            }
        }
        self.predictor.read(range, !held, before, LINK, |hint| {
            let new: Vec<_> = grains(hint).filter(|grain| !here.contains_key(grain)).collect();
            here.extend(new.iter().map(|grain| (*grain, false)));
            usage.hinted += GRAIN * new.len() as u64;
            GRAIN * new.len() as u64
        });
        let (asked, unused) = (self.usage.demanded + self.usage.used, self.usage.hinted - self.usage.used);
        assert!(unused <= asked + 4 * MIB, "{unused} bytes for nothing, after {asked} read");
    }

    fn read_file(&mut self, rank: u32) {
        let file = self.file_map.at_rank(FileOrder::Listing, rank).unwrap();
        for run in self.file_map.runs_of(file).to_vec() {
            let wide = ByteRange::new(run.offset, run.len.next_multiple_of(WINDOW_BYTES));
            wide.split_at_multiples(WINDOW_BYTES).for_each(|window| self.read(window));
        }
    }
}

fn grains(range: ByteRange) -> impl Iterator<Item = u64> {
    range.offset / GRAIN..range.end().div_ceil(GRAIN)
}

/// The ranks of files in the listing, without the directories.
fn contents() -> Vec<u32> {
    let file_map = file_map();
    let full =
        |rank: &u32| file_map.at_rank(FileOrder::Listing, *rank).is_some_and(|file| !file_map.runs_of(file).is_empty());
    (0..file_map.count() as u32).filter(full).collect()
}

#[test]
fn a_listing_visits_each_directory_at_its_name() {
    let file_map = file_map();
    assert_eq!(file_map.count() as u64, DIRECTORIES * (FILES_EACH + 1));
    let files = files();
    let ids: Vec<_> =
        (0..60).map(|rank| files[file_map.at_rank(FileOrder::Listing, rank).unwrap() as usize].id).collect();
    assert_eq!(ids[0], 1000);
    assert_eq!(ids[1..4], [100_000, 100_371, 100_742]);
    assert_eq!(ids[51], 1001);
}

#[test]
fn a_cyclic_directory_tree_is_listed_once() {
    let mut builder = FileMapBuilder::default();
    let entry = |id, directory| FileRuns { id, directory, place: 0, runs: smallvec![ByteRange::new(id, 1)] };
    builder.note(0, &DEVICE.into(), [entry(1, 2), entry(2, 3), entry(3, 1), entry(9, 9)]);
    let file_map = builder.build();
    let mut listed: Vec<_> = (0..4).filter_map(|rank| file_map.at_rank(FileOrder::Listing, rank)).collect();
    listed.sort_unstable();
    assert_eq!(listed, [0, 1, 2, 3]);
}

#[test]
fn a_read_belongs_to_the_file_that_starts_on_its_first_page() {
    let mut builder = FileMapBuilder::default();
    let file = |id, at, len| FileRuns { id, directory: 5, place: 0, runs: smallvec![ByteRange::new(at, len)] };
    builder.note(0, &ByteRange::new(512, 1 << 40).into(), [file(1, 0, 5000), file(2, 8192, 100), file(3, 40_960, 100)]);
    let file_map = builder.build();
    let at = |offset, len| file_map.file_at(ByteRange::new(offset, len));
    assert_eq!(at(0, 4096), Some((0, 0)));
    assert_eq!(at(4096, 4096), Some((0, 4096 - 512)));
    assert_eq!(at(8192, 4096), Some((1, 0)), "the file, and not the slack before it");
    assert_eq!(at(12_288, 4096), None);
    assert_eq!(at(16_384, 65_536), None, "a file that only lies in the way");
}

#[test]
fn extraction_in_listing_order_waits_for_few_files() {
    let mut reader = Reader::new();
    contents()[100..300].iter().for_each(|rank| reader.read_file(*rank));
    assert!(reader.starved <= 4, "{} of {}", reader.starved, reader.reads);
}

#[test]
fn extraction_of_every_seventh_file_waits_for_few() {
    let mut reader = Reader::new();
    // Each directory adds one to its 50 files, so steps are even except where a directory is passed.
    (5..900).step_by(7).for_each(|rank| reader.read_file(rank));
    assert!(reader.starved <= 30, "{} of {}", reader.starved, reader.reads);
}

#[test]
fn extraction_backwards_by_number_waits_for_few() {
    let mut reader = Reader::new();
    let by_number: Vec<_> =
        (0..200).map(|rank| reader.file_map.at_rank(FileOrder::Number, 900 - rank).unwrap()).collect();
    for file in by_number {
        let rank = reader.file_map.rank(FileOrder::Listing, file).unwrap();
        reader.read_file(rank);
    }
    assert!(reader.starved <= 6, "{} of {}", reader.starved, reader.reads);
}

#[test]
fn random_files_are_fetched_whole_and_nothing_else() {
    let mut reader = Reader::new();
    let files = contents();
    let mut state = 1u64;
    for _ in 0..200 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        reader.read_file(files[(state >> 33) as usize % files.len()]);
    }
    let unused = reader.usage.hinted - reader.usage.used;
    assert!(unused < 5 * MIB, "{unused} of {}", reader.usage.demanded);
}

#[test]
fn the_window_of_a_long_file_grows_while_its_reader_waits() {
    let mut builder = FileMapBuilder::default();
    builder.note(
        0,
        &DEVICE.into(),
        [FileRuns { id: 1, directory: 5, place: 0, runs: smallvec![ByteRange::new(0, 1 << 30)] }],
    );
    let mut predictor = ReadPredictor::default();
    predictor.learn(builder.build().into());
    let mut ahead = |starved| {
        let mut end = 0;
        let rich = HintUsage { demanded: 1 << 30, ..HintUsage::default() };
        for nth in 0..16 {
            predictor.read(ByteRange::new(nth * MIB, MIB), starved, rich, LINK, |hint| {
                end = hint.end();
                hint.len
            });
        }
        end
    };
    let patient = ahead(false);
    assert!(patient <= 18 * MIB, "{patient}");
    assert!(ahead(true) >= 28 * MIB);
}

/// When a tool reads small files in succession, it requests only the bytes beyond the last window, which begin in the
/// middle of a later file.
#[test]
fn extraction_of_small_files_that_share_windows_waits_for_few() {
    let file = |nth| FileRuns {
        id: nth,
        directory: 5,
        place: nth as u32,
        runs: smallvec![ByteRange::new(nth * 20_480, 20_000)],
    };
    let mut builder = FileMapBuilder::default();
    builder.note(0, &DEVICE.into(), (0..400).map(file));
    let mut reader = Reader::new();
    reader.predictor.learn(builder.build().into());
    let mut kernel = 0;
    for nth in 100..300 {
        let window = ByteRange::new(nth * 20_480, WINDOW_BYTES);
        reader.read(ByteRange::between(window.offset.max(kernel), window.end()));
        kernel = window.end();
    }
    assert!(reader.starved <= 10, "{} of {}", reader.starved, reader.reads);
}

/// A file system spreads the files of a directory over several regions, each of which it fills from start to end.
#[test]
fn extraction_of_files_that_share_windows_in_many_regions_waits_for_few() {
    const REGIONS: usize = 9;
    let mut ends: [u64; REGIONS] = std::array::from_fn(|region| (region as u64) << 30);
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let files: Vec<_> = (0..900)
        .map(|_| {
            let end = &mut ends[random(REGIONS as u64) as usize];
            let pages = if random(6) == 0 { 8 + random(24) } else { 1 + random(3) };
            *end += pages * GRAIN;
            ByteRange::between(*end - pages * GRAIN, *end - 1000)
        })
        .collect();
    let mut builder = FileMapBuilder::default();
    builder.note(
        0,
        &DEVICE.into(),
        (0..).zip(&files).map(|(nth, run)| FileRuns {
            id: nth,
            directory: 5,
            place: nth as u32,
            runs: smallvec![*run],
        }),
    );
    let mut reader = Reader::new();
    reader.predictor.learn(builder.build().into());
    let mut kernel = BTreeSet::new();
    for file in &files[200..400] {
        // The kernel requests the runs of pages that it has not cached.
        let window = ByteRange::new(file.offset, WINDOW_BYTES);
        let new: Vec<_> = grains(window).filter(|page| kernel.insert(*page)).collect();
        for run in new.chunk_by(|one, next| one + 1 == *next) {
            reader.read(ByteRange::new(run[0] * GRAIN, run.len() as u64 * GRAIN));
        }
    }
    assert!(reader.starved <= 6, "{} of {}", reader.starved, reader.reads);
}

/// For example, the directories of an unknown file system are read in no order, but near each other.
#[test]
fn scattered_reads_in_a_region_without_files_wait_for_fewer() {
    let mut reader = Reader::new();
    let mut nodes: Vec<u64> = (0..64).map(|nth| (2 << 40) + nth * 29 % 64 * 5 * GRAIN).collect();
    for region in 0..4 {
        nodes.iter().for_each(|node| reader.read(ByteRange::new(node + (region << 35), GRAIN)));
        nodes.reverse();
    }
    assert!(reader.starved <= reader.reads / 4, "{} of {}", reader.starved, reader.reads);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No more bytes are wasted than were read, plus 4 MiB (asserted by the reader).
    #[test]
    fn any_mix_of_readers_wastes_little(
        ranks in prop::collection::vec((0u32..900, 1u32..30, 1usize..9), 1..60),
        elsewhere in prop::collection::vec((0u64..1000, -9i64..9, 1u64..40), 1..60),
    ) {
        let mut reader = Reader::new();
        for ((start, step, count), (place, stride, times)) in ranks.into_iter().zip(elsewhere) {
            (start..1000).step_by(step as usize).take(count).for_each(|rank| reader.read_file(rank));
            for nth in 0..times as i64 {
                let at = ((2 << 40) + place * MIB).saturating_add_signed(nth * stride * 7 * GRAIN as i64);
                reader.read(ByteRange::new(at, GRAIN));
            }
        }
    }

    /// Files at any offsets: overlapping, and beyond the largest offset.
    #[test]
    fn any_file_map_is_handled_without_panic(
        files in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u32>(), prop::collection::vec((any::<u64>(), any::<u64>()), 0..4)), 0..40),
        (start, len) in any::<(u64, u64)>(),
        reads in prop::collection::vec((any::<u64>(), any::<u32>()), 1..20),
    ) {
        let mut builder = FileMapBuilder::default();
        builder.note(1, &ByteRange::new(start, len).into(), files.into_iter().map(|(id, directory, place, runs)| FileRuns {
            id: id.into(),
            directory: directory.into(),
            place,
            runs: runs.into_iter().map(|(offset, len)| ByteRange::new(offset, len)).collect(),
        }));
        let mut predictor = ReadPredictor::default();
        predictor.learn(builder.build().into());
        for (at, len) in reads {
            predictor.read(ByteRange::new(at, len.into()), true, HintUsage::default(), LINK, |range| range.len);
        }
    }
}
