//! A node that is killed while nodes search or verify: nothing is missing that its mirror or parity still has.
//!
//! Words and e-mail addresses are in `search_at_nodes`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::Child;
use std::time::Instant;

use serde_json::Value;

use crate::support::run::program;
use crate::support::service::PATIENCE;
use crate::support::{Desk, KIB, MIB, Node, cheetah, hits_of, noise, number};

const SIZE: u64 = 24 * MIB;
const LAYOUTS: [&str; 2] = ["mirror", "parity"];
const NUMBER: &[u8] = b"INV-123456";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

/// A redundant drive over three nodes that work on jobs with one thread each.
struct Scene {
    desk: Desk,
    nodes: Vec<Node>,
    drive: String,
}

impl Scene {
    /// In every 256 KiB of the drive: a number and a known file over the seams of stripe units, and a header within one.
    fn new(layout: &str) -> Self {
        let desk = Desk::new();
        let nodes: Vec<Node> = (0..3).map(|_| Node::start_with("40MiB", "127.0.0.1:0", &["--scan", "1"])).collect();
        let known = noise(40 * KIB, 11);
        desk.dir("known");
        desk.file("known/letter.doc", &known);
        let mut content = noise(SIZE, 45);
        let mut put = |at: u64, what: &[u8]| content[at as usize..][..what.len()].copy_from_slice(what);
        for at in (256 * KIB..SIZE).step_by(256 << 10) {
            put(at - 5, NUMBER);
            put(at + 8 * KIB, PNG);
            put(at + 32 * KIB, &known);
        }
        let image = desk.file("disk.raw", &content);
        let drive = desk.drive("case42", &nodes.iter().collect::<Vec<_>>(), &image, &["--layout", layout]);
        Self { desk, nodes, drive }
    }

    /// Runs a command, and kills a node as soon as it has a job. Returns what the command prints last; it ends well.
    fn answer_of_killed(&mut self, args: &[&str]) -> Value {
        let mut command = program();
        command.arg("--json").args(args).stdout(File::create(self.desk.at("stdout")).unwrap());
        let mut child = command.spawn().unwrap();
        let victim = self.nodes.remove(1);
        wait_for_a_job(&victim, &mut child);
        victim.kill();
        let code = child.wait().unwrap().code();
        let printed = fs::read_to_string(self.desk.at("stdout")).unwrap();
        assert_eq!(code, Some(0), "{printed}");
        serde_json::from_str(printed.lines().last().unwrap()).unwrap()
    }
}

/// Waits until a node has a job. On a slow machine the command may have ended by then, and its result must be the same.
fn wait_for_a_job(node: &Node, child: &mut Child) {
    let begun = Instant::now();
    while number(&node.status()["scan"], "jobs") == 0 && child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "the node gets no job");
    }
}

/// The tables and the map in a folder, without what says where a hit was found.
fn tables(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let tables = all.filter(|path| path.extension().is_some_and(|is| is == "csv" || is == "map"));
    let mut tables: BTreeMap<_, _> =
        tables.map(|path| (path.file_name().unwrap().to_owned(), fs::read(&path).unwrap())).collect();
    tables.insert("hits.csv".into(), hits_of(folder).into_bytes());
    tables
}

/// The bytes that were worked on at the nodes and here.
fn worked_bytes(answer: &Value) -> u64 {
    let sides = ["node_bytes", "here_bytes"].map(|side| answer["at_nodes"][side].as_object().unwrap());
    sides.iter().flat_map(|side| side.values()).map(|bytes| bytes.as_u64().unwrap()).sum()
}

/// Searches a drive of each redundant layout, first by reading it and then at its nodes, of which one is killed.
fn search_is_complete(what: impl Fn(&Desk) -> Vec<String>) {
    for layout in LAYOUTS {
        let mut scene = Scene::new(layout);
        let (drive, plain, near) = (scene.drive.clone(), scene.desk.arg("plain"), scene.desk.arg("near"));
        let what = what(&scene.desk);
        let what: Vec<&str> = what.iter().map(String::as_str).collect();
        let expected = cheetah(&[&["search", &drive, "--out", &plain], &what[..]].concat()).ok().json();
        let found = number(&expected, "hits") + expected["known"]["runs"].as_u64().unwrap_or(0);
        assert!(found >= SIZE / (256 * KIB) - 1, "{expected}");
        let args = ["search", &drive, "--at-nodes", "--out", &near];
        let answer = scene.answer_of_killed(&[&args[..], &what[..]].concat());
        assert!(tables(Path::new(&near)) == tables(Path::new(&plain)), "{layout}: {answer}");
        assert_eq!(answer["complete"], true, "{layout}: {answer}");
        assert_eq!((&answer["patterns"], &answer["known"]), (&expected["patterns"], &expected["known"]), "{layout}");
        assert_eq!(worked_bytes(&answer), SIZE, "{layout}: {answer}");
    }
}

#[test]
fn a_search_for_expressions_loses_no_hit_with_a_killed_node() {
    search_is_complete(|_| ["--regex", "INV-[0-9]{6}"].map(str::to_owned).to_vec());
}

#[test]
fn a_search_for_headers_loses_no_hit_with_a_killed_node() {
    search_is_complete(|_| ["--headers", "png"].map(str::to_owned).to_vec());
}

#[test]
fn a_search_for_blocks_of_known_files_loses_no_run_with_a_killed_node() {
    search_is_complete(|desk| vec!["--known".to_owned(), desk.arg("known")]);
}

#[test]
fn a_verification_compares_every_byte_with_a_killed_node() {
    for layout in LAYOUTS {
        let mut scene = Scene::new(layout);
        let drive = scene.drive.clone();
        let expected = cheetah(&["verify", &drive, "--at-nodes"]).ok().json();
        let answer = scene.answer_of_killed(&["verify", &drive, "--at-nodes"]);
        for key in ["ok", "ok_bytes", "hashes", "mismatched", "unreadable", "unverified"] {
            assert_eq!(answer[key], expected[key], "{layout}, {key}: {answer}");
        }
        assert_eq!(number(&answer, "ok_bytes"), SIZE, "{layout}: {answer}");
        assert_eq!(worked_bytes(&answer), SIZE, "{layout}: {answer}");
    }
}
