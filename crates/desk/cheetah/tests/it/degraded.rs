//! Filling a redundant drive, acquiring into it and imaging it, with a node that is killed.

use std::fs;
use std::process::Child;

use rustix::process::Signal;

use crate::support::run::program;
use crate::support::{Desk, MIB, Node, Service, cheetah, mapped, need, node, three, tool, until};

const SIZE: u64 = 24 * MIB;
const LAYOUTS: [[&str; 2]; 2] = [["--layout", "mirror"], ["--layout", "parity"]];

/// Three nodes, and a disk served by an agent at a rate such that a copy takes some seconds.
struct Scene {
    desk: Desk,
    nodes: [Node; 3],
    content: Vec<u8>,
    _agent: Service,
    source: String,
    drive: String,
}

impl Scene {
    fn new() -> Self {
        let (desk, nodes) = (Desk::new(), three("40MiB"));
        let (image, content) = desk.image("disk.raw", SIZE);
        let agent = Service::start(&["serve", &image, "--listen", "127.0.0.1:0", "--rate-max", "8MiB"]);
        let source = agent.ready["uri"].as_str().unwrap().to_owned();
        let drive = desk.arg("case.drive");
        Self { desk, nodes, content, _agent: agent, source, drive }
    }

    fn create(&self, more: &[&str]) {
        let nodes = node::list(&self.nodes.each_ref());
        cheetah(&[&["create", &self.drive, "--nodes", &nodes], more].concat()).ok();
    }

    /// Starts a command whose result is a file.
    fn start(&self, args: &[&str]) -> Child {
        let mut command = program();
        command.args(args).stdout(fs::File::create(self.desk.at("stdout")).unwrap()).spawn().unwrap()
    }

    /// Kills a node. Returns those that are left.
    fn kill_a_node(self) -> Degraded {
        let Self { desk, nodes: [first, second, third], content, _agent: agent, source: _, drive } = self;
        second.kill();
        Degraded { desk, _nodes: [first, third], content, _agent: agent, drive }
    }
}

/// The same with a node killed.
struct Degraded {
    desk: Desk,
    _nodes: [Node; 2],
    content: Vec<u8>,
    _agent: Service,
    drive: String,
}

impl Degraded {
    #[track_caller]
    fn assert_ends_well(&self, mut child: Child) {
        let code = child.wait().unwrap().code();
        assert_eq!(code, Some(0), "{}", fs::read_to_string(self.desk.at("stdout")).unwrap());
    }

    /// Asserts that the drive can lose no further node, and has the bytes of the disk nevertheless.
    #[track_caller]
    fn assert_is_whole(&self) {
        let status = cheetah(&["status", &self.drive]).ended_with(3).out();
        let status: serde_json::Value = serde_json::from_str(status.lines().next().unwrap()).unwrap();
        assert_eq!(status["survives_losses"], 0, "{status}");
        cheetah(&["verify", &self.drive]).ok();
        let saved = self.desk.arg("saved.raw");
        cheetah(&["save", &self.drive, &saved]).ok();
        assert!(fs::read(&saved).unwrap() == self.content);
    }
}

#[test]
fn a_lazy_drive_that_loses_a_node_is_filled_completely() {
    for layout in LAYOUTS {
        let scene = Scene::new();
        scene.create(&[&["--from", &scene.source, "--lazy"], &layout[..]].concat());
        let export = Service::start(&["export", &scene.drive, "--unix", &scene.desk.arg("case.sock")]);
        until("something is copied", || !mapped(&scene.desk.at("case.drive.map"), "+").is_empty());
        let scene = scene.kill_a_node();
        let complete = export.next_line().unwrap_or_else(|| panic!("it ended: {}", export.stderr()));
        assert!(complete.contains("\"complete\""), "{complete} {}", export.stderr());
        let (code, last) = export.stop(Signal::TERM);
        assert_eq!(code, Some(0), "{last}");
        scene.assert_is_whole();
    }
}

#[test]
fn an_acquisition_into_a_drive_that_loses_a_node_is_complete() {
    for layout in LAYOUTS {
        let scene = Scene::new();
        scene.create(&[&["--size", "24MiB"], &layout[..]].concat());
        let raw = scene.desk.arg("disk-copy.raw");
        let acquire = scene.start(&["acquire", &scene.source, &raw, &scene.drive, "--checkpoint", "1MiB"]);
        until("it can be resumed", || scene.desk.at("disk-copy.raw.acquire").exists());
        let scene = scene.kill_a_node();
        scene.assert_ends_well(acquire);
        assert!(fs::read(&raw).unwrap() == scene.content);
        scene.assert_is_whole();
    }
}

#[test]
fn a_load_onto_a_drive_that_loses_a_node_is_complete() {
    for layout in LAYOUTS {
        let scene = Scene::new();
        let nodes = node::list(&scene.nodes.each_ref());
        let create = ["create", &scene.drive, "--nodes", &nodes, "--from", &scene.source];
        let create = scene.start(&[&create[..], &layout].concat());
        until("something is loaded", || scene.nodes[1].used_bytes() > 0);
        let scene = scene.kill_a_node();
        scene.assert_ends_well(create);
        scene.assert_is_whole();
    }
}

#[test]
fn an_image_acquired_from_a_drive_that_lost_a_node_is_identical() {
    if !need::programs(&["ewfverify"]) {
        return;
    }
    for layout in LAYOUTS {
        let scene = Scene::new();
        scene.create(&[&["--from", &scene.desk.arg("disk.raw")], &layout[..]].concat());
        let scene = scene.kill_a_node();
        let e01 = scene.desk.arg("copy.E01");
        cheetah(&["acquire", &scene.drive, &e01]).ok();
        assert!(tool("ewfverify", &[&e01]).ok().out().contains("SUCCESS"));
        let raw = scene.desk.arg("copy.raw");
        cheetah(&["acquire", &e01, &raw]).ok();
        assert!(fs::read(&raw).unwrap() == scene.content);
    }
}
