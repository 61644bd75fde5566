//! The foreteller with traces of readers, in a world where what is hinted is there at once.

use std::collections::BTreeMap;
use std::time::Duration;

use cheetah_device::ByteRange;
use cheetah_device::link_estimate::LinkModel;
use proptest::prelude::*;
use smallvec::smallvec;

use super::atlas::{Atlas, Finds, Order};
use super::foreteller::{Account, Foreteller};
use crate::survey::{FileRuns, WINDOW_BYTES};

const MIB: u64 = 1 << 20;
const GRAIN: u64 = 4096;
const DEVICE: ByteRange = ByteRange::new(0, 1 << 50);
const LINK: LinkModel = LinkModel { bandwidth: 125_000_000, round_trip: Duration::from_millis(40) };
const DIRECTORIES: u64 = 20;
const FILES_EACH: u64 = 50;

/// A root with directories in it, and files in those; in pieces every now and then. Files lie on the device, and have
/// numbers, in the order of a scrambled listing.
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

fn atlas() -> Atlas {
    let mut finds = Finds::default();
    finds.note(0, DEVICE, files());
    finds.atlas()
}

/// Somebody who reads all of one file after the other, window by window.
struct Reader {
    foreteller: Foreteller,
    atlas: Atlas,
    account: Account,
    /// Grains that were fetched, and whether they were read.
    here: BTreeMap<u64, bool>,
    /// Reads that found nothing, and all of them.
    starved: u64,
    reads: u64,
}

impl Reader {
    fn new() -> Self {
        let mut foreteller = Foreteller::default();
        foreteller.learn(atlas().into());
        let (account, here) = (Account::default(), BTreeMap::new());
        Self { foreteller, atlas: atlas(), account, here, starved: 0, reads: 0 }
    }

    fn read(&mut self, range: ByteRange) {
        let (here, account) = (&mut self.here, &mut self.account);
        let held = grains(range).all(|grain| here.contains_key(&grain));
        self.reads += 1;
        self.starved += u64::from(!held);
        let before = *account;
        for grain in grains(range) {
            match here.insert(grain, true) {
                None => account.demanded += GRAIN,
                Some(false) => account.used += GRAIN,
                Some(true) => {}
            }
        }
        self.foreteller.read(range, !held, before, LINK, |hint| {
            let new: Vec<_> = grains(hint).filter(|grain| !here.contains_key(grain)).collect();
            here.extend(new.iter().map(|grain| (*grain, false)));
            account.hinted += GRAIN * new.len() as u64;
            GRAIN * new.len() as u64
        });
        let (asked, unused) = (self.account.demanded + self.account.used, self.account.hinted - self.account.used);
        assert!(unused <= asked + 4 * MIB, "{unused} bytes for nothing, after {asked} read");
    }

    fn read_file(&mut self, rank: u32) {
        let file = self.atlas.at_rank(Order::Listing, rank).unwrap();
        for run in self.atlas.runs_of(file).to_vec() {
            let wide = ByteRange::new(run.offset, run.len.next_multiple_of(WINDOW_BYTES));
            wide.split_at_multiples(WINDOW_BYTES).for_each(|window| self.read(window));
        }
    }
}

fn grains(range: ByteRange) -> impl Iterator<Item = u64> {
    range.offset / GRAIN..range.end().div_ceil(GRAIN)
}

/// Files by their places in the listing, without the directories.
fn contents() -> Vec<u32> {
    let atlas = atlas();
    let full = |rank: &u32| atlas.at_rank(Order::Listing, *rank).is_some_and(|file| !atlas.runs_of(file).is_empty());
    (0..atlas.count() as u32).filter(full).collect()
}

#[test]
fn a_listing_goes_through_each_directory_where_it_is_named() {
    let atlas = atlas();
    assert_eq!(atlas.count() as u64, DIRECTORIES * (FILES_EACH + 1));
    let files = files();
    let ids: Vec<_> = (0..60).map(|rank| files[atlas.at_rank(Order::Listing, rank).unwrap() as usize].id).collect();
    assert_eq!(ids[0], 1000);
    assert_eq!(ids[1..4], [100_000, 100_371, 100_742]);
    assert_eq!(ids[51], 1001);
}

#[test]
fn a_tree_that_is_a_circle_is_listed_all_the_same() {
    let mut finds = Finds::default();
    let entry = |id, directory| FileRuns { id, directory, place: 0, runs: smallvec![ByteRange::new(id, 1)] };
    finds.note(0, DEVICE, [entry(1, 2), entry(2, 3), entry(3, 1), entry(9, 9)]);
    let atlas = finds.atlas();
    let mut listed: Vec<_> = (0..4).filter_map(|rank| atlas.at_rank(Order::Listing, rank)).collect();
    listed.sort_unstable();
    assert_eq!(listed, [0, 1, 2, 3]);
}

#[test]
fn who_reads_a_page_is_known_to_read_the_file_that_starts_there() {
    let mut finds = Finds::default();
    let file = |id, at, len| FileRuns { id, directory: 5, place: 0, runs: smallvec![ByteRange::new(at, len)] };
    finds.note(0, ByteRange::new(512, 1 << 40), [file(1, 0, 5000), file(2, 8192, 100), file(3, 40_960, 100)]);
    let atlas = finds.atlas();
    let at = |offset, len| atlas.file_at(ByteRange::new(offset, len));
    assert_eq!(at(0, 4096), Some((0, 0)));
    assert_eq!(at(4096, 4096), Some((0, 4096 - 512)));
    assert_eq!(at(8192, 4096), Some((1, 0)), "the file, and not the slack before it");
    assert_eq!(at(12_288, 4096), None);
    assert_eq!(at(16_384, 65_536), None, "a file that only lies in the way");
}

#[test]
fn who_extracts_a_listing_waits_for_a_few_files_only() {
    let mut reader = Reader::new();
    contents()[100..300].iter().for_each(|rank| reader.read_file(*rank));
    assert!(reader.starved <= 4, "{} of {}", reader.starved, reader.reads);
}

#[test]
fn who_extracts_every_seventh_file_waits_for_a_few_only() {
    let mut reader = Reader::new();
    // Within directories of 50 and one: steps are even but where a directory is passed.
    (5..900).step_by(7).for_each(|rank| reader.read_file(rank));
    assert!(reader.starved <= 30, "{} of {}", reader.starved, reader.reads);
}

#[test]
fn who_goes_backwards_by_number_waits_for_a_few_only() {
    let mut reader = Reader::new();
    let by_number: Vec<_> = (0..200).map(|rank| reader.atlas.at_rank(Order::Number, 900 - rank).unwrap()).collect();
    for file in by_number {
        let rank = reader.atlas.rank(Order::Listing, file).unwrap();
        reader.read_file(rank);
    }
    assert!(reader.starved <= 6, "{} of {}", reader.starved, reader.reads);
}

#[test]
fn who_reads_at_random_gets_the_file_and_nothing_else() {
    let mut reader = Reader::new();
    let files = contents();
    let mut state = 1u64;
    for _ in 0..200 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        reader.read_file(files[(state >> 33) as usize % files.len()]);
    }
    let unused = reader.account.hinted - reader.account.used;
    assert!(unused < 5 * MIB, "{unused} of {}", reader.account.demanded);
}

#[test]
fn a_long_file_is_fetched_further_ahead_while_its_reader_has_to_wait() {
    let mut finds = Finds::default();
    finds.note(0, DEVICE, [FileRuns { id: 1, directory: 5, place: 0, runs: smallvec![ByteRange::new(0, 1 << 30)] }]);
    let mut foreteller = Foreteller::default();
    foreteller.learn(finds.atlas().into());
    let mut ahead = |starved| {
        let mut end = 0;
        let rich = Account { demanded: 1 << 30, ..Account::default() };
        for nth in 0..16 {
            foreteller.read(ByteRange::new(nth * MIB, MIB), starved, rich, LINK, |hint| {
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

/// Of small files, one behind the other, only what the window of the last did not reach is asked for: the middle of a file
/// further on.
#[test]
fn who_extracts_small_files_that_share_windows_waits_for_a_few_only() {
    let file = |nth| FileRuns {
        id: nth,
        directory: 5,
        place: nth as u32,
        runs: smallvec![ByteRange::new(nth * 20_480, 20_000)],
    };
    let mut finds = Finds::default();
    finds.note(0, DEVICE, (0..400).map(file));
    let mut reader = Reader::new();
    reader.foreteller.learn(finds.atlas().into());
    let mut kernel = 0;
    for nth in 100..300 {
        let window = ByteRange::new(nth * 20_480, WINDOW_BYTES);
        reader.read(ByteRange::between(window.offset.max(kernel), window.end()));
        kernel = window.end();
    }
    assert!(reader.starved <= 10, "{} of {}", reader.starved, reader.reads);
}

/// Directories of a file system that nobody knows, say: read in no order, but near each other.
#[test]
fn who_reads_here_and_there_in_a_region_where_no_file_is_known_waits_for_fewer() {
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

    /// Whoever reads whatever: no more is fetched in vain than was read, and 4 MiB (asserted by the reader).
    #[test]
    fn little_is_fetched_for_nothing(
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

    /// Files where the evidence has them: anywhere, over each other, beyond the end of numbers.
    #[test]
    fn no_atlas_is_too_mad(
        files in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u32>(), prop::collection::vec((any::<u64>(), any::<u64>()), 0..4)), 0..40),
        (start, len) in any::<(u64, u64)>(),
        reads in prop::collection::vec((any::<u64>(), any::<u32>()), 1..20),
    ) {
        let mut finds = Finds::default();
        finds.note(1, ByteRange::new(start, len), files.into_iter().map(|(id, directory, place, runs)| FileRuns {
            id: id.into(),
            directory: directory.into(),
            place,
            runs: runs.into_iter().map(|(offset, len)| ByteRange::new(offset, len)).collect(),
        }));
        let mut foreteller = Foreteller::default();
        foreteller.learn(finds.atlas().into());
        for (at, len) in reads {
            foreteller.read(ByteRange::new(at, len.into()), true, Account::default(), LINK, |range| range.len);
        }
    }
}
