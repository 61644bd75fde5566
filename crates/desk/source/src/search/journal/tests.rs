use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cheetah_carve::{CarvedFile, Format, Progress};
use cheetah_device::coverage::State as Reach;
use cheetah_device::{ByteRange, Data, Device, DynDevice, Error as DeviceError, Geometry, Io};
use cheetah_error::next::Search as Step;
use cheetah_error::{Error, Result};
use cheetah_image::hash::hex;
use cheetah_image::own_file::NotOurs;
use cheetah_search::{Batch, Hit, Order, Outcome, RunOptions, Search, run};
use futures::StreamExt as _;
use proptest::prelude::*;

use super::lines::{FIRST, check, line};
use super::record::{CarvedFiles, CarvedRow, HitRow, InsidePlaces, RangePart, Record, SearchedRange};
use super::start::{Asked, VERSION};
use super::*;
use crate::search::inside::Inside;

const NAMES: Names = Names { files: &["hits.csv"], folders: &[".result"] };
const JOURNAL: &str = "search.journal";

/// Bytes of which some cannot be read.
struct Disk {
    bytes: Vec<u8>,
    bad: Vec<ByteRange>,
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.bytes.len() as u64, writable: false, block_preferred: 512 }
    }

    fn read(&self, range: ByteRange) -> Io<'_, Data> {
        if let Some(range) = self.bad.iter().find_map(|bad| bad.intersection(range)) {
            return Io::fail(DeviceError::Unreadable { device: "disk".into(), range, why: "bad sector".into() });
        }
        Io::done(self.check(range).map(|()| self.bytes[range.offset as usize..range.end() as usize].to_vec().into()))
    }
}

fn device(bytes: &[u8], bad: &[ByteRange]) -> DynDevice {
    Arc::new(Disk { bytes: bytes.to_vec(), bad: bad.to_vec() })
}

fn search() -> Arc<Search> {
    let order = Order {
        words: vec!["secret".into(), "ret".into()],
        expressions: vec!["[0-9]{3,8}".into()],
        encodings: vec!["utf-8".parse().unwrap(), "utf-16le".parse().unwrap()],
        context_bytes: 20,
        ..Order::default()
    };
    Arc::new(Search::new(&order).unwrap())
}

fn start(size_bytes: u64) -> Start {
    let digest = || "words".to_owned();
    Start {
        version: VERSION,
        program: "1".into(),
        source: "disk.raw".into(),
        size_bytes,
        drive: None,
        samples: vec![Some("a".into()); 4],
        begun_s: 7,
        asked: Asked {
            words: digest(),
            expressions: digest(),
            kinds: Vec::new(),
            known: digest(),
            encodings: vec!["utf-8".into()],
            ignore_case: false,
            context_bytes: 20,
            also: Vec::new(),
        },
    }
}

fn open(path: &Path, size: u64) -> Result<Journal> {
    Journal::open(path, NAMES, start(size), search())
}

fn refused(opened: Result<Journal>) -> Error {
    match opened {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap().block_on(work)
}

/// Searches what is left, and ends after some results.
fn go_on(journal: &mut Journal, device: &DynDevice, part_bytes: u64, results: usize) {
    block_on(async {
        let options = RunOptions { part_bytes, within: Some(journal.todo()), ..RunOptions::new(2) };
        let mut batches = run(&search(), device, &options).take(results).enumerate();
        while let Some((number, batch)) = batches.next().await {
            journal.add(&batch.unwrap()).unwrap();
            if number % 3 == 0 && journal.may_end() {
                journal.store().unwrap();
            }
        }
        let stored = if results == usize::MAX { journal.store_last() } else { journal.store() };
        stored.unwrap();
    });
}

/// Searches what is left, and stores it at the end.
fn go_on_in_one_go(journal: &mut Journal, device: &DynDevice) {
    block_on(async {
        let options = RunOptions { part_bytes: 1024, within: Some(journal.todo()), ..RunOptions::new(2) };
        let mut batches = run(&search(), device, &options);
        while let Some(batch) = batches.next().await {
            journal.add(&batch.unwrap()).unwrap();
        }
        journal.store_last().unwrap();
    });
}

/// The hits and the coverage of results, which follow each other.
fn told(size: u64, batches: impl IntoIterator<Item = Result<Batch>>) -> (Vec<Hit>, Outcome) {
    let (mut hits, mut outcome, mut at) = (Vec::new(), Outcome::new(size, 3), 0);
    for batch in batches {
        let batch = batch.unwrap();
        assert_eq!(batch.range.offset, at, "results follow each other");
        at = batch.range.end();
        outcome.add(&batch);
        hits.extend(batch.hits);
    }
    (hits, outcome)
}

/// The same of a search that is not stopped.
fn at_once(bytes: &[u8], bad: &[ByteRange]) -> (Vec<Hit>, Outcome) {
    let batches: Vec<_> = block_on(run(&search(), &device(bytes, bad), &RunOptions::new(2)).collect());
    told(bytes.len() as u64, batches)
}

fn assert_same(journal: &Journal, (hits, outcome): (Vec<Hit>, Outcome)) -> std::result::Result<(), TestCaseError> {
    let (found, found_outcome) = told(outcome.coverage().size(), journal.batches());
    prop_assert_eq!(found, hits);
    prop_assert_eq!(found_outcome.coverage(), outcome.coverage());
    prop_assert_eq!(&journal.state().coverage, outcome.coverage());
    prop_assert_eq!(found_outcome.gaps(), outcome.gaps());
    Ok(())
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => "[serct 0-9]{1,40}".prop_map(String::into_bytes),
        3 => Just(b"secret".to_vec()),
        1 => Just("secret".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>()),
        1 => (1usize..900).prop_map(|len| vec![0; len]),
    ];
    prop::collection::vec(piece, 1..120).prop_map(|pieces| pieces.concat())
}

fn ranges() -> impl Strategy<Value = Vec<ByteRange>> {
    let range = (0u64..20_000, 1u64..1500).prop_map(|(offset, len)| ByteRange::new(offset, len));
    prop::collection::vec(range, 0..4)
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("hits");
    (parent, path)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_search_that_was_stopped_anywhere_has_the_result_of_one_that_was_not(
        bytes in content(),
        bad in ranges(),
        stops in prop::collection::vec((0usize..20, 0u64..300, 512u64..4000), 0..5),
    ) {
        let (_parent, path) = folder();
        let (size, disk) = (bytes.len() as u64, device(&bytes, &bad));
        for (results, lost, part_bytes) in stops {
            let mut journal = open(&path, size).unwrap();
            go_on(&mut journal, &disk, part_bytes, results);
            drop(journal);
            // A crash leaves less than was written last.
            let file = fs::File::options().write(true).open(path.join(JOURNAL)).unwrap();
            let len = file.metadata().unwrap().len();
            file.set_len(len.saturating_sub(lost)).unwrap();
        }
        let mut journal = open(&path, size).unwrap();
        go_on(&mut journal, &disk, 1024, usize::MAX);
        assert_same(&journal, at_once(&bytes, &bad))?;
        drop(journal);
        assert_same(&open(&path, size).unwrap(), at_once(&bytes, &bad))?;
    }

    #[test]
    fn a_range_that_can_be_read_again_is_searched_with_its_neighbours(
        bytes in content(),
        bad in ranges(),
        later in ranges(),
    ) {
        let (_parent, path) = folder();
        let size = bytes.len() as u64;
        let mut journal = open(&path, size).unwrap();
        go_on(&mut journal, &device(&bytes, &bad), 1024, usize::MAX);
        drop(journal);
        // Of what could not be read, some can be read now.
        let still: Vec<_> = later.iter().flat_map(|range| bad.iter().filter_map(|bad| bad.intersection(*range))).collect();
        let mut journal = open(&path, size).unwrap();
        go_on(&mut journal, &device(&bytes, &still), 700, usize::MAX);
        assert_same(&journal, at_once(&bytes, &still))?;
    }

    #[test]
    fn what_was_found_stays_when_it_cannot_be_read_again(
        bytes in content(),
        bad in ranges(),
        later in ranges(),
        results in prop_oneof![0usize..30, Just(usize::MAX)],
    ) {
        let (_parent, path) = folder();
        let size = bytes.len() as u64;
        let mut journal = open(&path, size).unwrap();
        go_on(&mut journal, &device(&bytes, &bad), 1024, usize::MAX);
        let (first, first_outcome) = told(size, journal.batches());
        // What could be read cannot be read now, and the other way around.
        go_on(&mut journal, &device(&bytes, &later), 700, results);
        let (second, second_outcome) = told(size, journal.batches());
        let words = |hits: &[Hit]| -> std::collections::BTreeSet<_> {
            hits.iter().filter(|hit| hit.pattern < 2).map(|hit| (hit.offset, hit.pattern)).collect()
        };
        prop_assert!(words(&first).is_subset(&words(&second)));
        for range in first_outcome.coverage().in_state(Reach::Read) {
            prop_assert!(second_outcome.coverage().runs(range).all(|(_, reach)| reach == Reach::Read));
        }
        drop(journal);
        let mut journal = open(&path, size).unwrap();
        prop_assert_eq!(&journal.state().coverage, second_outcome.coverage());
        go_on(&mut journal, &device(&bytes, &[]), 700, usize::MAX);
        assert_same(&journal, at_once(&bytes, &[]))?;
    }

    #[test]
    fn an_altered_journal_is_refused_or_what_was_altered_is_searched_again(
        bytes in content(),
        at in any::<prop::sample::Index>(),
        flip in 1u8..=255,
    ) {
        let (_parent, path) = folder();
        let (size, disk) = (bytes.len() as u64, device(&bytes, &[]));
        let mut journal = open(&path, size).unwrap();
        go_on(&mut journal, &disk, 512, usize::MAX);
        drop(journal);
        let mut altered = fs::read(path.join(JOURNAL)).unwrap();
        *at.get_mut(&mut altered) ^= flip;
        fs::write(path.join(JOURNAL), &altered).unwrap();
        match open(&path, size) {
            Err(_) => prop_assert!(fs::read(path.join(JOURNAL)).unwrap() == altered, "it is left as it is"),
            Ok(mut journal) => {
                go_on(&mut journal, &disk, 512, usize::MAX);
                assert_same(&journal, at_once(&bytes, &[]))?;
            }
        }
    }
}

#[test]
fn a_record_that_is_altered_left_out_or_moved_in_the_middle_is_refused() {
    let (_parent, path) = folder();
    let bytes = b"a secret ".repeat(2000);
    let mut journal = open(&path, bytes.len() as u64).unwrap();
    go_on(&mut journal, &device(&bytes, &[]), 512, usize::MAX);
    drop(journal);
    let whole = fs::read_to_string(path.join(JOURNAL)).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    assert!(lines.len() > 12, "{}", lines.len());
    let altered = format!("{} \n", lines[4].trim_end());
    let cases = [
        [&lines[..4], &[altered.as_str()], &lines[5..]].concat(),
        [&lines[..4], &lines[6..]].concat(),
        [&lines[..2], &[lines[4], lines[5]], &lines[2..4], &lines[6..]].concat(),
        [&lines[..4], &["\n"], &lines[4..]].concat(),
        [&lines[..], &lines[..]].concat(),
    ];
    for case in cases {
        let content = case.concat();
        fs::write(path.join(JOURNAL), &content).unwrap();
        let error = refused(open(&path, bytes.len() as u64));
        assert!(error.is_evidence() && error.has_next(Step::NameFolder), "{error}");
        assert_eq!(error.cause::<BadRecord>(), Some(&BadRecord::NoRecord));
        assert_eq!(fs::read_to_string(path.join(JOURNAL)).unwrap(), content, "it is left as it is");
    }
}

#[test]
fn a_journal_of_a_later_version_is_refused_and_not_taken_for_what_a_crash_left() {
    let (_parent, path) = folder();
    drop(open(&path, 10_000).unwrap());
    let (first, _) = line(&Record::Start(Box::new(start(10_000))), FIRST).unwrap();
    let later = String::from_utf8(first).unwrap().replace(r#"{"start":{"#, r#"{"start":{"later":1,"#);
    let json = &later.trim_end()[33..];
    let content = format!("{} {json}\n", hex(&check(FIRST, json.as_bytes())));
    fs::write(path.join(JOURNAL), &content).unwrap();
    let error = refused(open(&path, 10_000));
    assert_eq!(error.cause::<BadRecord>(), Some(&BadRecord::NoRecord));
    assert_eq!(fs::read_to_string(path.join(JOURNAL)).unwrap(), content, "it is left as it is");
}

/// What opening says of a journal with these records behind the first.
fn opened_with(records: &[Record]) -> Result<Journal> {
    let (_parent, path) = folder();
    drop(open(&path, 10_000).unwrap());
    let (mut lines, mut check) = (Vec::new(), FIRST);
    for record in [Record::Start(Box::new(start(10_000)))].iter().chain(records) {
        let (next, next_check) = line(record, check).unwrap();
        lines.extend(next);
        check = next_check;
    }
    fs::write(path.join(JOURNAL), lines).unwrap();
    open(&path, 10_000)
}

fn range(offset: u64, len: u64, hits: u64) -> Record {
    let part = RangePart { len, state: Some(Reach::Read), why: None, node: None };
    Record::Searched(SearchedRange { offset, len, parts: vec![part], nodes: Vec::new(), hits, near: None })
}

fn hit_row(offset: u64) -> HitRow {
    let encoding = "utf-8".parse().unwrap();
    let hit = Hit { offset, pattern: 0, encoding, bytes: b"secret".to_vec(), before: Vec::new(), after: Vec::new() };
    HitRow::of(&hit, &search()).unwrap()
}

#[test]
fn hostile_numbers_are_refused() {
    let part = |len, state, why: Option<&str>, node| {
        let part = RangePart { len, state: Some(state), why: why.map(str::to_owned), node };
        let parts = vec![part];
        Record::Searched(SearchedRange { offset: 0, len: 100, parts, nodes: Vec::new(), hits: 0, near: None })
    };
    let carved = |row: CarvedRow| {
        let files = vec![row];
        Record::Carved(CarvedFiles { headers: 1, progress: [u64::MAX; 4], archive: None, counts: [0; 6], files })
    };
    let digest = "0".repeat(64);
    let hits = |offset| vec![Record::Hits(vec![hit_row(offset)]), range(0, 100, 1)];
    let inside = |places| Record::Inside(InsidePlaces { places, ..InsidePlaces::default() });
    assert!(opened_with(&hits(99)).is_ok());
    for (records, why) in [
        (vec![range(u64::MAX, 1, 0)], BadRecord::Range),
        (vec![range(1, u64::MAX, 0)], BadRecord::Range),
        (vec![range(9_999, 2, 0)], BadRecord::Range),
        (vec![range(0, 0, 0)], BadRecord::Range),
        (vec![part(u64::MAX, Reach::Read, None, None)], BadRecord::Range),
        (vec![part(99, Reach::Read, None, None)], BadRecord::Range),
        (vec![part(100, Reach::Read, Some("why"), None)], BadRecord::Range),
        (vec![part(100, Reach::Unread, None, None)], BadRecord::Range),
        (vec![part(100, Reach::Read, None, Some(0))], BadRecord::Range),
        (hits(100), BadRecord::Hits),
        (vec![range(0, 100, u64::MAX)], BadRecord::Hits),
        (vec![Record::Hits(vec![hit_row(5), hit_row(4)]), range(0, 100, 2)], BadRecord::Hits),
        (vec![Record::Hits(vec![hit_row(5)]), inside(1)], BadRecord::Hits),
        (vec![inside(2), inside(1)], BadRecord::Number),
        (vec![Record::Start(Box::new(start(1)))], BadRecord::Beginning),
        (vec![carved(CarvedRow(0, u64::MAX, "png".into(), digest.clone()))], BadRecord::File),
        (vec![carved(CarvedRow(0, 10, "exe".into(), digest.clone()))], BadRecord::File),
        (vec![carved(CarvedRow(0, 10, "png".into(), "../".into()))], BadRecord::File),
    ] {
        let error = refused(opened_with(&records));
        assert!(error.is_evidence() && error.cause() == Some(&why), "{records:?}: {error}");
    }
    let kept = |name: &str| KeptFile { name: name.into(), len: 1, sha256: digest.clone() };
    for name in ["../hits.csv", "/etc/passwd", "", "a/b/c/d/e/f"] {
        assert!(opened_with(&[Record::Finished(vec![kept(name)])]).is_err(), "{name}");
    }
}

#[test]
fn a_batch_with_more_hits_than_a_record_takes_is_kept_and_read_again() {
    let (_parent, path) = folder();
    let bytes = b"secret".repeat(20_000);
    let (size, disk) = (bytes.len() as u64, device(&bytes, &[]));
    let mut journal = open(&path, size).unwrap();
    go_on(&mut journal, &disk, 1 << 20, usize::MAX);
    drop(journal);
    for _ in 0..2 {
        let journal = open(&path, size).unwrap();
        assert!(journal.todo().is_empty());
        assert_eq!(told(size, journal.batches()).0.len(), 40_000);
    }
}

#[test]
fn many_small_ranges_that_are_searched_again_are_stored_together_and_told_in_order() {
    const RANGES: u64 = 50;
    let (_parent, path) = folder();
    let bytes = b"a secret ".repeat(8192 * RANGES as usize / 9);
    let (size, bad) = (bytes.len() as u64, (0..RANGES).map(|number| ByteRange::new(8192 * number + 4096, 512)));
    let bad: Vec<_> = bad.filter(|bad| bad.fits(size)).collect();
    let groups = || fs::read_to_string(path.join(JOURNAL)).unwrap().matches(r#" {"searched":"#).count();
    let mut journal = open(&path, size).unwrap();
    go_on_in_one_go(&mut journal, &device(&bytes, &bad));
    let before = groups();
    go_on_in_one_go(&mut journal, &device(&bytes, &bad));
    // After a second, a group is stored anyway.
    assert!(groups() - before < bad.len() / 2, "{} groups", groups() - before);
    let same = |journal: &Journal, bad: &[ByteRange]| {
        let ((hits, outcome), (found, found_outcome)) = (at_once(&bytes, bad), told(size, journal.batches()));
        assert!(found == hits && found_outcome.coverage() == outcome.coverage());
    };
    same(&journal, &bad);
    go_on_in_one_go(&mut journal, &device(&bytes, &[]));
    drop(journal);
    same(&open(&path, size).unwrap(), &[]);
}

#[test]
fn another_search_and_another_source_are_refused_with_what_differs_and_the_folder_is_left_alone() {
    let (_parent, path) = folder();
    let bytes = b"a secret ".repeat(100);
    let size = bytes.len() as u64;
    let mut journal = open(&path, size).unwrap();
    go_on(&mut journal, &device(&bytes, &[]), 512, 2);
    drop(journal);
    // What a crash left is not cut off either.
    let mut content = fs::read(path.join(JOURNAL)).unwrap();
    content.extend(b"torn");
    fs::write(path.join(JOURNAL), &content).unwrap();
    let refused = |other: &dyn Fn(&mut Start), differences: &[Difference], is_evidence: bool| {
        let mut start = start(size);
        other(&mut start);
        let error = refused(Journal::open(&path, NAMES, start, search()));
        assert_eq!(error.cause(), Some(&OtherSearch(differences.to_vec())));
        assert!(error.is_evidence() == is_evidence && error.has_next(Step::RepeatOrNameFolder), "{error}");
        assert!(fs::read(path.join(JOURNAL)).unwrap() == content);
    };
    refused(&|start| start.program = "2".into(), &[Difference::Version], false);
    refused(&|start| start.source = "other.raw".into(), &[Difference::Source], false);
    refused(&|start| start.size_bytes = 1, &[Difference::Size], true);
    refused(&|start| start.drive = Some("7".into()), &[Difference::Content], true);
    refused(&|start| start.samples[2] = Some("b".into()), &[Difference::Content], true);
    refused(&|start| start.samples = vec![None; 4], &[Difference::TooLittleToCompare], true);
    refused(&|start| start.asked.words = "others".into(), &[Difference::Words], false);
    refused(&|start| start.asked.also = vec!["carve".into()], &[Difference::Also], false);
    let both = |start: &mut Start| {
        start.asked.ignore_case = true;
        start.samples[0] = Some("b".into());
    };
    refused(&both, &[Difference::IgnoreCase, Difference::Content], false);
    let mut later = start(size);
    later.begun_s += 1;
    assert_eq!(Journal::open(&path, NAMES, later, search()).unwrap().state().start.begun_s, 7);
}

#[test]
fn a_search_for_fewer_words_is_another_search_and_not_a_damaged_journal() {
    let (_parent, path) = folder();
    let bytes = b"12345 secret ".repeat(100);
    let mut journal = open(&path, bytes.len() as u64).unwrap();
    go_on(&mut journal, &device(&bytes, &[]), 512, usize::MAX);
    drop(journal);
    let order = Order { words: vec!["secret".into()], encodings: vec!["utf-8".parse().unwrap()], ..Order::default() };
    let mut fewer = start(bytes.len() as u64);
    fewer.asked.words = "fewer".into();
    let error = refused(Journal::open(&path, NAMES, fewer, Arc::new(Search::new(&order).unwrap())));
    assert_eq!(error.cause(), Some(&OtherSearch(vec![Difference::Words])));
    assert!(error.is_misuse() && error.has_next(Step::RepeatOrNameFolder), "{error}");
}

#[test]
fn a_link_or_something_else_in_the_place_of_a_file_is_refused_and_evidence_is_left_alone() {
    let (parent, path) = folder();
    let at = |name: &str| parent.path().join(name);
    fs::create_dir(at("evidence")).unwrap();
    fs::write(at("evidence/search.journal"), "evidence").unwrap();
    let is = |path: &Path| {
        let error = refused(open(path, 100));
        assert!(error.is_misuse() && error.has_next(Step::NameFolder), "{error}");
        error.cause::<NotOurs>().copied()
    };
    symlink(at("evidence"), at("link")).unwrap();
    assert_eq!(is(&at("link")), Some(NotOurs::Link));
    assert_eq!(is(&at("evidence")), Some(NotOurs::OtherContent("journal")));
    assert_eq!(is(&at("evidence/search.journal")), None);
    drop(open(&path, 100).unwrap());
    let journal = fs::read(path.join(JOURNAL)).unwrap();
    for (name, target) in
        [(JOURNAL, "evidence/search.journal"), ("hits.csv", "evidence/search.journal"), ("carved", "evidence")]
    {
        let _ = fs::remove_file(path.join(name));
        symlink(at(target), path.join(name)).unwrap();
        assert_eq!(is(&path), Some(NotOurs::Link), "{name}");
        fs::remove_file(path.join(name)).unwrap();
        fs::write(path.join(JOURNAL), &journal).unwrap();
    }
    fs::create_dir(path.join("hits.csv")).unwrap();
    assert_eq!(is(&path), Some(NotOurs::NotRegular));
    fs::remove_dir(path.join("hits.csv")).unwrap();
    fs::write(path.join("notes.txt"), "mine").unwrap();
    assert_eq!(is(&path), None);
    fs::remove_file(path.join("notes.txt")).unwrap();
    fs::create_dir(path.join("carved")).unwrap();
    fs::write(path.join("carved/notes.txt"), "mine").unwrap();
    assert_eq!(is(&path), None);
    assert_eq!(fs::read(at("evidence/search.journal")).unwrap(), b"evidence");
    assert_eq!(fs::read(path.join("carved/notes.txt")).unwrap(), b"mine");
}

#[test]
fn one_process_at_a_time_searches_into_a_folder() {
    let (_parent, path) = folder();
    let journal = open(&path, 100).unwrap();
    let error = refused(open(&path, 100));
    assert!(error.is_misuse() && error.has_next(Step::AwaitOrNameFolder), "{error}");
    drop(journal);
    open(&path, 100).unwrap();
}

#[test]
fn files_of_two_formats_that_begin_at_one_place_are_recorded() {
    let (_parent, path) = folder();
    let mut journal = open(&path, 10_000).unwrap();
    drop(journal.carved_folder().unwrap());
    let files = [carved(&path, 10), CarvedFile { format: Format::Gzip, ..carved(&path, 10) }];
    fs::copy(path.join("carved").join(files[0].name()), path.join("carved").join(files[1].name())).unwrap();
    journal.add_carved(2, &Progress::default(), &files).unwrap();
    drop(journal);
    assert_eq!(open(&path, 10_000).unwrap().state().carved, files);
}

/// A file that is carved, as it is saved and recorded.
fn carved(path: &Path, offset: u64) -> CarvedFile {
    let mut file = CarvedFile { offset, len: 4, format: Format::Png, sha256: String::new() };
    fs::write(path.join("carved").join(file.name()), "file").unwrap();
    let folder = cheetah_kit::folder::Folder::open(path).unwrap();
    file.sha256 = KeptFile::read(&folder, &format!("carved/{}", file.name())).unwrap().sha256;
    file
}

#[test]
fn carved_files_are_known_again_by_their_digests_and_others_are_removed_or_refused() {
    let (_parent, path) = folder();
    let bytes = b"a secret ".repeat(1000);
    let size = bytes.len() as u64;
    let mut journal = open(&path, size).unwrap();
    go_on(&mut journal, &device(&bytes, &[ByteRange::new(1024, 512)]), 512, usize::MAX);
    drop(journal.carved_folder().unwrap());
    let progress = Progress { end_of_whole: 600, wasted_bytes: 9, ..Progress::default() };
    let files = [carved(&path, 10), carved(&path, 500)];
    journal.add_carved(3, &progress, &files).unwrap();
    let inside = Inside { work_bytes: 77, ..Inside::default() };
    journal.add_inside(&[inside]).unwrap();
    drop(journal);
    let lost = carved(&path, 700);
    let journal = open(&path, size).unwrap();
    let state = journal.state();
    assert_eq!((state.headers, state.carving, &state.carved[..]), (3, progress, &files[..]));
    assert_eq!((state.inside_searched().places, state.inside_searched().work_bytes), (1, 77));
    drop(journal.carved_folder().unwrap());
    assert!(!path.join("carved").join(lost.name()).exists() && path.join("carved").join(files[0].name()).exists());
    drop(journal);

    fs::write(path.join("carved").join(files[1].name()), "evil").unwrap();
    let error = refused(open(&path, size));
    assert!(error.is_evidence() && error.has_next(Step::NameFolder), "{error}");
    fs::remove_file(path.join("carved").join(files[1].name())).unwrap();
    assert!(refused(open(&path, size)).is_evidence());
    fs::write(path.join("carved").join(files[1].name()), "file").unwrap();

    // What is made of the hits is kept while the same cannot be read, and made anew once it can be.
    let mut journal = open(&path, size).unwrap();
    go_on(&mut journal, &device(&bytes, &[ByteRange::new(1024, 512)]), 512, usize::MAX);
    assert_eq!((journal.state().headers, journal.state().inside.places), (3, 1));
    go_on(&mut journal, &device(&bytes, &[]), 512, usize::MAX);
    assert_eq!((journal.state().headers, journal.state().inside.places), (0, 0));
    drop(journal.carved_folder().unwrap());
    assert_eq!(fs::read_dir(path.join("carved")).unwrap().count(), 0);
}

#[test]
fn a_finished_search_is_known_by_its_files() {
    let (_parent, path) = folder();
    let bytes = b"a secret ".repeat(100);
    let size = bytes.len() as u64;
    let mut journal = open(&path, size).unwrap();
    go_on(&mut journal, &device(&bytes, &[]), 512, usize::MAX);
    fs::write(path.join("hits.csv"), "hits").unwrap();
    journal.finish(&["hits.csv".into()]).unwrap();
    assert_eq!(open(&path, size).unwrap().state().finished.as_ref().map(Vec::len), Some(1));
    assert!(!fs::read_to_string(path.join(JOURNAL)).unwrap().contains("searched"));
    fs::write(path.join("hits.csv"), "hint").unwrap();
    assert!(refused(open(&path, size)).is_evidence());
}
