//! Images in object stores.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::run::{Ran, program, run};
use crate::support::tap::Tap;
use crate::support::{Desk, MIB, Node, Peer, Service, cheetah, need, text, tool, until};

/// A server of S3's protocol that verifies signatures. Its buckets are the folders in a desk's folder `store`.
struct Store {
    child: Child,
    endpoint: String,
    /// Closing it would end the server.
    _output: BufReader<ChildStdout>,
}

impl Store {
    fn start(desk: &Desk) -> Self {
        let mut command = Command::new("s3s-fs");
        command.args(["--host", "127.0.0.1", "--port", "0", "--access-key", "id", "--secret-key", "hidden"]);
        command.arg(desk.at("store")).env("RUST_LOG", "s3s_fs=info").env("NO_COLOR", "1");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let endpoint = loop {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "s3s-fs ended");
            if let Some((_, at)) = line.split_once("running at ") {
                break at.trim().to_owned();
            }
        };
        Self { child, endpoint, _output: output }
    }

    /// Runs an acquisition with these settings and no others.
    fn acquire(&self, settings: &[(&str, &str)], source: &str, to: &str) -> Ran {
        run(self.command(settings, &["acquire", source, to]))
    }

    /// Runs a command of a user with credentials, in the desk's folder.
    fn run(&self, desk: &Desk, args: &[&str]) -> Ran {
        let mut command = self.command(&KEY, args);
        command.current_dir(desk.path());
        run(command)
    }

    fn command(&self, settings: &[(&str, &str)], args: &[&str]) -> Command {
        let mut command = program();
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AWS_")) {
            command.env_remove(name);
        }
        command.env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null").env("AWS_CONFIG_FILE", "/dev/null");
        command.env("AWS_ENDPOINT_URL", &self.endpoint).envs(settings.iter().copied());
        command.arg("--json").args(args);
        command
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const KEY: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hidden")];

#[test]
fn a_raw_image_and_an_e01_image_of_several_segments_in_an_object_store_are_the_image() {
    if !need::programs(&["s3s-fs"]) {
        return;
    }
    let desk = Desk::new();
    let (path, whole) = desk.image("disk.raw", 5 * MIB + 512);
    let folder = desk.at("store/lab/case 42");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(&path, folder.join("disk+1.raw")).unwrap();
    let first = folder.join("disk.E01");
    cheetah(&["acquire", &path, first.to_str().unwrap(), "--segment-size", "1MiB", "--level", "none"]).ok();
    assert!(folder.join("disk.E05").exists());
    let store = Store::start(&desk);
    for (key, kind) in [("disk+1.raw", "http"), ("disk.E01", "e01")] {
        let (uri, copy) = (format!("s3://lab/case 42/{key}"), desk.arg(&format!("{kind}.raw")));
        let report = store.acquire(&KEY, &uri, &copy).ok().json()["report"].clone();
        assert!(fs::read(&copy).unwrap() == whole, "{key}");
        assert_eq!((text(&report["source"], "kind"), text(&report["source"], "location")), (kind, uri.as_str()));
        let text = report.to_string();
        assert!(!text.contains("hidden"));
    }
}

#[test]
fn an_object_is_refused_without_valid_credentials_and_the_error_says_what_to_do() {
    if !need::programs(&["s3s-fs"]) {
        return;
    }
    let desk = Desk::new();
    fs::create_dir_all(desk.at("store/lab")).unwrap();
    desk.image("store/lab/disk.raw", MIB);
    let store = Store::start(&desk);
    let refused = |settings: &[(&str, &str)], source: &str, code, says: &[&str]| {
        store.acquire(settings, source, &desk.arg("refused.raw")).says(code, says);
        assert!(!desk.at("refused.raw").exists());
    };
    let (disk, wrong) = ("s3://lab/disk.raw", [KEY[0], ("AWS_SECRET_ACCESS_KEY", "other")]);
    refused(&[], disk, 2, &["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_NO_SIGN_REQUEST"]);
    refused(&wrong, disk, 1, &[disk, "403", "credentials are valid"]);
    refused(&[("AWS_NO_SIGN_REQUEST", "true")], disk, 1, &[disk, "403", "public"]);
    refused(&KEY, "s3://lab/absent.raw", 1, &["s3://lab/absent.raw", "404", "exists"]);
    refused(&KEY, "s3://lab", 2, &["s3://BUCKET/KEY"]);
    let in_clear = [KEY[0], KEY[1], ("AWS_ENDPOINT_URL_S3", "http://store.example")];
    refused(&in_clear, disk, 2, &["http://store.example", "not encrypted"]);
}

/// A desk with a store, which has the bucket `lab`.
fn desk_and_store() -> Option<(Desk, Store)> {
    if !need::programs(&["s3s-fs"]) {
        return None;
    }
    let desk = Desk::new();
    fs::create_dir_all(desk.at("store/lab")).unwrap();
    let store = Store::start(&desk);
    Some((desk, store))
}

/// The names in the desk's folder that belong to uploads to the bucket.
fn beside(desk: &Desk) -> Vec<String> {
    let names = fs::read_dir(desk.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("lab-")).collect();
    names.sort();
    names
}

/// The names in the bucket's folder `case`, those of unfinished uploads excepted.
fn objects(desk: &Desk) -> Vec<String> {
    let Ok(entries) = fs::read_dir(desk.at("store/lab/case")) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The number of parts of unfinished uploads that the store has.
fn parts(desk: &Desk) -> usize {
    let entries = fs::read_dir(desk.at("store")).unwrap().map(|entry| entry.unwrap().file_name());
    entries.filter(|name| name.to_string_lossy().contains(".part-")).count()
}

#[test]
fn an_image_acquired_into_a_bucket_is_the_source_and_its_log_and_report_are_beside_it() {
    let Some((desk, store)) = desk_and_store() else { return };
    let (disk, whole) = desk.image("disk.img", 19 * MIB + 512);
    let md5 = |ran: &Ran, of: &str| text(&ran.json()[of]["hashes"], "md5").to_owned();
    for (key, more, segments) in [
        ("case/x.raw", &[][..], &["x.raw"][..]),
        ("case/y.E01", &["--level", "none", "--segment-size", "9MiB"], &["y.E01", "y.E02"]),
    ] {
        let uri = format!("s3://lab/{key}");
        let acquired = store.run(&desk, &[&["acquire", &disk, &uri, "--verify"], more].concat()).ok();
        let name = key.rsplit('/').next().unwrap();
        let report = &acquired.json()["report"]["sinks"][0];
        assert_eq!((report["verified"].as_bool(), text(report, "destination")), (Some(true), uri.as_str()));
        let objects = objects(&desk);
        let copies = [format!("{name}.custody"), format!("{name}.report.txt")];
        for object in segments.iter().map(|segment| (*segment).to_owned()).chain(copies) {
            assert!(objects.contains(&object), "{object} is not in {objects:?}");
        }
        assert_eq!(beside(&desk), [format!("lab-{name}.custody"), format!("lab-{name}.report.txt")]);
        let verified = store.run(&desk, &["verify", &uri]).ok();
        assert_eq!(text(&verified.json()["hashes"], "md5"), md5(&acquired, "report"));
        assert!(!verified.json()["compared"].is_null(), "{}", verified.out());
        let copy = desk.arg("copy.raw");
        store.run(&desk, &["acquire", &uri, &copy, "--force"]).ok();
        assert!(fs::read(&copy).unwrap() == whole);
        store.run(&desk, &[&["acquire", &disk, &uri], more].concat()).says(2, &[&uri, "exists already", "--force"]);
        beside(&desk).iter().for_each(|name| fs::remove_file(desk.at(name)).unwrap());
    }
    assert_eq!(parts(&desk), 0);
}

#[test]
fn an_e01_in_a_bucket_holds_the_same_as_the_file_that_is_acquired_beside_it() {
    let Some((desk, store)) = desk_and_store() else { return };
    let (disk, whole) = desk.image("disk.img", 20 * MIB);
    store.run(&desk, &["acquire", &disk, "x.E01", "s3://lab/case/x.E01"]).ok();
    // The header of the file has the head of its log; that of the object has none.
    for image in ["x.E01", "s3://lab/case/x.E01"] {
        store.run(&desk, &["verify", image, "--no-log"]).ok();
        store.run(&desk, &["acquire", image, "copy.raw", "--force"]).ok();
        assert!(fs::read(desk.at("copy.raw")).unwrap() == whole, "{image}");
    }
}

/// Passes the first part of each object on to the store, and holds the others, so that no object is made, and what would discard
/// them.
fn first_part_only(store: &Store) -> Tap {
    let hold = |said: &[u8]| {
        // A request begins with its own piece of what is said: the one before it was answered.
        let line = String::from_utf8_lossy(said.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
        let is_other = line.contains("partNumber=") && !line.contains("partNumber=1&");
        line.starts_with("PUT ") && is_other || line.starts_with("DELETE ")
    };
    Tap::holding(store.endpoint.trim_start_matches("http://"), hold)
}

/// Starts a command that reaches the store through a tap.
fn start_through(tap: &Tap, desk: &Desk, store: &Store, args: &[&str]) -> Child {
    let mut command = store.command(&KEY, args);
    command.env("AWS_ENDPOINT_URL", format!("http://{}", tap.address)).current_dir(desk.path());
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs a command that uploads into the bucket; returns once the store has its first part, and will get no other.
fn start_upload(desk: &Desk, store: &Store, to: &str, args: &[&str]) -> Child {
    let child = start_through(&first_part_only(store), desk, store, args);
    let record = desk.at(&format!("lab-{}.upload", to.rsplit('/').next().unwrap()));
    until("a part is stored", || fs::read_to_string(&record).unwrap_or_default().contains("\"etag\""));
    child
}

/// Runs a command that uploads into the bucket, and kills it when the store has a part.
fn kill_in_upload(desk: &Desk, store: &Store, to: &str, args: &[&str]) {
    let mut child = start_upload(desk, store, to, args);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(objects(desk).is_empty() && parts(desk) > 0);
}

/// Asks a command to stop until it does; returns its exit code and what it said.
fn stop(mut child: Child) -> (Option<i32>, String) {
    let id = Pid::from_child(&child);
    until("it stops", || kill_process(id, Signal::TERM).is_err() || child.try_wait().unwrap().is_some());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

/// Starts to acquire into the bucket from an agent, and kills the acquisition when the store has a part.
fn killed(desk: &Desk, store: &Store, disk: &str, to: &str, more: &[&str]) -> (Service, Vec<String>) {
    let agent = Service::start(&["serve", disk, "--listen", "127.0.0.1:0"]);
    let uri = text(&agent.ready, "uri").to_owned();
    let args = [&["acquire", &uri, to, "--checkpoint", "1MiB"], more].concat();
    kill_in_upload(desk, store, to, &args);
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    (agent, args)
}

#[test]
fn a_killed_acquisition_into_a_bucket_is_resumed_by_the_same_command() {
    let Some((desk, store)) = desk_and_store() else { return };
    let (disk, whole) = desk.image("disk.img", 18 * MIB + 512);
    for (name, more) in [("x.raw", &[][..]), ("x.E01", &["--level", "none", "--segment-size", "12MiB"])] {
        let uri = format!("s3://lab/case/{name}");
        let (_agent, args) = killed(&desk, &store, &disk, &uri, more);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let report = store.run(&desk, &[&args[..], &["--verify"]].concat()).ok().json()["report"].clone();
        assert_eq!((report["interruptions"].as_u64(), report["sinks"][0]["verified"].as_bool()), (Some(1), Some(true)));
        let copy = desk.arg("copy.raw");
        store.run(&desk, &["acquire", &uri, &copy, "--force"]).ok();
        assert!(fs::read(&copy).unwrap() == whole);
        assert_eq!(parts(&desk), 0);
        fs::remove_dir_all(desk.at("store/lab/case")).unwrap();
        beside(&desk).iter().for_each(|name| fs::remove_file(desk.at(name)).unwrap());
    }
}

#[test]
fn a_part_that_changes_at_the_store_during_an_interruption_is_sent_again() {
    let Some((desk, store)) = desk_and_store() else { return };
    let (disk, _) = desk.image("disk.img", 18 * MIB);
    let (_agent, args) = killed(&desk, &store, &disk, "s3://lab/case/x.raw", &[]);
    // This store lists sizes only, so nothing but the record beside the command says what the part holds.
    let first = fs::read_dir(desk.at("store")).unwrap().map(|entry| entry.unwrap().path());
    let first = first.into_iter().find(|path| path.to_string_lossy().ends_with(".part-1")).unwrap();
    let mut part = fs::read(&first).unwrap();
    part[4711] ^= 1;
    fs::write(&first, part).unwrap();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let report = store.run(&desk, &[&args[..], &["--verify"]].concat()).ok().json()["report"].clone();
    assert_eq!(report["sinks"][0]["verified"], true);
}

#[test]
fn a_discarded_acquisition_leaves_nothing_at_the_store() {
    let Some((desk, store)) = desk_and_store() else { return };
    let (disk, _) = desk.image("disk.img", 18 * MIB);
    let (_agent, args) = killed(&desk, &store, &disk, "s3://lab/case/x.raw", &[]);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    store.run(&desk, &["acquire", &disk, "s3://lab/case/x.raw"]).says(3, &["may not be the source", "--same-source"]);
    store.run(&desk, &[&args[..], &["--discard"]].concat()).ok();
    assert_eq!((parts(&desk), beside(&desk)), (0, vec!["lab-x.raw.custody".to_owned()]));
    assert!(objects(&desk).is_empty());
}

#[test]
fn a_drive_is_saved_to_a_bucket_once() {
    let Some((desk, store)) = desk_and_store() else { return };
    let (disk, whole) = desk.image("disk.img", 20 * MIB + 512);
    let node = Node::start("64MiB");
    let drive = desk.drive("case", &[&node], &disk, &[]);
    let object = desk.at("store/lab/case/x.raw");
    store.run(&desk, &["save", &drive, "s3://lab/case/x.raw"]).ok();
    assert!(fs::read(&object).unwrap() == whole && beside(&desk).is_empty());
    store.run(&desk, &["save", &drive, "s3://lab/case/x.raw"]).says(2, &["exists already"]);
    store.run(&desk, &["save", &drive, "s3://lab/case/x.E01"]).says(2, &["cheetah acquire"]);
    store.run(&desk, &["save", &drive, "s3://lab/case/x.raw", "--partial"]).says(2, &["files only"]);
    assert!(beside(&desk).is_empty());
}

/// A drive whose upload to the bucket was killed, and its node.
fn killed_save(desk: &Desk, store: &Store, to: &str) -> (Node, String, Vec<u8>) {
    let (disk, whole) = desk.image("disk.img", 18 * MIB + 512);
    let node = Node::start("64MiB");
    let drive = desk.drive("case", &[&node], &disk, &[]);
    kill_in_upload(desk, store, to, &["save", &drive, to]);
    (node, drive, whole)
}

#[test]
fn a_killed_save_to_a_bucket_is_resumed_by_the_same_command() {
    let Some((desk, store)) = desk_and_store() else { return };
    let to = "s3://lab/case/x.raw";
    let (_node, drive, whole) = killed_save(&desk, &store, to);
    let tap = Tap::new(store.endpoint.trim_start_matches("http://"));
    let mut command = store.command(&KEY, &["save", &drive, to]);
    command.env("AWS_ENDPOINT_URL", format!("http://{}", tap.address)).current_dir(desk.path());
    let saved = run(command).ok().json();
    let sha256 = tool("sha256sum", &[&desk.arg("disk.img")]).ok().out();
    assert_eq!(text(&saved["hashes"], "sha256"), &sha256[..64]);
    assert!(fs::read(desk.at("store/lab/case/x.raw")).unwrap() == whole);
    assert_eq!((parts(&desk), beside(&desk)), (0, vec![]));
    let said = tap.said().concat();
    let sent = |part: u32| said.windows(13).any(|piece| piece == format!("partNumber={part}&").as_bytes());
    // This store lists the sizes of parts only, so nothing but the record says that the first part is there.
    assert_eq!([1, 2, 3].map(sent), [true, true, true]);
}

#[test]
fn a_killed_save_to_a_bucket_begins_anew_after_discard_or_with_restart() {
    let Some((desk, store)) = desk_and_store() else { return };
    let to = "s3://lab/case/x.raw";
    let (_node, drive, whole) = killed_save(&desk, &store, to);
    store.run(&desk, &["save", &drive, to, "--discard"]).ok();
    assert_eq!((parts(&desk), beside(&desk), objects(&desk)), (0, vec![], vec![]));
    store.run(&desk, &["save", &drive, to, "--discard"]).ok();
    kill_in_upload(&desk, &store, to, &["save", &drive, to]);
    store.run(&desk, &["save", &drive, to, "--restart"]).ok();
    assert!(fs::read(desk.at("store/lab/case/x.raw")).unwrap() == whole);
    assert_eq!((parts(&desk), beside(&desk)), (0, vec![]));
    let file = desk.arg("x.raw");
    store.run(&desk, &["save", &drive, &file, "--restart"]).says(2, &[&file, "never resumed"]);
}

#[test]
fn a_save_to_a_store_that_does_not_answer_can_be_stopped_and_resumed() {
    let Some((desk, store)) = desk_and_store() else { return };
    let to = "s3://lab/case/x.raw";
    let (disk, whole) = desk.image("disk.img", 18 * MIB);
    let node = Node::start("64MiB");
    let drive = desk.drive("case", &[&node], &disk, &[]);
    let (code, said) = stop(start_upload(&desk, &store, to, &["save", &drive, to]));
    assert!(code == Some(1) && said.contains("nothing was saved") && said.contains("--discard"), "{code:?}: {said}");
    store.run(&desk, &["save", &drive, to]).ok();
    assert!(fs::read(desk.at("store/lab/case/x.raw")).unwrap() == whole);
    assert_eq!((parts(&desk), beside(&desk)), (0, vec![]));
}

#[test]
fn damage_that_is_found_during_a_save_to_a_store_that_does_not_answer_is_reported() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let Some((desk, store)) = desk_and_store() else { return };
    let to = "s3://lab/case/x.raw";
    let (disk, _) = desk.image("disk.img", 18 * MIB);
    let memory = desk.file("memory", &[0; 24 << 20]);
    let node = Peer::nbdkit_tcp(&["file", &memory]);
    let drive = desk.arg("case.drive");
    cheetah(&["create", &drive, "--nodes", &node.uri, "--layout", "linear", "--from", &disk]).ok();
    let mut content = fs::read(&memory).unwrap();
    content[9 << 20] ^= 1;
    fs::write(&memory, content).unwrap();
    let tap = Tap::holding(store.endpoint.trim_start_matches("http://"), |said| said.starts_with(b"DELETE "));
    let saving = start_through(&tap, &desk, &store, &["save", &drive, to]);
    until("the upload is discarded", || tap.said().concat().windows(7).any(|piece| piece == b"DELETE "));
    let (code, said) = stop(saving);
    assert!(code == Some(3) && said.contains("9437184") && said.contains("--discard"), "{code:?}: {said}");
    store.run(&desk, &["save", &drive, to]).ended_with(3);
    assert_eq!((parts(&desk), beside(&desk), objects(&desk)), (0, vec![], vec![]));
}

#[test]
fn a_save_whose_record_cannot_be_written_is_resumed_once_it_can() {
    let Some((desk, store)) = desk_and_store() else { return };
    let to = "s3://lab/case/x.raw";
    let (disk, whole) = desk.image("disk.img", 34 * MIB);
    let node = Node::start("64MiB");
    let drive = desk.drive("case", &[&node], &disk, &[]);
    let save = store.command(&KEY, &["save", &drive, to]);
    // The record takes more than one block; a file that is too large is an error, as it is on a full disk.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"]).arg(save.get_program()).args(save.get_args());
    for (name, value) in save.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(desk.path());
    run(command).says(1, &["writing lab-x.raw.upload", "run the same command to resume"]);
    let record = fs::read_to_string(desk.at("lab-x.raw.upload")).unwrap();
    assert!(record.ends_with('\n') && record.contains("\"etag\""), "{record}");
    store.run(&desk, &["save", &drive, to]).ok();
    assert!(fs::read(desk.at("store/lab/case/x.raw")).unwrap() == whole);
    assert_eq!((parts(&desk), beside(&desk)), (0, vec![]));
}

#[test]
fn a_drive_that_changed_after_a_killed_save_to_a_bucket_is_saved_as_it_is() {
    let Some((desk, store)) = desk_and_store() else { return };
    let to = "s3://lab/case/x.raw";
    let (_node, drive, _) = killed_save(&desk, &store, to);
    let (other, whole) = desk.image("other.img", 17 * MIB);
    cheetah(&["load", &drive, &other, "--force"]).ok();
    store.run(&desk, &["save", &drive, to]).ok();
    assert!(fs::read(desk.at("store/lab/case/x.raw")).unwrap() == whole);
    assert_eq!((parts(&desk), beside(&desk)), (0, vec![]));
}
