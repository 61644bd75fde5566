//! Members of a room: where they serve, and what they do after one of them was revoked.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::lab::{Lab, port};
use crate::support::{Desk, MIB, Node, need, text, tool};

/// The names of the servers that the room knows.
fn servers(lab: &Lab) -> Vec<String> {
    let members = lab.members();
    let servers = members.iter().flat_map(|member| member["servers"].as_array().unwrap().clone());
    let mut names: Vec<_> = servers.map(|server| text(&server, "name").to_owned()).collect();
    names.sort();
    names
}

fn until_known(lab: &Lab, names: &[&str]) {
    lab.eventually("examiner", &["room", "list"], |_| servers(lab) == names);
}

#[test]
fn a_drive_gets_all_nodes_of_a_machine_that_share_one_credential() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "node"]);
    // Two nodes of one machine, and two of the machine that has the room.
    let there = ["a", "b"].map(|name| lab.node("one", name, &["--room", &string]));
    let here = ["c", "d"].map(|name| lab.node("examiner", name, &[]));
    until_known(&lab, &["a", "b", "c", "d"]);
    assert_eq!(lab.members().iter().filter(|member| member["role"] == "node").count(), 2);
    let drive = lab.0.arg("case42.drive");
    let made = lab.at("examiner", &["create", &drive, "--wait", "4", "--listen", "127.0.0.1:0", "--size", "8MiB"]).ok();
    let names: Vec<_> =
        made.json()["nodes"].as_array().unwrap().iter().map(|node| text(node, "name").to_owned()).collect();
    let addresses: Vec<_> = there.iter().chain(&here).map(Node::address).collect();
    assert!(addresses.iter().all(|address| names.iter().any(|name| name == address)), "{names:?} {addresses:?}");
    // They are known by their names, too.
    let other = lab.0.arg("other.drive");
    lab.at("examiner", &["create", &other, "--nodes", "b,d", "--size", "1MiB"]).ok();
    for drive in [&drive, &other] {
        lab.at("examiner", &["destroy", drive]).ok();
    }

    // A node that ends is taken off the list; one that is started again is on it.
    let [a, b] = there;
    a.stop();
    until_known(&lab, &["b", "c", "d"]);
    // The enrolment server is needed for joining only; once it is back, a node reports its address again.
    let at = format!("127.0.0.1:{}", port(&server));
    drop(server);
    let _a = lab.node("one", "a", &["--room", "lab"]);
    let _server = lab.start("examiner", &["room", "serve", "--listen", &at], "ready");
    until_known(&lab, &["a", "b", "c", "d"]);
    // A killed node could not report its end; the list shows that it does not answer.
    b.kill();
    let silent = || {
        let members = lab.members();
        let servers = members.iter().flat_map(|member| member["servers"].as_array().unwrap().clone());
        let silent = servers.filter(|server| server["answers"] == false);
        silent.map(|server| text(&server, "name").to_owned()).collect::<Vec<_>>()
    };
    lab.eventually("examiner", &["room", "list"], |_| silent() == ["b"]);
}

#[test]
fn a_revoked_member_is_refused_by_every_server_on_whatever_port() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let [node, agent, ann, bob] =
        ["node", "agent", "analyst", "analyst"].map(|role| lab.invite(&["--role", role, "--uses", "1"]));
    let nodes = ["a", "b"].map(|name| lab.node("one", name, &["--room", &node]));
    lab.at("ann", &["room", "join", &ann, "--name", "ann"]).ok();
    lab.at("bob", &["room", "join", &bob, "--name", "bob"]).ok();
    let (image, _) = lab.0.image("disk.raw", 2 * MIB);
    let serve = ["serve", &image, "--listen", "127.0.0.1:0", "--room", &agent, "--name", "suspect"];
    let disk = lab.start("suspect", &serve, "ready");
    let disk = text(&disk.ready, "uri").to_owned();
    until_known(&lab, &["a", "b", "suspect"]);
    let list = nodes.iter().map(Node::address).collect::<Vec<_>>().join(",");
    let drive = lab.0.arg("case42.drive");
    lab.at("examiner", &["create", &drive, "--nodes", &list, "--from", &image]).ok();
    let export = lab.start("examiner", &["export", &drive, "--listen", "127.0.0.1:0"], "ready");
    let export = text(&export.ready, "uri").to_owned();

    let copy = |machine: &str, from: &str| {
        let desk = Desk::new();
        lab.at(machine, &["acquire", from, &desk.arg("copy.raw")]).code
    };
    for (machine, from) in [("ann", &disk), ("ann", &export), ("bob", &disk), ("bob", &export)] {
        assert_eq!(copy(machine, from), Some(0), "{machine} {from}");
    }
    let revoked = lab.at("examiner", &["room", "revoke", "ann"]).ok().json();
    let notified = revoked["notified"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
    // Beside the name of a server is that of its member, where they differ.
    let mut notified: Vec<_> = notified.map(|name| name.split(' ').next().unwrap()).collect();
    notified.sort();
    assert_eq!((notified, &revoked["not_notified"]), (vec!["a", "b", "suspect"], &json!([])), "{revoked}");
    // Nor is the drive read without its nodes: none of them is lost.
    for words in [&["verify", &drive][..], &["export", &drive, "--allow-lost", "--listen", "127.0.0.1:0"]] {
        let refused = lab.at("ann", words).says(1, &["is revoked"]);
        assert_ne!(refused.json()["kind"], "lost", "{}", refused.stderr);
    }
    let status = lab.at("ann", &["status", &drive]).out();
    let status: Value = serde_json::from_str(status.lines().next().unwrap()).unwrap();
    for node in status["nodes"].as_array().unwrap() {
        assert!(text(node, "problem").contains("is revoked") && text(node, "problem").contains("invite"), "{node}");
    }
    assert_ne!(copy("ann", &disk), Some(0));
    // The process that exports the drive reads the list of its own room.
    lab.eventually("ann", &["acquire", &export, &lab.0.arg("never.raw"), "--timeout", "5"], |ran| ran.code != Some(0));
    assert_eq!((copy("bob", &disk), copy("bob", &export)), (Some(0), Some(0)));
    lab.at("bob", &["verify", &drive]).ok();
}

#[test]
fn a_secret_that_cannot_be_written_leaves_neither_an_invitation_nor_a_member() {
    let lab = Lab::new();
    let invite = ["room", "invite", "--no-serve", "--role", "analyst", "--out"];
    let credential = ["room", "credential", "--role", "analyst", "--name", "ann", "--out"];
    let taken = lab.0.file("taken", b"mine");
    let nowhere = lab.0.arg("nowhere/x");
    for path in [&taken, &nowhere] {
        for words in [&invite, &credential[..]] {
            assert_ne!(lab.at("examiner", &[words, &[path.as_str()]].concat()).code, Some(0));
        }
    }
    if need::is_root() {
        let full = lab.0.dir("full");
        tool("mount", &["-t", "tmpfs", "-o", "size=4k", "none", &full]).ok();
        std::fs::write(format!("{full}/all"), [0; 4096]).unwrap();
        for words in [&invite, &credential[..]] {
            assert_eq!(lab.at("examiner", &[words, &[&format!("{full}/x")]].concat()).code, Some(1));
        }
        assert_eq!(lab.at("examiner", &["room", "export", &full, "--role", "analyst", "--name", "ann"]).code, Some(1));
        let left = std::fs::read_dir(&full).unwrap().count();
        tool("umount", &[&full]).ok();
        assert_eq!(left, 1, "a part of a secret is left");
    }
    let list = lab.at("examiner", &["room", "list"]).ok().json();
    assert_eq!(list["invitations"], json!([]), "{list}");
    let unrevoked = |member: &&Value| member["revoked_s"].is_null();
    assert_eq!(list["members"].as_array().unwrap().iter().filter(unrevoked).count(), 1, "{list}");
    assert_eq!(std::fs::read(taken).unwrap(), b"mine");
}

#[test]
fn an_unused_invitation_is_closed_by_its_id() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let made = lab.at("examiner", &["room", "invite", "--no-serve", "--role", "analyst"]).ok().json();
    let closed = lab.at("examiner", &["room", "revoke", text(&made, "id")]).ok().json();
    assert_eq!(closed["closed_invitations"], json!([made["id"]]), "{closed}");
    lab.at("ann", &["room", "join", text(&made, "invitation")]).says(1, &["was closed"]);
    lab.at("examiner", &["room", "revoke", text(&made, "id")]).says(2, &["no open invitation"]);
}

#[test]
fn a_room_restored_from_a_backup_takes_back_no_revocation() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let node = lab.invite(&["--role", "node", "--uses", "1"]);
    let node = lab.node("one", "a", &["--room", &node]);
    let names = ["ann", "bob", "carol"];
    for name in names {
        let string = lab.invite(&["--role", "analyst", "--uses", "1"]);
        lab.at(name, &["room", "join", &string, "--name", name]).ok();
    }
    until_known(&lab, &["a"]);
    let (image, _) = lab.0.image("disk.raw", 2 * MIB);
    let drive = lab.0.arg("case42.drive");
    lab.at("examiner", &["create", &drive, "--nodes", node.address(), "--from", &image]).ok();
    let (room, backup) = (lab.room_directory(), lab.0.dir("backup"));
    let copy = |from: &Path, to: &Path| {
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    };
    copy(&room, Path::new(&backup));
    lab.at("examiner", &["room", "revoke", "ann"]).ok();
    copy(Path::new(&backup), &room);
    // As many certificates are revoked as before, but others.
    lab.at("examiner", &["room", "revoke", "bob"]).says(1, &["not notified: a", "backup"]);
    lab.at("ann", &["verify", &drive]).says(1, &["is revoked"]);
    lab.at("examiner", &["room", "revoke", "ann"]).ok();
    for name in ["ann", "bob"] {
        lab.at(name, &["verify", &drive]).says(1, &["is revoked"]);
    }
    lab.at("carol", &["verify", &drive]).ok();
}

#[test]
fn an_unreachable_node_gets_a_revocation_later_from_the_room_or_an_examiner() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    let [node, ann] = ["node", "analyst"].map(|role| lab.invite(&["--role", role, "--uses", "1"]));
    let [silent, asking] = ["silent", "asking"].map(|name| lab.node("one", name, &["--room", &node]));
    lab.at("ann", &["room", "join", &ann, "--name", "ann"]).ok();
    until_known(&lab, &["asking", "silent"]);
    let (image, _) = lab.0.image("disk.raw", 2 * MIB);
    let drive = lab.0.arg("case42.drive");
    let create = ["create", &drive, "--nodes", silent.address(), "--from", &image];
    lab.at("examiner", &create).ok();
    lab.at("ann", &["verify", &drive]).ok();

    // The two nodes of one machine, which share a credential file, are unreachable while ann is revoked.
    for node in [&silent, &asking] {
        node.service.signal(rustix::process::Signal::STOP);
    }
    let revoked = lab.at("examiner", &["room", "revoke", "ann"]).ok().json();
    assert_eq!(revoked["not_notified"].as_array().unwrap().len(), 2, "{revoked}");
    drop(server);
    silent.service.signal(rustix::process::Signal::CONT);
    // An examiner's call carries the list.
    lab.at("examiner", &["verify", &drive]).ok();
    lab.at("ann", &["verify", &drive]).says(1, &["is revoked"]);

    // The other node reads the list in the file.
    asking.service.signal(rustix::process::Signal::CONT);
    lab.eventually("ann", &["create", &lab.0.arg("x.drive"), "--nodes", asking.address(), "--size", "1MiB"], |ran| {
        // An analyst that is still a member is told that it may not do this.
        ran.code != Some(0) && !ran.stderr.contains("may not do this")
    });
}

#[test]
fn a_revoked_member_tells_the_room_nothing() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    let node = lab.invite(&["--role", "node", "--uses", "1"]);
    let a = lab.node("one", "a", &["--room", &node]);
    until_known(&lab, &["a"]);
    lab.at("examiner", &["room", "revoke", "a"]).ok();
    a.stop();
    let _again = lab.node("one", "again", &["--room", "lab"]);
    // The enrolment server reports each refusal.
    let refused = || -> Value { serde_json::from_str(&server.next_line().unwrap()).unwrap() };
    while refused()["event"] != "refused" {}
    assert_eq!(servers(&lab), ["a"], "the revoked member's new node is not recorded");
}

#[test]
fn a_revoked_member_comes_back_with_a_new_invitation_and_a_new_key() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let [node, first] = ["node", "analyst"].map(|role| lab.invite(&["--role", role, "--uses", "1"]));
    let a = lab.node("one", "a", &["--room", &node]);
    lab.at("ann", &["room", "join", &first, "--name", "ann"]).ok();
    until_known(&lab, &["a"]);
    let (image, _) = lab.0.image("disk.raw", 2 * MIB);
    let drive = lab.0.arg("case42.drive");
    lab.at("examiner", &["create", &drive, "--nodes", a.address(), "--from", &image]).ok();
    lab.at("ann", &["verify", &drive, "--no-log"]).ok();
    // A member that is one still joins only once.
    let second = lab.invite(&["--role", "analyst", "--uses", "2"]);
    assert_eq!(lab.at("ann", &["room", "join", &second]).ok().json()["new"], false);

    lab.at("examiner", &["room", "revoke", "ann"]).ok();
    lab.at("ann", &["verify", &drive, "--no-log"]).says(1, &["is revoked", "cheetah room join"]);
    // The invitation that admitted it is closed, and helps no more.
    lab.at("ann", &["room", "join", &first]).says(1, &["was closed"]);
    let joined = lab.at("ann", &["room", "join", &second, "--name", "ann"]).ok().json();
    assert_eq!(joined["new"], true, "{joined}");
    lab.at("ann", &["verify", &drive, "--no-log"]).ok();
    let keys: Vec<_> = lab.members().iter().filter(|member| member["role"] == "analyst").cloned().collect();
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert_ne!(keys[0]["key_sha256"], keys[1]["key_sha256"]);
    assert!(!keys[0]["revoked_s"].is_null() && keys[1]["revoked_s"].is_null());
}

#[test]
fn a_member_that_did_not_make_the_room_is_not_told_to_make_another_of_its_name() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    let ann = lab.invite(&["--role", "analyst"]);
    lab.at("ann", &["room", "join", &ann]).ok();
    let place = format!(":{}", port(&server));
    for words in [&["room", "list"][..], &["room", "list", "--room", "lab"], &["room", "invite", "--role", "node"]] {
        let ran = lab.at("ann", words).says(2, &["in room lab as analyst", "machine that made the room", &place]);
        assert!(!ran.stderr.contains("make it (") && !ran.stderr.contains("room init"), "{}", ran.stderr);
    }
    lab.at("ann", &["room", "init", "lab"]).says(2, &["member of a room 'lab' already", "another name"]);
    lab.at("ann", &["room", "init", "own"]).ok();
    assert_eq!(lab.at("ann", &["room", "list", "--room", "own"]).ok().json()["room"], "own");
}

#[test]
fn two_rooms_of_one_name_are_told_apart() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let ann = lab.invite(&["--role", "analyst"]);
    lab.at("ann", &["room", "init", "lab"]).ok();
    lab.at("ann", &["room", "join", &ann]).ok();
    let id = text(&lab.list(), "id")[..8].to_owned();
    let (_, _) = lab.0.image("disk.raw", MIB);
    let status = ["status", "none.drive", "--room"];
    lab.at("ann", &[&status[..], &["lab"]].concat()).says(2, &["two rooms named 'lab'", &format!("lab-{id}")]);
    // The error is that of the drive file, behind the room.
    let ran = lab.at("ann", &[&status[..], &[&format!("lab-{id}")]].concat());
    assert!(ran.stderr.contains("none.drive"), "{}", ran.stderr);
}

#[test]
fn the_table_of_members_breaks_no_key() {
    let lab = Lab::new();
    let name = "a-very-long-name-of-a-machine-in-the-laboratory";
    let file = lab.0.arg("x.pem");
    lab.at("examiner", &["room", "credential", "--role", "node", "--name", name, "--out", &file]).ok();
    let mut command = crate::support::run::program();
    command.env("XDG_CONFIG_HOME", lab.config("examiner")).args(["room", "list"]);
    let shown = crate::support::run::run(command).ok().out();
    assert!(shown.lines().skip(1).all(|line| line.chars().count() <= 80), "{shown}");
    for member in lab.members() {
        assert!(shown.contains(&text(&member, "key_sha256")[..16]), "{shown}");
    }
}
