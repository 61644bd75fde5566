//! Machines with Windows in a room.

use std::fs;

use rustix::process::Signal;

use super::wine::Windows;
use crate::support::lab::Lab;
use crate::support::{MIB, Node, node, number, text};

#[test]
fn a_node_of_windows_that_joins_by_the_string_holds_a_drive_over_tls_and_signs_its_receipt() {
    let Some(windows) = Windows::find() else { return };
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "node", "--uses", "2"]);
    let listen = ["node", "--memory", "32MiB", "--listen", "127.0.0.1:0"];
    let joining = [&listen[..], &["--name", "windows", "--room", &string]].concat();
    let there = Node::of(windows.start(&lab.0, &joining));
    let here = lab.node("linux", "linux", &["--room", &string]);
    let (disk, whole) = lab.0.image("disk.img", 5 * MIB);
    let (drive, saved) = (lab.0.arg("case.drive"), lab.0.arg("saved.raw"));
    let nodes = node::list(&[&there, &here]);
    lab.at("examiner", &["create", &drive, "--nodes", &nodes, "--layout", "stripe", "--from", &disk]).ok();
    let status = lab.at("examiner", &["status", &drive]).ok().json();
    let transport = text(&status["nodes"][0], "transport");
    assert!(transport.starts_with("TLS 1.3, ") && transport.contains("windows (node)"), "{transport}");
    lab.at("examiner", &["save", &drive, &saved]).ok();
    assert!(fs::read(&saved).unwrap() == whole);
    lab.at("examiner", &["destroy", &drive]).ok();
    let checked = lab.at("examiner", &["verify", &format!("{drive}.custody")]).ok().json();
    let wipes = &checked["custody"]["wipes"];
    let signed = wipes["signed_in_rooms"].as_object().unwrap().values();
    let signed: u64 = signed.map(|count| count.as_u64().unwrap()).sum();
    assert_eq!((signed, number(wipes, "unsigned")), (2, 0), "{checked}");
    let (code, receipt) = there.service.stop(Signal::INT);
    assert_eq!((code, receipt["verified_zero"].as_bool()), (Some(0), Some(true)), "{receipt}");
}
