//! Evidence that was altered together with the records beside it: only the signed log is believed, and its head is known
//! elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use cheetah_drive::{DriveFile, Hashes};
use serde_json::Value;

use crate::support::run::{Ran, cheetah, program, run};
use crate::support::{Desk, MIB, Node, noise, number, text};

/// `cheetah --json ARGS…` of the same examiner on another machine, whose ledger knows nothing.
fn elsewhere(desk: &Desk, args: &[&str]) -> Ran {
    let mut command = program();
    command.env("XDG_STATE_HOME", desk.at("elsewhere")).arg("--json").args(args);
    run(command)
}

/// What the command answered before it failed.
fn answer(ran: &Ran) -> Value {
    serde_json::from_str(ran.out().lines().next().unwrap()).unwrap()
}

/// A drive with an image, and the files beside it as they were; then another image was loaded into it, and only the
/// signed log was put back: content, digests and drive file are altered alike.
struct Forged {
    desk: Desk,
    _node: Node,
    drive: String,
    log: PathBuf,
    signed: Vec<u8>,
}

impl Forged {
    fn new() -> Self {
        let desk = Desk::new();
        let node = Node::start("16MiB");
        let (image, _) = desk.image("a.raw", 2 * MIB);
        let drive = desk.drive("a", &[&node], &image, &[]);
        let log = desk.at("a.drive.custody");
        let signed = fs::read(&log).unwrap();
        let other = desk.file("b.raw", &noise(2 * MIB, 99));
        elsewhere(&desk, &["load", &drive, &other, "--force"]).ok();
        let forged = Self { desk, _node: node, drive, log, signed };
        forged.put_log_back();
        forged
    }

    fn put_log_back(&self) {
        fs::write(&self.log, &self.signed).unwrap();
    }

    fn change(&self, change: impl FnOnce(&mut DriveFile)) {
        self.put_log_back();
        DriveFile::load(Path::new(&self.drive)).unwrap().update(change).unwrap();
    }

    /// The drive neither verifies nor is saved, and nothing is signed to say that it is as it was. The ledger of this
    /// machine is not needed for that.
    #[track_caller]
    fn is_refused(&self, words: &[&str]) {
        self.put_log_back();
        let ran = elsewhere(&self.desk, &["verify", &self.drive]).says(3, &[]);
        let answer = answer(&ran);
        let said = answer["problems"].to_string();
        assert!(answer["ok"] == false && words.iter().all(|word| said.contains(word)), "{words:?} not in {said}");
        let log = String::from_utf8(fs::read(&self.log).unwrap()).unwrap();
        assert!(!log.contains("\"ok\":true"), "{log}");
        self.put_log_back();
        let copy = self.desk.arg("copy.raw");
        elsewhere(&self.desk, &["save", &self.drive, &copy]).says(3, &["nothing was saved", "--partial"]);
        assert!(!self.desk.at("copy.raw").exists());
        elsewhere(&self.desk, &["save", &self.drive, &copy, "--partial", "--force"]).ended_with(3);
        fs::remove_file(copy).unwrap();
    }
}

#[test]
fn a_drive_altered_with_all_its_unsigned_records_is_refused() {
    let forged = Forged::new();
    forged.is_refused(&["another md5 in its drive file", "other digests"]);
    let right = |file: &mut DriveFile, hashes: Hashes| file.image.as_mut().unwrap().hashes = hashes;
    forged.change(|file| right(file, Hashes::default()));
    forged.is_refused(&["no md5 in its drive file", "md5 that differs from its custody log"]);
    // The hashes of the log, over the content of the other image.
    let log = String::from_utf8(forged.signed.clone()).unwrap();
    let finished = log.lines().find(|line| line.contains("\"event\":\"finished\"")).unwrap();
    let finished: Value = serde_json::from_str(finished).unwrap();
    let hashes: Hashes = serde_json::from_value(finished["details"]["hashes"].clone()).unwrap();
    forged.change(|file| right(file, hashes));
    forged.is_refused(&["other digests", "md5 that differs from its custody log"]);
    forged.change(|file| file.image = None);
    forged.is_refused(&["no image according to its drive file"]);
}

#[test]
fn a_drive_without_its_log_or_with_a_log_of_another_drive_is_refused() {
    let forged = Forged::new();
    fs::remove_file(&forged.log).unwrap();
    for command in [&["verify"][..], &["save", "--hash", "none"]] {
        let mut args = command.to_vec();
        args.insert(1, &forged.drive);
        let copy = forged.desk.arg("copy.raw");
        args.extend((command[0] == "save").then_some(copy.as_str()));
        elsewhere(&forged.desk, &args).says(3, &["no custody log"]);
    }
    // The ledger knows that there was one, whatever the drive file says.
    DriveFile::load(Path::new(&forged.drive)).unwrap().update(|file| file.image = None).unwrap();
    cheetah(&["verify", &forged.drive]).says(3, &["your ledger knows a custody log", "is missing"]);

    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, _) = desk.image("a.raw", MIB);
    let [one, other] = ["one", "other"].map(|name| desk.drive(name, &[&node], &image, &[]));
    fs::copy(format!("{other}.custody"), format!("{one}.custody")).unwrap();
    elsewhere(&desk, &["verify", &one]).says(3, &["not the drive that its custody log is of"]);
    cheetah(&["verify", &one]).says(3, &["another, newer custody log at this path"]);
}

#[test]
fn a_drive_that_was_opened_for_nothing_but_reading_verifies_without_hashes_by_its_signed_digests() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, _) = desk.image("a.raw", MIB);
    let drive = desk.drive("a", &[&node], &image, &["--hash", "none"]);
    let verified = cheetah(&["verify", &drive, "--hash", "none"]).ok().json();
    assert_eq!(verified["ok"], true);
    let log = fs::read_to_string(format!("{drive}.custody")).unwrap();
    assert!(log.lines().last().unwrap().contains("\"ok\":true"), "{log}");
    // Nothing is compared on an empty drive, and nothing signed.
    let empty = desk.arg("empty.drive");
    cheetah(&["create", &empty, "--nodes", node.address(), "--size", "1MiB"]).ok();
    cheetah(&["verify", &empty]).ok();
    assert!(!desk.at("empty.drive.custody").exists());
}

/// An image that was acquired.
struct Acquired {
    desk: Desk,
    image: String,
    log: PathBuf,
}

impl Acquired {
    fn new(name: &str, more: &[&str]) -> Self {
        let desk = Desk::new();
        let (source, _) = desk.image("disk.img", 2 * MIB);
        let (image, log) = (desk.arg(name), desk.at(&format!("{name}.custody")));
        cheetah(&[&["acquire", &source, &image][..], more].concat()).ok();
        Self { desk, image, log }
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.log).unwrap().split_inclusive('\n').map(str::to_owned).collect()
    }
}

#[test]
fn an_image_whose_report_or_stored_hash_is_gone_or_differs_is_a_finding() {
    let raw = Acquired::new("x.raw", &[]);
    let report = raw.desk.at("x.raw.report.txt");
    let text = fs::read_to_string(&report).unwrap();
    // The ledger elsewhere stays empty.
    elsewhere(&raw.desk, &["verify", &raw.image, "--no-log"]).ok();
    let digest = text.lines().find_map(|line| line.strip_prefix("sha256 ")).unwrap().trim();
    fs::write(&report, text.replace(digest, &"0".repeat(64))).unwrap();
    elsewhere(&raw.desk, &["verify", &raw.image, "--no-log"]).says(3, &["another sha256 in its report"]);
    fs::remove_file(&report).unwrap();
    elsewhere(&raw.desk, &["verify", &raw.image, "--no-log"]).says(3, &["lost its report", "x.raw.report.txt"]);
    fs::write(&report, text).unwrap();
    fs::remove_file(&raw.log).unwrap();
    elsewhere(&raw.desk, &["verify", &raw.image, "--no-log"]).says(3, &["names a custody log, which is missing"]);
    fs::remove_file(&report).unwrap();
    cheetah(&["verify", &raw.image]).says(3, &["your ledger knows a custody log", "is missing"]);

    let with = Acquired::new("x.E01", &[]);
    let without = Acquired::new("x.E01", &["--hash", "none"]);
    fs::copy(&without.image, &with.image).unwrap();
    elsewhere(&with.desk, &["verify", &with.image]).says(3, &["no md5 in its last section"]);
}

#[test]
fn segments_exchanged_for_those_of_another_image_are_refused() {
    let options = ["--segment-size", "1MiB", "--level", "none"];
    let acquired = Acquired::new("x.E01", &options);
    let (source, other) = (acquired.desk.file("other.img", &noise(2 * MIB, 7)), acquired.desk.arg("y.E01"));
    elsewhere(&acquired.desk, &[&["acquire", &source, &other][..], &options].concat()).ok();
    let of = |name: &str, segment: &str| acquired.desk.at(&format!("{name}.{segment}"));
    let exchange = |segment: &str| fs::copy(of("y", segment), of("x", segment)).unwrap();
    assert!(of("x", "E02").exists() && !of("x", "E03").exists());
    exchange("E02");
    elsewhere(&acquired.desk, &["verify", &acquired.image]).says(2, &["of another image"]);
    // All of them agree with each other.
    exchange("E01");
    elsewhere(&acquired.desk, &["verify", &acquired.image]).says(3, &["custody log"]);
    assert!(!acquired.lines().concat().contains("\"ok\":true"));
}

#[test]
fn an_image_without_hashes_is_compared_with_the_digests_in_its_log() {
    let acquired = Acquired::new("x.raw", &["--hash", "none"]);
    cheetah(&["verify", &acquired.image]).ok();
    let lines = acquired.lines();
    assert!(lines.last().unwrap().contains("\"ok\":true"), "{lines:?}");
    let mut bytes = fs::read(&acquired.image).unwrap();
    bytes[MIB as usize] ^= 1;
    fs::write(&acquired.image, bytes).unwrap();
    cheetah(&["verify", &acquired.image]).says(3, &["digests of the image's chunks"]);
}

#[test]
fn a_log_cut_back_to_an_earlier_end_is_found_by_the_ledger_and_by_a_noted_head() {
    let acquired = Acquired::new("x.raw", &[]);
    let (first, log) = (fs::read(&acquired.image).unwrap(), acquired.lines());
    let report = fs::read(acquired.desk.at("x.raw.report.txt")).unwrap();
    let other = acquired.desk.file("other.img", &noise(2 * MIB, 7));
    cheetah(&["acquire", &other, &acquired.image, "--force"]).ok();
    let noted = cheetah(&["custody", &acquired.image]).ok().json();
    let noted = text(&noted, "head").to_owned();
    elsewhere(&acquired.desk, &["verify", &acquired.image, "--head", &noted, "--no-log"]).ok();
    // Image, report and log, as they were after the first acquisition: each agrees with the others.
    fs::write(&acquired.image, first).unwrap();
    fs::write(acquired.desk.at("x.raw.report.txt"), report).unwrap();
    fs::write(&acquired.log, log.concat()).unwrap();
    for target in [&acquired.image, acquired.log.to_str().unwrap()] {
        let answer = answer(&cheetah(&["verify", target]).says(3, &["your ledger", "its end was cut off"]));
        let report = if answer["log"].is_object() { &answer["log"] } else { &answer["custody"] };
        assert!(number(&report["heads"][0], "records") > log.len() as u64, "{answer}");
        elsewhere(&acquired.desk, &["verify", target, "--head", &noted]).says(3, &["--head", "cut off"]);
    }
    cheetah(&["custody", &acquired.image]).says(3, &["your ledger"]);
    assert_eq!(acquired.lines(), log, "nothing is added to a log that was cut");
    cheetah(&["acquire", &other, &acquired.image, "--force"]).says(3, &["your ledger", "another name"]);
}

#[test]
fn an_image_that_is_whole_while_its_log_ends_before_it_was_finished_is_a_finding() {
    let acquired = Acquired::new("x.raw", &[]);
    let stopped = acquired.desk.arg("stopped.raw");
    // A log of ours that ends in order, without an image.
    cheetah(&["acquire", "/nonexistent/disk.img", &stopped]).ended_with(1);
    let lines = acquired.lines();
    let begun = lines.iter().position(|line| line.contains("\"event\":\"started\"")).unwrap();
    fs::write(&acquired.log, lines[..=begun].concat()).unwrap();
    elsewhere(&acquired.desk, &["verify", &acquired.image]).says(3, &["its end was cut off"]);
    // Without the report's word for it.
    fs::remove_file(acquired.desk.at("x.raw.report.txt")).unwrap();
    elsewhere(&acquired.desk, &["verify", &acquired.image]).says(3, &["unfinished"]);
}

#[test]
fn copies_and_moved_folders_verify_each_by_itself() {
    let acquired = Acquired::new("x.raw", &[]);
    let archive = acquired.desk.dir("archive");
    for name in ["x.raw", "x.raw.custody", "x.raw.report.txt"] {
        fs::copy(acquired.desk.at(name), Path::new(&archive).join(name)).unwrap();
    }
    let copy = format!("{archive}/x.raw");
    // Each adds a record to its own log.
    for image in [&copy, &acquired.image, &copy, &acquired.image] {
        cheetah(&["verify", image]).ok();
    }
    fs::rename(&archive, acquired.desk.at("moved")).unwrap();
    let moved = acquired.desk.arg("moved/x.raw");
    let found = cheetah(&["verify", &moved]).ok().json();
    assert_eq!(text(&found["log"]["heads"][0], "from"), "your ledger");
    // The end of the acquisition is known of the log wherever it is.
    let log = acquired.desk.at("moved/x.raw.custody");
    let lines: Vec<_> = fs::read_to_string(&log).unwrap().split_inclusive('\n').map(str::to_owned).collect();
    fs::rename(acquired.desk.at("moved"), acquired.desk.at("again")).unwrap();
    let log = acquired.desk.at("again/x.raw.custody");
    fs::write(&log, lines[..2].concat()).unwrap();
    cheetah(&["verify", log.to_str().unwrap()]).says(3, &["your ledger", "cut off"]);
}

#[test]
fn a_ledger_that_cannot_be_written_is_a_warning() {
    let desk = Desk::new();
    let (source, _) = desk.image("disk.img", MIB);
    let mut command = program();
    command.env("XDG_STATE_HOME", desk.file("state", b"no folder")).args(["acquire", &source, &desk.arg("x.raw")]);
    let ran = run(command).ok();
    assert!(ran.stderr.contains("not in your ledger"), "{}", ran.stderr);
}

#[test]
fn case_data_or_a_head_in_header_and_report_that_differ_from_the_log_are_a_finding() {
    let acquired = |number: &str| {
        let case = ["--case-number", number, "--evidence-number", "7", "--examiner", "A. Tester"];
        Acquired::new("x.E01", &[&case[..], &["--notes", "found; under\tthe bed"]].concat())
    };
    let (mine, other) = (acquired("2026/42"), acquired("2026/43"));
    let problems = || {
        let ran = elsewhere(&mine.desk, &["verify", &mine.image, "--no-log"]).ended_with(3);
        answer(&ran)["problems"].to_string()
    };
    let whole = elsewhere(&mine.desk, &["verify", &mine.image, "--no-log"]).ok().json();
    let known: Vec<_> = whole["log"]["heads"].as_array().unwrap().iter().map(|head| text(head, "from")).collect();
    assert_eq!(known, ["the header of the image", "the report"], "{whole}");
    let report = mine.desk.at("x.E01.report.txt");
    let written = fs::read_to_string(&report).unwrap();
    fs::write(&report, written.replace("2026/42", "2026/43")).unwrap();
    assert!(problems().contains("another case number in its report"), "{}", problems());
    fs::write(&report, written.replace("its head  ", "its tail  ")).unwrap();
    assert!(problems().contains("no head of its custody log in its report"), "{}", problems());
    fs::write(&report, &written).unwrap();
    let image = fs::read(&mine.image).unwrap();
    fs::copy(&other.image, &mine.image).unwrap();
    let found = problems();
    assert!(found.contains("another case number in its header"), "{found}");
    assert!(found.contains("the header of the image knows another record"), "{found}");
    fs::write(&mine.image, image).unwrap();
    // A log that was cut off after the report was written.
    let lines = mine.lines();
    let finished = lines.iter().position(|line| line.contains("\"event\":\"hashes\"")).unwrap();
    fs::write(&mine.log, lines[..=finished].concat()).unwrap();
    assert!(problems().contains("its end was cut off"), "{}", problems());
}

#[test]
fn lost_ranges_are_not_fetched_again_by_digests_that_the_log_did_not_sign() {
    let desk = Desk::new();
    let nodes = [Node::start("16MiB"), Node::start("16MiB")];
    let spare = Node::start("16MiB");
    let (image, _) = desk.image("a.raw", 2 * MIB);
    let drive = desk.arg("a.drive");
    let listed = format!("{},{}", nodes[0].address(), nodes[1].address());
    let create = ["create", &drive, "--nodes", &listed, "--layout", "mirror", "--from", &image];
    cheetah(&create).ok();
    let log = fs::read(desk.at("a.drive.custody")).unwrap();
    let other = desk.file("a.raw", &noise(2 * MIB, 99));
    elsewhere(&desk, &["load", &drive, &other, "--force"]).ok();
    fs::write(desk.at("a.drive.custody"), log).unwrap();
    let [one, two] = nodes;
    one.kill();
    two.kill();
    let repair = ["repair", &drive, "--nodes", spare.address(), "--from-source", "--force-lease"];
    cheetah(&repair).says(3, &["drive file than in its custody log", "nothing was fetched"]);
}
