//! Sources that are replaced while they are acquired, by real processes that are killed.

use std::process::Child;

use super::*;

/// The size of the disk in these tests; reading it at [`SLOW`] takes half a minute.
const LEN: u64 = 24 * MIB;
const SLOW: [&str; 2] = ["--rate-max", "1MiB"];

/// Waits until `count` checkpoints are in the journal: each holds at least a MiB.
fn wait_for_checkpoints(examiner: &Examiner, journal: &str, count: usize) {
    let started = Instant::now();
    let written = || fs::read(examiner.desk.at(journal)).unwrap_or_default();
    while String::from_utf8_lossy(&written()).matches(r#"{"checkpoint":"#).count() < count {
        assert!(started.elapsed() < PATIENCE, "nothing is acquired");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts to acquire `disk` from a slow agent into x.raw, and kills the agent when some MiB are on stable storage.
fn interrupted(examiner: &Examiner, port: &Port, disk: &str, more: &[&str]) -> (Child, Vec<String>) {
    let agent = Service::start(&[&["serve", disk, "--listen", &port.text()], &SLOW[..]].concat());
    let source = text(&agent.ready, "uri").to_owned();
    let mut args: Vec<String> = vec![source, examiner.desk.arg("x.raw"), "--checkpoint".into(), "1MiB".into()];
    args.extend(more.iter().map(|more| (*more).to_owned()));
    let child = examiner.start(&args.iter().map(String::as_str).collect::<Vec<_>>());
    wait_for_checkpoints(examiner, "x.raw.acquire", 3);
    agent.kill();
    (child, args)
}

fn serve(disk: &str, port: &Port) -> Service {
    Service::start(&["serve", disk, "--listen", &port.text()])
}

impl Examiner {
    fn again(&self, args: &[String], more: &[&str]) -> Ran {
        self.acquire(&[&args.iter().map(String::as_str).collect::<Vec<_>>()[..], more].concat())
    }

    fn log(&self) -> String {
        String::from_utf8(self.read("x.raw.custody")).unwrap()
    }
}

#[test]
fn an_agent_with_another_disk_is_refused_without_same_source() {
    let examiner = Examiner::new();
    let (disk, content) = examiner.desk.image("disk.img", LEN);
    // The same size, and the same content as far as it has been read.
    let mut other = content;
    other[23 * MIB as usize..].fill(7);
    let other_disk = examiner.desk.file("other.img", &other);
    let port = Port::held();
    let (mut child, args) = interrupted(&examiner, &port, &disk, &[]);
    // Under the same name, or the export would not exist.
    let _agent = Service::start(&["serve", &other_disk, "--listen", &port.text(), "--name", "disk"]);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(!examiner.desk.at("x.raw").exists());
    assert!(examiner.log().contains(r#""event":"source_changed""#), "{}", examiner.log());
    examiner.again(&args, &[]).says(3, &["disk.img", "other.img", "--same-source"]);
    assert!(!examiner.desk.at("x.raw").exists());

    let report = report(&examiner.again(&args, &["--same-source", "--verify"]).ok());
    assert!(examiner.read("x.raw") == other);
    let vouched = |text: &str| text.contains("vouched for the source") && text.contains("other.img");
    assert!(report["notes"].as_array().unwrap().iter().any(|note| vouched(note.as_str().unwrap())), "{report}");
    assert!(vouched(&String::from_utf8(examiner.read("x.raw.report.txt")).unwrap()));
    assert!(vouched(&examiner.log()));
    let verified = tool_with_key(&examiner, &["verify", &examiner.desk.arg("x.raw")]);
    assert!(vouched(&verified), "{verified}");
}

/// The output of a command for people.
fn tool_with_key(examiner: &Examiner, args: &[&str]) -> String {
    let mut command = program();
    command.env("CHEETAH_KEY", &examiner.key).args(args);
    crate::support::run::run(command).ok().out()
}

#[test]
fn a_restarted_agent_with_the_same_disk_is_recognised_by_digests_of_everything_read() {
    let examiner = Examiner::new();
    let (disk, content) = examiner.desk.image("disk.img", LEN);
    let port = Port::held();
    let (mut child, _) = interrupted(&examiner, &port, &disk, &[]);
    let _agent = serve(&disk, &port);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(examiner.read("x.raw") == content);
    let (log, text) = (examiner.log(), String::from_utf8(examiner.read("x.raw.report.txt")).unwrap());
    assert_eq!(log.matches(r#""event":"reconnected""#).count(), 1, "{log}");
    assert!(log.contains(r#""method":"digests""#), "{log}");
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("interruptions").ends_with(" 1"), "{text}");
    assert!(!line("links lost").ends_with(" 0"), "{text}");
    assert!(text.contains("compared by digests, equal") && !text.contains("NOTE"), "{text}");
}

#[test]
fn a_restarted_agent_with_a_changed_disk_is_refused_even_with_same_source() {
    let examiner = Examiner::new();
    let (disk, content) = examiner.desk.image("disk.img", LEN);
    let port = Port::held();
    let (mut child, args) = interrupted(&examiner, &port, &disk, &["--same-source"]);
    let mut changed = content;
    // One byte in an acquired MiB, which a few samples would hardly hit.
    changed[MIB as usize + 4711] ^= 1;
    fs::write(&disk, &changed).unwrap();
    let _agent = serve(&disk, &port);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    examiner.again(&args, &[]).says(3, &["1048576+1048576", "another content", "--restart"]);
    assert!(!examiner.desk.at("x.raw").exists());
}

#[test]
fn an_agent_that_calls_again_with_a_changed_disk_ends_the_acquisition() {
    let examiner = Examiner::new();
    let (disk, content) = examiner.desk.image("disk.img", LEN);
    let port = Port::held();
    let (listen, raw) = (port.text(), examiner.desk.arg("x.raw"));
    let args = ["--listen", &listen, &raw, "--checkpoint", "1MiB"];
    let mut child = examiner.start(&args);
    let agent = Service::start(&[&["serve", &disk, "--connect", &listen], &SLOW[..]].concat());
    wait_for_checkpoints(&examiner, "x.raw.acquire", 3);
    agent.kill();
    // A caller with another disk is sent away.
    let (other, _) = examiner.desk.image("other.img", LEN);
    let other = Service::start(&["serve", &other, "--connect", &listen, "--name", "disk"]);
    let mut changed = content;
    changed[MIB as usize + 4711] ^= 1;
    fs::write(&disk, &changed).unwrap();
    let _agent = Service::start(&["serve", &disk, "--connect", &listen]);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    drop(other);
    examiner.acquire(&args).says(3, &["1048576+1048576", "another content", "--restart"]);
    assert_eq!(examiner.log().matches(r#""event":"source_changed""#).count(), 2, "{}", examiner.log());
    assert!(!examiner.desk.at("x.raw").exists());
}

#[test]
fn a_foreign_server_replaced_within_the_time_out_is_compared_before_further_reads() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let examiner = Examiner::new();
    let (disk, content) = examiner.desk.image("disk.img", LEN);
    let mut changed = content;
    changed[MIB as usize + 4711] ^= 1;
    let other = examiner.desk.file("other.img", &changed);
    let peer = Peer::nbdkit_unix(&examiner.desk, &["--filter=rate", "file", &disk, "rate=8M"]);
    let (uri, raw) = (peer.uri.clone(), examiner.desk.arg("x.raw"));
    let mut child = examiner.start(&[&uri, &raw, "--timeout", "60", "--checkpoint", "1MiB"]);
    wait_for_checkpoints(&examiner, "x.raw.acquire", 3);
    drop(peer);
    fs::remove_file(examiner.desk.at("nbdkit.sock")).unwrap();
    let _peer = Peer::nbdkit_unix(&examiner.desk, &["file", &other]);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(!examiner.desk.at("x.raw").exists());
}

#[test]
fn a_file_put_in_place_of_the_partial_image_never_gets_its_name() {
    for name in ["x.raw", "x.E01"] {
        let examiner = Examiner::new();
        let (disk, _) = examiner.desk.image("disk.img", 6 * MIB);
        let port = Port::held();
        let agent = Service::start(&[&["serve", &disk, "--listen", &port.text()], &SLOW[..]].concat());
        let to = examiner.desk.arg(name);
        let mut child = examiner.start(&[text(&agent.ready, "uri"), &to, "--checkpoint", "1MiB"]);
        wait_for_checkpoints(&examiner, &format!("{name}.acquire"), 1);
        let foreign = examiner.desk.file("foreign", b"not what was acquired");
        let partial = format!("{name}.partial");
        fs::rename(foreign, examiner.desk.at(&partial)).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(3), "{name}");
        assert!(!examiner.desk.at(name).exists());
        assert_eq!(examiner.read(&partial), b"not what was acquired");
    }
}
