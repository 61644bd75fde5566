//! Acquisition from stock servers and real images, over links that break, by processes that are killed.

mod broken;
mod reopened;
mod side_files;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use cheetah_device::coverage::State;
use cheetah_device::{ByteRange, Coverage};
use serde_json::Value;

use crate::support::run::{Ran, cheetah_signing, program};
use crate::support::service::PATIENCE;
use crate::support::{Desk, MIB, Node, Peer, Port, Service, cheetah, need, noise, number, text, tool};

/// An examiner's directory and signing key.
struct Examiner {
    desk: Desk,
    key: PathBuf,
}

impl Examiner {
    fn new() -> Self {
        let desk = Desk::new();
        let key = desk.at("key");
        Self { desk, key }
    }

    /// `cheetah ARGS…`
    fn run(&self, args: &[&str]) -> Ran {
        cheetah_signing(&self.key, args)
    }

    /// `cheetah acquire ARGS…`
    fn acquire(&self, args: &[&str]) -> Ran {
        self.run(&[&["acquire"], args].concat())
    }

    /// Starts the same in the background.
    fn start(&self, args: &[&str]) -> Child {
        let mut command = program();
        command.env("CHEETAH_KEY", &self.key).args(["--json", "acquire"]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Waits until the acquisition can be resumed.
    fn wait_for(&self, journal: &str) {
        let started = Instant::now();
        while !self.desk.at(journal).exists() {
            assert!(started.elapsed() < PATIENCE, "the acquisition did not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.desk.at(name)).unwrap()
    }

    fn unreadable(&self, map: &str) -> Vec<ByteRange> {
        let coverage: Coverage = String::from_utf8(self.read(map)).unwrap().parse().unwrap();
        assert_eq!(coverage.bytes(State::Unread), 0);
        coverage.in_state(State::Unreadable).collect()
    }
}

/// Returns the report in the output.
#[track_caller]
fn report(ran: &Ran) -> Value {
    let done =
        ran.out().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|v| v["event"] == "done");
    done.unwrap_or_else(|| panic!("not done: {}{}", ran.out(), ran.stderr))["report"].clone()
}

fn md5(path: &str) -> String {
    tool("md5sum", &[path]).ok().out()[..32].to_owned()
}

/// Serves `file` with two unreadable ranges: sector 4000, and sectors 5000 to 5002.
fn scratched(desk: &Desk, file: &str) -> Peer {
    let script = format!(
        "end=$(($4 + $3)); for bad in 2048000:2048512 2560000:2561536; do \
           if [ $4 -lt ${{bad#*:}} ] && [ $end -gt ${{bad%:*}} ]; then echo 'EIO scratched' >&2; exit 1; fi; \
         done; dd if={file} iflag=skip_bytes,count_bytes skip=$4 count=$3 bs=1M status=none"
    );
    let (size, read) = (format!("get_size=echo {}", fs::metadata(file).unwrap().len()), format!("pread={script}"));
    Peer::nbdkit_unix(desk, &["eval", &size, &read])
}

#[test]
fn bad_sectors_are_recorded_everywhere_and_read_as_errors() {
    if !need::programs(&["nbdkit", "ewfinfo", "ewfverify", "ewfexport"]) {
        return;
    }
    let examiner = Examiner::new();
    let (disk, mut content) = examiner.desk.image("disk.img", 4 * MIB);
    let peer = scratched(&examiner.desk, &disk);
    let node = Node::start("16MiB");
    let drive = examiner.desk.arg("x.drive");
    cheetah(&["create", &drive, "--nodes", node.address(), "--size", "6MiB"]).ok();
    let (raw, e01) = (examiner.desk.arg("x.raw"), examiner.desk.arg("x.E01"));
    let to = [peer.uri.as_str(), &raw, &e01, &drive];

    examiner.acquire(&to).says(3, &["2048000+512", "--max-errors"]);
    let ran = examiner.acquire(&[&to[..], &["--max-errors", "2", "--verify"]].concat());
    let report = report(&ran.says(3, &["2048 bytes in 2 ranges"]));
    assert_eq!((number(&report, "interruptions"), number(&report, "unreadable_bytes")), (1, 2048));

    let bad = [ByteRange::new(2_048_000, 512), ByteRange::new(2_560_000, 1536)];
    bad.iter().for_each(|range| content[range.offset as usize..range.end() as usize].fill(0));
    assert!(examiner.read("x.raw") == content);
    for map in ["x.raw.map", "x.E01.map", "x.drive.map"] {
        assert_eq!(examiner.unreadable(map), bad, "{map}");
    }
    let info = tool("ewfinfo", &[&e01]).ok().out();
    for listed in ["4000 - 4000 number: 1", "5000 - 5002 number: 3"] {
        let words: String = info.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(listed), "no '{listed}' in: {info}");
    }
    assert!(tool("ewfverify", &[&e01]).ok().out().contains("SUCCESS"));
    assert_eq!(text(&report["hashes"], "md5"), md5(&raw));
    let text_report = String::from_utf8(examiner.read("x.E01.report.txt")).unwrap();
    assert!(text_report.contains("512 bytes at 2048000"), "{text_report}");
    // The drive fails reads of them, too.
    let verified = cheetah_signing(&examiner.key, &["verify", &drive]).ended_with(3);
    let found: Value = serde_json::from_str(verified.out().lines().next().unwrap()).unwrap();
    assert_eq!(found["mismatched"], serde_json::json!([]));
    let unreadable = found["unreadable"].as_array().unwrap();
    let covers = |bad: &ByteRange| {
        let found = |range: &Value| ByteRange::new(number(range, "offset"), number(range, "len"));
        unreadable.iter().any(|range| found(range).contains(*bad))
    };
    assert!(bad.iter().all(covers), "{found}");
}

#[test]
fn a_disk_with_transient_errors_is_read_completely() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let examiner = Examiner::new();
    let (disk, content) = examiner.desk.image("disk.img", 12 * MIB);
    let plugin = ["--filter=error", "file", &disk, "error-pread=EIO", "error-pread-rate=50%"];
    let peer = Peer::nbdkit_unix(&examiner.desk, &plugin);
    let ran = examiner.acquire(&[&peer.uri, &examiner.desk.arg("x.raw"), "--retries", "30"]).ok();
    assert!(examiner.read("x.raw") == content);
    assert!(number(&report(&ran), "retries") > 0);
}

#[test]
fn an_acquisition_killed_at_random_resumes_to_an_identical_image() {
    if !need::programs(&["ewfverify"]) {
        return;
    }
    let examiner = Examiner::new();
    let (disk, content) = examiner.desk.image("disk.img", 24 * MIB);
    // Slow enough to be killed before the end. Served by our agent, because nbdkit 1.32 sometimes fails an assertion when a
    // client with many requests in flight disconnects.
    let port = Port::held();
    let serve = |more: &[&str]| Service::start(&[&["serve", &disk, "--listen", &port.text()], more].concat());
    let slow = serve(&["--rate-max", "1MiB"]);
    let source = text(&slow.ready, "uri").to_owned();
    let node = Node::start("48MiB");
    let drive = examiner.desk.arg("x.drive");
    cheetah(&["create", &drive, "--nodes", node.address(), "--size", "24MiB"]).ok();
    let e01 = examiner.desk.arg("x.E01");
    // The lease of the killed process has not expired yet.
    let args = [source.as_str(), &examiner.desk.arg("x.raw"), &e01, &drive, "--checkpoint", "1MiB", "--force-lease"];
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    eprintln!("seed {seed}");
    for kill in 0..3u64 {
        let mut child = examiner.start(&args);
        examiner.wait_for("x.raw.acquire");
        std::thread::sleep(Duration::from_millis(((u64::from(seed) * (kill + 3)) >> 7) % 400));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    slow.kill();
    let _agent = serve(&[]);
    // On a busy machine all three may have ended before anything was signed or acquired: then it begins again.
    let has_more_than_its_beginning = examiner.read("x.raw.acquire").split(|byte| *byte == b'\n').count() > 2;
    let ran = examiner.acquire(&[&args[..], &["--verify"]].concat()).ok();
    let report = report(&ran);
    assert!(number(&report, "interruptions") >= u64::from(has_more_than_its_beginning), "{report}");
    assert!(examiner.read("x.raw") == content);
    assert_eq!(text(&report["hashes"], "md5"), md5(&disk));
    assert!(tool("ewfverify", &[&e01]).ok().out().contains("SUCCESS"));
    let verified = cheetah_signing(&examiner.key, &["verify", &drive]).ok().json();
    assert_eq!(text(&verified["hashes"], "md5"), md5(&disk));
    let left: Vec<_> = fs::read_dir(examiner.desk.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let left = left
        .iter()
        .filter_map(|name| name.to_str())
        .filter(|name| name.contains(".partial") || name.contains(".acquire"));
    assert_eq!(left.count(), 0);
    // The log fits the image.
    let audit = cheetah_signing(&examiner.key, &["verify", &e01]).ok();
    assert!(audit.out().contains("finished"), "{}", audit.out());
}

#[test]
fn an_acquisition_continues_when_a_lost_server_returns() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let examiner = Examiner::new();
    let (disk, content) = examiner.desk.image("disk.img", 24 * MIB);
    let slow = ["--filter=rate", "file", &disk, "rate=16M"];
    let peer = Peer::nbdkit_unix(&examiner.desk, &slow);
    let args = [peer.uri.clone(), examiner.desk.arg("x.raw")];
    let args = [args[0].as_str(), &args[1], "--timeout", "4", "--retry-for", "60", "--checkpoint", "1MiB"];
    let mut child = examiner.start(&args);
    examiner.wait_for("x.raw.acquire");
    std::thread::sleep(Duration::from_millis(400));
    drop(peer);
    fs::remove_file(examiner.desk.at("nbdkit.sock")).unwrap();
    // Longer than the time-out of a connection.
    std::thread::sleep(Duration::from_secs(5));
    let _peer = Peer::nbdkit_unix(&examiner.desk, &["file", &disk]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(examiner.read("x.raw") == content);
}

#[test]
fn an_agent_that_connects_is_acquired_with_packing() {
    let examiner = Examiner::new();
    let words = b"Call me Ishmael. Some years ago, never mind how long precisely, having little or no money. ";
    let mut content: Vec<u8> = words.iter().copied().cycle().take(6 * MIB as usize).collect();
    content.extend(noise(2 * MIB, 5));
    let disk = examiner.desk.file("disk.img", &content);
    let raw = examiner.desk.arg("x.raw");
    let args = ["--listen", "127.0.0.1:0", &raw, "--compress", "zstd"];
    let mut command = program();
    command.env("CHEETAH_KEY", &examiner.key).args(["--json", "acquire"]).args(args);
    let mut waiting = Service::spawn(command, "waiting").unwrap();
    let _agent = Service::start(&["serve", &disk, "--connect", text(&waiting.ready, "listen")]);
    let (code, done) = waiting.wait();
    assert_eq!(code, Some(0), "{done}");
    assert!(examiner.read("x.raw") == content);
    let wire = &done["report"]["wire"];
    assert!(number(wire, "received_bytes") < number(wire, "content_bytes") / 2, "{wire}");
    assert!(text(&done["report"]["source"], "location").contains("disk.img"), "{done}");
}

#[test]
fn real_images_keep_their_hashes() {
    let known = [
        ("nps-2010-emails.E01", "2f5ec5894f7fe3cea93bd29e7cf1eb50"),
        ("ntfs_sample.E01", "e4e9578a9c8bf6c6b375a80c630196a4"),
    ];
    for (name, md5) in known {
        let Some(source) = need::evidence(name) else { continue };
        let examiner = Examiner::new();
        let (raw, e01) = (examiner.desk.arg("x.raw"), examiner.desk.arg("x.E01"));
        let args = [source.to_str().unwrap(), &raw, &e01, "--verify", "--level", "best", "--segment-size", "2MiB"];
        let report = report(&examiner.acquire(&args).ok());
        assert_eq!(text(&report["hashes"], "md5"), md5);
        assert_eq!(report["hashes_differing"], serde_json::json!([]));
        if need::programs(&["ewfverify"]) {
            let verified = tool("ewfverify", &["-d", "sha1", &e01]).ok().out();
            assert!(verified.contains("SUCCESS") && verified.contains(md5), "{verified}");
        }
    }
}

#[test]
fn unreadable_ranges_of_a_source_image_stay_unreadable() {
    let Some(source) = need::evidence("Base-Linear-ReadError.aff4") else { return };
    let examiner = Examiner::new();
    let (source, raw) = (source.to_str().unwrap(), examiner.desk.arg("x.raw"));
    examiner.acquire(&[source, &raw, "--hash", "none"]).says(3, &["--max-errors"]);
    let ran = examiner.acquire(&[source, &raw, "--hash", "none", "--max-errors", "unlimited"]).ended_with(3);
    let report = report(&ran);
    let listed: Vec<(u64, u64)> = serde_json::from_value(report["source"]["unreadable"].clone()).unwrap();
    let listed: Vec<_> = listed.into_iter().map(|(offset, len)| ByteRange::new(offset, len)).collect();
    assert!(!listed.is_empty());
    assert_eq!(examiner.unreadable("x.raw.map"), listed);
}

#[test]
fn invalid_command_lines_are_refused() {
    let examiner = Examiner::new();
    let (disk, _) = examiner.desk.image("disk.img", MIB);
    let raw = examiner.desk.arg("x.raw");
    let refused = |args: &[&str], words: &[&str]| drop(examiner.acquire(args).says(2, words));
    refused(&[&disk, &examiner.desk.arg("x.zip")], &[".E01"]);
    refused(&[&disk], &["name a destination"]);
    refused(&[&disk, &raw, &raw], &["twice"]);
    refused(&[&examiner.desk.arg("foo.E01"), &disk], &["exchanged", "cheetah acquire", "disk.img"]);
    refused(&["--listen", "0.0.0.0:0", &raw], &["--insecure"]);
    refused(&[&disk, &disk, "--force"], &["the source itself"]);
    examiner.desk.file("x.raw", b"something");
    refused(&[&disk, &raw], &["--force"]);
    assert_eq!(examiner.read("x.raw"), b"something");
    assert!(!examiner.desk.at("x.raw.acquire").exists());
    examiner.acquire(&["nbd://127.0.0.1:9/x", &examiner.desk.arg("y.raw")]).says(1, &["refused"]);
}
