//! The hand-over to Python, which has tests of its own.

use std::process::Command;

use crate::support::python::{pretended, with_python};
use crate::support::run::{cheetah_plain, program};
use crate::support::{Desk, need, tool};

#[test]
fn arguments_reach_python_and_its_exit_code_is_returned() {
    let desk = Desk::new();
    let python = pretended(&desk);
    let words = ["case 42.drive", "--out", "", "--quick", "-x", "--json", "--", "--help"];
    let ran = with_python(&python, &[&["triage"], &words[..]].concat()).ended_with(3);
    let said = ran.out();
    let (binary, arguments) = said.split_once('\n').unwrap().1.split_once('\n').unwrap();
    assert_eq!(binary, env!("CARGO_BIN_EXE_cheetah"));
    assert_eq!(arguments, "[-P][-m][cheetah.triage][case 42.drive][--out][][--quick][-x][--json][--][--help]");

    let first = with_python(&python, &["--json", "triage", "--quick", "disk.raw"]).ended_with(3).out();
    assert!(first.ends_with("[-P][-m][cheetah.triage][--quick][disk.raw][--json]"), "{first}");
}

#[test]
fn python_replaces_the_process_and_gets_its_signals() {
    let desk = Desk::new();
    let mut command = program();
    command.env("CHEETAH_PYTHON", pretended(&desk)).args(["triage", "disk.raw"]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = child.id().to_string();
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said.lines().next(), Some(pid.as_str()));
}

#[test]
fn help_is_printed_without_python() {
    let help = with_python("/nonexistent", &["triage", "--help"]).ok().out();
    for word in ["--out DIR", "--scheduler", "pip install ./python", "CHEETAH_PYTHON"] {
        assert!(help.contains(word), "no {word} in {help}");
    }
    cheetah_plain(&["triage"]).ended_with(2);
}

#[test]
fn an_unsuitable_python_is_an_error_of_one_sentence() {
    with_python("/nonexistent/python", &["triage", "disk.raw"]).says(1, &["/nonexistent/python", "CHEETAH_PYTHON"]);
    if !need::programs(&["python3"]) {
        return;
    }
    let desk = Desk::new();
    // Nothing is installed in there.
    let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(desk.at("venv")).output().unwrap();
    if !made.status.success() {
        return need::skip("needs venv (python3-venv)");
    }
    let python = desk.arg("venv/bin/python");
    tool(&python, &["-c", ""]).ok();
    with_python(&python, &["triage", "disk.raw"]).says(1, &["cheetah.triage", "-m pip install WHEEL"]);
}
