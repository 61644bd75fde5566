//! The program for Windows, run by Wine beside the one for Linux.

mod bench;
mod program;
mod room;
mod session;
mod verbs;
mod wine;

use std::collections::HashSet;
use std::fs;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use self::wine::{Alone, Windows, files, there};
use crate::support::lab::Lab;
use crate::support::run::{Ran, cheetah};
use crate::support::service::Service;
use crate::support::{Desk, MIB, Node, noise, number, text, until};

/// The URI of an agent in a room: it is called over TLS only.
fn secured(agent: &Service) -> String {
    text(&agent.ready, "uri").replace("nbd://", "nbds://")
}

/// The public key that signed the custody log of an image or a drive.
fn signer(of: &str) -> String {
    let log = fs::read_to_string(format!("{of}.custody")).unwrap();
    let first: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    text(&first, "public_key").to_owned()
}

/// The report of an acquisition.
#[track_caller]
fn report(acquired: &Ran) -> Value {
    let out = acquired.out();
    let mut events = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.find(|event| event["event"] == "done").unwrap_or_else(|| panic!("not done: {out}"))["report"].clone()
}

#[test]
fn a_file_that_is_served_by_windows_is_acquired_over_tls_with_the_same_hashes_and_nothing_is_left_there() {
    let Some(alone) = Windows::find().and_then(|windows| Alone::new(windows, "traces", "")) else { return };
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "agent"]);
    let desk = &lab.0;
    let (disk, whole) = desk.image("disk.img", 8 * MIB + 512);
    let disk = there(&disk);
    let before = (files(&alone.c()), alone.registry());
    let agent = alone.windows.start(desk, &["serve", &disk, "--listen", "127.0.0.1:0", "--room", &string]);
    assert_eq!(text(&agent.ready, "name"), "disk", "{}", agent.ready);
    let raw = desk.arg("x.raw");
    lab.at("examiner", &["acquire", &secured(&agent), &raw, "--verify"]).ok();
    assert!(fs::read(&raw).unwrap() == whole);
    let (code, _) = agent.stop(Signal::INT);
    assert_eq!(code, Some(0));
    assert!(!desk.at("windows").exists(), "the agent has left its credential");
    assert_eq!(files(&alone.c()), before.0);
    let (before, after) = (before.1, alone.registry());
    let known: HashSet<_> = before.iter().collect();
    assert!(known.len() > 1000, "{} lines", known.len());
    let new: Vec<_> = after.iter().filter(|line| !known.contains(line)).collect();
    assert_eq!(new, Vec::<&String>::new());
    assert!(after == before, "a line of the registry is gone, or elsewhere");
}

/// Serves over TLS, kills the acquisition in the middle, and finishes it: the copy must be `whole`.
fn is_resumed(windows: &Windows, lab: &Lab, served: &str, whole: &[u8]) {
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "agent"]);
    let desk = &lab.0;
    let serve = ["serve", served, "--listen", "127.0.0.1:0", "--room", &string, "--rate-max", "2MiB"];
    let agent = windows.start(desk, &serve);
    let (uri, raw) = (secured(&agent), desk.arg("x.raw"));
    let acquire = ["acquire", &uri, &raw, "--checkpoint", "1MiB"];
    let mut killed = lab.command("examiner", &acquire);
    let mut killed = killed.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("it can be resumed", || desk.at("x.raw.acquire").exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    lab.at("examiner", &[&acquire[..], &["--verify"]].concat()).ok();
    assert!(fs::read(&raw).unwrap() == whole);
}

#[test]
fn an_acquisition_from_windows_that_is_killed_is_resumed_to_the_same_bytes() {
    let Some(windows) = Windows::find() else { return };
    let lab = Lab::new();
    let (disk, whole) = lab.0.image("disk.img", 12 * MIB);
    is_resumed(&windows, &lab, &there(&disk), &whole);
}

#[test]
fn an_acquisition_of_a_volume_of_windows_that_is_killed_is_resumed_to_the_same_bytes() {
    let Some(windows) = Windows::find() else { return };
    let lab = Lab::new();
    let (disk, whole) = lab.0.image("disk.img", 12 * MIB);
    let volume = Windows::volume('X', &lab.0, &disk);
    is_resumed(&windows, &lab, &volume, &whole);
}

#[test]
fn an_agent_of_windows_that_connects_to_the_examiner_is_acquired() {
    let Some(windows) = Windows::find() else { return };
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "agent"]);
    let desk = &lab.0;
    let (disk, whole) = desk.image("disk.img", 5 * MIB);
    let raw = desk.arg("x.raw");
    let mut waiting = lab.start("examiner", &["acquire", "--listen", "127.0.0.1:0", &raw], "waiting");
    let examiner = text(&waiting.ready, "listen").to_owned();
    let _agent = windows.start(desk, &["serve", &there(&disk), "--connect", &examiner, "--room", &string]);
    let (code, done) = waiting.wait();
    assert_eq!(code, Some(0), "{done} {}", waiting.stderr());
    assert!(fs::read(&raw).unwrap() == whole);
}

#[test]
fn a_drive_over_nodes_of_windows_is_whole_and_is_destroyed_with_their_receipts() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let (disk, whole) = desk.image("disk.img", 9 * MIB);
    let nodes = [windows.node(&desk), windows.node(&desk)];
    let drive = desk.drive("case", &[&nodes[0], &nodes[1]], &disk, &[]);
    cheetah(&["verify", &drive]).ok();
    let saved = desk.arg("saved.raw");
    cheetah(&["save", &drive, &saved]).ok();
    assert!(fs::read(&saved).unwrap() == whole);
    let second = noise(9 * MIB, 77);
    cheetah(&["load", &drive, &desk.file("second.img", &second), "--force"]).ok();
    cheetah(&["save", &drive, &saved, "--force"]).ok();
    assert!(fs::read(&saved).unwrap() == second);
    // The drive's file is read there, too, by a user with another key.
    windows.run(&desk, &["verify", &there(&drive), "--room", "none", "--key", &signer(&drive)]).ok();
    let destroyed = cheetah(&["destroy", &drive]).ok().json();
    for node in destroyed["nodes"].as_array().unwrap() {
        assert_eq!(node["receipt"]["verified_zero"], true, "{destroyed}");
    }
}

#[test]
fn a_killed_node_of_windows_costs_a_mirrored_drive_no_byte_and_ctrl_c_wipes_the_other() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let (disk, whole) = desk.image("disk.img", 9 * MIB);
    let [killed, left] = [windows.node(&desk), windows.node(&desk)];
    let drive = desk.drive("case", &[&killed, &left], &disk, &["--layout", "mirror"]);
    killed.kill();
    let saved = desk.arg("saved.raw");
    cheetah(&["save", &drive, &saved]).ok();
    assert!(fs::read(&saved).unwrap() == whole);
    let (code, receipt) = left.service.stop(Signal::INT);
    assert_eq!((code, receipt["verified_zero"].as_bool()), (Some(0), Some(true)), "{receipt}");
}

#[test]
fn a_volume_that_is_served_by_windows_is_acquired_and_the_report_says_that_it_changes() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let (disk, whole) = desk.image("disk.img", 2 * MIB);
    let volume = Windows::volume('Y', &desk, &disk);
    let agent = windows.start(&desk, &["serve", &volume, "--listen", "127.0.0.1:0", "--room", "none"]);
    assert_eq!(text(&agent.ready, "name"), "Y", "{}", agent.ready);
    let raw = desk.arg("x.raw");
    let acquired = cheetah(&["acquire", text(&agent.ready, "uri"), &raw]).ok();
    assert!(fs::read(&raw).unwrap() == whole);
    let doubts = report(&acquired)["doubts"].to_string();
    assert!(doubts.contains("is a mounted volume") && doubts.contains("several moments"), "{doubts}");
    let log = fs::read_to_string(desk.at("x.raw.custody")).unwrap();
    assert!(log.contains("is a mounted volume"), "{log}");
}

#[test]
fn report_and_log_of_a_volume_that_no_key_has_opened_say_that_its_image_is_ciphertext() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    // The boot sector of a stick (BitLocker To Go).
    let mut bytes = noise(2 * MIB, 47);
    bytes[..512].fill(0);
    bytes[..11].copy_from_slice(b"\xeb\x58\x90MSWIN4.1");
    bytes[424..440].copy_from_slice(b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01");
    let volume = Windows::volume('V', &desk, &desk.file("disk.img", &bytes));
    let agent = windows.start(&desk, &["serve", &volume, "--listen", "127.0.0.1:0", "--room", "none"]);
    let raw = desk.arg("x.raw");
    let acquired = cheetah(&["acquire", text(&agent.ready, "uri"), &raw]).ok();
    assert!(fs::read(&raw).unwrap() == bytes);
    let (doubts, log) =
        (report(&acquired)["doubts"].to_string(), fs::read_to_string(desk.at("x.raw.custody")).unwrap());
    let ciphertext = "is encrypted with BitLocker, and is read as it is on the medium: its image is ciphertext";
    assert!(doubts.contains(ciphertext) && log.contains(ciphertext), "{doubts} {log}");
}

#[test]
fn windows_makes_shows_loads_saves_hands_out_and_destroys_a_drive() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let (disk, _) = desk.image("disk.img", 5 * MIB);
    let second = noise(5 * MIB, 77);
    let other = desk.file("second.img", &second);
    let [one, two] = [Node::start("32MiB"), Node::start("32MiB")];
    let (drive, nodes) = (there(&desk.arg("own.drive")), format!("{},{}", one.address(), two.address()));
    let on = |args: &[&str]| windows.run(&desk, &[args, &["--room", "none"]].concat()).ok();
    on(&["create", &drive, "--nodes", &nodes, "--layout", "stripe", "--from", &there(&disk)]);
    assert_eq!(on(&["status", &drive]).json()["healthy"], true);
    on(&["verify", &drive]);
    on(&["load", &drive, &there(&other), "--force"]);
    let (saved, handed) = (desk.arg("saved.raw"), desk.arg("handed.raw"));
    on(&["save", &drive, &there(&saved)]);
    let export = windows.start(&desk, &["export", &drive, "--listen", "127.0.0.1:0", "--room", "none"]);
    cheetah(&["acquire", text(&export.ready, "uri"), &handed]).ok();
    assert_eq!(export.stop(Signal::INT).0, Some(0));
    assert!(fs::read(&saved).unwrap() == second && fs::read(&handed).unwrap() == second);
    let destroyed = on(&["destroy", &drive]).json();
    let nodes = destroyed["nodes"].as_array().unwrap();
    assert!(nodes.len() == 2 && nodes.iter().all(|node| node["receipt"]["verified_zero"] == true), "{destroyed}");
}

#[test]
fn a_probe_of_windows_measures_round_trips_and_says_what_it_cannot_measure() {
    let Some(windows) = Windows::find() else { return };
    let found = windows.run(&Desk::new(), &["probe", "127.0.0.1", "--only", "rtt", "--far", "none"]).ok().json();
    assert!(number(&found["round_trip"], "answered") > 0, "{found}");
    // What cannot be measured there.
    assert!(found["problems"].as_array().is_some_and(|problems| !problems.is_empty()), "{found}");
}

#[test]
fn the_disks_of_windows_are_listed_by_their_names() {
    let Some(windows) = Windows::find() else { return };
    let list = windows.run(&Desk::new(), &["serve", "--list"]).ok().json();
    let disks = list["disks"].as_array().unwrap();
    assert!(disks.iter().all(|disk| text(disk, "path").starts_with(r"\\.\PhysicalDrive")), "{list}");
}

#[test]
fn errors_of_windows_have_its_words_and_its_code_and_the_exit_codes_are_those_of_linux() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let node = Node::start("8MiB");
    let drive = desk.arg("missing/a.drive");
    let more = ["--nodes", node.address(), "--size", "1MiB", "--room", "none"];
    let mut command = windows.command(&desk, &[&["create", &there(&drive)][..], &more].concat());
    // Wine has its sentences in the language of the locale.
    command.env("LC_ALL", "C");
    // ERROR_PATH_NOT_FOUND, in Wine's words.
    let failed =
        Windows::to_its_end(command).says(1, &["missing", "Path not found. (Windows error 3)", "check the path"]);
    let own = cheetah(&[&["create", &drive][..], &more].concat()).ended_with(1);
    assert_eq!(failed.json()["kind"], own.json()["kind"]);
    let too_much = ["node", "--memory", "auto", "--keep-free", "900TiB", "--room", "none"];
    windows.run(&desk, &too_much).says(2, &["smaller --keep-free"]);
    windows.run(&desk, &["create"]).ended_with(2);
}

#[test]
fn windows_acquires_from_and_to_paths_of_more_than_260_characters() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let deep = ["x".repeat(120), "y".repeat(120), "z".repeat(60)].join("/");
    fs::create_dir_all(desk.at(&deep)).unwrap();
    let (disk, whole) = desk.image(&format!("{deep}/disk.img"), MIB + 512);
    let (raw, again) = (desk.arg(&format!("{deep}/x.raw")), desk.arg("again.raw"));
    windows.run(&desk, &["acquire", &there(&disk), &there(&raw), "--verify"]).ok();
    let prefixed = format!(r"\\?\{}", there(&disk));
    windows.run(&desk, &["acquire", &prefixed, &there(&again)]).ok();
    assert!(fs::read(&raw).unwrap() == whole && fs::read(&again).unwrap() == whole);
}

#[test]
fn windows_writes_names_beyond_ascii_as_utf_8() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let (disk, whole) = desk.image("pr\u{fc}fst\u{fc}ck-\u{8a3c}.img", MIB);
    let raw = desk.arg("x.raw");
    let mut command = windows.command(&desk, &["acquire", &there(&disk), &there(&raw)]);
    // Wine reads its own command line in the character set of the locale.
    command.env("LC_ALL", "C.UTF-8");
    let acquired = Windows::to_its_end(command).ok();
    assert!(fs::read(&raw).unwrap() == whole);
    let location = report(&acquired)["source"]["location"].to_string();
    assert!(location.contains("pr\u{fc}fst\u{fc}ck-\u{8a3c}.img"), "{location}");
}

#[test]
fn windows_acquires_a_file_by_its_path_with_a_drive_letter() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let (disk, whole) = desk.image("disk.img", 3 * MIB + 512);
    let (raw, e01) = (desk.arg("x.raw"), desk.arg("x.E01"));
    windows.run(&desk, &["acquire", &there(&disk), &there(&raw), &there(&e01), "--verify"]).ok();
    assert!(fs::read(&raw).unwrap() == whole);
    // Each has a key of its own.
    cheetah(&["verify", &e01, "--key", &signer(&e01)]).ok();
}

#[test]
fn windows_acquires_a_volume_by_its_name_and_the_report_says_that_it_changes() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let (disk, whole) = desk.image("disk.img", 2 * MIB);
    let (volume, raw) = (Windows::volume('W', &desk, &disk), desk.arg("x.raw"));
    let acquired = windows.run(&desk, &["acquire", &volume, &there(&raw)]).ok();
    assert!(fs::read(&raw).unwrap() == whole);
    let doubts = report(&acquired)["doubts"].to_string();
    assert!(doubts.contains("is a mounted volume"), "{doubts}");
}

#[test]
fn a_machine_with_windows_that_joins_a_room_keeps_its_credential_in_its_settings() {
    let Some(windows) = Windows::find() else { return };
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "node"]);
    windows.run(&lab.0, &["room", "join", &string, "--name", "windows"]).ok();
    assert!(lab.members().iter().any(|member| text(member, "name") == "windows"), "{}", lab.list());
    assert!(lab.0.at("windows/cheetah/credentials").is_dir());
}

#[test]
fn verbs_that_windows_lacks_say_so_in_one_sentence() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let (disk, _) = desk.image("disk.img", MIB);
    let disk = there(&disk);
    let lacking = [
        &["mount", &disk, r"Z:\mnt"][..],
        &["attach", &disk],
        &["triage", &disk, "--out", "x"],
        &["run", &disk, "--out", "x", "--", "true"],
        &["demo"],
    ];
    for args in lacking {
        let ran = windows.run(&desk, args).says(1, &["which Windows does not have", "Linux"]);
        assert_eq!(ran.json()["kind"], "unsupported", "{args:?}");
    }
    let help = windows.run(&desk, &["--help"]).ok();
    assert!(help.out().contains("mount"), "{}", help.out());
}
