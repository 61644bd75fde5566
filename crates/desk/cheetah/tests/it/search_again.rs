//! A search that is stopped, and the same command that goes on.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::search::{COMPRESS, MAKE_FILES};
use crate::support::run::{Ran, cheetah, program, run};
use crate::support::{Desk, MIB, Service, need, noise, number, text, until};

const WORD: &str = "Geheimnis";

/// An image with the word in every 4 KiB, also over the seams of parts.
fn image(size: u64) -> Vec<u8> {
    let mut bytes = noise(size, 71);
    for place in bytes.chunks_mut(4093) {
        let len = place.len().min(WORD.len());
        place[..len].copy_from_slice(&WORD.as_bytes()[..len]);
    }
    bytes
}

/// The search of a source into the folder `hits` of a folder.
fn command(within: &Path, source: &str) -> Command {
    let mut command = program();
    command.arg("--json").current_dir(within);
    command.args(["search", source, "--word", WORD, "--find", "email,url", "--workers", "2", "--out", "hits"]);
    command
}

/// The files of a result, apart from the journal, and the report, which has the time in it.
fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            found
                .extend(files_of(&entry.path()).into_iter().map(|(file, content)| (format!("{name}/{file}"), content)));
        } else if !["search.journal", "report.html"].contains(&name.as_str()) {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    found
}

/// The ranges that a journal has.
fn ranges(folder: &Path) -> usize {
    let journal = fs::read(folder.join("search.journal")).unwrap_or_default();
    String::from_utf8_lossy(&journal).lines().filter(|line| line.contains(r#" {"searched":"#)).count()
}

#[test]
fn a_search_that_is_killed_or_stopped_goes_on_and_has_the_files_of_one_that_is_not() {
    let desk = Desk::new();
    let raw = desk.file("disk.raw", &image(12 * MIB));
    let agent = Service::start(&["serve", &raw, "--listen", "127.0.0.1:0", "--rate-max", "3MiB"]);
    let uri = text(&agent.ready, "uri");
    let (once, stopped) = (desk.dir("once"), desk.dir("stopped"));
    run(command(Path::new(&once), uri)).ok();
    let hits = Path::new(&stopped).join("hits");
    for signal in [Signal::KILL, Signal::INT, Signal::KILL] {
        let before = ranges(&hits);
        let mut killed = command(Path::new(&stopped), uri);
        killed.stdout(File::create(desk.at("stdout")).unwrap()).stderr(File::create(desk.at("stderr")).unwrap());
        let mut child = killed.spawn().unwrap();
        until("a range is done, or all", || ranges(&hits) != before || child.try_wait().unwrap().is_some());
        let _ = kill_process(Pid::from_child(&child), signal);
        child.wait().unwrap();
    }
    let ran = run(command(Path::new(&stopped), uri)).ok();
    assert_eq!(ran.json()["complete"], Value::Bool(true));
    let (expected, found) = (files_of(&Path::new(&once).join("hits")), files_of(&hits));
    assert_eq!(expected.keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
    for (name, content) in &expected {
        assert!(found[name] == *content, "{name} differs");
    }
    assert!(expected["hits.csv"].len() > 100_000);
}

/// The lines of a journal.
fn lines(folder: &Path) -> usize {
    fs::read(folder.join("search.journal")).map_or(0, |journal| journal.iter().filter(|byte| **byte == b'\n').count())
}

#[test]
fn a_search_that_is_killed_before_it_unpacks_or_carves_has_the_files_of_one_that_is_not() {
    if !need::programs(&["python3"]) {
        return;
    }
    let desk = Desk::new();
    let files = desk.dir("files");
    for script in [MAKE_FILES, COMPRESS] {
        let mut python = Command::new("python3");
        python.args(["-c", script, &files]);
        run(python).ok();
    }
    let mut content = noise(6 * MIB, 46);
    for (nth, name) in ["a.png", "b.zip", "c.gz", "d.sqlite", "a.gz", "b.docx"].iter().enumerate() {
        let (at, file) = (MIB as usize * nth + 512 * 3, fs::read(desk.at("files").join(name)).unwrap());
        content[at..at + file.len()].copy_from_slice(&file);
    }
    let raw = desk.file("disk.raw", &content);
    let (once, stopped) = (desk.dir("once"), desk.dir("stopped"));
    let more = |within: &str| {
        let mut command = command(Path::new(within), &raw);
        command.args(["--headers", "png,zip,gzip,sqlite", "--carve", "--inside", "all"]);
        command
    };
    run(more(&once)).ok();
    let hits = Path::new(&stopped).join("hits");
    for _ in 0..6 {
        let before = lines(&hits);
        let mut killed = more(&stopped);
        killed.stdout(File::create(desk.at("stdout")).unwrap()).stderr(File::create(desk.at("stderr")).unwrap());
        let mut child = killed.spawn().unwrap();
        until("a record is written, or all", || lines(&hits) != before || child.try_wait().unwrap().is_some());
        let _ = kill_process(Pid::from_child(&child), Signal::KILL);
        child.wait().unwrap();
    }
    let answer = run(more(&stopped)).ok().json();
    assert!(number(&answer["carved"], "files") >= 4 && number(&answer["inside"], "hits") >= 3, "{answer}");
    assert!(files_of(&Path::new(&once).join("hits")) == files_of(&hits));
}

/// The same, with files of at most some 16 KiB, as on a full disk.
fn on_a_full_disk(command: &Command) -> Ran {
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\""]).arg(command.get_program());
    limited.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    run(limited)
}

#[test]
fn a_search_that_cannot_be_written_says_so_and_goes_on_when_there_is_space() {
    let desk = Desk::new();
    let raw = desk.file("disk.raw", &image(4 * MIB));
    let (once, full) = (desk.dir("once"), desk.dir("full"));
    run(command(Path::new(&once), &raw)).ok();
    let ran = on_a_full_disk(&command(Path::new(&full), &raw)).ended_with(1);
    assert!(ran.stderr.contains("run the same command to resume"), "{}", ran.stderr);
    assert!(!Path::new(&full).join("hits/search.json").exists());
    run(command(Path::new(&full), &raw)).ok();
    assert!(files_of(&Path::new(&once).join("hits")) == files_of(&Path::new(&full).join("hits")));
}

#[test]
fn a_search_that_is_finished_is_not_done_again_and_an_altered_result_is_refused() {
    let desk = Desk::new();
    let raw = desk.file("disk.raw", &image(MIB));
    let folder = desk.dir("case");
    let search = || run(command(Path::new(&folder), &raw));
    let first = search().ok().json();
    let (hits, table) = (Path::new(&folder).join("hits"), Path::new(&folder).join("hits/hits.csv"));
    let (journal, modified) =
        (fs::read(hits.join("search.journal")).unwrap(), table.metadata().unwrap().modified().unwrap());
    assert!(!String::from_utf8_lossy(&journal).contains("searched"), "what was found is in the result alone");
    let second = search().ok().json();
    assert_eq!(first, second);
    assert!(journal == fs::read(hits.join("search.journal")).unwrap());
    assert_eq!(table.metadata().unwrap().modified().unwrap(), modified);
    // Another content of the source, and another table.
    let content = fs::read(&raw).unwrap();
    fs::write(&raw, vec![1; content.len()]).unwrap();
    search().says(3, &["another search", "the content of the source"]);
    fs::write(&raw, content).unwrap();
    fs::write(&table, "offset\n").unwrap();
    search().says(3, &["hits.csv", "altered"]);
    assert_eq!(fs::read(&table).unwrap(), b"offset\n");
}

#[test]
fn what_could_not_be_read_is_searched_again() {
    let desk = Desk::new();
    let raw = desk.file("disk.raw", &image(MIB));
    let (once, again) = (desk.dir("once"), desk.dir("again"));
    run(command(Path::new(&once), &raw)).ok();
    let map = |gap: u64| {
        let rest = MIB - 65_536 - gap;
        let end = 65_536 + gap;
        format!("# Mapfile\n0x0  ?  1\n0x0 0x10000 +\n0x10000 {gap:#x} ?\n{end:#x} {rest:#x} +\n")
    };
    fs::write(format!("{raw}.map"), map(8192)).unwrap();
    let first = run(command(Path::new(&again), &raw)).ended_with(3);
    let answer: Value = serde_json::from_str(first.out().lines().next().unwrap()).unwrap();
    assert_eq!(number(&answer, "unsearched_bytes"), 8192);
    fs::write(format!("{raw}.map"), map(512)).unwrap();
    let second = run(command(Path::new(&again), &raw)).ended_with(3);
    let answer: Value = serde_json::from_str(second.out().lines().next().unwrap()).unwrap();
    assert_eq!(number(&answer, "unsearched_bytes"), 512);
    fs::remove_file(format!("{raw}.map")).unwrap();
    run(command(Path::new(&again), &raw)).ok();
    assert!(files_of(&Path::new(&once).join("hits")) == files_of(&Path::new(&again).join("hits")));
}

#[test]
fn a_search_that_is_stopped_while_it_reads_known_files_ends_at_once() {
    let desk = Desk::new();
    let raw = desk.file("disk.raw", &noise(MIB, 5));
    // Reading all of it takes many minutes.
    File::create(desk.at("known")).unwrap().set_len(1 << 40).unwrap();
    let known = fs::canonicalize(desk.at("known")).unwrap();
    let mut command = program();
    command.args(["search", &raw, "--known", &desk.arg("known"), "--out", &desk.arg("out")]);
    command.stdout(File::create(desk.at("stdout")).unwrap()).stderr(File::create(desk.at("stderr")).unwrap());
    let mut child = command.spawn().unwrap();
    let open = format!("/proc/{}/fd", child.id());
    let is_known = |entry: fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|file| file == known);
    until("the known file is read", || fs::read_dir(&open).is_ok_and(|open| open.flatten().any(is_known)));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    until("it ends", || child.try_wait().unwrap().is_some());
    let said = fs::read_to_string(desk.at("stderr")).unwrap();
    assert!(said.contains("stopped by SIGINT") && !desk.at("out").exists(), "{said}");
}

#[test]
fn a_folder_that_is_a_link_or_lies_in_evidence_is_refused_before_anything_is_written() {
    let desk = Desk::new();
    let raw = desk.file("disk.raw", &noise(MIB, 5));
    let known = desk.dir("known");
    fs::write(desk.at("known/letter.doc"), noise(65_536, 7)).unwrap();
    symlink(desk.at("known"), desk.at("link")).unwrap();
    let out = |out: &str| cheetah(&["search", &raw, "--word", WORD, "--out", &desk.arg(out)]);
    out("link").says(2, &["is a symbolic link"]);
    out("known").says(2, &["something else"]);
    out("disk.raw").says(2, &["lie in each other"]);
    let out = |out: &str| cheetah(&["search", &raw, "--known", &known, "--out", &desk.arg(out)]);
    out("known/hits").says(2, &["lie in each other"]);
    out("link/hits").says(2, &["lie in each other"]);
    let left: Vec<_> = fs::read_dir(&known).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["letter.doc"]);
}
