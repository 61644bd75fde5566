use super::file::Running;
use super::*;
use cheetah_drive::recognise::{Comparison, OpeningNote};
use cheetah_error::next::Acquisition;
use cheetah_image::Kind;
use cheetah_image::own_file::NotOurs;
use proptest::prelude::*;

const MIB: u64 = CHUNK_BYTES;

fn start(size: u64) -> Start {
    Start {
        version: VERSION,
        at_s: 1,
        source: Identity::new(Kind::Raw, "disk.raw", size),
        destinations: vec!["x.raw".into()],
        hashes: "all".into(),
        e01: E01Options::default(),
        noted: None,
        disks: Vec::new(),
    }
}

#[test]
fn notes_on_the_disks_are_no_difference_of_the_case_data_and_those_of_the_examiner_are() {
    let noted = |made: &str, given: Option<&str>| {
        let notes = given.map_or(made.to_owned(), |given| format!("{made}{BETWEEN_NOTES}{given}"));
        let case = CaseData { notes: Some(notes), ..CaseData::default() };
        let e01 = E01Options { case, ..E01Options::default() };
        Start { e01, noted: Some(made.to_owned()), ..start(MIB) }
    };
    let then = noted("content of a", Some("seized"));
    assert!(then.check_same_request(&noted("content of b", Some("seized"))).is_ok());
    assert!(then.check_same_request(&noted("content of a", Some("found"))).is_err_and(|error| error.is_misuse()));
    assert!(then.check_same_request(&noted("content of a", None)).is_err_and(|error| error.is_misuse()));
}

fn checkpoint(at: u64, chunks: u8, bad: Vec<BadRange>) -> Checkpoint {
    let digests = (0..chunks).map(|n| [n; 32]).collect();
    Checkpoint {
        at,
        digests,
        bad,
        retries: 3,
        links_lost: 0,
        active_ms: 5,
        files: Vec::new(),
        marks: vec![String::new()],
    }
}

fn bad(offset: u64, len: u64) -> BadRange {
    BadRange { offset, len, why: "scratched".into(), corrupt: false }
}

fn open(path: &std::path::Path) -> Result<Option<(Journal, AcquisitionState)>> {
    Journal::lock(path)?.map_or(Ok(None), |journal| journal.read(Signed::NotKept))
}

#[test]
fn only_what_was_signed_of_a_journal_is_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.raw.acquire");
    let signed = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut journal = Journal::create(&path, &start(4 * MIB)).unwrap();
    let list = signed.clone();
    let witness: Witness = std::sync::Arc::new(move |at, sha256| {
        list.lock().unwrap().push((at, sha256));
        Ok(())
    });
    journal.witnessed_by(witness).unwrap();
    journal.append(&JournalRecord::Checkpoint(checkpoint(MIB, 1, Vec::new()))).unwrap();
    journal.append(&JournalRecord::Checkpoint(checkpoint(2 * MIB, 1, Vec::new()))).unwrap();
    drop(journal);
    let signed = signed.lock().unwrap().clone();
    let read = |sha256: Signed<'_>| Journal::lock(&path).unwrap().unwrap().read(sha256);
    assert_eq!(signed.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, MIB, 2 * MIB]);
    assert_eq!(read(Signed::As(&signed[2].1)).unwrap().unwrap().1.at, 2 * MIB);
    // Neither an altered digest, with a check that fits, nor nothing signed, nor another journal.
    let whole = std::fs::read_to_string(&path).unwrap();
    let last = whole.lines().last().unwrap();
    let forged = last[17..].replace("AAAA", "BAAA");
    assert_ne!(forged, last[17..]);
    std::fs::write(
        &path,
        whole.replace(last, &format!("{} {forged}", &blake3::hash(forged.as_bytes()).to_hex()[..16])),
    )
    .unwrap();
    assert_eq!(open(&path).unwrap().unwrap().1.at, 2 * MIB, "the check is no proof");
    for sha256 in [Signed::As(&signed[2].1), Signed::Nothing, Signed::As("00")] {
        assert_eq!(read(sha256).unwrap_err().exit_code(), 3, "{sha256:?}");
    }
    // What came after the last signature is cut off.
    assert_eq!(read(Signed::As(&signed[1].1)).unwrap().unwrap().1.at, MIB);
    assert_eq!(open(&path).unwrap().unwrap().1.at, MIB);
}

#[test]
fn a_journal_returns_the_state_that_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.raw.acquire");
    assert!(open(&path).unwrap().is_none());
    let size = 3 * MIB + 5;
    let mut journal = Journal::create(&path, &start(size)).unwrap();
    let busy = open(&path).unwrap_err();
    assert_eq!(busy.cause(), Some(&Running(path.clone())), "{busy}");
    journal.append(&JournalRecord::Checkpoint(checkpoint(2 * MIB, 2, vec![bad(512, 512)]))).unwrap();
    journal.append(&JournalRecord::Resume { at_s: 2, write_protected: None, opening: None }).unwrap();
    journal.append(&JournalRecord::Checkpoint(checkpoint(size, 2, Vec::new()))).unwrap();
    drop(journal);
    let (journal, state) = open(&path).unwrap().unwrap();
    assert_eq!((state.at, state.resumes, state.retries), (size, 1, 3));
    assert_eq!(state.digests.get(3 * MIB), Some(&[1; 32]));
    assert_eq!(state.coverage().bytes(State::Unreadable), 512);
    assert_eq!(state.start, start(size));
    journal.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn invalid_records_are_refused() {
    let nonsense = [
        checkpoint(2 * MIB, 1, Vec::new()),
        checkpoint(MIB + 1, 2, Vec::new()),
        checkpoint(4 * MIB, 4, Vec::new()),
        checkpoint(MIB, 1, vec![bad(MIB - 1, 2)]),
        Checkpoint { marks: Vec::new(), ..checkpoint(MIB, 1, Vec::new()) },
    ];
    for checkpoint in nonsense {
        let mut state = AcquisitionState::new(start(3 * MIB)).unwrap();
        assert!(state.apply(JournalRecord::Checkpoint(checkpoint.clone())).is_err(), "{checkpoint:?}");
    }
}

#[test]
fn a_changed_request_and_a_changed_source_are_different_errors() {
    let then = start(MIB);
    then.check_same_request(&then).unwrap();
    let other = Start { hashes: "md5".into(), ..then.clone() };
    let error = then.check_same_request(&other).unwrap_err();
    assert!(error.is_misuse() && error.has_next(Acquisition::RepeatOrBeginAgain), "{error}");
    assert!(known_changes(&then.source, &then.source, false).unwrap().is_empty());
    let elsewhere = Identity { location: "/dev/sdc".into(), ..then.source.clone() };
    let error = known_changes(&then.source, &elsewhere, false).unwrap_err();
    assert!(error.is_evidence() && error.has_next(Acquisition::ConnectOrVouch), "{error}");
    let changes = known_changes(&then.source, &elsewhere, true).unwrap();
    assert_eq!(changes, ["its location was disk.raw and is now /dev/sdc"]);
    let larger = Identity { size: 2 * MIB, ..then.source.clone() };
    let error = known_changes(&then.source, &larger, true).unwrap_err();
    assert!(error.is_evidence() && error.has_next(Acquisition::ConnectOrBeginAgain), "{error}");
}

#[test]
fn an_interruption_is_counted_and_recorded_with_the_recognition_of_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.raw.acquire");
    let opening = |cause, instance: &str| Opening {
        at_s: 7,
        at: MIB,
        cause,
        instance: Some(instance.into()),
        write_protected: Some(false),
        vouched: vec!["its path was a and is now b".into()],
        comparison: Comparison::Samples { compared_bytes: 64 * MIB, of_bytes: 640 * MIB, differ_bytes_max: 66 * MIB },
        disks: Vec::new(),
    };
    let mut journal = Journal::create(&path, &start(2 * MIB)).unwrap();
    let resumed = opening(Cause::Resumed, "2");
    for record in [
        JournalRecord::Checkpoint(Checkpoint { links_lost: 3, ..checkpoint(MIB, 1, Vec::new()) }),
        JournalRecord::Resume { at_s: 2, write_protected: Some(true), opening: Some(Box::new(resumed.clone())) },
        JournalRecord::Lost { at_s: 3 },
        JournalRecord::Reopen(Box::new(opening(Cause::Lost, "3"))),
        JournalRecord::Lost { at_s: 4 },
    ] {
        journal.append(&record).unwrap();
    }
    drop(journal);
    let (_, state) = open(&path).unwrap().unwrap();
    assert_eq!((state.interruptions(), state.links_lost, state.instance.as_deref()), (2, 5, Some("3")));
    assert_eq!(state.openings, [resumed, opening(Cause::Lost, "3")]);
    let vouched = OpeningNote::Vouched { at: MIB, differences: vec!["its path was a and is now b".into()] };
    let sampled = OpeningNote::Sampled { at: MIB, comparison: state.openings[0].comparison.clone() };
    assert_eq!(state.openings[0].notes(), [vouched, sampled]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_truncated_journal_yields_an_earlier_state_and_a_damaged_one_never_a_wrong_state(
        cut in 0usize..2000,
        flip in 0usize..2000,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let mut journal = Journal::create(&path, &start(8 * MIB)).unwrap();
        for n in 1..=8 {
            journal.append(&JournalRecord::Checkpoint(checkpoint(n * MIB, 1, Vec::new()))).unwrap();
        }
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        let cut = cut % bytes.len();
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let whole = bytes[..cut].iter().filter(|byte| **byte == b'\n').count() as u64;
        match open(&path).unwrap() {
            None => prop_assert!(whole == 0 && !path.exists()),
            Some((mut journal, state)) => {
                prop_assert_eq!(state.at, (whole - 1) * MIB);
                // The journal can be continued.
                journal.append(&JournalRecord::Resume { at_s: 1, write_protected: None, opening: None }).unwrap();
                drop(journal);
                prop_assert_eq!(open(&path).unwrap().unwrap().1.resumes, 1);
            }
        }
        let mut damaged = bytes.clone();
        damaged[flip % bytes.len()] ^= 4;
        std::fs::write(&path, &damaged).unwrap();
        match open(&path) {
            Err(error) => prop_assert!(
                error.has_next(Acquisition::BeginAgain) || error.cause::<NotOurs>().is_some()
            ),
            // Only what may be the half of a record that was never finished goes unnoticed: the last, or the last two
            // where the end of the line between them is damaged.
            Ok(read) => {
                let last = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
                let known = if flip % bytes.len() == last { 6 } else { 7 };
                prop_assert!(read.is_some_and(|(_, state)| state.at == known * MIB));
            }
        }
    }
}
