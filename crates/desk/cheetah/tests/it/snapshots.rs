//! Snapshots of typical answers and of the help, beside this file in `snapshots`. What differs from run to run, such as
//! times, ids, ports and paths, is replaced by its name.
//!
//! After an intended change: `INSTA_UPDATE=always cargo test -p cheetah --test it snapshots::`

use serde_json::{Map, Value};

use crate::support::lab::Lab;
use crate::support::run::{program, run};
use crate::support::{Desk, MIB, Node, cheetah, noise};

/// Fields that differ from run to run, or from machine to machine.
const CHANGING: &[&str] = &[
    "acting_as",
    "admitted_s",
    "answered",
    "clock_offset_s",
    "duration_s",
    "head",
    "host",
    "id",
    "instance",
    "jitter_us",
    "key",
    "key_sha256",
    "locked",
    "loss",
    "max_us",
    "mean_us",
    "median_us",
    "min_us",
    "nonce",
    "p95_us",
    "pid",
    "public_key",
    "rate_bytes_s",
    "seconds",
    "sent",
    "serial",
    "server",
    "sha256",
    "sig",
    "signature",
    "time",
    "tool",
    "user",
    "watched",
    "writer",
];

/// A JSON value on several lines, without what differs from run to run. `desk` is the folder of its files.
fn shown(value: &Value, desk: &Desk) -> String {
    serde_json::to_string_pretty(&redacted(value, desk)).unwrap()
}

fn redacted(value: &Value, desk: &Desk) -> Value {
    match value {
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), member(name, value, desk))).collect()
        }
        Value::Array(items) => items.iter().map(|item| redacted(item, desk)).collect(),
        Value::String(text) => steady_text(text, desk).into(),
        other => other.clone(),
    }
}

fn member(name: &str, value: &Value, desk: &Desk) -> Value {
    match value {
        // The hashes of the evidence are always the same.
        Value::Object(hashes) if name == "hashes" => Value::Object(hashes.clone()),
        Value::Object(_) | Value::Array(_) | Value::Null => redacted(value, desk),
        _ if CHANGING.contains(&name) => format!("[{name}]").into(),
        _ => redacted(value, desk),
    }
}

/// A text without the folder, the ports, the ids and the times in it.
fn steady_text(text: &str, desk: &Desk) -> String {
    let text = text.replace(desk.path().to_str().unwrap(), "[desk]");
    let is_time = text.len() >= 20 && text.as_bytes()[10] == b'T' && text.starts_with("20") && !text.contains(' ');
    if is_time {
        return "[time]".to_owned();
    }
    let mut steady = String::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
        steady.push_str(&rest[..start]);
        let word = &rest[start..];
        let end = word.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        let is_hex = word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        match () {
            () if steady.ends_with(':') && is_number && word.len() > 3 => steady.push_str("[port]"),
            () if is_hex => steady.push_str("[id]"),
            () => steady.push_str(word),
        }
        rest = after;
    }
    steady + rest
}

/// The lines of a command's output, without progress, which comes by the clock.
fn answers(out: &str, desk: &Desk) -> String {
    let values = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let often = ["progress", "checking", "verifying"];
    let values = values.filter(|value| !value["event"].as_str().is_some_and(|event| often.contains(&event)));
    values.map(|value| shown(&value, desk)).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_answers_about_a_drive_are_as_before() {
    let desk = Desk::new();
    let nodes = [Node::start_with("16MiB", "127.0.0.1:0", &["--name", "desk-7"])];
    insta::assert_snapshot!("node_ready", shown(&nodes[0].service.ready, &desk));
    let image = desk.file("disk.raw", &noise(2 * MIB, 7));
    let drive = desk.arg("case42.drive");
    let made = cheetah(&["create", &drive, "--nodes", nodes[0].address(), "--from", &image]).ok();
    insta::assert_snapshot!("create", answers(&made.out(), &desk));
    insta::assert_snapshot!("status", answers(&cheetah(&["status", &drive]).ok().out(), &desk));
    insta::assert_snapshot!("verify_drive", answers(&cheetah(&["verify", &drive]).ok().out(), &desk));
    insta::assert_snapshot!("destroy", answers(&cheetah(&["destroy", &drive]).ok().out(), &desk));
    let [node] = nodes;
    insta::assert_snapshot!("node_wiped", shown(&node.stop(), &desk));
    insta::assert_snapshot!("failed", answers(&cheetah(&["status", &drive]).ended_with(1).out(), &desk));
}

#[test]
fn the_answers_about_an_image_are_as_before() {
    let desk = Desk::new();
    let source = desk.file("disk.raw", &noise(2 * MIB, 7));
    let image = desk.arg("case42.E01");
    let acquired = cheetah(&["acquire", &source, &image, "--case-number", "42", "--examiner", "M. Poirot"]).ok();
    insta::assert_snapshot!("acquire", answers(&acquired.out(), &desk));
    insta::assert_snapshot!("verify_image", answers(&cheetah(&["verify", &image]).ok().out(), &desk));
}

#[test]
fn the_answers_about_a_room_are_as_before() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let invitation = lab.invite(&["--role", "node"]);
    let joined = lab.at("one", &["room", "join", &invitation, "--name", "lab-1"]).ok();
    insta::assert_snapshot!("room_join", answers(&joined.out(), &lab.0));
    let mut list = lab.list();
    // The names and addresses of this machine, and the clock.
    for member in list["members"].as_array_mut().unwrap() {
        member["hosts"] = "[hosts]".into();
        if member["role"] == "examiner" {
            member["name"] = "[name]".into();
        }
    }
    for invitation in list["invitations"].as_array_mut().unwrap() {
        invitation["ends_in_s"] = "[ends_in_s]".into();
    }
    list["serving"]["port"] = "[port]".into();
    insta::assert_snapshot!("room_list", shown(&list, &lab.0));
}

#[test]
fn the_report_on_a_path_is_as_before() {
    let desk = Desk::new();
    let probed = cheetah(&["probe", "127.0.0.1", "--only", "rtt", "--method", "tcp", "--far", "none"]).ok();
    let mut report = probed.json();
    // How many packets it took, and how they were sent, depends on the machine.
    for changing in ["trains", "backend", "interface", "started"] {
        report[changing] = format!("[{changing}]").into();
    }
    let fields: Map<String, Value> = report.as_object().unwrap().clone();
    insta::assert_snapshot!("probe", shown(&fields.into(), &desk));
}

#[test]
fn the_help_of_the_program_and_of_its_groups_of_verbs_is_as_before() {
    for (name, args) in [
        ("help", &["--help"][..]),
        ("help_short", &["-h"]),
        ("help_room", &["room", "--help"]),
        ("help_drive", &["drive", "--help"]),
    ] {
        let mut command = program();
        command.env("COLUMNS", "80").args(args);
        insta::assert_snapshot!(name, run(command).ok().out());
    }
}
