use super::*;
use crate::check::check;
use crate::event::{Finished, RedundancyCompared, Started, Verified};
use crate::key::PublicKey;
use crate::report::{Fault, LogProblem, LogReport, Problem, State};
use cheetah_image::own_file::NotOurs;

/// A log in a directory of its own, and its keys.
struct Desk {
    dir: tempfile::TempDir,
    key: SigningKey,
}

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = SigningKey::load_or_make(&dir.path().join("key")).unwrap();
        Self { dir, key }
    }

    fn other_key(&self) -> SigningKey {
        SigningKey::load_or_make(&self.dir.path().join("other")).unwrap()
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("x.raw.custody")
    }

    fn log(&self) -> CustodyLog {
        CustodyLog::open(&self.path(), self.key.clone(), &Custodian::default()).unwrap()
    }

    /// A log of six records: begun, three retries, finished, verified elsewhere.
    fn six(&self) -> Vec<Vec<u8>> {
        let mut log = self.log();
        log.append(&started()).unwrap();
        for attempts in 1..4 {
            log.append(&retry(attempts)).unwrap();
        }
        log.append(&finished()).unwrap();
        log.append(&CustodyEvent::Verified(Box::default())).unwrap();
        self.lines()
    }

    fn lines(&self) -> Vec<Vec<u8>> {
        std::fs::read(self.path()).unwrap().split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
    }

    fn check(&self, lines: &[Vec<u8>]) -> LogReport {
        self.check_with(lines, &[self.key.public()])
    }

    fn check_with(&self, lines: &[Vec<u8>], keys: &[PublicKey]) -> LogReport {
        check(&lines.concat()[..], keys).unwrap()
    }

    /// Which line is wrong, and how.
    #[track_caller]
    fn fault(&self, lines: &[Vec<u8>]) -> (u64, Fault) {
        let problem = self.check(lines).problem.expect("a problem");
        (problem.line, problem.fault)
    }
}

fn started() -> CustodyEvent {
    CustodyEvent::Started(Box::new(Started::new(&"sda", &"case 42", vec!["x.raw".into()]).unwrap()))
}

fn retry(attempts: u32) -> CustodyEvent {
    CustodyEvent::Retry { range: cheetah_device::ByteRange::new(4096, 512).into(), attempts }
}

fn finished() -> CustodyEvent {
    CustodyEvent::Finished(Box::new(Finished { size: 1 << 20, ..Finished::default() }))
}

#[test]
fn a_log_passes_the_check_as_written() {
    let desk = Desk::new();
    let lines = desk.six();
    let report = desk.check(&lines);
    assert!(report.is_ok(), "{report:?}");
    assert_eq!((report.records, report.state), (6, State::Finished));
    assert_eq!(report.events["retry"], 3);
    let finished = report.finished.unwrap();
    assert_eq!((finished.place.line, finished.finished.size), (5, 1 << 20));
    assert_eq!(finished.place.sha256, hex(&Sha256::digest(&lines[4])));
}

#[test]
fn the_last_verification_is_kept_until_the_content_becomes_another() {
    let desk = Desk::new();
    let verified = |report: &LogReport| report.verified.as_ref().map(|found| found.verified.size);
    let compared = |data_pages_repaired| {
        CustodyEvent::RedundancyCompared(Box::new(RedundancyCompared {
            data_pages_repaired,
            ..RedundancyCompared::default()
        }))
    };
    let mut lines = desk.six();
    assert_eq!(verified(&desk.check(&lines)), Some(0));
    assert_eq!(verified(&desk.check(&lines[..5])), None);
    let mut log = desk.log();
    for (event, expected) in [
        (CustodyEvent::Verified(Box::new(Verified { size: 7, ..Verified::default() })), Some(7)),
        (CustodyEvent::Doubts { doubts: Vec::new() }, Some(7)),
        (compared(0), Some(7)),
        (compared(1), None),
        (CustodyEvent::Verified(Box::new(Verified { size: 8, ..Verified::default() })), Some(8)),
        (CustodyEvent::Refetched { source: serde_json::Value::Null, ranges: Vec::new(), bytes: 0 }, None),
    ] {
        log.append(&event).unwrap();
        lines = desk.lines();
        assert_eq!(verified(&desk.check(&lines)), expected, "{event:?}");
    }
    assert_eq!(desk.check(&lines).compared, None);
    assert!(desk.check(&lines[..lines.len() - 1]).compared.is_some());
}

#[test]
fn an_altered_line_is_named() {
    let desk = Desk::new();
    let lines = desk.six();
    for at in 0..6 {
        let mut bad = lines.clone();
        let text = String::from_utf8(bad[at].clone()).unwrap();
        bad[at] = text.replace("\"time\":\"2", "\"time\":\"1").into_bytes();
        assert_eq!(desk.fault(&bad), (at as u64 + 1, Fault::Altered));
        // And a line that is not a record.
        bad[at] = b"{}\n".to_vec();
        assert_eq!(desk.fault(&bad), (at as u64 + 1, Fault::Altered));
    }
}

#[test]
fn removed_lines_are_named() {
    let desk = Desk::new();
    let lines = desk.six();
    for at in 0..5 {
        let mut bad = lines.clone();
        bad.remove(at);
        assert_eq!(desk.fault(&bad), (at as u64 + 1, Fault::Removed));
    }
    let bad = [&lines[..1], &lines[4..]].concat();
    let problem = desk.check(&bad).problem.unwrap();
    assert_eq!((problem.line, problem.fault), (2, Fault::Removed), "{problem}");
}

#[test]
fn swapped_lines_are_named() {
    let desk = Desk::new();
    let lines = desk.six();
    for first in 0..5 {
        for second in first + 1..6 {
            let mut bad = lines.clone();
            bad.swap(first, second);
            assert_eq!(desk.fault(&bad), (first as u64 + 1, Fault::Swapped), "{first} {second}");
        }
    }
}

#[test]
fn inserted_lines_are_named() {
    let desk = Desk::new();
    let lines = desk.six();
    let elsewhere = Desk { key: desk.key.clone(), ..Desk::new() }.six();
    let foreign = Desk { key: desk.other_key(), ..Desk::new() }.six();
    let inserted = [
        b"\n".to_vec(),
        b"{\"seq\":3}\n".to_vec(),
        lines[0].clone(),
        lines[5].clone(),
        elsewhere[2].clone(),
        foreign[0].clone(),
    ];
    for line in inserted {
        for at in 1..5 {
            let mut bad = lines.clone();
            bad.insert(at, line.clone());
            assert_eq!(desk.fault(&bad), (at as u64 + 1, Fault::Inserted), "{}", String::from_utf8_lossy(&line));
        }
    }
}

#[test]
fn a_log_cut_off_at_a_line_is_unfinished() {
    let desk = Desk::new();
    let lines = desk.six();
    for left in 0..4 {
        let report = desk.check(&lines[..left]);
        assert!(report.problem.is_none() && !report.is_ok());
        assert_eq!(report.state, if left == 0 { State::Empty } else { State::Unfinished });
        if left > 0 {
            assert_eq!(report.problems(), [LogProblem::Unfinished { line: left as u64 }]);
        }
    }
}

#[test]
fn a_log_cut_off_within_a_line_is_unfinished() {
    let desk = Desk::new();
    let bytes = desk.six().concat();
    let ends: Vec<_> = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    for left in 0..bytes.len() {
        let report = check(&bytes[..left], &[desk.key.public()]).unwrap();
        // What follows the record that finishes the acquisition may be unfinished, and so may a newline.
        assert_eq!(report.is_ok(), left >= ends[4], "{left}: {report:?}");
        assert!(report.problem.is_none());
        let is_cut = !ends.contains(&left) && !bytes[..left].ends_with(b"\n") && left > 0;
        assert_eq!(report.unfinished_line.is_some(), is_cut, "{left}: {report:?}");
    }
}

#[test]
fn an_unfinished_line_that_begins_no_record_is_tampering() {
    let desk = Desk::new();
    let whole = desk.six().concat();
    for tail in ["x", "{\"seq\":8,\"time", "{\"seq\":70", " {\"seq\":7,", "{}"] {
        let bytes = [&whole[..], tail.as_bytes()].concat();
        let problem = check(&bytes[..], &[desk.key.public()]).unwrap().problem.expect(tail);
        assert_eq!((problem.line, problem.fault), (7, Fault::Altered), "{tail}");
        std::fs::write(desk.path(), &bytes).unwrap();
        assert_eq!(
            CustodyLog::open(&desk.path(), desk.key.clone(), &Custodian::default()).unwrap_err().exit_code(),
            3,
            "{tail}"
        );
        assert_eq!(std::fs::read(desk.path()).unwrap(), bytes, "{tail}");
    }
    // Some file systems leave zeros where a power cut interrupted a write.
    for tail in ["\0\0\0\0", "{\"seq\":7,\"time\0\0", "{\"se\0"] {
        let bytes = [&whole[..], tail.as_bytes()].concat();
        assert!(check(&bytes[..], &[desk.key.public()]).unwrap().is_ok(), "{tail}");
    }
}

#[test]
fn a_file_that_is_not_a_log_is_left_unchanged() {
    let desk = Desk::new();
    std::fs::write(desk.path(), "notes without a newline").unwrap();
    assert_eq!(CustodyLog::open(&desk.path(), desk.key.clone(), &Custodian::default()).unwrap_err().exit_code(), 3);
    assert_eq!(std::fs::read(desk.path()).unwrap(), b"notes without a newline");
    // Nor is a link followed.
    let elsewhere = desk.dir.path().join("elsewhere");
    std::fs::remove_file(desk.path()).unwrap();
    std::os::unix::fs::symlink(&elsewhere, desk.path()).unwrap();
    let error = CustodyLog::open(&desk.path(), desk.key.clone(), &Custodian::default()).unwrap_err();
    assert_eq!(error.cause(), Some(&NotOurs::Link), "{error}");
    assert!(!elsewhere.exists());
}

#[test]
fn a_log_without_a_record_is_removed_again() {
    let desk = Desk::new();
    drop(desk.log());
    assert!(!desk.path().exists());
    std::fs::write(desk.path(), "").unwrap();
    drop(desk.log());
    assert!(desk.path().exists(), "made by somebody else");
}

#[test]
fn a_log_by_another_key_is_not_taken_for_ours() {
    let desk = Desk::new();
    let foreign = Desk { key: desk.other_key(), ..Desk::new() }.six();
    let report = desk.check(&foreign);
    assert!(report.problem.is_none() && !report.is_ok());
    assert_eq!(report.problems()[0], LogProblem::Untrusted(desk.other_key().public().id()));
    assert!(desk.check_with(&foreign, &[desk.other_key().public()]).is_ok());
}

#[test]
fn two_examiners_may_share_a_log() {
    let desk = Desk::new();
    desk.log().append(&started()).unwrap();
    let mut second = CustodyLog::open(&desk.path(), desk.other_key(), &Custodian::default()).unwrap();
    second
        .append(&CustodyEvent::Resumed {
            at: 0,
            source: serde_json::Value::Null,
            changed: Vec::new(),
            opened: serde_json::Value::Null,
        })
        .unwrap();
    second.append(&finished()).unwrap();
    drop(second);
    desk.log().append(&CustodyEvent::Verified(Box::default())).unwrap();
    let (first, second) = (desk.key.public(), desk.other_key().public());
    let lines = desk.lines();
    assert!(desk.check_with(&lines, &[first, second]).is_ok());
    // An unknown second key is a fault. If the first key is unknown, the log is in order, but not signed by trusted
    // keys alone.
    assert_eq!(desk.fault(&lines), (2, Fault::Foreign));
    let report = desk.check_with(&lines, &[second]);
    assert!(report.problem.is_none() && !report.is_ok(), "{report:?}");
}

#[test]
fn an_unfinished_line_is_replaced_by_a_record_that_says_so() {
    let desk = Desk::new();
    let lines = desk.six();
    let cuts = [1, 40, lines[3].len() - 2];
    for cut in cuts {
        let torn = &lines[3][..cut];
        std::fs::write(desk.path(), [&lines[..3].concat(), torn].concat()).unwrap();
        let mut log = desk.log();
        log.append(&CustodyEvent::Resumed {
            at: 0,
            source: serde_json::Value::Null,
            changed: Vec::new(),
            opened: serde_json::Value::Null,
        })
        .unwrap();
        log.append(&finished()).unwrap();
        drop(log);
        let now = desk.lines();
        let report = desk.check(&now);
        assert!(report.is_ok() && report.records == 6 && report.unfinished_line.is_none(), "{report:?}");
        let repaired: serde_json::Value = serde_json::from_slice(&now[3]).unwrap();
        let expected = serde_json::json!({ "dropped_bytes": cut, "sha256": hex(&Sha256::digest(torn)) });
        assert_eq!((&repaired["event"], &repaired["details"]), (&"repaired".into(), &expected));
    }
}

/// A record written by an earlier version, which left an unfinished line in the log and counted it in the next record.
#[test]
fn unfinished_lines_in_logs_of_earlier_versions_are_covered_by_the_next_record() {
    let desk = Desk::new();
    let mut lines = desk.six();
    lines.truncate(3);
    lines.push(b"{\"seq\":4,\"time\n".to_vec());
    let event = finished();
    let record = |lines: &[Vec<u8>]| {
        let prev = hex(&Sha256::digest(lines[2..4].concat()));
        let draft = serde_json::json!({
            "seq": 4, "time": now(), "event": "finished", "details": serde_json::to_value(&event).unwrap()["details"],
            "torn": 1, "key": desk.key.public().id().to_string(), "prev": prev,
        });
        let mut line = serde_json::to_vec(&draft).unwrap();
        line.pop();
        use base64::Engine as _;
        let signature = base64::engine::general_purpose::STANDARD.encode(desk.key.sign(&line));
        line.extend_from_slice(format!(",\"sig\":\"{signature}\"}}\n").as_bytes());
        line
    };
    lines.push(record(&lines));
    let report = desk.check(&lines);
    assert!(report.is_ok() && report.torn_lines == 1 && report.records == 4, "{report:?}");
    let mut bad = lines.clone();
    bad[3].insert(0, b'x');
    assert_eq!(desk.fault(&bad), (4, Fault::Altered));
    bad.remove(3);
    assert_eq!(desk.fault(&bad), (4, Fault::Removed));
    // The log can be continued.
    std::fs::write(desk.path(), lines.concat()).unwrap();
    desk.log().append(&CustodyEvent::Verified(Box::default())).unwrap();
    let report = desk.check(&desk.lines());
    assert!(report.is_ok() && report.torn_lines == 1 && report.records == 5, "{report:?}");
}

#[test]
fn a_log_that_lacks_only_its_last_newline_is_continued_without_a_repair_record() {
    let desk = Desk::new();
    let bytes = desk.six().concat();
    std::fs::write(desk.path(), &bytes[..bytes.len() - 1]).unwrap();
    desk.log().append(&finished()).unwrap();
    let report = desk.check(&desk.lines());
    assert!(report.is_ok() && report.torn_lines == 0 && report.records == 7, "{report:?}");
}

#[test]
fn a_log_of_two_crashes_before_its_first_record_can_be_continued() {
    let desk = Desk::new();
    std::fs::write(desk.path(), "{\"seq\":1,\n{\"se").unwrap();
    let mut log = desk.log();
    log.append(&started()).unwrap();
    log.append(&finished()).unwrap();
    drop(log);
    let report = desk.check(&desk.lines());
    assert!(report.is_ok() && report.events["repaired"] == 1, "{report:?}");
}

#[test]
fn a_log_that_was_tampered_with_is_not_added_to() {
    let desk = Desk::new();
    let mut lines = desk.six();
    lines.remove(2);
    std::fs::write(desk.path(), lines.concat()).unwrap();
    let error = CustodyLog::open(&desk.path(), desk.key.clone(), &Custodian::default()).unwrap_err();
    assert!(error.is_evidence(), "{error}");
    assert_eq!(error.cause::<Problem>().map(|problem| (problem.line, problem.fault)), Some((3, Fault::Removed)));
    assert_eq!(std::fs::read(desk.path()).unwrap(), lines.concat());
}

#[test]
fn one_process_writes_at_a_time() {
    let desk = Desk::new();
    let log = desk.log();
    let error = CustodyLog::open(&desk.path(), desk.key.clone(), &Custodian::default()).unwrap_err();
    assert!(error.cause::<InUse>().is_some(), "{error}");
    drop(log);
    desk.log();
    assert!(CustodyLog::open_existing(&desk.dir.path().join("none"), desk.key.clone(), &Custodian::default()).is_err());
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_a_check_panic_or_pass(edits in proptest::collection::vec((0usize..4000, 0u8..), 1..6)) {
        let desk = Desk::new();
        let mut bytes = desk.six().concat();
        let whole = bytes.clone();
        for (at, byte) in edits {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        let report = check(&bytes[..], &[desk.key.public()]).unwrap();
        // An edit of the last line can only make it look unfinished: the records before it are as they were written.
        let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
        let unfinished = report.unfinished_line.is_some() && bytes[..last] == whole[..last];
        let same = bytes[..bytes.len() - 1] == whole[..whole.len() - 1];
        proptest::prop_assert!(same || unfinished || !report.is_ok());
    }
}
