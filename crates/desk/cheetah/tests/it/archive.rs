//! The room's machine keeps heads of custody logs, and hands out drive files.

use std::fs;

use serde_json::Value;

use crate::support::lab::{Lab, port};
use crate::support::run::Ran;
use crate::support::{MIB, noise, text};

/// The public key that signed the log at `path`.
fn signer(path: &str) -> String {
    let log = fs::read_to_string(path).unwrap();
    let first: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    text(&first, "public_key").to_owned()
}

/// What a command said, in one line.
fn said(ran: &Ran) -> String {
    format!("{}{}", ran.out(), ran.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_analyst_names_a_drive_by_its_room_until_it_is_revoked() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    let node = lab.node("pc1", "pc1", &["--room", &lab.invite(&["--role", "node"])]);
    for (machine, role) in [("ann", "analyst"), ("bob", "examiner")] {
        let string = lab.invite(&["--role", role, "--uses", "1"]);
        lab.at(machine, &["room", "join", &string, "--name", machine]).ok();
    }
    let (image, content) = lab.0.image("disk.raw", MIB);
    let drive = lab.0.arg("case42.drive");
    lab.at("examiner", &["create", &drive, "--nodes", node.address(), "--from", &image]).ok();
    // The machine that has the room, and one that has not.
    let other = lab.0.arg("case43.drive");
    lab.at("bob", &["create", &other, "--nodes", node.address(), "--size", "1MiB"]).ok();
    for machine in ["examiner", "ann", "bob"] {
        let drives = lab.at(machine, &["room", "drives"]).ok().json();
        assert_eq!(drives["drives"], serde_json::json!(["case42", "case43"]), "{machine}");
    }
    let key = signer(&format!("{drive}.custody"));
    lab.at("ann", &["status", "lab:case42"]).ok();
    lab.at("ann", &["verify", "lab:case42", "--key", &key]).ok();
    let copy = lab.0.arg("copy.raw");
    lab.at("ann", &["save", "lab:case42", &copy, "--key", &key]).ok();
    assert!(fs::read(&copy).unwrap() == content);
    let acquired = lab.0.arg("acquired.raw");
    lab.at("ann", &["acquire", "lab:case42", &acquired]).ok();
    assert!(fs::read(&acquired).unwrap() == content);
    // Only an examiner decides what is handed out.
    lab.at("ann", &["room", "drives", "--remove", "case43"]).says(1, &["analyst", "role examiner"]);
    lab.at("ann", &["status", "lab:case44"]).says(1, &["no drive named case44", "case42 and case43"]);
    lab.at("ann", &["status", &lab.0.arg("none.drive")]).says(1, &["no such drive file", "lab:case42"]);
    // What an examiner changes elsewhere reaches the others.
    let second = lab.0.file("second.raw", &noise(MIB, 3));
    lab.at("bob", &["load", "lab:case43", &second]).ok();
    let other_key = signer(&format!("{}/case43.drive.custody", lab.room_directory().join("drives").display()));
    lab.at("ann", &["save", "lab:case43", &copy, "--force", "--key", &other_key]).ok();
    assert!(fs::read(&copy).unwrap() == fs::read(&second).unwrap());
    // Another drive does not take the name of one that is handed out.
    let same = lab.0.dir("elsewhere") + "/case42.drive";
    let ran = lab.at("bob", &["create", &same, "--nodes", node.address(), "--size", "1MiB"]).ok();
    assert!(said(&ran).contains("another drive named case42"), "{}", said(&ran));
    lab.at("ann", &["verify", "lab:case42", "--key", &key]).ok();

    // Without the room's machine, the copy from before is used.
    let at = format!("127.0.0.1:{}", port(&server));
    drop(server);
    let ran = lab.at("ann", &["status", "lab:case42"]).ok();
    assert!(said(&ran).contains("copy of the drive file that is here"), "{}", said(&ran));
    let _server = lab.start("examiner", &["room", "serve", "--listen", &at], "ready");
    lab.at("examiner", &["room", "revoke", "ann"]).ok();
    let ran = lab.at("ann", &["status", "lab:case42"]).says(1, &["revoked"]);
    assert!(!said(&ran).to_lowercase().contains("lost"), "{}", said(&ran));
    lab.at("ann", &["room", "drives"]).says(1, &["revoked"]);
    lab.at("examiner", &["destroy", &drive]).ok();
    lab.at("bob", &["destroy", "lab:case43"]).ok();
    let drives = lab.at("bob", &["room", "drives"]).ok().json();
    assert_eq!(drives["drives"], serde_json::json!([]));
}

#[test]
fn a_member_that_lends_memory_or_serves_a_disk_gets_neither_drives_nor_heads() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    for role in ["node", "agent"] {
        let string = lab.invite(&["--role", role, "--uses", "1"]);
        lab.at(role, &["room", "join", &string]).ok();
        let ran = lab.at(role, &["room", "drives", "--room", "lab"]);
        assert_ne!(ran.code, Some(0), "{role}: {}", said(&ran));
        assert!(said(&ran).contains("role"), "{role}: {}", said(&ran));
    }
}

#[test]
fn a_log_that_was_cut_back_is_found_by_the_head_that_the_room_has() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "examiner", "--uses", "1"]);
    lab.at("bob", &["room", "join", &string, "--name", "bob"]).ok();
    let (source, _) = lab.0.image("disk.raw", MIB);
    let other = lab.0.file("other.raw", &noise(MIB, 7));
    for machine in ["examiner", "bob"] {
        let image = lab.0.arg(&format!("{machine}.raw"));
        let beside = |suffix: &str| format!("{image}{suffix}");
        let files = ["", ".custody", ".report.txt"];
        lab.at(machine, &["acquire", &source, &image]).ok();
        let first: Vec<_> = files.iter().map(|suffix| fs::read(beside(suffix)).unwrap()).collect();
        lab.at(machine, &["acquire", &other, &image, "--force"]).ok();
        // On another machine of the same examiner, whose ledger knows nothing.
        let elsewhere = || {
            let mut command = lab.command(machine, &["verify", &image, "--no-log"]);
            command.env("XDG_STATE_HOME", lab.0.at("empty"));
            crate::support::run::run(command)
        };
        let verified = elsewhere().ok();
        assert!(said(&verified).contains("the machine of room lab"), "{}", said(&verified));
        for (suffix, content) in files.iter().zip(&first) {
            fs::write(beside(suffix), content).unwrap();
        }
        elsewhere().says(3, &["the machine of room lab", "its end was cut off"]);
    }
    drop(server);
    let image = lab.0.arg("bob.raw");
    let mut command = lab.command("bob", &["verify", &image, "--no-log"]);
    command.env("XDG_STATE_HOME", lab.0.at("empty"));
    let ran = crate::support::run::run(command).ok();
    assert!(said(&ran).contains("were not compared"), "{}", said(&ran));

    // The list itself is a chain that the room signed.
    let list = lab.room_directory().join("heads.jsonl");
    let text = fs::read_to_string(&list).unwrap();
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    for (change, changed) in [
        ("a line less", lines[1..].concat()),
        ("another number", text.replacen("\"records\":", "\"records\":1", 1)),
        ("a cut line", text[..text.len() - 3].to_owned()),
    ] {
        fs::write(&list, changed).unwrap();
        let ran = lab.at("examiner", &["verify", &lab.0.arg("bob.raw"), "--no-log"]);
        assert!(said(&ran).contains("is not as this room wrote it"), "{change}: {}", said(&ran));
    }
}
