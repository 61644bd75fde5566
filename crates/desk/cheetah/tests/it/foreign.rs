//! Foreign NBD servers as nodes.

use rustix::process::Signal;

use crate::support::{Desk, MIB, Mounted, Node, Peer, Service, cheetah, need, text};

fn round_trip(desk: &Desk, nodes: &str, layout: &str, more: &[&str]) {
    let (image, content) = desk.image(&format!("{layout}.raw"), 9 * MIB + 512);
    let drive = desk.arg(&format!("{layout}.drive"));
    let create = ["create", &drive, "--nodes", nodes, "--layout", layout, "--from", &image];
    cheetah(&[&create[..], more].concat()).ok();
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
    let nodes = format!("{},{},{}", tcp.uri, node.address(), unix.uri);
    round_trip(&desk, &nodes, "stripe", &[]);
    // What a destroyed drive leaves at a foreign server is not overwritten unasked, and no less anything else there.
    let drive = desk.arg("again.drive");
    let again = cheetah(&["create", &drive, "--nodes", &nodes, "--size", "all"]);
    again.says(1, &["holds data, which a drive over it would overwrite", "--overwrite"]);
    assert!(!desk.at("again.drive").exists());
    round_trip(&desk, &nodes, "linear", &["--overwrite"]);
    assert_eq!(node.exports(), 0);
}

#[test]
fn an_export_that_holds_an_image_is_refused_as_a_node_and_keeps_every_byte() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, content) = desk.image("image.raw", 4 * MIB);
    let drive = desk.arg("case.drive");
    cheetah(&["create", &drive, "--nodes", node.address(), "--from", &image]).ok();
    let service = Service::start(&["export", &drive, "--listen", "127.0.0.1:0", "--writable"]);
    let uri = text(&service.ready, "uri").to_owned();
    for more in [&["--size", "1MiB"][..], &["--from", &image], &["--size", "all", "--layout", "linear"]] {
        let other = desk.arg("other.drive");
        cheetah(&[&["create", &other, "--nodes", &uri], more].concat()).says(1, &["holds data", "--overwrite"]);
        assert!(!desk.at("other.drive").exists());
    }
    let (more, spare) = (desk.arg("more.drive"), Node::start("16MiB"));
    cheetah(&["create", &more, "--nodes", spare.address(), "--size", "1MiB"]).ok();
    cheetah(&["enlarge", &more, "--nodes", &uri, "--size", "1MiB"]).says(1, &["holds data", "--overwrite"]);
    service.stop(Signal::INT);
    let saved = desk.arg("saved.raw");
    cheetah(&["save", &drive, &saved]).ok();
    assert!(std::fs::read(&saved).unwrap() == content);
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
    round_trip(&desk, &peer.uri, "stripe", &[]);
}

/// The memory of machines on which Cheetah does not run is lent by nbdkit.
#[test]
fn a_drive_over_nbdkit_alone_survives_the_loss_of_one_and_after_a_repair_that_of_another() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    for layout in ["mirror", "parity"] {
        let desk = Desk::new();
        let (image, content) = desk.image("disk.raw", 9 * MIB + 512);
        let [first, second, third, spare] = [(); 4].map(|()| Peer::nbdkit_tcp(&["memory", "24M"]));
        let nodes = [&first, &second, &third].map(|peer| peer.uri.clone()).join(",");
        let drive = desk.arg("case.drive");
        cheetah(&["create", &drive, "--nodes", &nodes, "--layout", layout, "--from", &image]).ok();
        drop(second);
        assert_survives(&drive, 0);
        assert_content(&desk, &drive, &content);
        let repaired = cheetah(&["repair", &drive, "--nodes", &spare.uri]).ok().json();
        assert_eq!(repaired["repair"]["replaced"][0]["by"], format!("{}/", spare.uri), "{repaired}");
        assert_eq!(repaired["repair"]["survives"], 1, "{repaired}");
        assert_eq!(cheetah(&["status", &drive]).ok().json()["survives_losses"], 1);
        drop(first);
        assert_survives(&drive, 0);
        assert_content(&desk, &drive, &content);
    }
}

/// Asserts that a node is lost, and how many more the drive survives.
#[track_caller]
fn assert_survives(drive: &str, losses: u64) {
    // An error follows the status.
    let told = cheetah(&["status", drive]).ended_with(3).out();
    let status: serde_json::Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!(status["survives_losses"], losses, "{status}");
}

#[track_caller]
fn assert_content(desk: &Desk, drive: &str, content: &[u8]) {
    cheetah(&["verify", drive]).ok();
    let saved = desk.arg("saved.raw");
    cheetah(&["save", drive, &saved, "--force"]).ok();
    assert!(std::fs::read(&saved).unwrap() == content, "the drive does not hold the image");
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
