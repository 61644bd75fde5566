//! Drives that survive the loss of nodes, with real processes: killed, frozen, restarted empty, replaced.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::cable::Cable;
use crate::support::bytes::noise;
use crate::support::run::program;
use crate::support::{Desk, MIB, Mounted, Node, Service, cheetah, need, node, text, three, tool, until};

const SIZE: u64 = 24 * MIB;

/// A drive of [`SIZE`] over the nodes.
fn made(desk: &Desk, nodes: &[&Node], layout: &[&str]) -> String {
    let drive = desk.arg("case.drive");
    let nodes = node::list(nodes);
    let args = [&["create", &drive, "--nodes", &nodes, "--size", "24MiB"], layout].concat();
    cheetah(&args).ok();
    drive
}

/// Writes pseudorandom runs through a mount, as a tool does, and keeps the expected content.
struct Writer {
    file: File,
    content: Vec<u8>,
    seed: u64,
}

impl Writer {
    fn new(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path).unwrap();
        Self { file, content: vec![0; SIZE as usize], seed: 1 }
    }

    fn write_some(&mut self) {
        for _ in 0..30 {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let len = 1 + (self.seed >> 20) % 100_000;
            let at = (self.seed >> 33) % (SIZE - len);
            let bytes = noise(len, self.seed);
            self.file.write_all_at(&bytes, at).unwrap();
            self.content[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        self.file.sync_all().unwrap();
    }

    /// Closes the file. Returns the content that it must have.
    fn close(self) -> Vec<u8> {
        self.content
    }
}

/// A drive of [`SIZE`] over three nodes, written through its mount.
struct WrittenDrive {
    desk: Desk,
    nodes: [Node; 3],
    drive: String,
    mount: Mounted,
    writer: Writer,
}

impl WrittenDrive {
    /// `None`, and it says so, where nothing can be mounted.
    fn new(layout: &[&str], mount_options: &[&str]) -> Option<Self> {
        if !need::fuse() {
            return None;
        }
        let (desk, nodes) = (Desk::new(), three("40MiB"));
        let drive = made(&desk, &nodes.each_ref(), layout);
        let mount = Mounted::new(&drive, &desk.dir("mnt"), &[&["--writable"], mount_options].concat());
        let mut writer = Writer::new(&mount.file);
        writer.write_some();
        Some(Self { desk, nodes, drive, mount, writer })
    }
}

/// Unmounts a drive, and asserts that it has the bytes written. Returns them.
#[track_caller]
fn unmount_and_compare(desk: &Desk, drive: &str, mount: Mounted, writer: Writer) -> Vec<u8> {
    let content = writer.close();
    mount.unmount();
    assert_content(desk, drive, "again", &content);
    content
}

/// Kills the process that mounts a drive. Returns the content that the drive must have.
fn kill_writer(desk: &Desk, mount: Mounted, writer: Writer) -> Vec<u8> {
    mount.service().signal(Signal::KILL);
    let content = writer.close();
    cheetah(&["unmount", &desk.arg("mnt")]).ok();
    drop(mount);
    content
}

fn survives(drive: &str) -> Option<u64> {
    // An error may follow the status.
    let told = cheetah(&["status", drive]).out();
    let status: serde_json::Value = serde_json::from_str(told.lines().next()?).ok()?;
    status["survives_losses"].as_u64()
}

fn read_back(desk: &Desk, drive: &str, name: &str) -> Vec<u8> {
    let mount = Mounted::new(drive, &desk.dir(name), &[]);
    let bytes = mount.read();
    mount.unmount();
    bytes
}

#[track_caller]
fn assert_content(desk: &Desk, drive: &str, name: &str, content: &[u8]) {
    assert!(read_back(desk, drive, name) == content, "the drive does not hold the bytes written");
}

/// A node is frozen under writes, returns, and receives the writes that it missed; then another is killed, which only a
/// drive that is whole again survives.
fn writes_survive_a_frozen_and_a_killed_node(layout: &[&str]) {
    let Some(written) = WrittenDrive::new(layout, &[]) else { return };
    let WrittenDrive { desk, nodes: [first, second, third], drive, mount, mut writer } = written;
    second.service.signal(Signal::STOP);
    writer.write_some();
    assert_eq!(survives(&drive), Some(0));
    second.service.signal(Signal::CONT);
    writer.write_some();
    until("the node that came back has what it missed", || survives(&drive) == Some(1));
    first.kill();
    writer.write_some();
    let content = unmount_and_compare(&desk, &drive, mount, writer);

    let spare = Node::start("40MiB");
    let repaired = cheetah(&["repair", &drive, "--nodes", spare.address()]).ok().json();
    assert_eq!(repaired["repair"]["survives"], 1, "{repaired}");
    third.kill();
    assert_content(&desk, &drive, "after", &content);
}

#[test]
fn writes_to_parity_survive_a_frozen_and_a_killed_node() {
    writes_survive_a_frozen_and_a_killed_node(&["--layout", "parity"]);
}

#[test]
fn writes_to_a_mirror_survive_a_frozen_and_a_killed_node() {
    writes_survive_a_frozen_and_a_killed_node(&["--layout", "mirror"]);
}

/// A node that is silent for a moment again and again is left behind again and again. The drive's redundancy must return before
/// a load ends, or the load must say that it did not.
#[test]
fn a_load_onto_a_node_that_falters_ends_with_full_redundancy_or_a_warning() {
    let desk = Desk::new();
    let nodes = [Node::start("40MiB"), Node::start("40MiB")];
    for round in 0..3 {
        let drive = desk.arg(&format!("{round}.drive"));
        let (image, _) = desk.image(&format!("{round}.raw"), 8 * MIB);
        cheetah(&["create", &drive, "--nodes", &node::list(&[&nodes[0], &nodes[1]]), "--size", "8MiB"]).ok();
        let ended = AtomicBool::new(false);
        let faltering = Pid::from_raw(nodes[1].service.pid() as i32).unwrap();
        let loaded = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    kill_process(faltering, Signal::STOP).unwrap();
                    sleep(Duration::from_millis(700));
                    kill_process(faltering, Signal::CONT).unwrap();
                    sleep(Duration::from_millis(10));
                }
            });
            let loaded = cheetah(&["load", &drive, &image]);
            ended.store(true, Ordering::Relaxed);
            loaded
        })
        .ok();
        let whole = survives(&drive) == Some(1);
        assert!(whole || loaded.stderr.contains("without full redundancy"), "{}", loaded.stderr);
    }
}

#[test]
fn a_writer_that_is_killed_leaves_a_drive_that_the_next_one_settles() {
    let Some(written) = WrittenDrive::new(&["--layout", "parity"], &[]) else { return };
    let WrittenDrive { desk, nodes: [_first, second, _third], drive, mount, writer } = written;
    let content = kill_writer(&desk, mount, writer);
    // Its lease is held until it expires.
    let repaired = cheetah(&["repair", &drive, "--force-lease"]).ok().json();
    assert_eq!(repaired["repair"]["survives"], 1, "{repaired}");
    second.kill();
    assert_content(&desk, &drive, "again", &content);
}

#[test]
fn reads_of_a_loaded_image_survive_a_node_that_is_killed_and_comes_back_empty() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let [first, second, third] = three("40MiB");
    let (image, content) = desk.image("disk.raw", SIZE);
    let drive = desk.drive("case", &[&first, &second, &third], &image, &["--layout", "parity"]);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--prefetch", "0"]);
    let address = third.address().to_owned();
    third.kill();
    assert!(mount.read() == content);
    let _empty = Node::start_with("40MiB", &address, &[]);
    mount.unmount();
    cheetah(&["verify", &drive]).ok();
    cheetah(&["status", &drive]).ended_with(3);
    // The node that was restarted lends its memory again.
    cheetah(&["repair", &drive]).ok();
    cheetah(&["status", &drive]).ok();
    first.kill();
    cheetah(&["verify", &drive]).ok();
}

#[test]
fn a_writer_repairs_its_drive_although_repair_is_killed() {
    let Some(written) = WrittenDrive::new(&["--layout", "parity"], &["--no-repair"]) else { return };
    let WrittenDrive { desk, nodes: [first, _second, third], drive, mount, mut writer } = written;
    third.kill();
    writer.write_some();
    until("the loss is recorded", || survives(&drive) == Some(0));
    let without = cheetah(&["repair", &drive]).ended_with(1);
    assert!(without.out().contains("of free memory"), "{}", without.out());

    let spare = Node::start("40MiB");
    let mut repair = program();
    repair.args(["repair", &drive, "--nodes", spare.address()]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut repair = repair.spawn().unwrap();
    until("the spare is known", || std::fs::read_to_string(&drive).unwrap().contains(spare.address()));
    repair.kill().unwrap();
    repair.wait().unwrap();
    writer.write_some();
    let repaired = cheetah(&["repair", &drive]).ok().json();
    assert_eq!(repaired["repair"]["survives"], 1, "{repaired}");
    assert!(repaired["repair"]["writer"].is_string(), "{repaired}");

    first.kill();
    writer.write_some();
    unmount_and_compare(&desk, &drive, mount, writer);
}

#[test]
fn repair_goes_on_by_itself_after_the_writer_is_killed() {
    let Some(written) = WrittenDrive::new(&["--layout", "mirror"], &[]) else { return };
    let WrittenDrive { desk, nodes: [first, _second, third], drive, mount, mut writer } = written;
    third.kill();
    writer.write_some();
    let spare = Node::start("40MiB");
    let mut repair = program();
    repair.args(["--json", "repair", &drive, "--nodes", spare.address()]).stdout(Stdio::piped());
    let repair = repair.spawn().unwrap();
    until("the writer uses the spare", || spare.exports() == 1);
    let content = kill_writer(&desk, mount, writer);
    // Once the writer's leases have ended.
    let ended = repair.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    assert_eq!(survives(&drive), Some(1));
    first.kill();
    assert_content(&desk, &drive, "again", &content);
}

#[test]
fn a_replaced_node_that_returns_wipes_what_it_held() {
    let spare = Node::start("40MiB");
    let layout = ["--layout", "parity", "--spares", spare.address()];
    let Some(written) = WrittenDrive::new(&layout, &["--repair-after", "1"]) else { return };
    let WrittenDrive { desk, nodes: [_first, second, _third], drive, mount, mut writer } = written;
    second.service.signal(Signal::STOP);
    writer.write_some();
    until("the spare has taken the place of the silent node", || survives(&drive) == Some(1));
    second.service.signal(Signal::CONT);
    until("the node is wiped", || second.exports() == 0 && second.used_bytes() == 0);
    until("the loss is counted", || {
        let told = cheetah(&["status", &drive]).out();
        let status: Option<serde_json::Value> = told.lines().next().and_then(|line| serde_json::from_str(line).ok());
        status.is_some_and(|status| status["recovery"]["members_lost"].as_u64() >= Some(1))
    });
    until("its receipt is in the drive file", || {
        std::fs::read_to_string(&drive).unwrap().contains("verified_zero = true")
    });
    unmount_and_compare(&desk, &drive, mount, writer);
}

#[test]
fn a_drive_that_is_only_read_is_repaired_by_its_mount() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let [first, second, third] = three("40MiB");
    let spare = Node::start("40MiB");
    let (image, content) = desk.image("disk.raw", SIZE);
    let layout = ["--layout", "parity", "--spares", spare.address()];
    let drive = desk.drive("case", &[&first, &second, &third], &image, &layout);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--prefetch", "0", "--repair-after", "1"]);
    third.kill();
    assert!(mount.read() == content);
    until("the spare has taken the place of the lost node", || survives(&drive) == Some(1));
    first.kill();
    mount.unmount();
    cheetah(&["verify", &drive]).ok();
    assert_content(&desk, &drive, "again", &content);
}

#[test]
fn ranges_lost_with_too_many_nodes_are_fetched_again_from_the_source() {
    let desk = Desk::new();
    let [first, second, third] = three("40MiB");
    let (image, _) = desk.image("disk.raw", SIZE);
    let drive = desk.drive("case", &[&first, &second, &third], &image, &["--layout", "parity"]);
    second.kill();
    third.kill();
    cheetah(&["verify", &drive]).ended_with(3);
    let (one, other) = (Node::start("40MiB"), Node::start("40MiB"));
    let spares = node::list(&[&one, &other]);
    // Two of three nodes do not answer: another process might be writing there.
    let refused = cheetah(&["repair", &drive, "--nodes", &spares, "--from-source"]).ended_with(1);
    assert!(refused.json()["next"].to_string().contains("force_lease"), "{}", refused.out());
    let fetched = cheetah(&["repair", &drive, "--nodes", &spares, "--from-source", "--force-lease"]).ok().json();
    assert!((1..=SIZE).contains(&fetched["fetched_bytes"].as_u64().unwrap()), "{fetched}");
    cheetah(&["status", &drive]).ok();
    cheetah(&["verify", &drive]).ok();
    let log = std::fs::read_to_string(desk.at("case.drive.custody")).unwrap();
    assert!(log.contains("refetched"), "{log}");
    first.kill();
    cheetah(&["verify", &drive]).ok();
}

/// `nbd://…` of a drive's nodes, in order.
fn parts(drive: &str) -> Vec<String> {
    let file = std::fs::read_to_string(drive).unwrap();
    let uris = file.lines().filter_map(|line| line.trim().strip_prefix("nbd = \"")?.strip_suffix('"'));
    uris.map(str::to_owned).collect()
}

#[test]
fn a_check_finds_flipped_bits_and_mends_them_and_says_if_it_cannot() {
    if !need::programs(&["qemu-io"]) {
        return;
    }
    let desk = Desk::new();
    let [first, second, third] = three("40MiB");
    let (image, content) = desk.image("disk.raw", 20 * MIB);
    for (name, layout) in [("parity", "parity"), ("mirror", "mirror")] {
        let drive = desk.arg(&format!("{name}.drive"));
        let nodes = node::list(&[&first, &second, &third]);
        cheetah(&["create", &drive, "--nodes", &nodes, "--layout", layout, "--from", &image]).ok();
        let clean = cheetah(&["repair", &drive, "--check"]).ok().json();
        assert_eq!(clean["check"]["data_pages_repaired"], 0, "{clean}");
        assert!(clean["check"]["compared_bytes"].as_u64() >= Some(20 * MIB), "{clean}");
        tool("qemu-io", &["-f", "raw", "-c", "write -P 0x5a 64k 4k", &parts(&drive)[1]]).ok();
        if layout == "mirror" {
            // The error follows the result.
            let told = cheetah(&["repair", &drive, "--check"]).says(3, &["not known to be right"]).out();
            let found: serde_json::Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
            assert!(found["check"]["undecided_rows"].as_u64() > Some(0), "{told}");
        } else {
            let found = cheetah(&["repair", &drive, "--check"]).ok().json();
            assert_eq!(found["check"]["data_pages_repaired"], 1, "{found}");
            let again = cheetah(&["repair", &drive, "--check"]).ok().json();
            assert_eq!(again["check"]["data_pages_repaired"], 0, "{again}");
            assert!(read_back(&desk, &drive, "mended")[..content.len()] == content[..]);
        }
        cheetah(&["destroy", &drive]).ok();
    }
    let drive = made(&desk, &[&first, &second, &third], &["--layout", "parity"]);
    third.kill();
    cheetah(&["repair", &drive, "--check"]).says(3, &["cheetah repair"]);
}

#[test]
fn no_node_is_lost_while_a_long_write_is_sent_over_a_slow_link() {
    if !need::programs(&["tc", "nbdcopy"]) {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    // A write of 32 MiB, the longest of NBD, then takes two seconds to arrive, longer than a node may be silent.
    cable.limit("200mbit");
    let desk = Desk::new();
    let nodes = [(); 3].map(|()| Cable::node(&cable.readers, Cable::READERS));
    let drive = desk.arg("case.drive");
    let listed = node::list(&[&nodes[0], &nodes[1], &nodes[2]]);
    let create = ["create", &drive, "--nodes", &listed, "--size", "32MiB", "--layout", "parity", "--no-seal"];
    assert!(Cable::command(&cable.writers, &create).output().unwrap().status.success());
    let socket = desk.arg("socket");
    let export = ["export", &drive, "--unix", &socket, "--writable", "--no-repair"];
    let service = Service::spawn(Cable::command(&cable.writers, &export), "ready").unwrap();
    let (image, copy) = (desk.file("image", &noise(32 * MIB, 5)), desk.arg("copy"));
    let (uri, long) = (text(&service.ready, "uri"), "--request-size=33554432");
    tool("nbdcopy", &[long, "--requests=1", "--connections=1", &image, uri]).ok();
    tool("nbdcopy", &[uri, &copy]).ok();
    assert!(std::fs::read(&copy).unwrap() == std::fs::read(&image).unwrap());
    let said = service.stderr();
    assert!(!said.contains("is lost"), "{said}");
}

/// A machine with a reader and a node is cut off from the writer and the other nodes. The writer goes on. The reader still reaches
/// the node, which has missed the writes.
#[test]
fn a_reader_cut_off_together_with_a_stale_node_reads_nothing_old() {
    if !need::fuse() {
        return;
    }
    let Some(cable) = Cable::new() else { return };
    let (near, far) = (cable.writers.as_str(), cable.readers.as_str());
    let desk = Desk::new();
    let nodes =
        [Cable::node(near, Cable::WRITERS), Cable::node(near, Cable::WRITERS), Cable::node(far, Cable::READERS)];
    let drive = desk.arg("case.drive");
    let listed = node::list(&[&nodes[0], &nodes[1], &nodes[2]]);
    let create = ["create", &drive, "--nodes", &listed, "--size", "24MiB", "--layout", "mirror", "--no-seal"];
    let created = Cable::command(near, &create).output();
    assert!(created.unwrap().status.success());
    let (writer, written) = Cable::mount(near, &[&drive, &desk.dir("w"), "--writable", "--no-repair"]);
    let (reader, seen) = Cable::mount(far, &[&drive, &desk.dir("r"), "--no-repair", "--prefetch", "0"]);
    let written = File::options().read(true).write(true).open(written).unwrap();
    written.write_all_at(&vec![1; SIZE as usize], 0).unwrap();
    written.sync_all().unwrap();
    // Each byte is read once: the kernel and the read-ahead keep earlier reads.
    let read = |at: u64| {
        let mut bytes = [0; 4096];
        File::open(&seen).unwrap().read_exact_at(&mut bytes, at).map(|()| bytes[0])
    };
    assert_eq!(read(0).unwrap(), 1);
    cable.unplug();
    written.write_all_at(&vec![2; SIZE as usize], 0).unwrap();
    written.sync_all().unwrap();
    let (mut fresh, mut refused) = (0, 0);
    for at in (MIB..SIZE).step_by(192 << 10).take(12) {
        match read(at) {
            Ok(byte) => {
                assert_eq!(byte, 2, "{at}: what the node had before");
                fresh += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(fresh == 0 && refused > 0, "the reader was not cut off");
    cable.plug_in();
    until("the reader reads again", || read(SIZE - MIB).is_ok_and(|byte| byte == 2));
    drop(written);
    assert_eq!(reader.stop(Signal::INT).0, Some(0));
    assert_eq!(writer.stop(Signal::INT).0, Some(0));
}
