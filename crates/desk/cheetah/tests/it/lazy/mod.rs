//! Lazy drives: every byte is read once, and the result equals that of a load. The sources are nbdkits that log all
//! requests.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::service::PATIENCE;
use crate::support::{
    Desk, KIB, MIB, Mounted, Node, Peer, Service, cheetah, mapped, need, noise, number, text, three, tool,
};

mod reopened;

/// The time-out of drives whose source or node stops answering, in seconds.
const TIMEOUT: [&str; 2] = ["--timeout", "6"];
/// The time-out of drives whose source is slow.
const PATIENTLY: [&str; 2] = ["--timeout", "60"];

/// Waits until the map of a fill records something that was read.
fn wait_for_a_record(map: &Path) {
    let started = Instant::now();
    while mapped(map, "+").is_empty() {
        assert!(started.elapsed() < PATIENCE, "nothing is ever recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts nbdkit on a file, always at the same address, with a log of requests.
fn serve(desk: &Desk, image: &str, log: &str, filters: &[&str], settings: &[&str]) -> Peer {
    let _ = std::fs::remove_file(desk.at("nbdkit.sock"));
    let log = format!("logfile={}", desk.arg(log));
    let mut args = vec!["-r", "--filter=log"];
    args.extend(filters);
    args.extend(["file", image, &log]);
    args.extend(settings);
    Peer::nbdkit_unix(desk, &args)
}

/// A source whose rate is limited to 4 Mbit/s, until `hurry`.
struct Slow {
    peer: Peer,
    rate: PathBuf,
}

impl Slow {
    fn serve(desk: &Desk, image: &str, log: &str) -> Self {
        let rate = desk.at("rate");
        std::fs::write(&rate, "4M").unwrap();
        let settings = ["rate=4M", &format!("rate-file={}", rate.display())];
        Self { peer: serve(desk, image, log, &["--filter=rate"], &settings), rate }
    }

    fn hurry(&self) {
        std::fs::write(&self.rate, "1G").unwrap();
    }
}

/// A lazy drive of three nodes over an image of some length, whose source is [`Slow`] and logs to `first`.
struct SlowlyFilled {
    desk: Desk,
    nodes: [Node; 3],
    image: String,
    content: Vec<u8>,
    source: Slow,
    drive: String,
}

impl SlowlyFilled {
    fn new(node_memory: &str, len: u64) -> Self {
        let (desk, nodes) = (Desk::new(), three(node_memory));
        let (image, content) = desk.image("disk.raw", len);
        let source = Slow::serve(&desk, &image, "first");
        let drive = create(&desk, &nodes, &source.peer.uri);
        Self { desk, nodes, image, content, source, drive }
    }
}

/// The ranges that were read from nbdkit, as offset and length, in order.
fn given(desk: &Desk, log: &str) -> Vec<(u64, u64)> {
    let log = std::fs::read_to_string(desk.at(log)).unwrap();
    let field = |line: &str, name: &str| {
        let value = line.split_whitespace().find_map(|word| word.strip_prefix(name).map(str::to_owned));
        value.unwrap_or_else(|| panic!("no {name} in {line}"))
    };
    let number = |text: String| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    let mut asked = BTreeMap::new();
    let mut given = Vec::new();
    for line in log.lines().filter(|line| line.contains("Read id=")) {
        let id = (field(line, "connection="), field(line, "id="));
        if !line.contains("return=") {
            asked.insert(id, (number(field(line, "offset=")), number(field(line, "count="))));
        } else if line.contains("return=0") {
            given.push(asked[&id]);
        }
    }
    given
}

/// Asserts that no byte was read twice.
#[track_caller]
fn assert_once(given: &[(u64, u64)]) {
    let mut sorted = given.to_vec();
    sorted.sort_unstable();
    for pair in sorted.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "read twice: {pair:?}");
    }
}

fn bytes(given: &[(u64, u64)]) -> u64 {
    given.iter().map(|(_, len)| len).sum()
}

fn create(desk: &Desk, nodes: &[Node; 3], source: &str) -> String {
    let drive = desk.arg("case.drive");
    let list = crate::support::node::list(&nodes.each_ref());
    let args = ["create", &drive, "--nodes", &list, "--layout", "stripe", "--from", source, "--lazy"];
    let made = cheetah(&args).ok().json();
    assert_eq!(made["filling"], true);
    drive
}

fn export(desk: &Desk, drive: &str, more: &[&str]) -> Service {
    let socket = desk.arg("case.sock");
    let mut args = vec!["export", drive, "--unix", &socket];
    args.extend(more);
    Service::start(&args)
}

/// Waits until a service reports that its drive is complete.
fn completed(service: &Service) -> Value {
    let line = service.next_line().unwrap_or_else(|| panic!("it ended: {}", service.stderr()));
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["event"], "complete", "{value} {}", service.stderr());
    value
}

fn md5(path: &str) -> String {
    tool("md5sum", &[path]).ok().out()[..32].to_owned()
}

fn read_at(file: &Path, offset: u64, len: usize) -> Result<Vec<u8>, Option<i32>> {
    let mut out = vec![0; len];
    let file = File::open(file).unwrap();
    file.read_exact_at(&mut out, offset).map(|()| out).map_err(|error| error.raw_os_error())
}

fn names(desk: &Desk) -> Vec<String> {
    let entries = std::fs::read_dir(desk.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_lazy_drive_reads_every_byte_once_and_ends_as_loaded() {
    if !need::programs(&["nbdkit", "md5sum"]) {
        return;
    }
    let SlowlyFilled { desk, nodes, image, content, source, drive } = SlowlyFilled::new("16MiB", 12 * MIB + 512);
    assert!(bytes(&given(&desk, "first")) <= MIB, "creating it reads next to nothing");
    let covered = cheetah(&["status", &drive]).ok().json()["covered"].clone();
    assert_eq!((number(&covered, "read_bytes"), number(&covered, "unread_bytes")), (0, 12 * MIB + 512));
    assert_eq!(covered["filler"], Value::Null);

    let filler = export(&desk, &drive, &PATIENTLY);
    assert_eq!((&filler.ready["filling"], number(&filler.ready, "size_bytes")), (&true.into(), 12 * MIB + 512));
    // While it is being filled, it counts as incomplete, and the errors of other processes name the filler.
    cheetah(&["save", &drive, &desk.arg("x.raw")]).says(3, &["only part of", "--partial"]);
    cheetah(&["verify", &drive]).says(3, &["incomplete"]);
    cheetah(&["mount", &drive, &desk.dir("mnt")]).says(1, &["being filled by", "process", "cheetah export"]);
    cheetah(&["load", &drive]).says(1, &["being filled by"]);
    cheetah(&["mount", &drive, &desk.arg("mnt"), "--writable"]).says(2, &["still being filled", "--overlay"]);
    cheetah(&["create", &desk.arg("y.drive"), "--nodes", nodes[0].address(), "--from", &drive])
        .says(1, &["being filled"]);
    let status = cheetah(&["status", &drive]).ok().json();
    let filler_text = text(&status["covered"], "filler");
    assert!(filler_text.contains("process") && !filler_text.starts_with("someone@"), "{status}");
    let saved = cheetah(&["save", &drive, &desk.arg("part.raw"), "--partial"]);
    saved.says(3, &["not a whole image", "part.raw.map"]);

    source.hurry();
    let complete = completed(&filler);
    assert_eq!(text(&complete["hashes"], "md5"), md5(&image));
    assert_eq!(text(&complete, "state"), "intact");
    assert_once(&given(&desk, "first"));
    assert_eq!(bytes(&given(&desk, "first")), content.len() as u64, "every byte, and every byte once");
    let (code, _) = filler.stop(Signal::TERM);
    assert_eq!(code, Some(0));

    // The source is no longer needed, and the files of the fill are gone.
    drop(source);
    assert_eq!(cheetah(&["verify", &drive]).ok().json()["compared"], "digests");
    cheetah(&["save", &drive, &desk.arg("whole.raw")]).ok();
    assert!(std::fs::read(desk.at("whole.raw")).unwrap() == content);
    let left = names(&desk);
    assert!(!left.iter().any(|name| name == "case.drive.map" || name == "case.drive.grains"), "{left:?}");
    cheetah(&["load", &drive]).says(2, &["no source to be filled from"]);
    cheetah(&["destroy", &drive]).ok();
}

#[test]
fn a_lazy_drive_is_read_correctly_while_it_fills() {
    if !need::fuse() || !need::programs(&["nbdkit", "mmls", "fls", "mke2fs"]) {
        return;
    }
    let desk = Desk::new();
    let nodes = three("16MiB");
    // A file system in the second half, which the background copy reaches last.
    let image = desk.arg("disk.raw");
    let mut content = crate::support::bytes::partitioned(6 * MIB);
    let volume = desk.file("volume.raw", &vec![0; 6 * MIB as usize]);
    tool("mke2fs", &["-q", "-F", "-t", "ext4", "-d", &desk.dir("empty"), &volume]).ok();
    content.truncate(7 * MIB as usize);
    content.extend(std::fs::read(&volume).unwrap());
    std::fs::write(&image, &content).unwrap();
    let source = Slow::serve(&desk, &image, "log");
    let drive = create(&desk, &nodes, &source.peer.uri);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &PATIENTLY);
    assert_eq!(mount.file.metadata().unwrap().len(), content.len() as u64);
    assert!(tool("mmls", &[mount.file.to_str().unwrap()]).ok().out().contains("0000014336"));
    let listing = tool("fls", &["-o", "14336", mount.file.to_str().unwrap()]).ok().out();
    assert!(listing.contains("lost+found"), "{listing}");
    source.hurry();
    let mut state = 0x5eed_u64;
    for _ in 0..60 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let len = 1 + (state >> 40) as usize % 100_000;
        let offset = (state >> 16) % (content.len() - len) as u64;
        let read = read_at(&mount.file, offset, len).unwrap();
        assert!(read == content[offset as usize..][..len], "wrong bytes at {offset}+{len}");
    }
    completed(mount.service());
    assert!(mount.read() == content);
    mount.unmount();
    assert_once(&given(&desk, "log"));
    assert_eq!(bytes(&given(&desk, "log")), content.len() as u64);
    cheetah(&["verify", &drive]).ok();
}

#[test]
fn a_fill_whose_record_was_changed_begins_anew() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let SlowlyFilled { desk, nodes: _nodes, image, content, source, drive } = SlowlyFilled::new("16MiB", 16 * MIB);
    let filler = export(&desk, &drive, &PATIENTLY);
    let map = desk.at("case.drive.map");
    wait_for_a_record(&map);
    filler.kill();
    drop(source);
    let _source = serve(&desk, &image, "second", &[], &[]);
    // All of it is called read: the nodes would return zeros for the rest.
    let recorded = std::fs::read_to_string(&map).unwrap();
    let forged: String = recorded.lines().map(|line| line.replace(" ?", " +") + "\n").collect();
    assert_ne!(recorded, forged);
    std::fs::write(&map, forged).unwrap();
    cheetah(&["load", &drive, "--force-lease"]).ok();
    let log = std::fs::read_to_string(desk.at("case.drive.custody")).unwrap();
    assert!(log.contains("does not vouch for the record"), "{log}");
    assert_eq!(bytes(&given(&desk, "second")), 16 * MIB, "all of it came from the source again");
    cheetah(&["verify", &drive]).ok();
    cheetah(&["save", &drive, &desk.arg("whole.raw")]).ok();
    assert!(std::fs::read(desk.at("whole.raw")).unwrap() == content);
}

#[test]
fn a_killed_fill_resumes_from_its_record() {
    if !need::programs(&["nbdkit", "md5sum"]) {
        return;
    }
    let SlowlyFilled { desk, nodes: _nodes, image, content, source, drive } = SlowlyFilled::new("16MiB", 16 * MIB);
    let filler = export(&desk, &drive, &PATIENTLY);
    let map = desk.at("case.drive.map");
    wait_for_a_record(&map);
    filler.kill();
    let recorded = mapped(&map, "+");
    assert!(bytes(&recorded) < 16 * MIB, "killed before it was complete");
    drop(source);
    let source = serve(&desk, &image, "second", &[], &[]);
    let partial = desk.arg("part.raw");
    let said = cheetah(&["save", &drive, &partial, "--partial"]).ended_with(3).out();
    let said: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(number(&said, "read_bytes"), bytes(&recorded));
    let (part, missing) = (std::fs::read(&partial).unwrap(), mapped(&desk.at("part.raw.map"), "?"));
    assert_eq!(mapped(&desk.at("part.raw.map"), "+"), recorded);
    for (offset, len) in recorded.iter().copied() {
        let range = offset as usize..(offset + len) as usize;
        assert!(part[range.clone()] == content[range], "what is there is right");
    }
    assert_eq!(bytes(&missing) + bytes(&recorded), 16 * MIB);

    // Another disk at the same address and of the same size is detected by its content. The lease of the killed process
    // expires after half a minute.
    drop(source);
    let other = desk.file("other.raw", &noise(16 * MIB, 99));
    let source = serve(&desk, &other, "other", &[], &[]);
    cheetah(&["load", &drive, "--force-lease"]).says(3, &["not what the drive is being filled from"]);
    drop(source);
    let source = serve(&desk, &image, "second", &[], &[]);
    let loaded = cheetah(&["load", &drive, "--force-lease"]).ok().json();
    assert_eq!(text(&loaded["hashes"], "md5"), md5(&image));
    let again = given(&desk, "second");
    assert_once(&again);
    let known =
        |(offset, len): &(u64, u64)| recorded.iter().any(|(at, size)| *at < offset + len && *offset < at + size);
    let (samples, rest): (Vec<_>, Vec<_>) = again.into_iter().partition(known);
    assert!(samples.len() <= 64 && samples.iter().all(|(_, len)| *len == 64 * KIB), "read again: {samples:?}");
    assert_eq!(bytes(&rest), 16 * MIB - bytes(&recorded));
    drop(source);
    cheetah(&["verify", &drive]).ok();

    // The log has all events, except for the end of the killed process.
    let log = std::fs::read_to_string(desk.at("case.drive.custody")).unwrap();
    let mut events: Vec<_> =
        log.lines().map(|line| text(&serde_json::from_str(line).unwrap(), "event").to_owned()).collect();
    events.retain(|event| event != "checkpoint");
    let expected = ["started", "resumed", "source_changed", "resumed", "hashes", "finished", "verified"];
    assert_eq!(events, expected);
    cheetah(&["verify", desk.arg("case.drive.custody").as_str()]).ok();
}

#[test]
fn a_fill_survives_a_source_that_goes_away_and_comes_back() {
    if !need::fuse() || !need::programs(&["nbdkit", "md5sum"]) {
        return;
    }
    let SlowlyFilled { desk, nodes: _nodes, image, content, source, drive } = SlowlyFilled::new("16MiB", 16 * MIB);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &[&TIMEOUT[..], &["--prefetch", "0"]].concat());
    let near = read_at(&mount.file, 11 * MIB, 1000).unwrap();
    drop(source);
    // Bypass the page cache, so that only the nodes can answer.
    rustix::fs::fadvise(File::open(&mount.file).unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert!(near == content[11 * MIB as usize..][..1000]);
    assert!(read_at(&mount.file, 11 * MIB + 100, 1000).unwrap() == content[11 * MIB as usize + 100..][..1000]);
    let started = Instant::now();
    assert_eq!(read_at(&mount.file, 15 * MIB, 1000), Err(Some(5)), "neither zeros nor a hang");
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    mount.unmount();

    // It can be mounted without its source, and copied ranges are correct.
    let mount = Mounted::new(&drive, &desk.arg("mnt"), &[&TIMEOUT[..], &["--prefetch", "0"]].concat());
    assert!(read_at(&mount.file, 11 * MIB, 1000).unwrap() == near);
    assert_eq!(read_at(&mount.file, 15 * MIB, 1000), Err(Some(5)));
    cheetah(&["status", &drive]).ok();
    let source = serve(&desk, &image, "second", &[], &[]);
    let complete = completed(mount.service());
    assert_eq!(text(&complete["hashes"], "md5"), md5(&image));
    assert!(mount.read() == content);
    mount.unmount();
    let mut all = given(&desk, "first");
    all.extend(given(&desk, "second"));
    // Both fills were closed in good order, so only ranges in flight and a sample of 64 grains can have been read twice.
    assert!(bytes(&all) < 16 * MIB + 3 * MIB + 4 * MIB, "{} bytes were read", bytes(&all));
    assert_once(&given(&desk, "second"));
    drop(source);
}

#[test]
fn bad_sectors_stay_errors_and_are_never_zeros() {
    if !need::programs(&["nbdkit", "nbdinfo"]) {
        return;
    }
    let desk = Desk::new();
    let nodes = three("16MiB");
    let (image, content) = desk.image("disk.raw", 3 * MIB);
    // nbdkit's filter reads the format of our own maps.
    let bad = [(MIB + 512, 1024), (2 * MIB + 200 * KIB, 512)];
    let map = format!(
        "# Mapfile\n0x0 + 1\n0x0 {:#x} +\n{:#x} {:#x} -\n{:#x} {:#x} +\n{:#x} {:#x} -\n{:#x} {:#x} +\n",
        bad[0].0,
        bad[0].0,
        bad[0].1,
        bad[0].0 + bad[0].1,
        bad[1].0 - bad[0].0 - bad[0].1,
        bad[1].0,
        bad[1].1,
        bad[1].0 + bad[1].1,
        3 * MIB - bad[1].0 - bad[1].1,
    );
    let setting = format!("ddrescue-mapfile={}", desk.file("bad.map", map.as_bytes()));
    let source = serve(&desk, &image, "log", &["--filter=ddrescue"], &[&setting]);
    let drive = create(&desk, &nodes, &source.uri);
    cheetah(&["load", &drive]).says(3, &["could not be read", "case.drive.map"]);
    assert_once(&given(&desk, "log"));
    drop(source);
    let status = cheetah(&["status", &drive]).ok().json();
    assert_eq!(number(&status["covered"], "unreadable_bytes"), 1536, "{status}");
    assert_eq!(text(&status["image"], "state"), "incomplete");
    assert_eq!(mapped(&desk.at("case.drive.map"), "-"), bad);

    let verified = cheetah(&["verify", &drive]).ended_with(3).out();
    let report: Value = serde_json::from_str(verified.lines().next().unwrap()).unwrap();
    let unreadable: u64 = report["unreadable"].as_array().unwrap().iter().map(|range| number(range, "len")).sum();
    assert!((1536..=3 * 4096).contains(&unreadable), "{report}");
    assert_eq!(report["mismatched"], Value::Array(vec![]));
    cheetah(&["save", &drive, &desk.arg("x.raw")]).says(3, &["--partial"]);
    cheetah(&["save", &drive, &desk.arg("x.raw"), "--partial"]).says(3, &["x.raw.map"]);
    assert_eq!(mapped(&desk.at("x.raw.map"), "-"), bad);

    let served = export(&desk, &drive, &[]);
    let device = File::open(&image).unwrap();
    let part = std::fs::read(desk.at("x.raw")).unwrap();
    for (offset, len) in bad {
        let mut sector = vec![0; len as usize];
        device.read_exact_at(&mut sector, offset).unwrap();
        assert!(sector != vec![0; len as usize] && part[offset as usize..][..len as usize] == vec![0; len as usize]);
    }
    let readable = content.iter().zip(&part).filter(|(a, b)| a == b).count() as u64;
    assert!(readable >= 3 * MIB - 1536);
    let copy = desk.arg("copy.raw");
    assert_ne!(tool("nbdcopy", &[text(&served.ready, "uri"), &copy]).code, Some(0), "a copy of all of it fails");
    served.stop(Signal::TERM);
    cheetah(&["export", &drive, "--unix", &desk.arg("w.sock"), "--writable"])
        .says(2, &["could not be read", "overlay"]);
    cheetah(&["destroy", &drive]).ok();
    let left: Vec<_> = names(&desk).into_iter().filter(|name| name.starts_with("case.drive")).collect();
    assert_eq!(left, ["case.drive.custody"], "the record of it stays, and says so");
    let log = std::fs::read_to_string(desk.at("case.drive.custody")).unwrap();
    assert!(log.lines().any(|line| line.contains(r#""event":"unreadable""#)));
    assert!(log.lines().last().unwrap().contains("verified zero"), "{log}");
}

#[test]
fn a_changed_source_of_a_lazy_drive_is_refused() {
    let desk = Desk::new();
    let nodes = three("16MiB");
    let (image, _) = desk.image("disk.raw", 3 * MIB);
    let drive = create(&desk, &nodes, &image);
    std::fs::write(&image, noise(3 * MIB, 99)).unwrap();
    cheetah(&["load", &drive]).says(3, &["disk.raw", "time of modification"]);
    std::fs::write(&image, noise(2 * MIB, 99)).unwrap();
    let socket = desk.arg("case.sock");
    cheetah(&["export", &drive, "--unix", &socket]).says(3, &["its size was 3145728 and is now 2097152"]);
    std::fs::remove_file(&image).unwrap();
    cheetah(&["load", &drive]).says(1, &["no such image"]);
    // A load starts over.
    let (other, content) = desk.image("other.raw", 3 * MIB);
    cheetah(&["load", &drive, &other]).says(2, &["holds an image already", "--force"]);
    cheetah(&["load", &drive, &other, "--force"]).ok();
    cheetah(&["save", &drive, &desk.arg("saved.raw")]).ok();
    assert!(std::fs::read(desk.at("saved.raw")).unwrap() == content);
    assert_eq!(cheetah(&["status", &drive]).ok().json()["covered"], Value::Null);
}
