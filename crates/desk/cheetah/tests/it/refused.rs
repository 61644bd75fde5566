//! A node that refuses, one whose machine cannot be reached, one that is silent, one that was restarted and one whose part
//! is lost: five facts, which no command tells as another.

use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::lab::Lab;
use crate::support::run::Ran;
use crate::support::{MIB, Node, Port, cheetah, need, node, text};

/// Words that say that content is gone, or that the user should do something to nodes.
const LOSS: [&str; 5] = ["lost", "--force-lease", "bring them back", "bring nodes back", "empty"];

/// The members that act, with their roles. Those with a 2 are revoked.
const ACTORS: [(&str, &str); 8] = [
    ("desk", "examiner"),
    ("ann", "analyst"),
    ("pc", "node"),
    ("suspect", "agent"),
    ("desk2", "examiner"),
    ("ann2", "analyst"),
    ("pc2", "node"),
    ("suspect2", "agent"),
];

/// A room with three nodes, a mirror over them, a file for each actor, and a further node.
struct Scene {
    lab: Lab,
    drive: String,
    image: String,
    nodes: Vec<Node>,
    _server: crate::support::Service,
}

impl Scene {
    fn new() -> Self {
        let lab = Lab::new();
        let server = lab.serve("examiner", "lab");
        let invitation = lab.invite(&["--role", "node"]);
        let nodes: Vec<_> = ["a", "b", "c", "d"].map(|name| lab.node(name, name, &["--room", &invitation])).into();
        for (name, role) in ACTORS {
            let file = lab.0.arg(&format!("{name}.pem"));
            lab.at("examiner", &["room", "credential", "--role", role, "--name", name, "--out", &file]).ok();
        }
        let (image, _) = lab.0.image("disk.raw", MIB);
        let drive = lab.0.arg("case42.drive");
        let list = node::list(&nodes[..3].iter().collect::<Vec<_>>());
        let create = ["create", &drive, "--nodes", &list, "--layout", "mirror", "--no-seal", "--from", &image];
        lab.at("examiner", &create).ok();
        lab.eventually("examiner", &["room", "list"], |ran| {
            ["a", "b", "c", "d"].iter().all(|name| {
                let members = ran.json()["members"].as_array().unwrap().clone();
                members
                    .iter()
                    .any(|member| member["name"] == *name && !member["servers"].as_array().unwrap().is_empty())
            })
        });
        for (name, _) in &ACTORS[4..] {
            lab.at("examiner", &["room", "revoke", name]).ok();
        }
        Self { lab, drive, image, nodes, _server: server }
    }

    fn at(&self, actor: &str, args: &[&str]) -> Ran {
        let file = self.lab.0.arg(&format!("{actor}.pem"));
        self.lab.at(actor, &[args, &["--room", &file]].concat())
    }

    /// Every command that needs the drive's nodes, and whether it only reads.
    fn commands(&self, actor: &str) -> Vec<(bool, Vec<String>)> {
        let Self { lab, drive, image, nodes, .. } = self;
        let fresh = |name: &str| lab.0.arg(&format!("{actor}-{name}"));
        let (first, spare) = (nodes[0].address(), nodes[3].address());
        let words = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        let mut commands = vec![
            (true, words(&["status", drive])),
            (true, words(&["verify", drive, "--no-log"])),
            (true, words(&["save", drive, &fresh("saved.raw"), "--force"])),
            (true, words(&["save", drive, &fresh("part.raw"), "--partial", "--force"])),
            (true, words(&["acquire", drive, &fresh("acquired.raw"), "--restart"])),
            (false, words(&["export", drive, "--writable", "--unix", &fresh("sock")])),
            (false, words(&["export", drive, "--writable", "--force-lease", "--unix", &fresh("sock")])),
            (false, words(&["load", drive, image, "--force"])),
            (false, words(&["load", drive, image, "--force", "--force-lease"])),
            (false, words(&["repair", drive])),
            (false, words(&["repair", drive, "--force-lease"])),
            (false, words(&["repair", drive, "--check"])),
            (false, words(&["drain", first, "--to", spare, "--drive", drive])),
            (
                false,
                words(&[
                    "enlarge",
                    drive,
                    "--nodes",
                    &format!("{first},{spare}"),
                    "--layout",
                    "mirror",
                    "--size",
                    "1MiB",
                ]),
            ),
            // A mirror of one part on each node is balanced, so there is nothing to move.
            (true, words(&["rebalance", drive, "--nodes", spare])),
            (false, words(&["create", &fresh("new.drive"), "--nodes", spare, "--size", "1MiB"])),
            (false, words(&["acquire", image, drive, "--force"])),
            (false, words(&["destroy", drive])),
        ];
        if need::fuse() {
            let point = || lab.0.arg("mnt");
            std::fs::create_dir_all(point()).unwrap();
            commands.push((false, words(&["mount", drive, &point(), "--writable"])));
            commands.push((false, words(&["mount", drive, &point(), "--writable", "--force-lease"])));
        }
        commands
    }

    /// Commands that serve until they are stopped: run by an actor that may read, they would not end.
    fn services(&self) -> Vec<Vec<String>> {
        let words = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        let socket = self.lab.0.arg("export.sock");
        let mut services = vec![
            words(&["export", &self.drive, "--unix", &socket]),
            words(&["export", &self.drive, "--allow-lost", "--unix", &socket]),
        ];
        if need::fuse() {
            let point = self.lab.0.arg("mnt");
            services.push(words(&["mount", &self.drive, &point]));
            services.push(words(&["mount", &self.drive, &point, "--allow-lost"]));
        }
        services
    }
}

fn args(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// Returns how a command failed to say that it is refused, and that alone.
fn is_not_refused_in_words(actor: &str, words: &[String], ran: &Ran) -> Option<String> {
    let said = format!("{}{}", ran.out(), ran.stderr);
    let lower = said.to_lowercase();
    let is_said = ["is revoked", "role", "may not"].iter().any(|word| lower.contains(word));
    let loss = LOSS.iter().find(|word| lower.contains(**word));
    let is_right = is_said && ran.code == Some(1) && loss.is_none();
    (!is_right).then(|| format!("{actor} {words:?}, {:?}, {loss:?}: {said}", ran.code))
}

/// The lines of a drive file, without the number of the epoch in which a writer would begin.
fn described(drive: &str) -> Vec<String> {
    let text = std::fs::read_to_string(drive).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("seal =") && !line.starts_with("epoch ="));
    lines.map(str::to_owned).collect()
}

#[test]
fn every_command_of_every_role_revoked_or_not_says_that_it_is_refused_and_nothing_else() {
    let scene = Scene::new();
    let before = described(&scene.drive);
    let mut wrong = Vec::new();
    for (actor, role) in ACTORS {
        let is_revoked = actor.ends_with('2');
        let may_read = !is_revoked && matches!(role, "examiner" | "analyst");
        for (only_reads, words) in scene.commands(actor) {
            if may_read && (only_reads || role == "examiner") {
                // An examiner's rebalance takes the leases, and so begins an epoch.
                if only_reads && (words[0] != "rebalance" || role == "analyst") {
                    scene.at(actor, &args(&words)).ok();
                }
                continue;
            }
            let file = std::fs::read(&scene.drive).unwrap();
            wrong.extend(is_not_refused_in_words(actor, &words, &scene.at(actor, &args(&words))));
            // Not even the epoch in which a writer would begin.
            let is_changed = std::fs::read(&scene.drive).unwrap() != file;
            wrong.extend(is_changed.then(|| format!("{actor} {words:?}: the drive file was changed")));
        }
        for words in scene.services().into_iter().filter(|_| !may_read) {
            wrong.extend(is_not_refused_in_words(actor, &words, &scene.at(actor, &args(&words))));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(described(&scene.drive), before, "the drive file is unchanged");
    // Also while another process has it open for writing.
    let socket = scene.lab.0.arg("writer.sock");
    let desk = scene.lab.0.arg("desk.pem");
    let writer = ["export", &scene.drive, "--writable", "--unix", &socket, "--room", &desk];
    let writer = scene.lab.start("desk", &writer, "ready");
    for actor in ["ann", "ann2", "desk2"] {
        let verbs =
            [vec!["repair", &scene.drive], vec!["rebalance", &scene.drive, "--nodes", scene.nodes[3].address()]];
        // An analyst that rebalances only reads, since there is nothing to move.
        for verb in verbs.iter().filter(|verb| actor != "ann" || verb[0] != "rebalance") {
            let words: Vec<String> = verb.iter().map(|word| (*word).to_owned()).collect();
            wrong.extend(is_not_refused_in_words(actor, &words, &scene.at(actor, verb)));
        }
    }
    writer.stop(Signal::TERM);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    scene.at("desk", &["verify", &scene.drive]).ok();
}

/// The state that `status` tells of a node, and its exit code.
fn told(drive: &str, node: usize) -> (String, Option<i32>, Value) {
    let ran = cheetah(&["status", drive, "--timeout", "2"]);
    let status: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    (text(&status["nodes"][node], "state").to_owned(), ran.code, status)
}

#[test]
fn a_silent_a_restarted_and_a_lost_node_are_told_apart() {
    let desk = crate::support::Desk::new();
    let (place, _next) = Port::neighbours();
    let other = Node::start("16MiB");
    let node = Node::start_with("16MiB", &place.text(), &[]);
    let (image, _) = desk.image("disk.raw", MIB);
    let drive = desk.drive("case", &[&node, &other], &image, &[]);
    assert_eq!((told(&drive, 0).0.as_str(), told(&drive, 0).1), ("ok", Some(0)));
    node.service.signal(Signal::STOP);
    let (state, code, status) = told(&drive, 0);
    assert_eq!((state.as_str(), code, text(&status, "content")), ("silent", Some(3), "unknown"), "{status}");
    node.service.signal(Signal::CONT);
    node.kill();
    let (state, code, status) = told(&drive, 0);
    assert_eq!((state.as_str(), code, text(&status, "content")), ("lost", Some(3), "lost"), "{status}");
    let _again = Node::start_with("16MiB", &place.text(), &[]);
    let (state, code, status) = told(&drive, 0);
    assert_eq!((state.as_str(), code, text(&status, "content")), ("restarted", Some(3), "lost"), "{status}");
}

/// Runs a command in a network namespace that has no route to anywhere, not even to this machine.
fn without_a_network(args: &[&str]) -> Ran {
    let program = crate::support::run::program();
    let mut command = Command::new("unshare");
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.arg("-n").arg(program.get_program()).arg("--json").args(args).stdin(Stdio::null());
    crate::support::run::run(command)
}

#[test]
fn a_drive_whose_machines_cannot_be_reached_is_not_called_lost() {
    if !need::is_root() || !need::programs(&["unshare"]) {
        return;
    }
    let desk = crate::support::Desk::new();
    let nodes = [Node::start("16MiB"), Node::start("16MiB")];
    let (image, _) = desk.image("disk.raw", MIB);
    let drive = desk.drive("case", &[&nodes[0], &nodes[1]], &image, &[]);
    let ran = without_a_network(&["status", &drive, "--timeout", "2", "--room", "none"]).ended_with(1);
    let status: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    assert!(status["nodes"].as_array().unwrap().iter().all(|node| node["state"] == "unreachable"), "{status}");
    assert_eq!(status["content"], "unknown");
    for words in
        [&["status", &drive][..], &["verify", &drive], &["save", &drive, &desk.arg("x.raw")], &["destroy", &drive]]
    {
        let ran = without_a_network(&[words, &["--timeout", "2", "--room", "none"]].concat()).ended_with(1);
        let said = format!("{}{}", ran.out(), ran.stderr).to_lowercase();
        assert!(
            !said.contains("lost:") && !said.contains("parts lost") && !said.contains("nodes lost"),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn a_node_of_which_one_port_refuses_connections_is_not_called_lost() {
    use cheetah_drive::DriveFile;
    let desk = crate::support::Desk::new();
    let nodes = [Node::start("16MiB"), Node::start("16MiB")];
    let (image, _) = desk.image("disk.raw", MIB);
    let drive = desk.drive("case", &[&nodes[0], &nodes[1]], &image, &[]);
    // A firewall that refuses connections looks like a port at which nobody listens.
    let nobody = Port::held();
    let refused = nobody.text();
    let of_whole = std::fs::read(&drive).unwrap();
    let change = |change: &dyn Fn(&mut cheetah_drive::file::SetNode)| {
        std::fs::write(&drive, &of_whole).unwrap();
        let mut file = DriveFile::load(std::path::Path::new(&drive)).unwrap();
        file.update(|file| change(&mut file.sets[0].nodes[0])).unwrap();
    };
    for port in ["control", "NBD"] {
        change(&|node| match port {
            "control" => node.http = Some(refused.clone()),
            _ => node.nbd = node.nbd.replace(nodes[0].address(), &refused),
        });
        let ran = cheetah(&["status", &drive, "--timeout", "5"]).ended_with(1);
        let status: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
        assert_eq!(text(&status["nodes"][0], "state"), "unreachable", "{port}: {status}");
        assert_eq!(text(&status, "content"), "unknown", "{port}: {status}");
    }
    let ran = cheetah(&["save", &drive, &desk.arg("x.raw"), "--timeout", "5"]).ended_with(1);
    assert!(!ran.stderr.to_lowercase().contains("lost:") && !ran.stderr.contains("nodes lost"), "{}", ran.stderr);
}
