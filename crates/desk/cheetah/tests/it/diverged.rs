//! Two copies of the file of a mirror over two nodes, each used with another node alone.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::run::cheetah;
use crate::support::{Desk, MIB, Node, noise};

/// A node that is frozen as long as this exists.
struct Frozen<'a>(&'a Node);

impl<'a> Frozen<'a> {
    fn new(node: &'a Node) -> Self {
        signal(node, Signal::STOP);
        Self(node)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        signal(self.0, Signal::CONT);
    }
}

fn signal(node: &Node, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(node.service.pid()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

struct Split {
    desk: Desk,
    nodes: [Node; 2],
    /// The drive files, and what was written by each.
    drives: [(String, Vec<u8>); 2],
}

impl Split {
    /// Writers `a` and `b` wrote to a node each.
    fn new() -> Self {
        let desk = Desk::new();
        let nodes = [Node::start("16MiB"), Node::start("16MiB")];
        let listed = format!("{},{}", nodes[0].address(), nodes[1].address());
        let [a, b] = ["a.drive", "b.drive"].map(|name| desk.arg(name));
        cheetah(&["create", &a, "--nodes", &listed, "--layout", "mirror", "--size", "1MiB"]).ok();
        // Both have written once, together.
        let (image, _) = desk.image("first.raw", MIB);
        cheetah(&["load", &a, &image]).ok();
        for beside in ["", ".digests"] {
            fs::copy(format!("{a}{beside}"), format!("{b}{beside}")).unwrap();
        }
        let write = |drive: String, name: &str, seed: u64, other: &Node| {
            let _frozen = Frozen::new(other);
            let content = noise(MIB, seed);
            let image = desk.file(name, &content);
            let how = ["--force", "--force-lease", "--hash", "md5", "--timeout", "3"];
            cheetah(&[&["load", &drive, &image][..], &how].concat()).ok();
            (drive, content)
        };
        let drives = [write(a, "one.raw", 1, &nodes[1]), write(b, "other.raw", 2, &nodes[0])];
        Self { desk, nodes, drives }
    }

    fn read(&self, drive: &str) -> Vec<u8> {
        let copy = self.desk.arg("copy.raw");
        cheetah(&["save", drive, &copy, "--force"]).ok();
        fs::read(copy).unwrap()
    }
}

#[test]
fn writers_apart_from_each_other_are_found_refused_and_named_until_the_examiner_decides() {
    for kept in [0, 1] {
        let split = Split::new();
        let [one, other] = split.nodes.each_ref().map(Node::address);
        let image = split.desk.arg("first.raw");
        for (drive, _) in &split.drives {
            for args in [
                &["save", drive, "copy.raw"][..],
                &["verify", drive],
                &["load", drive, &image, "--force", "--force-lease"],
                &["repair", drive],
                &["status", drive],
            ] {
                cheetah(args).says(3, &["apart from each other", one, other, "--keep"]);
            }
        }
        let (drive, content) = &split.drives[kept];
        let log = format!("{drive}.custody");
        let before = fs::read_to_string(&log).unwrap().lines().count();
        cheetah(&["repair", drive, "--keep", "nowhere"]).says(2, &["names no side", one, other]);
        let node = split.nodes[kept].address();
        // A frozen node grants leases to processes that have ended meanwhile.
        cheetah(&["repair", drive, "--keep", node, "--force-lease"]).ok();
        let lines: Vec<Value> =
            fs::read_to_string(&log).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[before]["event"], &lines[before]["details"]["kept"][0]), (&"kept".into(), &node.into()));
        assert!(split.read(drive) == *content);
        cheetah(&["status", drive]).ok();
        cheetah(&["repair", drive, "--keep", node]).says(2, &["nothing to decide"]);
        // Each node has it.
        for other in &split.nodes {
            let _frozen = Frozen::new(other);
            let copy = split.desk.arg("copy.raw");
            cheetah(&["save", drive, &copy, "--force", "--timeout", "3"]).ok();
            assert!(fs::read(copy).unwrap() == *content);
        }
    }
}

#[test]
fn a_drive_with_writers_apart_from_each_other_can_be_destroyed_with_either_file() {
    let split = Split::new();
    // A frozen node grants leases to processes that have ended meanwhile.
    cheetah(&["destroy", &split.drives[1].0, "--force"]).ok();
    assert_eq!(split.nodes.each_ref().map(Node::exports), [0, 0]);
}
