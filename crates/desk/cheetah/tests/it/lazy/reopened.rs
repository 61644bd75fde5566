//! Sources that are killed, and replaced, while a lazy drive is filled from them.

use super::*;
use crate::support::run::cheetah_plain;
use crate::support::{Port, until};

/// The size of the agent's disk in these tests; reading it at [`SLOW`] takes half a minute.
const LEN: u64 = 24 * MIB;
const SLOW: [&str; 2] = ["--rate-max", "1MiB"];

/// Waits until the map of the drive records that this much was read.
fn wait_for_map(desk: &Desk, read: u64) {
    let map = desk.at("case.drive.map");
    until("something is recorded", || map.exists() && bytes(&mapped(&map, "+")) >= read);
}

/// Waits until the map of the drive records that a whole MiB was read, from `offset` on. Reads that are in flight at once
/// leave gaps, so a sum does not say that a given byte was read.
fn wait_for_the_mib_at(desk: &Desk, offset: u64) {
    let map = desk.at("case.drive.map");
    let covers = |(start, len): &(u64, u64)| *start <= offset && start + len >= offset + MIB;
    until("this MiB is recorded", || map.exists() && mapped(&map, "+").iter().any(covers));
}

fn log(desk: &Desk) -> String {
    std::fs::read_to_string(desk.at("case.drive.custody")).unwrap()
}

fn serve_agent(disk: &str, port: &Port, more: &[&str]) -> Service {
    Service::start(&[&["serve", disk, "--listen", &port.text(), "--name", "disk"], more].concat())
}

/// A lazy drive that is being filled from an agent, which is killed when the second MiB is recorded.
fn interrupted(desk: &Desk, nodes: &[Node; 3], port: &Port, disk: &str) -> (String, Service) {
    let agent = serve_agent(disk, port, &SLOW);
    let drive = create(desk, nodes, text(&agent.ready, "uri"));
    let filler = export(desk, &drive, &PATIENTLY);
    wait_for_the_mib_at(desk, MIB);
    agent.kill();
    (drive, filler)
}

#[test]
fn a_foreign_server_exchanged_during_a_fill_is_compared_before_it_is_read_on() {
    if !need::programs(&["nbdkit", "md5sum"]) {
        return;
    }
    let SlowlyFilled { desk, nodes: _nodes, image, content, source, drive } = SlowlyFilled::new("16MiB", 16 * MIB);
    let filler = export(&desk, &drive, &PATIENTLY);
    wait_for_the_mib_at(&desk, 0);
    drop(source);
    let mut changed = content;
    changed[..MIB as usize].fill(7);
    let other = desk.file("other.raw", &changed);
    let source = serve(&desk, &other, "other", &[], &[]);
    until("the change is noticed", || log(&desk).contains(r#""event":"source_changed""#));
    let status = cheetah(&["status", &drive]).ok().json();
    assert!(number(&status["covered"], "unread_bytes") > 0, "{status}");
    drop(source);
    // The right one is recognised, and the fill goes on.
    let source = serve(&desk, &image, "second", &[], &[]);
    let complete = completed(&filler);
    assert_eq!(text(&complete["hashes"], "md5"), md5(&image));
    assert!(log(&desk).contains(r#""method":"samples""#), "{}", log(&desk));
    filler.stop(Signal::TERM);
    drop(source);
    cheetah(&["verify", &drive]).ok();
}

#[test]
fn a_drive_filled_across_a_restart_of_a_foreign_server_says_how_much_may_differ() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let SlowlyFilled { desk, nodes: _nodes, image, source, drive, .. } = SlowlyFilled::new("24MiB", 40 * MIB);
    std::fs::write(&source.rate, "8M").unwrap();
    let filler = export(&desk, &drive, &PATIENTLY);
    wait_for_map(&desk, 8 * MIB);
    drop(source);
    let source = serve(&desk, &image, "second", &[], &[]);
    let note = |value: &Value| value["note"].as_str().unwrap_or_default().to_owned();
    let complete = completed(&filler);
    assert!(note(&complete).contains("99.9 %"), "{complete}");
    filler.stop(Signal::TERM);
    drop(source);
    for value in [cheetah(&["status", &drive]).ok().json()["image"].clone(), cheetah(&["verify", &drive]).ok().json()] {
        assert_eq!(note(&value), note(&complete), "{value}");
    }
    assert!(cheetah_plain(&["status", &drive]).ok().out().contains("NOTE: "));
    let saved = cheetah(&["save", &drive, &desk.arg("saved.raw")]).ok();
    assert_eq!(note(&saved.json()), note(&complete));
    let (log, note) = (log(&desk), note(&complete));
    assert!(log.contains(&format!(r#""notes":["{note}"]"#)) && log.contains(r#""differ_bytes_max":"#), "{log}");
}

#[test]
fn a_read_waits_until_a_source_that_was_restarted_is_recognised() {
    if !need::fuse() || !need::programs(&["nbdkit"]) {
        return;
    }
    let SlowlyFilled { desk, nodes: _nodes, image, content, source, drive } = SlowlyFilled::new("16MiB", 16 * MIB);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &[&PATIENTLY[..], &["--prefetch", "0"]].concat());
    wait_for_map(&desk, MIB);
    drop(source);
    let file = mount.file.clone();
    let read = std::thread::spawn(move || read_at(&file, 15 * MIB, 1000));
    until("the loss is noticed", || log(&desk).contains("lost"));
    let source = serve(&desk, &image, "second", &[], &[]);
    assert_eq!(read.join().unwrap().unwrap(), content[15 * MIB as usize..][..1000]);
    completed(mount.service());
    mount.unmount();
    drop(source);
}

#[test]
fn an_agent_started_again_is_recognised_by_digests_of_all_that_was_filled() {
    let desk = Desk::new();
    let nodes = three("16MiB");
    let (disk, content) = desk.image("disk.img", LEN);
    let port = Port::held();
    let (drive, filler) = interrupted(&desk, &nodes, &port, &disk);
    let agent = serve_agent(&disk, &port, &[]);
    let complete = completed(&filler);
    assert_eq!((text(&complete, "state"), &complete["note"]), ("intact", &Value::Null));
    filler.stop(Signal::TERM);
    agent.kill();
    let log = log(&desk);
    assert_eq!(log.matches(r#""event":"reconnected""#).count(), 1, "{log}");
    assert!(log.contains(r#""method":"digests""#) && log.contains(r#""unreadable_bytes":0"#), "{log}");
    cheetah(&["save", &drive, &desk.arg("saved.raw")]).ok();
    assert!(std::fs::read(desk.at("saved.raw")).unwrap() == content);
}

#[test]
fn an_agent_started_again_over_a_disk_that_was_changed_is_refused() {
    let desk = Desk::new();
    let nodes = three("16MiB");
    let (disk, mut content) = desk.image("disk.img", LEN);
    let port = Port::held();
    let (drive, filler) = interrupted(&desk, &nodes, &port, &disk);
    // One byte, which a few samples would hardly hit.
    content[MIB as usize + 4711] ^= 1;
    std::fs::write(&disk, &content).unwrap();
    let _agent = serve_agent(&disk, &port, &[]);
    until("the change is noticed", || log(&desk).contains(r#""event":"source_changed""#));
    filler.stop(Signal::TERM);
    cheetah(&["load", &drive]).says(3, &["1048576+1048576", "another content"]);
}
