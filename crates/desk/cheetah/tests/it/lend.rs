//! Nodes that lend what is idle on a machine that others use: `cheetah node --memory auto`.
//!
//! The machine is a control group with a limit. Its other user is a program that fills memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::support::bytes::noise;
use crate::support::{Desk, MIB, Mounted, Node, cheetah, need, node, three, until};

const LIMIT: u64 = 400 * MIB;
const KEPT: u64 = 100 * MIB;
/// The content of each node of a drive.
const PART: u64 = 60 * MIB;

/// A control group that limits memory.
struct Machine(PathBuf);

impl Machine {
    /// `None` if this machine has no control groups of version 1, or lets nobody make one.
    fn new(name: &str) -> Option<Self> {
        let dir = Path::new("/sys/fs/cgroup/memory").join(format!("cheetah-{name}-{}", std::process::id()));
        let made = fs::create_dir(&dir).and_then(|()| fs::write(dir.join("memory.limit_in_bytes"), LIMIT.to_string()));
        if made.is_err() {
            need::skip("no control group of version 1 that limits memory can be made here");
            return None;
        }
        Some(Self(dir))
    }

    fn add(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// A node that lends what is idle here.
    fn node(&self) -> Node {
        let node = Node::start_with("auto", "127.0.0.1:0", &["--keep-free", "100MiB"]);
        self.add(node.service.pid());
        until("the node follows the limit of its control group", || lent(&node) <= LIMIT - KEPT);
        node
    }

    /// A program that fills memory.
    fn hog(&self, bytes: u64) -> Hog {
        let procs = self.0.join("cgroup.procs");
        // The last line of an input without line ends is all of it.
        let script = format!("echo $$ > {}; (head -c {bytes} /dev/zero; sleep 600) | tail -n 1", procs.display());
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::null());
        Hog(command.spawn().unwrap())
    }

    /// How many processes the kernel has ended here for want of memory.
    fn killed(&self) -> u64 {
        let control = fs::read_to_string(self.0.join("memory.oom_control")).unwrap();
        control.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap().parse().unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Processes that have ended leave a moment later.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            sleep(Duration::from_millis(100));
        }
    }
}

struct Hog(Child);

impl Drop for Hog {
    fn drop(&mut self) {
        // `setsid` made it the leader of a group of processes.
        let group = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        self.0.wait().ok();
    }
}

fn lent(node: &Node) -> u64 {
    node.status()["memory"]["lent_bytes"].as_u64().unwrap()
}

fn free(node: &Node) -> u64 {
    node.status()["memory"]["free_bytes"].as_u64().unwrap()
}

/// The problem of the first node of a drive.
fn problem(drive: &str) -> String {
    cheetah(&["status", drive]).json()["nodes"][0]["problem"].as_str().unwrap_or_default().to_owned()
}

/// A drive over a node that follows its machine, and others, full of noise.
fn full_drive(desk: &Desk, nodes: &[&Node], spares: &[&str], size: u64) -> (String, Vec<u8>) {
    let (image, content) = desk.image("image.raw", size);
    let drive = desk.arg("case.drive");
    let (nodes, bytes) = (node::list(nodes), size.to_string());
    let create = ["create", &drive, "--nodes", &nodes, "--size", &bytes, "--layout", "parity"];
    cheetah(&[&create, spares].concat()).ok();
    cheetah(&["load", &drive, &image]).ok();
    (drive, content)
}

#[test]
fn a_machine_that_needs_its_memory_gets_it_and_the_drive_moves_to_another_node_while_it_is_written() {
    let Some(machine) = Machine::new("moves").filter(|_| need::fuse()) else { return };
    let (desk, lender, others) = (Desk::new(), machine.node(), three("140MiB"));
    let [second, third, spare] = &others;
    let (drive, mut content) = full_drive(&desk, &[&lender, second, third], &["--spares", spare.address()], 2 * PART);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--writable"]);
    let hog = machine.hog(LIMIT - KEPT - PART);
    let mut round = 0;
    until("the part has moved to the spare", || {
        round += 1;
        let (at, bytes) = (round * 700_001 % (2 * PART - MIB), noise(100_000, round));
        let file = fs::File::options().write(true).open(&mount.file).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, at).unwrap();
        content[at as usize..][..bytes.len()].copy_from_slice(&bytes);
        spare.exports() == 1 && lender.exports() == 0
    });
    assert!(mount.read() == content, "other bytes are read than were written");
    mount.unmount();
    assert_eq!((machine.killed(), lender.status()["dropped"].is_null()), (0, true), "{}", lender.status());
    // The machine needs less again.
    drop(hog);
    until("the node lends again", || free(&lender) >= LIMIT - KEPT - PART);
    let status = cheetah(&["status", &drive]).ok().json();
    assert_eq!(status["survives_losses"], 1, "{status}");
}

#[test]
fn a_part_is_dropped_and_said_to_be_lost_before_the_machine_runs_out_of_memory() {
    let Some(machine) = Machine::new("drops").filter(|_| need::fuse()) else { return };
    let (desk, lender, [second, third, _]) = (Desk::new(), machine.node(), three("140MiB"));
    let (drive, content) = full_drive(&desk, &[&lender, &second, &third], &[], 2 * PART);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &[]);
    let hog = machine.hog(LIMIT - KEPT / 5 - PART);
    until("the part is dropped", || lender.exports() == 0);
    until("its memory is free", || lender.used_bytes() == 0);
    assert_eq!(machine.killed(), 0);
    assert!(mount.read() == content, "other bytes are read than were loaded");
    assert_eq!(lender.status()["dropped"][0]["size_bytes"].as_u64().map(|size| size >= PART), Some(true));
    let status = cheetah(&["status", &drive]).ended_with(3);
    assert!(status.out().contains("dropped its part of the drive: its machine needed the memory"), "{}", status.out());
    mount.unmount();
    drop(hog);
    // The layout repairs the loss.
    until("the node lends again", || free(&lender) >= 2 * PART);
    cheetah(&["repair", &drive, "--nodes", lender.address()]).ok();
    assert_eq!(cheetah(&["status", &drive]).ok().json()["survives_losses"], 1);
}

#[test]
fn a_drive_that_nobody_moves_says_so() {
    let Some(machine) = Machine::new("stays") else { return };
    let (desk, lender, [second, third, _]) = (Desk::new(), machine.node(), three("140MiB"));
    let (drive, _) = full_drive(&desk, &[&lender, &second, &third], &[], PART);
    let plain = desk.arg("plain.drive");
    let (nodes, size) = (lender.address(), (PART / 2).to_string());
    cheetah(&["create", &plain, "--nodes", nodes, "--size", &size]).ok();
    let (image, _) = desk.image("plain.raw", PART / 2);
    cheetah(&["load", &plain, &image]).ok();
    let hog = machine.hog(LIMIT - KEPT - PART + 35 * MIB);
    until("both parts are to leave", || {
        let exports = lender.status()["exports"].clone();
        exports.as_array().unwrap().iter().all(|export| export["leave_in_s"].is_u64())
    });
    for (drive, words) in
        [(&drive, ["nobody moves it", "cheetah drain"]), (&plain, ["without redundancy", "cheetah save"])]
    {
        let problem = problem(drive);
        assert!(
            problem.contains("needs its memory back") && words.iter().all(|word| problem.contains(word)),
            "{problem}"
        );
    }
    assert_eq!(free(&lender), 0);
    drop(hog);
    until("the parts may stay", || {
        let exports = lender.status()["exports"].clone();
        exports.as_array().unwrap().iter().all(|export| export["leave_in_s"].is_null())
    });
}

#[test]
fn an_amount_to_keep_free_is_refused_for_a_fixed_amount_and_for_a_machine_that_has_no_more() {
    cheetah(&["node", "--memory", "1MiB", "--keep-free", "1GiB"]).says(2, &["--memory auto"]);
    cheetah(&["node", "--memory", "auto", "--keep-free", "900TiB"]).says(2, &["smaller --keep-free"]);
    cheetah(&["node", "--memory", "auto", "--keep-free", "1MiB"]).says(2, &["less than 64MiB"]);
}
