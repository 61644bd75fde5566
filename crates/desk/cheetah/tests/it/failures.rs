//! Nodes that die, hang or restart: every byte read is correct or the read fails, and no read hangs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::run::cheetah_plain;
use crate::support::{Desk, MIB, Mounted, Node, Port, cheetah, mapped, need, number, text, three};

const EIO: Option<i32> = Some(5);
/// The time-out of the drives here, in seconds.
const TIMEOUT: &str = "8";
/// The maximum duration of a read: far beyond the time-out, because the machine may be busy.
const SLACK: Duration = Duration::from_secs(60);

/// A linear drive with 8 MiB on each of three nodes, so that each node holds a known range.
fn linear(desk: &Desk, nodes: &[&Node]) -> (String, Vec<u8>) {
    let (image, content) = desk.image("disk.raw", 24 * MIB);
    (desk.drive("case", nodes, &image, &["--layout", "linear"]), content)
}

fn read_at(file: &Path, offset: u64, len: usize) -> Result<Vec<u8>, Option<i32>> {
    let mut out = vec![0; len];
    let file = File::open(file).unwrap();
    file.read_exact_at(&mut out, offset).map(|()| out).map_err(|error| error.raw_os_error())
}

/// Checks that the range of node `index` is read correctly if it is alive, and fails with EIO if not.
#[track_caller]
fn check(file: &Path, content: &[u8], index: u64, alive: bool) {
    for offset in [index * 8 * MIB, index * 8 * MIB + 5 * MIB + 3, (index + 1) * 8 * MIB - 70_000] {
        let started = Instant::now();
        let read = read_at(file, offset, 70_000);
        assert!(started.elapsed() < SLACK, "a read took {:?}", started.elapsed());
        match read {
            Ok(bytes) if alive => {
                let at = usize::try_from(offset).unwrap();
                assert!(bytes == content[at..at + 70_000], "wrong bytes at {offset}");
            }
            Ok(_) => panic!("{offset} could be read although its node is gone"),
            Err(errno) => assert!(!alive && errno == EIO, "{errno:?} at {offset}, node {index}"),
        }
    }
}

#[test]
fn a_killed_node_loses_its_ranges_and_no_others() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let [first, second, third] = three("16MiB");
    let (drive, content) = linear(&desk, &[&first, &second, &third]);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--timeout", TIMEOUT, "--prefetch", "0"]);
    check(&mount.file, &content, 0, true);
    second.kill();
    check(&mount.file, &content, 1, false);
    check(&mount.file, &content, 0, true);
    check(&mount.file, &content, 2, true);
    mount.unmount();

    cheetah(&["status", &drive, "--timeout", TIMEOUT]).says(3, &["lost"]);
    let ran = cheetah(&["verify", &drive, "--timeout", TIMEOUT, "--hash", "none"]).says(3, &["case.drive"]);
    let lost: u64 = ran
        .out()
        .lines()
        .next()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .unwrap()["unreadable"]
        .as_array()
        .unwrap()
        .iter()
        .map(|range| range["len"].as_u64().unwrap())
        .sum();
    assert_eq!(lost, 8 * MIB);
    // From now on it opens only with --allow-lost.
    cheetah(&["mount", &drive, &desk.arg("mnt"), "--timeout", TIMEOUT]).says(1, &["--allow-lost"]);
    let mount = Mounted::new(&drive, &desk.arg("mnt"), &["--timeout", TIMEOUT, "--allow-lost"]);
    check(&mount.file, &content, 2, true);
    check(&mount.file, &content, 1, false);
    mount.unmount();
    // The remaining nodes wipe their parts; the lost one is reported.
    let ran = cheetah(&["destroy", &drive, "--timeout", TIMEOUT]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!((first.exports(), third.exports()), (0, 0));
}

#[test]
fn a_partial_save_holds_everything_but_the_lost_nodes_ranges() {
    let desk = Desk::new();
    let [first, second, third] = three("16MiB");
    let (drive, content) = linear(&desk, &[&first, &second, &third]);
    let (whole, part) = (desk.arg("whole.raw"), desk.arg("part.raw"));
    let saved = cheetah(&["save", &drive, &whole, "--partial"]).ok().json();
    assert_eq!(number(&saved, "read_bytes"), 24 * MIB, "nothing is missing yet");
    assert!(std::fs::read(&whole).unwrap() == content);

    second.kill();
    cheetah(&["save", &drive, &part, "--timeout", TIMEOUT]).says(1, &["save --partial"]);
    assert!(!desk.at("part.raw").exists());
    let ran = cheetah(&["save", &drive, &part, "--partial", "--timeout", TIMEOUT]).says(3, &["part.raw.map"]);
    let saved: serde_json::Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    assert_eq!((number(&saved, "read_bytes"), number(&saved, "unreadable_bytes")), (16 * MIB, 8 * MIB));
    let map = desk.at("part.raw.map");
    assert_eq!(mapped(&map, "-"), [(8 * MIB, 8 * MIB)]);
    assert_eq!(mapped(&map, "+"), [(0, 8 * MIB), (16 * MIB, 8 * MIB)]);
    let saved = std::fs::read(&part).unwrap();
    assert_eq!(saved.len(), content.len());
    for (offset, len) in mapped(&map, "+") {
        let range = offset as usize..(offset + len) as usize;
        assert!(saved[range.clone()] == content[range]);
    }
    // A map that is a symbolic link is not replaced, not even with --force.
    let elsewhere = desk.at("elsewhere");
    std::fs::rename(&map, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &map).unwrap();
    cheetah(&["save", &drive, &part, "--partial", "--force", "--timeout", TIMEOUT]).says(2, &["part.raw.map"]);
    assert!(map.is_symlink() && std::fs::read(&part).unwrap() == saved);
    std::fs::rename(&elsewhere, &map).unwrap();
    // As an image, it has unreadable ranges according to its map.
    cheetah(&["verify", &part]).ended_with(3);
    drop((first, third));
    cheetah(&["save", &drive, &desk.arg("none.raw"), "--partial", "--timeout", TIMEOUT])
        .says(3, &["nothing was saved"]);
    assert!(!desk.at("none.raw").exists() && !desk.at("none.raw.map").exists());
}

#[test]
fn a_drive_with_a_lost_node_is_shown_in_80_columns_and_never_as_intact() {
    let desk = Desk::new();
    let [first, second, third] = three("16MiB");
    let (image, _) = desk.image("disk.raw", 24 * MIB);
    let drive = desk.drive("case", &[&first, &second, &third], &image, &[]);
    let address = second.address().to_owned();
    second.kill();
    for verb in ["status", "verify"] {
        let ran = cheetah_plain(&[verb, &drive, "--timeout", TIMEOUT]).ended_with(3);
        let out = ran.out();
        // Paths are not cut.
        let too_long = out.lines().filter(|line| line.chars().count() > 80 && !line.contains("/case.drive"));
        assert_eq!(too_long.collect::<Vec<_>>(), [""; 0], "{out}");
        assert!(!out.contains("intact"), "{out}");
        assert!(out.lines().count() < 30, "ranges with one cause are listed together: {out}");
        let lines_with_address: Vec<_> = out.lines().filter(|line| line.contains(&address)).collect();
        assert!(!lines_with_address.is_empty());
        let doubled = |line: &&&str| line.matches(&address).count() > 1;
        assert_eq!(lines_with_address.iter().find(doubled), None, "the address is doubled: {out}");
        let whole = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!whole.contains(&format!("{address}: node {address}")), "the address is doubled: {out}");
    }
    let status = cheetah(&["status", &drive, "--timeout", TIMEOUT]).ended_with(3).out();
    let status: serde_json::Value = serde_json::from_str(status.lines().next().unwrap()).unwrap();
    assert_eq!(text(&status["image"], "state"), "lost");
}

#[test]
fn the_receipt_of_a_wiped_node_outlives_another_nodes_loss() {
    let desk = Desk::new();
    let [first, second, third] = three("16MiB");
    let (drive, _) = linear(&desk, &[&first, &second, &third]);
    second.kill();
    cheetah(&["destroy", &drive, "--timeout", TIMEOUT]).ended_with(1);
    assert_eq!((first.exports(), third.exports()), (0, 0));
    let destroyed = cheetah(&["destroy", &drive, "--timeout", TIMEOUT, "--force"]).ended_with(1).out();
    let destroyed: serde_json::Value = serde_json::from_str(destroyed.lines().next().unwrap()).unwrap();
    for (node, outcome) in [(0, "wiped"), (1, "unreachable"), (2, "wiped")] {
        assert_eq!(text(&destroyed["nodes"][node], "outcome"), outcome, "{destroyed}");
    }
    assert!(number(&destroyed["nodes"][0]["receipt"], "wiped_bytes") > 6 * MIB, "{destroyed}");
    assert!(!Path::new(&drive).exists());
}

#[test]
fn reads_of_a_hung_node_fail_until_it_continues() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let [first, second, third] = three("16MiB");
    let (drive, content) = linear(&desk, &[&first, &second, &third]);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--timeout", TIMEOUT, "--prefetch", "0"]);
    second.service.signal(Signal::STOP);
    check(&mount.file, &content, 1, false);
    check(&mount.file, &content, 2, true);
    second.service.signal(Signal::CONT);
    // The same instance answers again, with its bytes.
    let started = Instant::now();
    while read_at(&mount.file, 8 * MIB + 100, 100).is_err() {
        assert!(started.elapsed() < SLACK, "the node answers again, but its range cannot be read");
        std::thread::sleep(Duration::from_millis(50));
    }
    check(&mount.file, &content, 1, true);
    mount.unmount();
}

#[test]
fn a_short_hang_causes_no_error() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let [first, second, third] = three("16MiB");
    let (drive, content) = linear(&desk, &[&first, &second, &third]);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--timeout", "60"]);
    second.service.signal(Signal::STOP);
    let file = mount.file.as_path();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| check(file, &content, 1, true));
        std::thread::sleep(Duration::from_millis(300));
        second.service.signal(Signal::CONT);
        reader.join().unwrap();
    });
    mount.unmount();
}

#[test]
fn a_restarted_node_is_refused_as_empty() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let (place, _next) = Port::neighbours();
    let node = || Node::start_with("16MiB", &place.text(), &[]);
    let (first, second, third) = (Node::start("16MiB"), node(), Node::start("16MiB"));
    let (drive, content) = linear(&desk, &[&first, &second, &third]);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--timeout", TIMEOUT, "--prefetch", "0"]);
    second.kill();
    let second = node();
    check(&mount.file, &content, 1, false);
    check(&mount.file, &content, 0, true);
    mount.unmount();
    let status = cheetah(&["status", &drive, "--timeout", TIMEOUT]).says(3, &["lost"]);
    assert!(status.out().contains("\"restarted\""), "{}", status.out());
    let ran = cheetah(&["mount", &drive, &desk.arg("mnt"), "--timeout", TIMEOUT]);
    ran.says(1, &["restart"]);
    // The new instance holds nothing of the drive.
    let destroyed = cheetah(&["destroy", &drive]).ok().json();
    assert_eq!(text(&destroyed["nodes"][1], "outcome"), "gone");
    drop(second);
}

#[test]
fn reads_beside_nodes_killed_at_random_are_correct_or_fail() {
    if !need::fuse() {
        return;
    }
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
    eprintln!("seed {seed}");
    let desk = Desk::new();
    let mut nodes: Vec<_> = three("16MiB").into();
    let (image, content) = desk.image("disk.raw", 24 * MIB);
    let drive = desk.drive("case", &nodes.iter().collect::<Vec<_>>(), &image, &[]);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--timeout", TIMEOUT, "--prefetch", "16MiB"]);
    let file = File::open(&mount.file).unwrap();
    let victim = nodes.remove((seed >> 7) as usize % 3);
    let reads_before_the_kill = (seed >> 17) % 200;
    let (mut state, mut errors) = (seed, 0);
    let mut victim = Some(victim);
    for count in 0..400u64 {
        if count == reads_before_the_kill {
            victim.take().unwrap().kill();
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let len = 1 + (state >> 40) as usize % 200_000;
        let offset = (state >> 8) % (content.len() - len) as u64;
        let mut bytes = vec![0xee; len];
        match file.read_exact_at(&mut bytes, offset) {
            Ok(()) => assert!(bytes == content[offset as usize..][..len], "wrong bytes at {offset}+{len}"),
            Err(error) => {
                assert!(victim.is_none(), "{error} before the node was killed");
                assert_eq!(error.raw_os_error(), EIO);
                errors += 1;
            }
        }
        if errors == 20 {
            break;
        }
    }
    assert!(errors > 0, "a third of the drive is lost, but no read failed");
    drop(file);
    mount.unmount();
}

#[test]
fn a_writer_whose_lease_is_taken_is_fenced() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, _) = desk.image("disk.raw", 4 * MIB);
    let drive = desk.drive("case", &[&node], &image, &[]);
    let stale = Mounted::new(&drive, &desk.dir("stale"), &["--writable", "--timeout", TIMEOUT]);
    let file = File::options().write(true).open(&stale.file).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    file.sync_all().unwrap();
    let fresh = Mounted::new(&drive, &desk.dir("fresh"), &["--writable", "--force-lease", "--timeout", TIMEOUT]);
    let refused = file.write_all_at(b"stale", 0).and_then(|()| file.sync_all());
    assert!(refused.is_err(), "the fenced writer still writes");
    drop(file);
    let file = File::options().read(true).write(true).open(&fresh.file).unwrap();
    file.write_all_at(b"fresh", 100).unwrap();
    file.sync_all().unwrap();
    let mut start = [0; 5];
    file.read_exact_at(&mut start, 0).unwrap();
    assert_eq!(&start, b"first");
    drop(file);
    fresh.unmount();
}
