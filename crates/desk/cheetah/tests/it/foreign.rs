//! Foreign NBD servers as nodes.

use crate::support::{Desk, MIB, Mounted, Node, Peer, cheetah, need, text};

fn round_trip(desk: &Desk, nodes: &str, layout: &str) {
    let (image, content) = desk.image(&format!("{layout}.raw"), 9 * MIB + 512);
    let drive = desk.arg(&format!("{layout}.drive"));
    cheetah(&["create", &drive, "--nodes", nodes, "--layout", layout, "--from", &image]).ok();
    assert_eq!(text(&cheetah(&["verify", &drive]).ok().json(), "compared"), "digests");
    let status = cheetah(&["status", &drive]).ok().json();
    assert_eq!(status["healthy"], true, "{status}");
    let copy = desk.arg("copy.raw");
    cheetah(&["save", &drive, &copy, "--force"]).ok();
    assert!(std::fs::read(&copy).unwrap() == content);
    if need::fuse() {
        let mount = Mounted::new(&drive, &desk.dir(&format!("{layout}-mnt")), &["--writable"]);
        assert!(mount.read() == content);
        mount.unmount();
    }
    cheetah(&["destroy", &drive]).ok();
}

#[test]
fn a_drive_spans_nbdkit_and_a_node() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let tcp = Peer::nbdkit_tcp(&["memory", "8M"]);
    let unix = Peer::nbdkit_unix(&desk, &["memory", "8M"]);
    for layout in ["stripe", "linear"] {
        round_trip(&desk, &format!("{},{},{}", tcp.uri, node.address(), unix.uri), layout);
    }
    assert_eq!(node.exports(), 0);
}

#[test]
fn a_drive_works_on_qemu_nbd_alone() {
    if !need::programs(&["qemu-nbd"]) {
        return;
    }
    let desk = Desk::new();
    let file = desk.arg("backing.raw");
    std::fs::File::create(&file).unwrap().set_len(16 * MIB).unwrap();
    let peer = Peer::qemu_nbd(&desk, &file);
    round_trip(&desk, &peer.uri, "stripe");
}

#[test]
fn a_read_only_server_is_refused_as_a_node() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let desk = Desk::new();
    let peer = Peer::nbdkit_tcp(&["-r", "memory", "8M"]);
    let drive = desk.arg("a.drive");
    cheetah(&["create", &drive, "--nodes", &peer.uri, "--size", "1MiB"]).says(1, &["read-only"]);
    assert!(!desk.at("a.drive").exists());
}
