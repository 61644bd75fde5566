//! File names of any bytes: sources and destinations whose names are not UTF-8.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use cheetah_device::path_text::path_to_text;
use serde_json::Value;

use crate::support::run::{Ran, program, run};
use crate::support::service::PATIENCE;
use crate::support::{Desk, MIB, Mounted, Node, Port, Service, cheetah, need, number, text};

/// A path on the desk; `?` in the name is a byte that belongs to no UTF-8 sequence.
fn odd(desk: &Desk, name: &str) -> PathBuf {
    let name: Vec<u8> = name.bytes().map(|byte| if byte == b'?' { 0xe9 } else { byte }).collect();
    desk.path().join(OsStr::from_bytes(&name))
}

fn cheetah_os(args: &[&OsStr]) -> Ran {
    let mut command = program();
    command.arg("--json").args(args);
    run(command)
}

fn os(args: &[&str]) -> Vec<OsString> {
    args.iter().map(|arg| OsString::from(*arg)).collect()
}

#[test]
fn names_that_are_not_utf8_are_acquired_verified_and_mounted() {
    let desk = Desk::new();
    let (image, content) = desk.image("plain.raw", 3 * MIB);
    let [source, raw, e01] = ["disk?.raw", "caf?.raw", "caf?.E01"].map(|name| odd(&desk, name));
    fs::rename(image, &source).unwrap();
    let ran = cheetah_os(&["acquire".as_ref(), source.as_ref(), raw.as_ref(), e01.as_ref(), "--verify".as_ref()]).ok();
    let done: Value = ran.out().lines().filter_map(|line| serde_json::from_str(line).ok()).next_back().unwrap();
    let report = &done["report"];
    assert_eq!(text(&report["source"], "location"), path_to_text(&source));
    let destinations: Vec<_> =
        report["sinks"].as_array().unwrap().iter().map(|sink| text(sink, "destination")).collect();
    assert_eq!(destinations, [path_to_text(&raw), path_to_text(&e01)]);
    assert!(destinations[0].starts_with("bytes:/") && destinations[0].ends_with("/caf%E9.raw"), "{destinations:?}");
    assert!(fs::read(&raw).unwrap() == content);
    let log = odd(&desk, "caf?.E01.custody");
    assert!(fs::read_to_string(&log).unwrap().contains("/caf%E9.E01\""));
    for target in [&raw, &e01, &log] {
        cheetah_os(&["verify".as_ref(), target.as_ref()]).ok();
        // The names in reports and logs can be typed.
        cheetah(&["verify", &path_to_text(target)]).ok();
    }
    if need::fuse() {
        for image in [&raw, &e01] {
            let mount = Mounted::new(&path_to_text(image), &desk.dir("mnt"), &[]);
            assert!(mount.read() == content);
            mount.unmount();
            fs::remove_dir(desk.at("mnt")).unwrap();
        }
    }
}

#[test]
fn an_acquisition_into_names_that_are_not_utf8_is_resumed() {
    let desk = Desk::new();
    let (disk, content) = desk.image("disk.img", 8 * MIB);
    let port = Port::held();
    let serve = |more: &[&str]| Service::start(&[&["serve", &disk, "--listen", &port.text()], more].concat());
    let slow = serve(&["--rate-max", "1MiB"]);
    let mut args = os(&["--json", "acquire", text(&slow.ready, "uri"), "--checkpoint", "1MiB"]);
    let [raw, e01] = ["caf?.raw", "caf?.E01"].map(|name| odd(&desk, name));
    args.extend([raw.clone().into(), e01.clone().into()]);
    let mut child =
        program().args(&args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let journal = odd(&desk, "caf?.raw.acquire");
    let started = Instant::now();
    while fs::read_to_string(&journal).is_ok_and(|text| !text.contains("\"checkpoint\"")) || !journal.exists() {
        assert!(started.elapsed() < PATIENCE, "no checkpoint");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    slow.kill();
    let _agent = serve(&[]);
    let mut command = program();
    command.args(&args);
    let ran = run(command).ok();
    let done: Value = ran.out().lines().filter_map(|line| serde_json::from_str(line).ok()).next_back().unwrap();
    assert!(number(&done["report"], "interruptions") == 1, "{done}");
    assert!(fs::read(&raw).unwrap() == content);
    cheetah_os(&["verify".as_ref(), e01.as_ref()]).ok();
}

#[test]
fn a_drive_is_loaded_from_and_saved_to_names_that_are_not_utf8() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, content) = desk.image("plain.raw", 2 * MIB);
    let [source, drive, saved] = ["disk?.raw", "case?.drive", "saved?.raw"].map(|name| odd(&desk, name));
    fs::rename(image, &source).unwrap();
    let [create, nodes, from] = ["create", "--nodes", "--from"].map(OsStr::new);
    cheetah_os(&[create, drive.as_ref(), nodes, node.address().as_ref(), from, source.as_ref()]).ok();
    cheetah_os(&["verify".as_ref(), drive.as_ref()]).ok();
    cheetah_os(&["save".as_ref(), drive.as_ref(), saved.as_ref()]).ok();
    assert!(fs::read(&saved).unwrap() == content);
    cheetah_os(&["status".as_ref(), drive.as_ref()]).ok();
    cheetah_os(&["destroy".as_ref(), drive.as_ref()]).ok();
}

#[test]
fn a_lazy_drive_with_a_name_that_is_not_utf8_is_filled_and_its_parts_are_saved() {
    let desk = Desk::new();
    let node = Node::start("16MiB");
    let (image, content) = desk.image("plain.raw", 2 * MIB);
    let [source, saved] = ["disk?.raw", "part?.raw"].map(|name| odd(&desk, name));
    fs::rename(image, &source).unwrap();
    // Two names that only differ in a byte that is not UTF-8.
    let drives = [odd(&desk, "case?.drive"), desk.path().join(OsStr::from_bytes(b"case\xea.drive"))];
    let [create, nodes, from, lazy] = ["create", "--nodes", "--from", "--lazy"].map(OsStr::new);
    for drive in &drives {
        cheetah_os(&[create, drive.as_ref(), nodes, node.address().as_ref(), from, source.as_ref(), lazy]).ok();
    }
    for drive in &drives {
        let partial = [saved.as_ref(), "--partial".as_ref(), "--force".as_ref()];
        let ran = cheetah_os(&[&["save".as_ref(), drive.as_os_str()], &partial[..]].concat()).ended_with(3);
        let told: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
        assert!(text(&told, "map").ends_with("/part%E9.raw.map"), "{told}");
        assert!(odd(&desk, "part?.raw.map").exists());
        let done = cheetah_os(&["load".as_ref(), drive.as_ref()]).ok().json();
        assert_eq!(text(&done, "drive"), path_to_text(drive));
        let mut log = drive.clone().into_os_string();
        log.push(".custody");
        let log = fs::read_to_string(log).unwrap();
        assert!(log.contains(&format!("\"{}\"", path_to_text(drive))), "{log}");
    }
    for drive in &drives {
        cheetah_os(&["verify".as_ref(), drive.as_ref()]).ok();
        cheetah_os(&["save".as_ref(), drive.as_ref(), saved.as_ref(), "--force".as_ref()]).ok();
        assert!(fs::read(&saved).unwrap() == content);
        cheetah_os(&["destroy".as_ref(), drive.as_ref()]).ok();
    }
}
