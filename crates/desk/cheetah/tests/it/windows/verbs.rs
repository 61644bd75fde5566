//! Verbs that work in Windows as in Linux.

use std::fs;

use rustix::process::Signal;

use super::signer;
use super::wine::{Windows, there};
use crate::support::run::cheetah;
use crate::support::{Desk, MIB, Node, hits_of, noise, number, text};

const WORD: &[u8] = b"Geheimnis";

/// An image with a word at its ends and across the seams of parts, and with an e-mail address.
fn searchable(desk: &Desk) -> String {
    let mut bytes = noise(4 * MIB, 45);
    let mut put = |at: u64, what: &[u8]| bytes[at as usize..at as usize + what.len()].copy_from_slice(what);
    for at in [0, MIB - 8, 2 * MIB - 1, 4 * MIB - WORD.len() as u64] {
        put(at, WORD);
    }
    put(3 * MIB - 9, b" <john.doe@example.com>, ");
    desk.file("disk.raw", &bytes)
}

#[test]
fn a_search_in_windows_finds_what_one_in_linux_finds() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let raw = searchable(&desk);
    let what = ["--word", "Geheimnis", "--find", "email", "--workers", "2"];
    let here = cheetah(&[&["search", &raw, "--out", &desk.arg("here")], &what[..]].concat()).ok().json();
    let (source, out) = (there(&raw), there(&desk.arg("there")));
    let found = [&["search", &source, "--out", &out, "--room", "none"], &what[..]].concat();
    let found = windows.run(&desk, &found).ok().json();
    assert_eq!((number(&found, "hits"), number(&here, "hits")), (5, 5), "{found} {here}");
    assert_eq!(hits_of(&desk.at("there")), hits_of(&desk.at("here")));
    let histogram = |folder: &str| fs::read_to_string(desk.at(folder).join("features/email_histogram.txt")).unwrap();
    assert!(histogram("there").ends_with("\nn=1\tjohn.doe@example.com\n"), "{}", histogram("there"));
}

#[test]
fn the_head_of_a_custody_log_is_the_same_in_windows_and_in_linux_and_a_log_that_was_cut_is_found_there() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let (disk, _) = desk.image("disk.img", MIB);
    let raw = desk.arg("x.raw");
    windows.run(&desk, &["acquire", &there(&disk), &there(&raw)]).ok();
    let found = windows.run(&desk, &["custody", &there(&raw)]).ok().json();
    let here = cheetah(&["custody", &raw, "--key", &signer(&raw)]).ok().json();
    assert_eq!((text(&found, "head"), number(&found, "records")), (text(&here, "head"), number(&here, "records")));
    // The ledger in the settings of Windows knows the head.
    let log = desk.at("x.raw.custody");
    let lines = fs::read_to_string(&log).unwrap();
    let lines: Vec<_> = lines.split_inclusive('\n').collect();
    fs::write(&log, lines[..lines.len() - 1].concat()).unwrap();
    windows.run(&desk, &["custody", &there(&raw)]).says(3, &["your ledger"]);
}

#[test]
fn windows_shows_a_drive_and_its_nodes_once_and_a_node_that_is_gone() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let (disk, _) = desk.image("disk.img", 4 * MIB);
    let [one, two] = [Node::start("16MiB"), Node::start("16MiB")];
    let (drive, nodes) = (there(&desk.arg("own.drive")), format!("{},{}", one.address(), two.address()));
    let (disk, stripe) = (there(&disk), ["--layout", "stripe", "--room", "none"]);
    windows.run(&desk, &[&["create", &drive, "--nodes", &nodes, "--from", &disk], &stripe[..]].concat()).ok();
    let watch = ["watch", "--once", &drive, "--room", "none"];
    let picture = windows.run(&desk, &watch).ok().json();
    assert_eq!((&picture["state"], &picture["totals"]["answering"]), (&"good".into(), &2.into()), "{picture}");
    assert_eq!(picture["drives"][0]["status"]["healthy"], true, "{picture}");
    two.kill();
    windows.run(&desk, &watch).ended_with(3);
}

#[test]
fn a_node_of_windows_that_lends_what_is_idle_holds_a_drive_and_wipes_it() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let auto = ["node", "--memory", "auto", "--keep-free", "64MiB", "--listen", "127.0.0.1:0", "--room", "none"];
    let node = Node::of(windows.start(&desk, &auto));
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let total_kib: u64 = total.trim().trim_end_matches(" kB").parse().unwrap();
    let lent = number(&node.service.ready, "lent_bytes");
    assert!(lent > 0 && lent <= total_kib << 10, "{lent} of {total_kib} KiB");
    let (disk, whole) = desk.image("disk.img", 5 * MIB);
    let drive = desk.drive("case", &[&node], &disk, &[]);
    let saved = desk.arg("saved.raw");
    cheetah(&["save", &drive, &saved]).ok();
    assert!(fs::read(&saved).unwrap() == whole);
    let (code, receipt) = node.service.stop(Signal::INT);
    assert_eq!((code, receipt["verified_zero"].as_bool()), (Some(0), Some(true)), "{receipt}");
    assert!(number(&receipt, "wiped_total_bytes") >= MIB, "{receipt}");
}
