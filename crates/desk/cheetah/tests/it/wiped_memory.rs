//! What a search leaves in the memory of a node: nothing of its patterns, and nothing of its hits.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::ControlClient;
use cheetah_control::jobs::{JobLine, NewJob, SearchOrder, Stretch, UnitPlace, Units, Work};
use cheetah_drive::DriveFile;

use crate::sealed::has_in_memory;
use crate::support::{Desk, KIB, MIB, Node, cheetah, need, noise, until};

/// The one word that the image has.
const FOUND: &str = "Geheimnis";
const UNIT: u64 = 64 * KIB;
const SIZE: u64 = 8 * MIB;

/// A node that works on jobs, and a drive on it with a hit in every 256 bytes: more than a node keeps of the results of a job.
fn drive(desk: &Desk) -> (Node, DriveFile) {
    let node = Node::start_with("24MiB", "127.0.0.1:0", &["--scan", "1"]);
    let mut bytes = noise(SIZE, 46);
    (100..bytes.len() - 20).step_by(256).for_each(|at| bytes[at..at + FOUND.len()].copy_from_slice(FOUND.as_bytes()));
    let path = desk.drive("case", &[&node], &desk.file("disk.raw", &bytes), &["--layout", "linear"]);
    (node, DriveFile::load(Path::new(&path)).unwrap())
}

/// An order for words, or for expressions, in these encodings.
fn order([words, expressions]: [&[&str]; 2], encodings: &[&str]) -> SearchOrder {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    SearchOrder {
        version: env!("CARGO_PKG_VERSION").into(),
        words: owned(words),
        expressions: owned(expressions),
        encodings: owned(encodings),
        ..SearchOrder::default()
    }
}

/// A search of the whole drive.
fn job(drive: &DriveFile, order: SearchOrder) -> NewJob {
    let node = drive.nodes().next().unwrap();
    let export = node.nbd.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    let units = vec![UnitPlace { export: 0, text: 0 }];
    let stretch = Stretch { rounds: SIZE / UNIT, units, export_step: UNIT, text_step: UNIT };
    let units = Units { unit_bytes: UNIT, stretches: vec![stretch] };
    NewJob { instance: node.instance.clone().unwrap(), export, units, work: Work::Search(order), key: None }
}

/// A text in each encoding of the orders.
fn encoded(text: &str) -> [Vec<u8>; 4] {
    let wide = |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect();
    let narrow = text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    [text.as_bytes().to_vec(), wide(u16::to_le_bytes), wide(u16::to_be_bytes), narrow]
}

#[test]
fn words_expressions_and_atoms_are_in_the_memory_of_a_node_while_their_job_lasts_and_not_afterwards() {
    if !need::is_root() {
        need::skip("needs root, to read the memory of a node");
        return;
    }
    let desk = Desk::new();
    let (node, drive) = drive(&desk);
    let is_there = |bytes: &[u8]| has_in_memory(node.service.pid(), bytes);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let control = ControlClient::new(&node.http, None);
    let hit = STANDARD.encode(FOUND);
    let words = ["Zwetschgenröster", "zwetschgenröster", "ZWETSCHGENRÖSTER"];
    let word = SearchOrder {
        ignore_case: true,
        ..order([&[FOUND, words[0]], &[]], &["utf-8", "utf-16le", "utf-16be", "windows-1252"])
    };
    let expression = order([&[], &[FOUND, "Marillen(?:knoedel|strudel)[0-9]{4}"]], &["utf-8", "utf-16le"]);
    // As YARA's are sent: a character of this encoding for each byte.
    let atom = order([&[FOUND, "\u{81}Powidl\u{fe}\u{1}"], &[]], &["windows-1252"]);
    let cases: [(SearchOrder, &[&str]); 3] =
        [(word, &words), (expression, &["Marillen", "knoedel", "strudel"]), (atom, &["Powidl"])];
    for (order, texts) in cases {
        let id = runtime.block_on(control.start_job(&job(&drive, order))).unwrap().id;
        // Nobody takes the results.
        until("the node has hits", || is_there(hit.as_bytes()));
        assert!(is_there(texts[0].as_bytes()), "{texts:?}");
        runtime.block_on(control.cancel_job(&id)).unwrap();
        until("the hits are wiped", || !is_there(hit.as_bytes()));
        for bytes in texts.iter().flat_map(|text| encoded(text)) {
            until(&format!("the patterns are wiped: {texts:?}"), || !is_there(&bytes));
        }
    }
}

#[test]
fn an_expression_that_is_refused_is_wiped_and_so_is_the_error_that_names_it() {
    if !need::is_root() {
        need::skip("needs root, to read the memory of a node");
        return;
    }
    let desk = Desk::new();
    let (node, drive) = drive(&desk);
    let is_there = |text: &str| has_in_memory(node.service.pid(), text.as_bytes());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let control = ControlClient::new(&node.http, None);
    let order = order([&[], &["Topfenpalatschinke+"]], &["utf-8"]);
    let id = runtime.block_on(control.start_job(&job(&drive, order))).unwrap().id;
    assert!(is_there("Topfenpalatschinke"));
    let lines = runtime.block_on(control.job_lines(&id, 0, 30)).unwrap();
    assert!(matches!(&lines[..], [JobLine::Failed { .. }]), "{lines:?}");
    runtime.block_on(control.cancel_job(&id)).unwrap();
    until("the expression is wiped", || !is_there("Topfenpalatschinke"));
}

#[test]
fn a_search_that_has_ended_leaves_no_pattern_at_the_node() {
    if !need::is_root() {
        need::skip("needs root, to read the memory of a node");
        return;
    }
    let desk = Desk::new();
    let (node, drive) = drive(&desk);
    let path = drive.path.to_str().unwrap();
    let patterns = ["--word", "Kaiserschmarrn", "--regex", "Linzer(?:torte|auge)[0-9]", "--ignore-case"];
    let encodings = ["--encoding", "utf-8,utf-16le,utf-16be,windows-1252"];
    let near = ["search", path, "--at-nodes", "--out", &desk.arg("near")];
    let answer = cheetah(&[&near[..], &patterns, &encodings].concat()).ok().json();
    assert_eq!(answer["at_nodes"]["node_bytes"].as_object().map(serde_json::Map::len), Some(1), "{answer}");
    let texts = ["Kaiserschmarrn", "kaiserschmarrn", "KAISERSCHMARRN", "Linzer", "linzer", "torte", "auge"];
    for bytes in texts.iter().flat_map(|text| encoded(text)).filter(|bytes| bytes.len() > 5) {
        until("the patterns are wiped", || !has_in_memory(node.service.pid(), &bytes));
    }
}
