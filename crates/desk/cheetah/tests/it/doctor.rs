//! `cheetah doctor` on this machine, whatever works here.

use std::fs;

use crate::support::Desk;
use crate::support::python::{pretended, with_python};

const CHECKS: [&str; 7] = ["fuse", "memory", "nbd", "time", "ports", "room", "python"];

#[test]
fn the_exit_code_says_whether_a_check_failed() {
    let ran = with_python(&pretended(&Desk::new()), &["--json", "doctor"]);
    let answer: serde_json::Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    let checks = answer["checks"].as_array().unwrap();
    assert_eq!(checks.iter().map(|check| check["name"].as_str().unwrap()).collect::<Vec<_>>(), CHECKS);
    for check in checks {
        // What does not simply work can be mended, and what works need not be.
        assert_eq!(check["mend"].is_null(), check["state"] == "works", "{check}");
    }
    let failed = checks.iter().any(|check| check["state"] == "fails");
    assert_eq!(answer["ok"], !failed);
    ran.ended_with(failed.into());
}

#[test]
fn a_python_without_the_package_fails_with_the_way_to_mend_it() {
    let ran = with_python("/nonexistent/python", &["doctor"]);
    let said = ran.out().split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "python: FAILS: cheetah triage runs in Python, and there is no /nonexistent/python (needed by triage, bench)",
        "next: install Python 3.11 or later (Debian: python3-venv), or set CHEETAH_PYTHON to its path",
    ] {
        assert!(said.contains(words), "{said}");
    }
    ran.says(1, &["not everything works", "python"]);
}

#[test]
fn a_room_that_others_can_read_fails() {
    use std::os::unix::fs::PermissionsExt as _;

    use crate::support::run::{program, run};
    let desk = Desk::new();
    let at = |args: &[&str]| {
        let mut command = program();
        command.env("XDG_CONFIG_HOME", desk.path()).args(args);
        run(command)
    };
    assert!(at(&["doctor"]).out().contains("room: note: this user is in no room"));
    at(&["room", "init", "lab"]).ok();
    assert!(at(&["doctor"]).out().contains("room: works: this user is in lab"));
    let room = desk.at("cheetah/rooms/lab");
    fs::set_permissions(room, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = at(&["doctor"]);
    assert!(ran.out().contains("room: FAILS"), "{}", ran.out());
    ran.says(1, &["room"]);
}
