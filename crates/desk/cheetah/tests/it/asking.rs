//! Nodes without an invitation, and members that keep nothing.

use std::path::Path;

use crate::support::lab::{Lab, port};
use crate::support::{Node, need, text};

const NODE: [&str; 5] = ["node", "--memory", "16MiB", "--listen", "127.0.0.1:0"];

/// The next event of a service.
fn next(service: &crate::support::Service) -> serde_json::Value {
    serde_json::from_str(&service.next_line().unwrap()).unwrap()
}

#[test]
fn a_node_without_a_string_lends_memory_once_its_code_is_approved() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    let at = format!("127.0.0.1:{}", port(&server));
    let asking = [&NODE[..], &["--name", "one", "--room", &at]].concat();
    let node = lab.start("one", &asking, "waiting");
    let code = text(&node.ready, "code").to_owned();
    let pending = lab.at("examiner", &["room", "pending"]).ok().json();
    assert_eq!((text(&pending["pending"][0], "code"), text(&pending["pending"][0], "name")), (&*code, "one"));
    assert_eq!(lab.members().len(), 1);
    lab.at("examiner", &["room", "approve", "0000-0000", "--role", "node"]).says(1, &["no waiting machine"]);
    lab.at("examiner", &["room", "approve", &code, "--role", "node"]).ok();
    let ready = next(&node);
    assert_eq!((text(&ready, "event"), text(&ready, "transport")), ("ready", "tls"));
    let drive = lab.0.arg("a.drive");
    lab.at("examiner", &["create", &drive, "--nodes", text(&ready, "nbd"), "--size", "1MiB"]).ok();
    lab.at("examiner", &["destroy", &drive]).ok();
    // When it is started again, it is known, even if nobody lets machines in.
    drop((node, server));
    let again = Node::of(lab.start("one", &asking, "ready"));
    assert_eq!(again.service.ready["transport"], "tls");
    assert_eq!(lab.members().len(), 2);
}

#[test]
fn only_nodes_and_agents_ask_where_machines_join() {
    let lab = Lab::new();
    lab.at("one", &["status", "none.drive", "--room", "127.0.0.1:1"]).says(2, &["cheetah room join 127.0.0.1:1"]);
}

/// The files below a directory that contain one of these byte strings.
fn holders(directory: &Path, secrets: &[Vec<u8>]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(holders(&path, secrets));
        } else if kind.is_file() {
            let content = std::fs::read(&path).unwrap();
            let has = |secret: &Vec<u8>| content.windows(secret.len()).any(|window| window == &secret[..]);
            found.extend(secrets.iter().any(has).then(|| path.display().to_string()));
        }
    }
    found
}

/// The value of a line of a process's file in /proc.
fn of_process(pid: u32, file: &str, line: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let found = text.lines().find_map(|it| it.strip_prefix(line));
    found.unwrap_or_else(|| panic!("no {line} in {text}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_ephemeral_member_writes_no_key_and_dumps_no_core() {
    let lab = Lab::new();
    let server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "node"]);
    let at = format!("127.0.0.1:{}", port(&server));
    // The begin of a private key of P-256 in PKCS #8, as bytes and in PEM.
    let der = b"\x30\x81\x87\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01".to_vec();
    let secrets = [der, b"MIGHAgEAMBMGByqGSM49AgE".to_vec(), b"PRIVATE KEY".to_vec()];
    let start = |machine: &str, more: &[&str]| {
        let desk = lab.0.at(machine);
        std::fs::create_dir_all(&desk).unwrap();
        let mut command = lab.command(machine, &[&NODE[..], &["--name", machine], more].concat());
        command.current_dir(&desk).env("HOME", &desk).env("TMPDIR", &desk);
        crate::support::Service::spawn(command, if more.contains(&&*at) { "waiting" } else { "ready" }).unwrap()
    };
    let kept = start("kept", &["--room", &string]);
    assert_eq!(holders(&lab.0.at("kept"), &secrets).len(), 1, "the search finds a key that is kept");
    drop(kept);
    let invited = start("invited", &["--room", &string, "--ephemeral"]);
    let asking = start("asking", &["--room", &at, "--ephemeral"]);
    lab.at("examiner", &["room", "approve", text(&asking.ready, "code"), "--role", "node"]).ok();
    assert_eq!(text(&next(&asking), "event"), "ready");
    for (machine, node) in [("invited", &invited), ("asking", &asking)] {
        assert_eq!(holders(&lab.0.at(machine), &secrets), Vec::<String>::new());
        let pid = node.pid();
        assert_eq!(of_process(pid, "limits", "Max core file size"), "0 0 bytes");
        if need::is_root() {
            let kib = |line| -> u64 { of_process(pid, "status", line).split(' ').next().unwrap().parse().unwrap() };
            // All of its memory except pages of files.
            assert!(kib("VmLck:") >= kib("RssAnon:"), "{} KiB are locked", kib("VmLck:"));
        }
    }
}
