//! Drives that are spread over more nodes while they are used.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::drain::{SIZE, read_drive, write_until};
use crate::sealed::identity;
use crate::support::peer::Peer;
use crate::support::{Desk, Mounted, Node, cheetah, need, node, three, until};

/// The exports at each node.
fn exports(nodes: &[&Node]) -> Vec<usize> {
    nodes.iter().map(|node| node.exports()).collect()
}

#[test]
fn a_drive_of_two_parts_on_each_of_two_nodes_is_spread_over_four_while_it_is_read_and_written() {
    if !need::fuse() {
        return;
    }
    let (desk, [first, second, third], fourth) = (Desk::new(), three("40MiB"), Node::start("40MiB"));
    let drive = desk.arg("case.drive");
    let two = node::list(&[&first, &second]);
    cheetah(&["create", &drive, "--nodes", &two, "--size", "24MiB", "--parts", "2"]).ok();
    assert_eq!(exports(&[&first, &second, &third, &fourth]), [2, 2, 0, 0]);
    let layout = cheetah(&["status", &drive]).ok().json()["layout"].clone();
    assert_eq!(layout, "mirror of 2 copies in units of 64KiB over 2 nodes, in 2 parts", "{layout}");
    let old = desk.arg("old.drive");
    std::fs::copy(&drive, &old).unwrap();
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--writable"]);
    let reader = Mounted::new(&drive, &desk.dir("reader"), &[]);
    let (written, read) = (mount.file.clone(), reader.file.clone());
    let ends = AtomicBool::new(false);
    let content = std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_until(&written, &ends));
        let reading = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                assert_eq!(std::fs::read(&read).unwrap().len() as u64, SIZE);
            }
        });
        let more = node::list(&[&third, &fourth]);
        let done = cheetah(&["rebalance", &drive, "--nodes", &more]);
        ends.store(true, Ordering::Relaxed);
        let done = done.ok().json();
        assert_eq!(done["moved"].as_array().unwrap().len(), 2, "{done}");
        assert_eq!(exports(&[&first, &second, &third, &fourth]), [1; 4]);
        reading.join().unwrap();
        writing.join().unwrap()
    });
    reader.unmount();
    mount.unmount();
    assert!(read_drive(&desk, &drive, "again") == content, "the drive does not hold the bytes written");
    assert!(read_drive(&desk, &old, "old") == content, "an old drive file leads elsewhere");
    let even = cheetah(&["rebalance", &drive]).ok().json();
    assert!(even["moved"].as_array().unwrap().is_empty() && even["lacks"].is_null(), "{even}");
    cheetah(&["repair", &drive, "--check"]).ok();
    // Redundancy is complete: any node may be lost.
    third.kill();
    assert!(read_drive(&desk, &drive, "without") == content, "a moved part is not redundant");
}

#[test]
fn a_sealed_drive_that_was_enlarged_is_spread_over_all_its_nodes_by_the_command_itself() {
    let (desk, [first, second, third], fourth) = (Desk::new(), three("40MiB"), Node::start("40MiB"));
    let (key, _) = identity(&desk, "me.key");
    let (image, _) = desk.image("disk.raw", SIZE);
    let all = [&first, &second, &third, &fourth];
    let drive =
        desk.drive("case", &all[..2], &image, &["--layout", "mirror", "--parts", "2", "--seal", "--identity", &key]);
    cheetah(&["enlarge", &drive, "--nodes", &node::list(&all[2..]), "--size", "8MiB"]).ok();
    assert_eq!(exports(&all), [2; 4]);
    let done = cheetah(&["rebalance", &drive]).ok().json();
    assert_eq!((exports(&all), done["moved"].as_array().unwrap().len()), (vec![2; 4], 4), "{done}");
    let recorded = std::fs::read_to_string(&drive).unwrap();
    assert_eq!(recorded.matches("verified_zero = true").count(), 4, "a receipt of each part that moved: {recorded}");
    cheetah(&["verify", &drive, "--identity", &key]).ok();
    let status = cheetah(&["status", &drive]).ok().json();
    assert_eq!(status["image"]["state"], "intact", "the command changes no byte: {status}");
    fourth.kill();
    cheetah(&["verify", &drive, "--identity", &key]).ok();
}

#[test]
fn a_drive_is_spread_while_it_is_filled_and_while_it_is_loaded() {
    if !need::fuse() || !need::programs(&["nbdkit"]) {
        return;
    }
    let (desk, [first, second, third], fourth) = (Desk::new(), three("80MiB"), Node::start("80MiB"));
    let (image, content) = desk.image("disk.raw", SIZE);
    let (two, more) = (node::list(&[&first, &second]), node::list(&[&third, &fourth]));
    let lazy = desk.arg("lazy.drive");
    cheetah(&["create", &lazy, "--nodes", &two, "--from", &image, "--lazy", "--parts", "2"]).ok();
    let mount = Mounted::new(&lazy, &desk.dir("mnt"), &[]);
    let moved = cheetah(&["rebalance", &lazy, "--nodes", &more]).ok().json();
    assert_eq!(moved["moved"].as_array().unwrap().len(), 2, "{moved}");
    assert!(mount.read() == content, "other bytes are read than the image has");
    mount.unmount();
    // Refused if the mount has filled it to the end.
    cheetah(&["load", &lazy]);
    cheetah(&["verify", &lazy]).ok();

    let loaded = desk.arg("loaded.drive");
    let size = SIZE.to_string();
    cheetah(&["create", &loaded, "--nodes", &two, "--size", &size, "--parts", "2"]).ok();
    // It takes some seconds.
    let source = Peer::nbdkit_tcp(&["--filter=rate", "file", &image, "rate=32M"]);
    let moved = std::thread::scope(|scope| {
        let loading = scope.spawn(|| cheetah(&["load", &loaded, &source.uri]));
        let writer = || cheetah(&["status", &loaded]).json()["nodes"][0]["writer"].clone();
        until("the load writes", || !writer().is_null());
        // If the load ends before the last move, the command completes the moves itself.
        let moved = cheetah(&["rebalance", &loaded, "--nodes", &more]);
        loading.join().unwrap().ok();
        moved.ok().json()
    });
    assert!(moved["lacks"].is_null(), "{moved}");
    cheetah(&["verify", &loaded]).ok();
    assert_eq!(exports(&[&first, &second, &third, &fourth]), [2; 4]);
    first.kill();
    cheetah(&["verify", &loaded]).ok();
    cheetah(&["verify", &lazy]).ok();
}

#[test]
fn a_node_without_room_is_named_and_a_drive_without_redundancy_is_refused() {
    let (desk, [first, second, third]) = (Desk::new(), three("40MiB"));
    let drive = desk.arg("case.drive");
    let two = node::list(&[&first, &second]);
    cheetah(&["create", &drive, "--nodes", &two, "--size", "24MiB", "--parts", "2"]).ok();
    let small = Node::start("4MiB");
    let done = cheetah(&["rebalance", &drive, "--nodes", small.address()]).ok().json();
    assert_eq!(done["lacks"]["node"], small.address(), "{done}");
    assert_eq!((exports(&[&first, &second]), small.exports()), (vec![2, 2], 0));
    cheetah(&["destroy", &drive]).ok();
    cheetah(&["create", &drive, "--nodes", &two, "--size", "1MiB", "--layout", "stripe"]).ok();
    cheetah(&["rebalance", &drive, "--nodes", third.address()]).says(1, &["no redundancy"]);
    let several =
        ["create", &desk.arg("b.drive"), "--nodes", &two, "--size", "1MiB", "--layout", "stripe", "--parts", "2"];
    cheetah(&several).says(2, &["--parts"]);
}
