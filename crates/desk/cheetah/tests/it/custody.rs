//! Custody logs, and verifying images with them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use cheetah_custody::{Custodian, CustodyEvent, CustodyLog, Finished, SigningKey, Started};
use cheetah_device::{ByteRange, Coverage, coverage};
use cheetah_image::Hashes;
use serde_json::{Value, json};

use crate::support::run::{Ran, cheetah_signing, program, run};
use crate::support::{Desk, MIB, Node, need, number, text, tool};

/// An examiner with a key, and an image with the log of its acquisition.
struct Examiner {
    desk: Desk,
    key: PathBuf,
    image: String,
    log: PathBuf,
}

impl Examiner {
    fn new() -> Self {
        let desk = Desk::new();
        let (image, _) = desk.image("x.raw", 3 * MIB);
        let (key, log) = (desk.at("key"), desk.at("x.raw.custody"));
        let examiner = Self { desk, key, image, log };
        examiner.acquired(&examiner.image);
        examiner
    }

    /// Writes the log that an acquisition of `image` would have left.
    fn acquired(&self, image: &str) {
        let sum = |tool_name| tool(tool_name, &[image]).ok().out().split_whitespace().next().map(str::to_owned);
        let hashes = Hashes { md5: sum("md5sum"), sha256: sum("sha256sum"), ..Hashes::default() };
        let size = fs::metadata(image).unwrap().len();
        let source = json!({ "kind": "block", "location": "/dev/sdx", "serial": "S3R1AL" });
        let started = Started::new(&source, &json!({ "case_number": "42" }), vec![image.to_owned()]).unwrap();
        let retry = |attempts| CustodyEvent::Retry { range: ByteRange::new(4096, 512).into(), attempts };
        let mut log =
            CustodyLog::open(&self.log, SigningKey::load_or_make(&self.key).unwrap(), &Custodian::default()).unwrap();
        log.append(&CustodyEvent::Started(Box::new(started))).unwrap();
        (1..4).for_each(|attempts| drop(log.append(&retry(attempts)).unwrap()));
        log.append(&CustodyEvent::Finished(Box::new(Finished { size, hashes, ..Finished::default() }))).unwrap();
    }

    fn verify(&self, args: &[&str]) -> Ran {
        cheetah_signing(&self.key, &[&["verify"], args].concat())
    }

    /// The output for people.
    fn verify_plain(&self, args: &[&str]) -> Ran {
        let mut command = program();
        command.env("CHEETAH_KEY", &self.key).arg("verify").args(args);
        run(command)
    }

    fn log_arg(&self) -> &str {
        self.log.to_str().unwrap()
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.log).unwrap().split_inclusive('\n').map(str::to_owned).collect()
    }

    fn tamper(&self, change: impl FnOnce(&mut Vec<String>)) {
        let mut lines = self.lines();
        change(&mut lines);
        fs::write(&self.log, lines.concat()).unwrap();
    }

    fn flip(&self, at: usize) {
        let mut bytes = fs::read(&self.image).unwrap();
        bytes[at] ^= 1;
        fs::write(&self.image, bytes).unwrap();
    }
}

#[test]
fn verifying_an_unchanged_image_succeeds_and_is_recorded() {
    let examiner = Examiner::new();
    let found = examiner.verify(&[&examiner.image]).ok().json();
    assert_eq!(found["compared"].as_array().unwrap().len(), 2);
    assert_eq!(found["custody"], Value::Null);
    assert_eq!(number(&found["log"], "records"), 5);
    assert_eq!(text(&found["log"]["source"], "serial"), "S3R1AL");
    assert_eq!(examiner.lines().len(), 6);
    assert!(examiner.lines()[5].contains("\"event\":\"verified\",\"details\":{\"ok\":true"));
    // The log stays in order; and --no-log adds nothing.
    let found = examiner.verify(&[examiner.log_arg()]).ok().json();
    assert_eq!(text(&found["custody"], "state"), "finished");
    examiner.verify(&[&examiner.image, "--no-log"]).ok();
    assert_eq!(examiner.lines().len(), 6);
}

#[test]
fn a_flipped_byte_in_an_image_is_detected() {
    let examiner = Examiner::new();
    examiner.flip(2_000_000);
    let ran = examiner.verify(&[&examiner.image]).says(3, &["x.raw", "md5 is not what the custody log says"]);
    let answer: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    assert!(answer["compared"].as_array().unwrap().iter().all(|one| one["same"] == false), "{answer}");
    assert!(examiner.lines()[5].contains("\"ok\":false"));
    // The image changed, and its log did not.
    examiner.verify(&[examiner.log_arg()]).ok();
}

#[test]
fn a_truncated_image_is_detected() {
    let examiner = Examiner::new();
    fs::File::options().write(true).open(&examiner.image).unwrap().set_len(2 * MIB).unwrap();
    examiner.verify(&[&examiner.image]).ended_with(3);
}

#[test]
fn the_first_line_tampered_with_is_named() {
    type Change = fn(&mut Vec<String>);
    let changes: [(Change, &[&str]); 7] = [
        (|lines| lines[2] = lines[2].replace("\"attempts\":2", "\"attempts\":9"), &["line 3", "altered"]),
        (|lines| lines[3] = "gone\n".into(), &["line 4", "altered"]),
        (|lines| drop(lines.remove(1)), &["line 2", "removed", "record 2 is missing"]),
        (|lines| drop(lines.remove(0)), &["line 1", "removed", "record 1 is missing"]),
        (|lines| lines.swap(1, 3), &["line 2", "out of order", "line 4"]),
        (|lines| lines.insert(2, lines[3].clone()), &["line 3", "inserted"]),
        (|lines| lines.truncate(3), &["line 3", "unfinished"]),
    ];
    for (change, words) in changes {
        let examiner = Examiner::new();
        examiner.tamper(change);
        examiner.verify(&[examiner.log_arg()]).says(3, words);
        // Beside its image, too; and nothing is added to such a log.
        let before = examiner.lines();
        let ran = examiner.verify(&[&examiner.image]).says(3, words);
        if words[1] != "unfinished" {
            assert_eq!(examiner.lines(), before, "{}", ran.out());
        }
    }
}

#[test]
fn a_truncated_final_record_leaves_the_log_unfinished() {
    let examiner = Examiner::new();
    let whole = fs::read(&examiner.log).unwrap();
    fs::write(&examiner.log, &whole[..whole.len() - 40]).unwrap();
    examiner.verify(&[examiner.log_arg()]).says(3, &["line 4", "unfinished"]);
}

#[test]
fn an_unfinished_last_line_is_repaired_and_is_not_tampering() {
    let examiner = Examiner::new();
    let begun = "{\"seq\":6,\"time\":\"2026-";
    examiner.tamper(|lines| lines.push(begun.into()));
    let found = examiner.verify(&[examiner.log_arg()]).ok().json();
    assert_eq!(found["custody"]["unfinished_line"], json!({ "line": 6, "bytes": begun.len() }));
    examiner.verify(&[&examiner.image]).ok();
    let lines = examiner.lines();
    assert!(lines[5].contains(&format!("\"event\":\"repaired\",\"details\":{{\"dropped_bytes\":{}", begun.len())));
    assert!(lines[6].contains("\"event\":\"verified\",\"details\":{\"ok\":true"), "{}", lines[6]);
    let found = examiner.verify(&[examiner.log_arg()]).ok().json();
    assert_eq!(found["custody"]["unfinished_line"], Value::Null);
    assert_eq!(number(&found["custody"]["events"], "repaired"), 1);
}

#[test]
fn a_full_disk_leaves_no_partial_line() {
    if !need::programs(&["sh", "prlimit"]) {
        return;
    }
    let examiner = Examiner::new();
    let before = examiner.lines();
    // A write past this limit ends in the middle, as one to a full disk does.
    let limit = fs::metadata(&examiner.log).unwrap().len() + 100;
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("trap '' XFSZ; exec prlimit --fsize={limit} \"$@\""), "sh"]);
    command.args([env!("CARGO_BIN_EXE_cheetah"), "verify", &examiner.image]).env("CHEETAH_KEY", &examiner.key);
    let ran = run(command).ok();
    assert!(ran.stderr.contains("is not recorded in the custody log"), "{}", ran.stderr);
    assert_eq!(examiner.lines(), before);
    examiner.verify(&[&examiner.image]).ok();
    assert!(examiner.lines()[5].contains("\"ok\":true"), "{}", examiner.lines()[5]);
}

/// The text with its line breaks as blanks, since sentences wrap at 80 columns.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn control_characters_in_a_log_do_not_reach_the_terminal() {
    let examiner = Examiner::new();
    let evil = "E\x1b[2J\u{9b}31m\x07\n  signed by nobody\u{202e}";
    let source = json!({ "kind": evil, "location": evil, "serial": evil });
    let started = Started::new(&source, &json!({ "examiner": evil, evil: "1" }), vec![evil.into()]).unwrap();
    let mut log =
        CustodyLog::open(&examiner.log, SigningKey::load_or_make(&examiner.key).unwrap(), &Custodian::default())
            .unwrap();
    log.append(&CustodyEvent::Started(Box::new(started))).unwrap();
    log.append(&CustodyEvent::Stopped { why: evil.into() }).unwrap();
    drop(log);
    for target in [examiner.log_arg(), &examiner.image] {
        let ran = examiner.verify_plain(&[target]);
        for said in [ran.out(), ran.stderr.clone()] {
            let bad: Vec<_> = said.chars().filter(|c| c.is_control() && *c != '\n' || *c == '\u{202e}').collect();
            assert!(bad.is_empty() && !said.contains("\n  signed by nobody"), "{bad:?} in {said}");
        }
        assert!(unwrapped(&ran.out()).contains("examiner E\\x1b[2J"), "{}", ran.out());
    }
}

#[test]
fn a_log_by_another_examiner_is_trusted_once_their_key_is_named() {
    let examiner = Examiner::new();
    let mine = examiner.desk.at("mine");
    let me = SigningKey::load_or_make(&mine).unwrap().public();
    let theirs = SigningKey::load(&examiner.key).unwrap().unwrap().public();
    let verify = |args: &[&str]| cheetah_signing(&mine, &[&["verify", &examiner.image], args].concat());
    let id = theirs.id().to_string();
    verify(&[]).says(3, &["signed by", &id, "not by a key you named"]);
    verify(&["--key", &me.to_string()]).says(3, &[&id]);
    let pem = examiner.desk.file("examiner.pem", theirs.to_pem().as_bytes());
    verify(&["--key", &pem]).ok();
    verify(&["--key", &theirs.to_string()]).ok();
    verify(&["--key", "nonsense"]).says(2, &["not a public key"]);
    // Nothing is added to another examiner's log.
    assert_eq!(examiner.lines().len(), 5);
}

#[test]
fn a_key_readable_by_others_is_refused() {
    let examiner = Examiner::new();
    fs::set_permissions(&examiner.key, fs::Permissions::from_mode(0o644)).unwrap();
    examiner.verify(&[&examiner.image]).says(1, &["may be read by others", "chmod 600"]);
}

#[test]
fn unread_and_unreadable_ranges_are_reported() {
    let examiner = Examiner::new();
    let mut map = Coverage::new(3 * MIB);
    map.set(ByteRange::new(0, 3 * MIB), coverage::State::Read);
    map.set(ByteRange::new(8192, 1024), coverage::State::Unreadable);
    let path = examiner.desk.file("x.raw.map", map.to_string().as_bytes());
    let ran = examiner.verify(&[&examiner.image]).says(3, &["1KiB", "could not be read when the image was made"]);
    let answer: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    assert_eq!(answer["unreadable"], json!([{ "offset": 8192, "len": 1024 }]));
    // The image did not change, and the log says so.
    assert_eq!((&answer["ok"], &answer["unchanged"]), (&false.into(), &true.into()));
    assert!(examiner.lines()[5].contains("\"event\":\"verified\",\"details\":{\"ok\":true"), "{}", examiner.lines()[5]);
    let said = examiner.verify_plain(&[&examiner.image]).out();
    assert!(unwrapped(&said).contains("matches its log; 1 range was unreadable when it was acquired"), "{said}");
    map.set(ByteRange::new(MIB, MIB), coverage::State::Unread);
    fs::write(&path, map.to_string()).unwrap();
    let ran = examiner.verify(&[&examiner.image]).ended_with(3);
    assert!(ran.out().contains("never read"), "{}", ran.out());
    fs::write(&path, "neither fish nor fowl\nnor a map\n").unwrap();
    examiner.verify(&[&examiner.image]).says(3, &["x.raw.map", "line 2 of the map"]);
}

#[test]
fn an_image_without_records_is_only_called_readable() {
    let desk = Desk::new();
    let (image, _) = desk.image("bare.raw", MIB);
    let found = cheetah_signing(&desk.at("key"), &["verify", &image]).ok().json();
    assert_eq!(found["compared"], json!([]));
    assert_eq!(text(&found["hashes"], "md5"), &tool("md5sum", &[&image]).ok().out()[..32]);
    // Verifying makes no key and no log.
    assert_eq!(fs::read_dir(desk.path()).unwrap().count(), 1);
}

#[test]
fn an_unfinished_acquisition_is_not_verified() {
    let desk = Desk::new();
    desk.image("x.raw.partial", MIB);
    cheetah_signing(&desk.at("key"), &["verify", &desk.arg("x.raw")])
        .says(3, &["not finished", "same acquire command"]);
}

#[test]
fn verifying_a_drive_checks_its_log() {
    let examiner = Examiner::new();
    let node = Node::start("16MiB");
    let drive = examiner.desk.arg("case.drive");
    cheetah_signing(&examiner.key, &["create", &drive, "--nodes", node.address(), "--from", &examiner.image]).ok();
    let log = examiner.desk.at("case.drive.custody");
    let lines = || fs::read_to_string(&log).unwrap().lines().count();
    let before = lines();
    let found = examiner.verify(&[&drive]).ok().json();
    assert_eq!((text(&found["custody"], "state"), &found["ok"]), ("finished", &true.into()));
    assert_eq!(lines(), before + 1);
    fs::write(&log, fs::read_to_string(&log).unwrap().replace("\"lazy\":\"false\"", "\"lazy\":\"true\"")).unwrap();
    examiner.verify(&[&drive]).says(3, &["custody log", "line 1", "altered"]);
}

#[test]
fn an_e01_is_compared_with_its_stored_hash() {
    let Some(packed) = need::evidence("nps-2010-emails.E01") else { return };
    let desk = Desk::new();
    let image = desk.file("emails.E01", &fs::read(packed).unwrap());
    let verify = || cheetah_signing(&desk.at("key"), &["verify", &image]);
    let found = verify().ok().json();
    assert_eq!(text(&found["compared"][0], "recorded"), "2f5ec5894f7fe3cea93bd29e7cf1eb50");
    let mut bytes = fs::read(&image).unwrap();
    bytes[200_000] ^= 0x10;
    fs::write(&image, bytes).unwrap();
    let ran = verify().says(3, &["emails.E01"]);
    let answer: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    assert!(!answer["damaged"].as_array().unwrap().is_empty(), "{answer}");
}

/// As in `docs/guide/custody.md`: with only coreutils and OpenSSL.
#[test]
fn openssl_agrees_with_the_signatures_and_sha256sum_with_the_chain() {
    if !need::programs(&["openssl", "sha256sum"]) {
        return;
    }
    let examiner = Examiner::new();
    let desk = &examiner.desk;
    let lines = examiner.lines();
    let first: Value = serde_json::from_str(&lines[0]).unwrap();
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", text(&first, "public_key"));
    let public = desk.file("examiner.pem", pem.as_bytes());
    let ours = tool("openssl", &["pkey", "-in", examiner.key.to_str().unwrap(), "-pubout"]).ok().out();
    assert_eq!(ours, pem);
    let mut before = desk.file("before", b"cheetah custody log v1\n");
    for (number, line) in lines.iter().enumerate() {
        let record: Value = serde_json::from_str(line).unwrap();
        assert_eq!(text(&record, "prev"), &tool("sha256sum", &[&before]).ok().out()[..64]);
        before = desk.file(&format!("line{number}"), line.as_bytes());
        let signed = desk.file("signed", &line.as_bytes()[..line.len() - 99]);
        let signature = desk.file("signature.b64", text(&record, "sig").as_bytes());
        let signature = desk.file("signature", &tool("base64", &["-d", &signature]).ok().stdout);
        let argv =
            ["pkeyutl", "-verify", "-pubin", "-inkey", &public, "-rawin", "-in", &signed, "-sigfile", &signature];
        tool("openssl", &argv).ok();
    }
}
