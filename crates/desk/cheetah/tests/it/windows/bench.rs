//! `bench` of the program for Windows, in a Python for Windows.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::wine::{self, Windows, there};
use crate::support::run::{Ran, run_with_stderr};
use crate::support::{Desk, MIB, need, noise, until};

/// The program for Windows with its Python, and the package in it.
struct Bench {
    windows: Windows,
    python: PathBuf,
    site: PathBuf,
}

impl Bench {
    /// If all of it is there. If not, reports that the test is skipped.
    fn find() -> Option<Self> {
        let windows = Windows::find()?;
        let folder = wine::folder()?.join("python");
        let python = folder.join("org/bytedeco/cpython/windows-x86_64/python.exe");
        let site = folder.join("site");
        if !python.exists() || !site.exists() {
            need::skip("needs a Python for Windows with the package (make test-windows gets it by Maven and pip)");
            return None;
        }
        Some(Self { windows, python, site })
    }

    fn command(&self, desk: &Desk, args: &[&str]) -> Command {
        let mut command = self.windows.command(desk, args);
        command.env("CHEETAH_PYTHON", there(&self.python.display().to_string()));
        command.env("PYTHONPATH", there(&self.site.display().to_string()));
        command
    }

    /// A measurement of a folder of the desk, and the folder with its results.
    fn storage(&self, desk: &Desk, out: &str, more: &[&str]) -> (Command, PathBuf) {
        let (target, out) = (format!("disk={}", there(&desk.arg("target"))), desk.at(out));
        let there_out = there(&out.display().to_string());
        let _ = fs::create_dir(desk.at("target"));
        let args = [&["bench", "storage", &target, "--out", &there_out][..], more].concat();
        (self.command(desk, &args), out)
    }
}

/// Runs a command to its end. In Wine, Python starts only if its streams are pipes. Wine's own processes keep the pipe of stderr open
/// after the command has ended, so the bytes in the pipe are read, and nothing waits for its end.
fn to_its_end(command: Command) -> Ran {
    let (mut from, to) = io::pipe().unwrap();
    let mut ran = run_with_stderr(command, to.into());
    fcntl_setfl(&from, OFlags::NONBLOCK).unwrap();
    let mut stderr = Vec::new();
    let _ = from.read_to_end(&mut stderr);
    ran.stderr = String::from_utf8_lossy(&stderr).into_owned();
    ran
}

/// The storage part of results.
fn part(out: &Path) -> Value {
    let results: Value = serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap();
    results["parts"][0].clone()
}

/// How a step ended.
fn outcome<'a>(part: &'a Value, step: &str) -> &'a str {
    let sample = part["samples"].as_array().unwrap().iter().find(|sample| sample["step"] == step).unwrap();
    sample["outcome"].as_str().unwrap()
}

#[test]
fn a_folder_of_windows_is_measured_to_the_end_and_what_was_not_measured_is_said() {
    let Some(bench) = Bench::find() else { return };
    let desk = Desk::new();
    let image = there(&desk.file("image.raw", &noise(8 * MIB, 3)));
    for out in ["first", "second"] {
        let (command, out) = bench.storage(&desk, out, &["--quick", "--image", &image]);
        let ran = to_its_end(command).ok();
        assert_eq!(ran.json()["exit_code"], 0, "{}", ran.out());
        let part = part(&out);
        for step in ["copy", "md5sum", "sha256sum"] {
            assert_eq!(outcome(&part, step), "done", "{step}");
        }
        assert_eq!(outcome(&part, "strings"), "skipped");
        let said = part["warnings"].to_string();
        for words in [
            "Windows does not tell what is in memory",
            "Python copies and hashes",
            "not counted",
            "Windows has no strings",
        ] {
            assert!(said.contains(words), "no '{words}' in {said}");
        }
        assert!(out.join("report.html").exists() && out.join("results.csv").exists());
        assert_eq!(fs::read_dir(desk.at("target")).unwrap().count(), 0, "something is left in the target");
    }
    let [first, second] = ["first", "second"].map(|out| there(&desk.arg(out)));
    let compared = to_its_end(bench.command(&desk, &["bench", "compare", &first, &second])).ok().json();
    assert_eq!(compared["rows"].as_array().unwrap()[0]["figure"], "storage/copy/cold", "{compared}");
    fs::remove_file(desk.at("first/report.html")).unwrap();
    to_its_end(bench.command(&desk, &["bench", "report", &first])).ok();
    assert!(desk.at("first/report.html").exists());
}

#[test]
fn without_an_image_one_of_files_of_windows_is_made_and_measured() {
    let Some(bench) = Bench::find() else { return };
    let desk = Desk::new();
    let (command, out) = bench.storage(&desk, "out", &["--quick", "--steps", "md5sum"]);
    to_its_end(command).ok();
    assert_eq!(fs::metadata(out.join("image-64MiB.raw")).unwrap().len(), 64 * MIB);
    assert_eq!(outcome(&part(&out), "md5sum"), "done");
}

#[test]
fn what_bench_would_mount_and_a_missing_folder_are_refused_in_one_sentence() {
    let Some(bench) = Bench::find() else { return };
    let desk = Desk::new();
    fs::create_dir(desk.at("target")).unwrap();
    let folder = there(&desk.arg("target"));
    let mounted = "bench on windows measures folders only";
    let refused: [(&[&str], &str); 5] = [
        (&["ram:stripe@local:3"], mounted),
        (&["disk:desktop"], mounted),
        (&["array:parity@desktop:4"], mounted),
        (&[&folder, "--sweep", "fs=ext4,ntfs"], mounted),
        (&[r"Z:\nowhere\at\all"], "there is no such directory"),
    ];
    for (words, sentence) in refused {
        let args = [&["bench", "storage"][..], words].concat();
        to_its_end(bench.command(&desk, &args)).says(2, &[sentence]);
    }
}

/// Windows' own path of a process that Wine runs begins its command line.
fn processes_with(words: &str) -> Vec<Pid> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let has = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
    };
    all.filter(has).filter_map(Pid::from_raw).collect()
}

/// A measurement, which a test that fails does not leave behind.
struct Running {
    child: Child,
    /// Words in the command line of each of its processes.
    words: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        for pid in processes_with(&self.words) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn ctrl_c_ends_a_measurement_of_windows_keeps_its_results_and_leaves_nothing_in_the_target() {
    let Some(bench) = Bench::find() else { return };
    let desk = Desk::new();
    let image = there(&desk.file("image.raw", &noise(8 * MIB, 4)));
    let more = ["--image", &image, "--repetitions", "100", "--steps", "copy,md5sum"];
    let (mut command, out) = bench.storage(&desk, "out", &more);
    // As above: they hold what is written until then.
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running { child, words: there(&out.display().to_string()) };
    until("a step is measured", || {
        fs::read_to_string(out.join("samples.jsonl")).is_ok_and(|lines| lines.lines().count() > 1)
    });
    // A console tells all its processes. Wine's have none here.
    let told = processes_with(&running.words);
    assert!(!told.is_empty(), "no process has {} in its command line", running.words);
    for pid in told {
        let _ = kill_process(pid, Signal::INT);
    }
    let mut ended = None;
    until("the measurement has ended", || {
        ended = running.child.try_wait().unwrap();
        ended.is_some()
    });
    let code = ended.and_then(|status| status.code());
    assert_eq!(code, Some(1));
    let part = part(&out);
    assert!(part["problem"].as_str().unwrap().contains("--resume"), "{part}");
    assert_eq!(outcome(&part, "copy"), "done");
    assert_eq!(fs::read_dir(desk.at("target")).unwrap().count(), 0, "something is left in the target");
}
