//! What other drives can do, sealed drives can.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use cheetah_tls::Role;
use cheetah_tls::testing::Room;
use rustix::process::Signal;

use crate::cable::Cable;
use crate::sealed::{identity, sealed};
use crate::secured::{self, acting, credential};
use crate::support::run::run;
use crate::support::{Desk, MIB, Mounted, Node, Service, cheetah, need, node, noise, three};

/// Whether `status` says that a drive is sealed.
fn is_sealed(drive: &str) -> bool {
    !cheetah(&["status", drive]).ok().json()["sealed_for"].is_null()
}

#[test]
fn a_drive_is_sealed_by_default_if_a_node_is_on_another_machine() {
    let Some(cable) = Cable::new() else { return };
    let desk = Desk::new();
    let (here, there) = (cable.writers.as_str(), cable.readers.as_str());
    let (near, far) = (Cable::node(here, Cable::WRITERS), Cable::node(there, Cable::READERS));
    let (key, recipient) = identity(&desk, "me.key");
    let create = |name: &str, nodes: &[&Node], more: &[&str]| {
        let drive = desk.arg(name);
        let create = ["create", &drive, "--nodes", &node::list(nodes), "--size", "1MiB", "--layout", "linear"];
        (drive.clone(), run(Cable::command(here, &[&create[..], more].concat())))
    };
    let (drive, refused) = create("none.drive", &[&near, &far], &[]);
    refused.says(2, &["another machine", "--identity", "--recipient", "--passphrase-file", "a room", "--no-seal"]);
    assert!(!fs::exists(&drive).unwrap());

    let sealed_for = |drive: &str| {
        let shown = fs::read_to_string(drive).unwrap();
        shown.lines().find_map(|line| line.strip_prefix("recipient = ").map(str::to_owned))
    };
    let (sealed, made) = create("sealed.drive", &[&near, &far], &["--identity", &key]);
    made.ok();
    assert_eq!(sealed_for(&sealed), Some(format!("\"{recipient}\"")));
    let (clear, made) = create("clear.drive", &[&near, &far], &["--no-seal"]);
    made.ok();
    assert_eq!(sealed_for(&clear), None);
    // The node's address is this machine's own.
    let (own, made) = create("own.drive", &[&near], &["--identity", &key]);
    made.ok();
    assert_eq!(sealed_for(&own), None);
    drop(cable);
}

#[test]
fn a_drive_over_nodes_of_this_machine_is_sealed_only_on_request() {
    let desk = Desk::new();
    let node = Node::start("32MiB");
    let (key, recipient) = identity(&desk, "me.key");
    let (image, _) = desk.image("disk.raw", MIB);
    for (name, option, is) in [
        ("default", &["--identity", &key][..], false),
        ("recipient", &["--recipient", &recipient], true),
        ("seal", &["--seal", "--identity", &key], true),
    ] {
        let drive = desk.drive(name, &[&node], &image, option);
        assert_eq!(is_sealed(&drive), is, "{name}");
    }
}

#[test]
fn a_sealed_lazy_drive_is_read_while_it_fills_and_ends_as_loaded() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let nodes = three("48MiB");
    let (key, _) = identity(&desk, "me.key");
    let (image, content) = desk.image("disk.raw", 20 * MIB + 512);
    let drive = sealed(&desk, "lazy", &nodes.each_ref(), &image, &key, &["--lazy"]);
    let with = |args: &[&str]| cheetah(&[args, &["--identity", &key]].concat());
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--identity", &key]);
    assert!(mount.read() == content);
    mount.service().signal(Signal::KILL);
    cheetah(&["unmount", &desk.arg("mnt")]).ok();
    drop(mount);
    // The next process goes on, whatever the one that was killed had not recorded.
    with(&["load", &drive, "--force-lease"]).ok();
    let verified = with(&["verify", &drive]).ok();
    assert!(!verified.stderr.contains("unverified"), "{}", verified.stderr);
    assert_eq!(verified.json()["ok_bytes"], content.len() as u64);
    let copy = desk.arg("copy");
    with(&["save", &drive, &copy]).ok();
    assert!(fs::read(&copy).unwrap() == content);
}

#[test]
fn a_sealed_drive_is_enlarged_and_keeps_its_content() {
    let desk = Desk::new();
    let [first, second, third] = three("32MiB");
    let (key, _) = identity(&desk, "me.key");
    let drive = desk.arg("scratch.drive");
    let create = ["create", &drive, "--nodes", first.address(), "--size", "3MiB", "--seal", "--identity", &key];
    cheetah(&create).ok();
    let size = || cheetah(&["status", &drive]).ok().json()["size_bytes"].as_u64().unwrap();
    let content = noise(3 * MIB, 1);
    let image = desk.file("image", &content);
    cheetah(&["load", &drive, &image, "--identity", &key]).ok();
    // No key is needed to enlarge it.
    cheetah(&["enlarge", &drive, "--nodes", second.address(), "--size", "5MiB"]).ok();
    assert_eq!(size(), 8 * MIB);
    cheetah(&["enlarge", &drive, "--nodes", third.address(), "--layout", "linear"]).ok();
    assert!(size() > 39 * MIB && size() < 40 * MIB, "{}", size());
    let copy = desk.arg("copy");
    cheetah(&["save", &drive, &copy, "--identity", &key]).ok();
    let saved = fs::read(&copy).unwrap();
    assert!(saved[..content.len()] == content && saved[content.len()..].iter().all(|byte| *byte == 0));
    if !need::fuse() {
        return;
    }
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--identity", &key, "--writable"]);
    let end = noise(33 * MIB, 2);
    let file = File::options().write(true).open(&mount.file).unwrap();
    file.write_all_at(&end, 5 * MIB).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mount.unmount();
    let again = Mounted::new(&drive, &desk.dir("again"), &["--identity", &key]);
    let read = again.read();
    assert!(read[5 * MIB as usize..38 * MIB as usize] == end && read[..content.len()] == content);
    again.unmount();
}

#[test]
fn ranges_of_a_sealed_drive_lost_with_too_many_nodes_are_fetched_again_from_the_source() {
    let desk = Desk::new();
    let [first, second, third] = three("40MiB");
    let (key, _) = identity(&desk, "me.key");
    let (image, content) = desk.image("disk.raw", 12 * MIB);
    let drive = sealed(&desk, "case", &[&first, &second, &third], &image, &key, &["--layout", "parity"]);
    second.kill();
    third.kill();
    let (one, other) = (Node::start("40MiB"), Node::start("40MiB"));
    let spares = node::list(&[&one, &other]);
    let repair = ["repair", &drive, "--nodes", &spares, "--from-source", "--force-lease"];
    cheetah(&repair).says(2, &["--identity"]);
    let fetched = cheetah(&[&repair[..], &["--identity", &key]].concat()).ok().json();
    assert!((1..=12 * MIB).contains(&fetched["fetched_bytes"].as_u64().unwrap()), "{fetched}");
    first.kill();
    let verified = cheetah(&["verify", &drive, "--identity", &key]).ok().json();
    assert_eq!(verified["ok_bytes"], content.len() as u64, "{verified}");
}

#[test]
fn an_overlay_over_a_sealed_drive_takes_writes_and_the_drive_is_drained_without_its_key() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let nodes = three("48MiB");
    let (key, _) = identity(&desk, "me.key");
    let (image, content) = desk.image("disk.raw", 8 * MIB);
    let drive = sealed(&desk, "case", &nodes.each_ref(), &image, &key, &["--layout", "parity"]);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--identity", &key, "--overlay", "memory:8MiB"]);
    let file = File::options().read(true).write(true).open(&mount.file).unwrap();
    file.write_all_at(b"not evidence", 70_000).unwrap();
    let mut found = [0; 12];
    file.read_exact_at(&mut found, 70_000).unwrap();
    assert_eq!(&found, b"not evidence");
    drop(file);
    mount.unmount();
    let spare = Node::start("48MiB");
    cheetah(&["drain", nodes[0].address(), "--drive", &drive, "--to", spare.address()]).ok();
    let copy = desk.arg("copy");
    cheetah(&["save", &drive, &copy, "--identity", &key]).ok();
    assert!(fs::read(&copy).unwrap() == content);
    assert_eq!(nodes[0].used_bytes(), 0);
}

#[test]
fn a_source_is_acquired_into_a_sealed_drive_and_the_drive_is_a_source() {
    let desk = Desk::new();
    let nodes = three("24MiB");
    let (key, _) = identity(&desk, "me.key");
    let (disk, content) = desk.image("disk.raw", 6 * MIB);
    let drive = desk.arg("case.drive");
    let list = node::list(&nodes.each_ref());
    let with = |args: &[&str]| cheetah(&[args, &["--identity", &key]].concat());
    with(&["create", &drive, "--nodes", &list, "--size", "6MiB", "--seal"]).ok();
    let image = desk.arg("image.E01");
    with(&["acquire", &disk, &image, &drive]).ok();
    let verified = with(&["verify", &drive]).ok().json();
    assert_eq!(verified["ok_bytes"], content.len() as u64, "{verified}");
    let again = desk.arg("again.raw");
    with(&["acquire", &drive, &again]).ok();
    assert!(fs::read(&again).unwrap() == content);
    cheetah(&["acquire", &drive, &desk.arg("none.raw")]).says(2, &["--identity"]);
}

#[test]
fn an_analyst_of_the_room_reads_a_sealed_drive_and_can_neither_write_nor_move_nor_destroy_it() {
    let desk = Desk::new();
    let room = Room::new();
    let [examiner, analyst] =
        [("desk", Role::Examiner), ("ann", Role::Analyst)].map(|(name, role)| credential(&desk, &room, name, role));
    let pcs = ["pc1", "pc2", "pc3"].map(|name| secured::node(&credential(&desk, &room, name, Role::Node)));
    let (image, content) = desk.image("disk.raw", 4 * MIB);
    let drive = desk.arg("case.drive");
    let list = node::list(&[&pcs[0], &pcs[1]]);
    acting(&examiner, &["create", &drive, "--nodes", &list, "--from", &image, "--seal", "--layout", "mirror"]).ok();
    let own = acting(&analyst, &["drive", "identity"]).ok().json();
    acting(&examiner, &["drive", "share", &drive, "--recipient", own["recipient"].as_str().unwrap()]).ok();
    acting(&analyst, &["verify", &drive]).ok();
    if need::fuse() {
        let dir = desk.dir("mnt");
        let overlay = Service::start(&["--room", &analyst, "mount", &drive, &dir, "--overlay", "memory:4MiB"]);
        let path = overlay.ready["file"].as_str().unwrap().to_owned();
        assert!(fs::read(&path).unwrap() == content);
        File::options().write(true).open(&path).unwrap().write_all_at(b"mine", 100).unwrap();
        assert_eq!(&fs::read(&path).unwrap()[100..104], b"mine");
        assert_eq!(overlay.stop(Signal::TERM).0, Some(0));
    }
    let elsewhere = pcs[2].address();
    for refused in [
        &["load", &drive, &image][..],
        &["mount", &drive, &desk.dir("writable"), "--writable"],
        &["export", &drive, "--writable", "--listen", "127.0.0.1:0"],
        &["drain", pcs[0].address(), "--drive", &drive, "--to", elsewhere],
        &["enlarge", &drive, "--nodes", elsewhere, "--size", "1MiB"],
        &["destroy", &drive],
    ] {
        assert_ne!(acting(&analyst, refused).code, Some(0), "{refused:?}");
    }
    let verified = acting(&examiner, &["verify", &drive]).ok().json();
    assert_eq!(verified["ok_bytes"], content.len() as u64, "{verified}");
    acting(&examiner, &["drain", pcs[0].address(), "--drive", &drive, "--to", elsewhere]).ok();
    acting(&analyst, &["verify", &drive]).ok();
}
