//! Finding nodes: those that join, those that announce themselves, and those that are named.

use std::time::Duration;

use cheetah_control::api::MDNS_SERVICE;
use cheetah_control::mdns;

use crate::support::{Desk, MIB, Node, Port, Service, cheetah, need, text, until};

#[test]
fn a_drive_waits_for_nodes_that_join_in_their_order() {
    let desk = Desk::new();
    let (image, _) = desk.image("disk.raw", 20 * MIB);
    let drive = desk.arg("joined.drive");
    let port = Port::held();
    let examiner = port.text();
    // The first one asks before the drive listens, and keeps asking.
    let first = Node::start_with("16MiB", "127.0.0.1:0", &["--name", "early", "--join", &examiner]);
    let args = ["create", &drive, "--wait", "3", "--listen", &examiner, "--layout", "linear", "--from", &image];
    let mut create = Service::start_on(&args, "waiting");
    let joined =
        |create: &Service| -> serde_json::Value { serde_json::from_str(&create.next_line().unwrap()).unwrap() };
    assert!(text(&joined(&create), "node").starts_with("early"));
    let second = Node::start_with("16MiB", "127.0.0.1:0", &["--name", "second", "--join", &examiner]);
    assert!(text(&joined(&create), "node").starts_with("second"));
    let third = Node::start_with("16MiB", "127.0.0.1:0", &["--name", "third", "--join", &examiner]);
    let (code, last) = create.wait();
    assert_eq!(code, Some(0), "{last} {}", create.stderr());
    let names: Vec<_> = last["nodes"].as_array().unwrap().iter().map(|node| text(node, "name").to_owned()).collect();
    for (name, expected) in names.iter().zip(["early", "second", "third"]) {
        assert!(name.starts_with(expected), "{names:?}");
    }
    cheetah(&["verify", &drive]).ok();
    cheetah(&["destroy", &drive]).ok();
    for node in [first, second, third] {
        assert_eq!(node.exports(), 0);
        node.stop();
    }
}

#[test]
fn waiting_for_nodes_can_be_interrupted() {
    let desk = Desk::new();
    let drive = desk.arg("a.drive");
    let create =
        Service::start_on(&["create", &drive, "--wait", "2", "--listen", "127.0.0.1:0", "--size", "1MiB"], "waiting");
    let (code, last) = create.stop(rustix::process::Signal::INT);
    assert_eq!(code, Some(1), "{last}");
    assert!(!desk.at("a.drive").exists());
}

#[test]
fn announced_nodes_are_found() {
    let desk = Desk::new();
    let drive = desk.arg("auto.drive");
    let first = Node::start_with("16MiB", "127.0.0.1:0", &["--announce", "--name", "cheetah-test-one"]);
    let second = Node::start_with("16MiB", "127.0.0.1:0", &["--announce", "--name", "cheetah-test-two"]);
    if !multicast() {
        return need::skip("multicast does not come back on this machine's loopback");
    }
    // A node says what it is a while after its start.
    until("both nodes are announced", || {
        let found = announced();
        [&first, &second].iter().all(|node| found.iter().any(|port| node.http.ends_with(&format!(":{port}"))))
    });
    // One node alone is too small.
    let made = cheetah(&["create", &drive, "--nodes", "auto", "--layout", "stripe", "--size", "20MiB"]).ok().json();
    let names: Vec<_> = made["nodes"].as_array().unwrap().iter().map(|node| text(node, "name").to_owned()).collect();
    assert!(names.iter().all(|name| name.starts_with("cheetah-test-")) && names.len() == 2, "{names:?}");
    cheetah(&["destroy", &drive]).ok();
    drop((first, second));
}

/// The control ports of the nodes that answer a question for announcements.
fn announced() -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = runtime.block_on(mdns::browse(MDNS_SERVICE, Duration::from_secs(1))).unwrap();
    found.iter().filter_map(|node| node.txt_properties.get_property_val_str("http").map(str::to_owned)).collect()
}

/// Whether a multicast datagram sent over loopback arrives.
fn multicast() -> bool {
    use std::net::{Ipv4Addr, UdpSocket};
    let group = Ipv4Addr::new(224, 0, 0, 251);
    let attempt = || -> std::io::Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)?;
        rustix::net::sockopt::set_ip_multicast_if(&socket, &Ipv4Addr::LOCALHOST)?;
        socket.set_multicast_loop_v4(true)?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.send_to(b"?", (group, socket.local_addr()?.port()))?;
        socket.recv(&mut [0; 8]).map(drop)
    };
    attempt().is_ok()
}

#[test]
fn a_node_that_does_not_answer_is_named_by_the_port_that_was_typed() {
    let desk = Desk::new();
    let drive = desk.arg("a.drive");
    let (typed, _next) = Port::neighbours();
    let ran = cheetah(&["create", &drive, "--nodes", &typed.text(), "--size", "1MiB"]);
    let ran = ran.says(1, &[&format!("no node answers at {}", typed.text()), "`cheetah node`"]);
    assert!(!ran.stderr.contains("http"), "{}", ran.stderr);
}

#[test]
fn a_control_port_given_for_a_node_is_recognised() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let drive = desk.arg("a.drive");
    let ran = cheetah(&["create", &drive, "--nodes", &node.http, "--size", "1MiB"]);
    ran.says(2, &[&node.http, "control port", &format!("name its NBD port: {}", node.nbd)]);
}
