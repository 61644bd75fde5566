//! The program for Windows, run by Wine beside the one for Linux.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::lab::Lab;
use crate::support::run::{Ran, cheetah, run_with_stderr};
use crate::support::service::Service;
use crate::support::{Desk, MIB, Node, need, noise, number, text, until};

/// The target of `make static`.
const TARGET: &str = "x86_64-pc-windows-gnu";
/// Where Debian's package has Wine, besides the folders of programs.
const WINE: &str = "/usr/lib/wine/wine64";

/// Wine's folder, one for all tests: making it takes longer than any of them.
const PREFIX: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/wine");

/// The exit code of Wine if a library that a program needs does not exist.
const NO_LIBRARY: i32 = 53;

/// `cheetah.exe`, and what runs it.
struct Windows {
    wine: PathBuf,
    binary: PathBuf,
    /// Libraries that Wine lacks.
    libraries: PathBuf,
}

impl Windows {
    /// The binary of `make static TARGET=…`, if it is built and can be run. If not, reports that the test is skipped.
    fn find() -> Option<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/static").join(TARGET);
        let binary = folder.join("cheetah.exe");
        if !binary.exists() {
            need::skip(&format!("needs a binary for {TARGET} (make test-windows builds it)"));
            return None;
        }
        let wine = need::find("wine64").or_else(|| Some(PathBuf::from(WINE)).filter(|wine| wine.exists()));
        if wine.is_none() {
            need::skip("needs Wine (the package wine64; make test-windows installs it)");
        }
        let windows = Self { wine: wine?, binary, libraries: folder.join("wine") };
        // Wine makes its folder, which it had better not do twice at once.
        static FIRST: OnceLock<Option<i32>> = OnceLock::new();
        if *FIRST.get_or_init(|| windows.run(&Desk::new(), &["--version"]).code) == Some(NO_LIBRARY) {
            need::skip("needs a library that this Wine lacks (make test-windows builds it)");
            return None;
        }
        Some(windows)
    }

    /// `cheetah.exe --json ARGS…`, with settings of its own in a folder of the desk.
    fn command(&self, desk: &Desk, args: &[&str]) -> Command {
        let mut command = Command::new(&self.wine);
        command.env("WINEPREFIX", PREFIX).env("WINEDEBUG", "-all");
        command.env("WINEPATH", there(&self.libraries.display().to_string()));
        command.env("XDG_CONFIG_HOME", there(&desk.arg("windows"))).env("XDG_STATE_HOME", there(&desk.arg("windows")));
        command.env("CHEETAH_KEY", there(&desk.arg("windows.key"))).env_remove("CHEETAH_ROOM");
        command.arg(&self.binary).arg("--json").args(args);
        command
    }

    fn run(&self, desk: &Desk, args: &[&str]) -> Ran {
        Self::to_its_end(self.command(desk, args))
    }

    /// Runs a command to its end. Wine's own processes outlive it and keep its stderr open, so that is no pipe.
    fn to_its_end(command: Command) -> Ran {
        let mut stderr = tempfile::tempfile().unwrap();
        let mut ran = run_with_stderr(command, stderr.try_clone().unwrap().into());
        stderr.rewind().unwrap();
        stderr.read_to_string(&mut ran.stderr).unwrap();
        ran
    }

    #[track_caller]
    fn start(&self, desk: &Desk, args: &[&str]) -> Service {
        Service::spawn(self.command(desk, args), "ready").unwrap_or_else(|why| panic!("{args:?}: {why}"))
    }

    /// What Wine has for a device: a link beside the folder of the drive letter. Each test has letters of its own, since all share
    /// Wine's folder.
    fn volume(letter: char, desk: &Desk, disk: &str) -> String {
        let devices = Path::new(PREFIX).join("dosdevices");
        let small = letter.to_ascii_lowercase();
        for (link, to) in [(format!("{small}:"), desk.path()), (format!("{small}::"), Path::new(disk))] {
            let link = devices.join(link);
            let _ = fs::remove_file(&link);
            symlink(to, link).unwrap();
        }
        format!(r"\\.\{letter}:")
    }

    /// A node without a room.
    fn node(&self, desk: &Desk) -> Node {
        Node::of(self.start(desk, &["node", "--memory", "64MiB", "--listen", "127.0.0.1:0", "--room", "none"]))
    }
}

/// A path of this machine, as Wine has it.
fn there(path: &str) -> String {
    format!("Z:{}", path.replace('/', "\\"))
}

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

/// The files below a folder: their lengths, and when they were changed. Links are not followed.
fn files(folder: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            if metadata.is_dir() {
                folders.push(path);
            } else {
                found.insert(path, (metadata.len(), metadata.modified().unwrap()));
            }
        }
    }
    found
}

#[test]
fn a_file_that_is_served_by_windows_is_acquired_over_tls_with_the_same_hashes_and_nothing_is_left_there() {
    let Some(windows) = Windows::find() else { return };
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let string = lab.invite(&["--role", "agent"]);
    let desk = &lab.0;
    let (disk, whole) = desk.image("disk.img", 8 * MIB + 512);
    let disk = there(&disk);
    let own = Path::new(PREFIX).join("drive_c");
    let before = files(&own);
    let agent = windows.start(desk, &["serve", &disk, "--listen", "127.0.0.1:0", "--room", &string]);
    assert_eq!(text(&agent.ready, "name"), "disk", "{}", agent.ready);
    let raw = desk.arg("x.raw");
    lab.at("examiner", &["acquire", &secured(&agent), &raw, "--verify"]).ok();
    assert!(fs::read(&raw).unwrap() == whole);
    let (code, _) = agent.stop(Signal::INT);
    assert_eq!(code, Some(0));
    assert!(!desk.at("windows").exists(), "the agent has left its credential");
    assert_eq!(files(&own), before);
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
fn errors_of_windows_have_its_code_and_the_exit_codes_are_those_of_linux() {
    let Some(windows) = Windows::find() else { return };
    let desk = Desk::new();
    let node = Node::start("8MiB");
    let drive = desk.arg("missing/a.drive");
    let more = ["--nodes", node.address(), "--size", "1MiB", "--room", "none"];
    let failed = windows.run(&desk, &[&["create", &there(&drive)][..], &more].concat());
    let failed = failed.says(1, &["missing", "(Windows error ", "check the path"]);
    let own = cheetah(&[&["create", &drive][..], &more].concat()).ended_with(1);
    assert_eq!(failed.json()["kind"], own.json()["kind"]);
    let too_much = ["node", "--memory", "auto", "--keep-free", "900TiB", "--room", "none"];
    windows.run(&desk, &too_much).says(2, &["smaller --keep-free"]);
    windows.run(&desk, &["create"]).ended_with(2);
}

#[test]
fn the_program_for_windows_has_no_call_that_writes_to_the_registry_or_the_event_log() {
    let Some(windows) = Windows::find() else { return };
    let program = fs::read(&windows.binary).unwrap();
    let has = |name: &str| memchr::memmem::find(&program, name.as_bytes()).is_some();
    // The names of the functions that it imports are in it.
    assert!(has("VirtualLock"));
    let writing = ["RegCreateKey", "RegSetValue", "RegSetKeyValue", "RegDelete", "RegSaveKey", "ReportEvent"];
    assert_eq!(writing.into_iter().filter(|name| has(name)).collect::<Vec<_>>(), Vec::<&str>::new());
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
        &["bench", "storage", "x"],
        &["demo"],
    ];
    for args in lacking {
        let ran = windows.run(&desk, args).says(1, &["which Windows does not have", "Linux"]);
        assert_eq!(ran.json()["kind"], "unsupported", "{args:?}");
    }
    let help = windows.run(&desk, &["--help"]).ok();
    assert!(help.out().contains("mount"), "{}", help.out());
}
