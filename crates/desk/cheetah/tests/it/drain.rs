//! Nodes that leave while a drive is in use: its parts move to others.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::bytes::noise;
use crate::support::run::program;
use crate::support::{Desk, MIB, Mounted, Node, cheetah, need, node, three};

/// The size of the drives.
pub const SIZE: u64 = 24 * MIB;
/// How long anything may take: far more than it does, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

fn create(desk: &Desk, nodes: &[&Node], layout: &str) -> String {
    let drive = desk.arg("case.drive");
    cheetah(&["create", &drive, "--nodes", &node::list(nodes), "--size", "24MiB", "--layout", layout]).ok();
    drive
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        sleep(Duration::from_millis(100));
    }
}

/// Writes runs of bytes to a file again and again, and reads each back, until told to end. Returns the content.
pub fn write_until(path: &Path, ends: &AtomicBool) -> Vec<u8> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut content = vec![0; SIZE as usize];
    let mut seed = 7_u64;
    while !ends.load(Ordering::Relaxed) {
        for _ in 0..20 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let len = 1 + (seed >> 20) % 100_000;
            let at = (seed >> 33) % (SIZE - len);
            let bytes = noise(len, seed);
            file.write_all_at(&bytes, at).unwrap();
            let mut back = vec![0; bytes.len()];
            file.read_exact_at(&mut back, at).unwrap();
            assert!(back == bytes, "other bytes are read than were written");
            content[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        file.sync_all().unwrap();
    }
    content
}

pub fn read_drive(desk: &Desk, drive: &str, name: &str) -> Vec<u8> {
    let mount = Mounted::new(drive, &desk.dir(name), &[]);
    let bytes = mount.read();
    mount.unmount();
    bytes
}

fn a_node_leaves_a_drive_in_use(layout: &str) {
    if !need::fuse() {
        return;
    }
    let (desk, [first, second, third]) = (Desk::new(), three("40MiB"));
    let drive = create(&desk, &[&first, &second, &third], layout);
    let old = desk.arg("old.drive");
    std::fs::copy(&drive, &old).unwrap();
    let spare = Node::start("40MiB");
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--writable"]);
    let reader = Mounted::new(&drive, &desk.dir("reader"), &[]);
    let (written, read) = (mount.file.clone(), reader.file.clone());
    let ends = AtomicBool::new(false);
    let content = std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_until(&written, &ends));
        // A reader elsewhere sees no error while the part moves.
        let reading = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                assert_eq!(std::fs::read(&read).unwrap().len() as u64, SIZE);
            }
        });
        let drained = cheetah(&["drain", second.address(), "--to", spare.address()]).ok().json();
        assert_eq!(drained["drain"]["remaining"].as_array().unwrap().len(), 0, "{drained}");
        assert!(drained["drain"]["moved_bytes"].as_u64().unwrap() > 0, "{drained}");
        assert_eq!(second.exports(), 0);
        assert_eq!(spare.exports(), 1);
        // The node wiped the part that left, and has nothing to wipe at its end.
        let receipt = second.stop();
        assert_eq!(receipt["verified_zero"], true, "{receipt}");
        assert_eq!(receipt["exports"].as_array().unwrap().len(), 0, "{receipt}");
        sleep(Duration::from_millis(300));
        ends.store(true, Ordering::Relaxed);
        reading.join().unwrap();
        writing.join().unwrap()
    });
    reader.unmount();
    mount.unmount();
    assert!(read_drive(&desk, &drive, "again") == content, "the drive does not hold the bytes written");
    assert!(read_drive(&desk, &old, "old") == content, "an old drive file leads elsewhere");
    let status = cheetah(&["status", &drive]).ok().json();
    assert_eq!(status["survives_losses"], 1, "{status}");
    // Redundancy is complete at the new node.
    first.kill();
    assert!(read_drive(&desk, &drive, "without") == content, "the new node does not hold its part");
    drop(third);
}

#[test]
fn a_node_leaves_a_mirror_while_it_is_read_and_written() {
    a_node_leaves_a_drive_in_use("mirror");
}

#[test]
fn a_node_leaves_a_parity_drive_while_it_is_read_and_written() {
    a_node_leaves_a_drive_in_use("parity");
}

#[test]
fn a_part_that_has_no_room_elsewhere_is_reported_at_once_and_the_node_takes_no_new_part() {
    if !need::fuse() {
        return;
    }
    let (desk, [first, second, third]) = (Desk::new(), three("40MiB"));
    let drive = create(&desk, &[&first, &second, &third], "parity");
    let small = Node::start("4MiB");
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--writable"]);
    cheetah(&["drain", second.address(), "--to", small.address()])
        .says(1, &["free memory", "1 part of a drive remains"]);
    let other = desk.arg("other.drive");
    cheetah(&["create", &other, "--nodes", second.address(), "--size", "1MiB"]).ended_with(1);
    cheetah(&["drain", second.address(), "--undrain"]).ok();
    cheetah(&["create", &other, "--nodes", second.address(), "--size", "1MiB"]).ok();
    cheetah(&["destroy", &other]).ok();
    assert_eq!(second.exports(), 1);
    mount.unmount();
}

#[test]
fn a_drive_that_no_process_writes_is_moved_by_the_command_itself() {
    let (desk, [first, second, third]) = (Desk::new(), three("40MiB"));
    let (image, _) = desk.image("disk.raw", SIZE);
    let drive = desk.drive("case", &[&first, &second, &third], &image, &["--layout", "parity"]);
    let spare = Node::start("40MiB");
    cheetah(&["drain", third.address(), "--to", spare.address()]).says(1, &["--drive"]);
    cheetah(&["drain", third.address(), "--to", spare.address(), "--drive", &drive]).ok();
    assert_eq!((third.exports(), spare.exports()), (0, 1));
    third.kill();
    // The image was not opened for writing.
    cheetah(&["verify", &drive]).ok();
    let status = cheetah(&["status", &drive]).ok().json();
    assert_eq!(status["image"]["state"], "intact", "{status}");
}

#[test]
fn a_part_of_a_drive_without_redundancy_stays_and_the_output_says_why() {
    let (desk, [first, second, third]) = (Desk::new(), three("40MiB"));
    let drive = create(&desk, &[&first, &second, &third], "stripe");
    let spare = Node::start("40MiB");
    cheetah(&["drain", first.address(), "--to", spare.address(), "--drive", &drive])
        .says(1, &["stripe", "cannot be moved"]);
    assert_eq!((first.exports(), spare.exports()), (1, 0));
}

#[test]
fn a_drive_verifies_while_its_part_moves_and_a_killed_drain_leaves_the_move_to_the_writer() {
    if !need::fuse() {
        return;
    }
    let (desk, [first, second, third]) = (Desk::new(), three("40MiB"));
    let (image, content) = desk.image("disk.raw", SIZE);
    let drive = desk.drive("case", &[&first, &second, &third], &image, &["--layout", "mirror"]);
    let spare = Node::start("40MiB");
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--writable"]);
    let mut command = program();
    command.args(["drain", second.address(), "--to", spare.address()]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut draining = command.spawn().unwrap();
    // Killed as soon as the node is marked.
    until("the node is marked", || second.status()["draining"].is_object());
    draining.kill().unwrap();
    draining.wait().unwrap();
    assert!(mount.read() == content);
    until("the part has left", || second.exports() == 0);
    assert_eq!(spare.exports(), 1);
    assert!(mount.read() == content);
    mount.unmount();
    assert!(read_drive(&desk, &drive, "again") == content);
}

#[test]
fn a_node_that_is_asked_to_stop_lets_its_parts_leave_first() {
    if !need::fuse() {
        return;
    }
    let (desk, [first, second, third]) = (Desk::new(), three("40MiB"));
    let leaving = Node::start_with("40MiB", "127.0.0.1:0", &["--drain", "100"]);
    let drive = create(&desk, &[&first, &second, &leaving], "mirror");
    cheetah(&["repair", &drive, "--nodes", third.address()]).ok();
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--writable"]);
    let (written, ends) = (mount.file.clone(), AtomicBool::new(false));
    let content = std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_until(&written, &ends));
        let (code, receipt) = leaving.service.stop(Signal::TERM);
        assert_eq!(code, Some(0), "{receipt}");
        assert_eq!(receipt["exports"].as_array().unwrap().len(), 0, "{receipt}");
        ends.store(true, Ordering::Relaxed);
        writing.join().unwrap()
    });
    mount.unmount();
    assert_eq!(cheetah(&["status", &drive]).ok().json()["survives_losses"], 1);
    assert!(read_drive(&desk, &drive, "again") == content);
}
