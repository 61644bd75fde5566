//! `cheetah search --at-nodes`: hits and coverage are those of a search that reads everything.

use std::collections::HashSet;
use std::fs::{self, File};

use serde_json::Value;

use crate::sealed::{identity, sealed};
use crate::support::run::{cheetah_plain, program};
use crate::support::{Desk, KIB, MIB, Node, Peer, cheetah, hits_of, need, node, noise, number, until};

const WORD: &str = "Geheimnis";
const WHAT: [&str; 7] = ["--word", WORD, "--find", "email", "--ignore-case", "--workers", "2"];

/// Nodes that work on jobs.
fn lending(count: usize) -> Vec<Node> {
    (0..count).map(|_| Node::start_with("24MiB", "127.0.0.1:0", &["--scan", "2"])).collect()
}

/// An image with hits at the seams of stripe units.
fn image(desk: &Desk, size: u64) -> String {
    let mut bytes = noise(size, size ^ 45);
    for (shift, seam) in (64 * KIB..size).step_by(64 << 10).enumerate() {
        let what = [WORD.as_bytes(), b" <john.doe@example.com>, "][shift % 2];
        let at = seam as usize - shift % 25;
        bytes[at..at + what.len()].copy_from_slice(what);
    }
    desk.file("disk.raw", &bytes)
}

/// Searches a drive into a new folder, and returns the answer and the files.
fn searched(desk: &Desk, drive: &str, name: &str, more: &[&str]) -> (Value, [String; 2]) {
    let out = desk.arg(name);
    let answer = cheetah(&[&["search", drive, "--out", &out], &WHAT[..], more].concat()).ok().json();
    (answer, files(desk, name))
}

/// The hits and the coverage in a folder.
fn files(desk: &Desk, name: &str) -> [String; 2] {
    [hits_of(&desk.at(name)), fs::read_to_string(desk.at(name).join("coverage.map")).unwrap()]
}

/// Searches a drive both ways, with the same result, and returns what was searched where.
fn both_ways(desk: &Desk, drive: &str, more: &[&str]) -> Value {
    let (mut plain, files) = searched(desk, drive, "plain", more);
    let (mut near, near_files) = searched(desk, drive, "near", &[&["--at-nodes"], more].concat());
    assert!(files == near_files);
    assert!(number(&plain, "hits") * 64 * KIB > number(&plain, "size_bytes") / 2, "{plain}");
    let at_nodes = near["at_nodes"].take();
    for answer in [&mut plain, &mut near] {
        answer.as_object_mut().unwrap().retain(|key, _| key != "at_nodes" && key != "out");
    }
    assert_eq!(near, plain);
    ["plain", "near"].iter().for_each(|name| fs::remove_dir_all(desk.at(name)).unwrap());
    at_nodes
}

fn sum(at_nodes: &Value, key: &str) -> u64 {
    at_nodes[key].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum()
}

#[test]
fn a_drive_is_searched_at_its_nodes_with_the_same_result_and_the_answer_says_what_was_searched_where() {
    let (desk, nodes) = (Desk::new(), lending(3));
    let image = image(&desk, 6 * MIB);
    let names: Vec<&Node> = nodes.iter().collect();
    let drive = desk.drive("stripe", &names, &image, &[]);
    let at_nodes = both_ways(&desk, &drive, &[]);
    assert_eq!((sum(&at_nodes, "node_bytes"), sum(&at_nodes, "here_bytes")), (6 * MIB, 0), "{at_nodes}");
    assert_eq!(at_nodes["node_bytes"].as_object().unwrap().len(), 3, "{at_nodes}");
    let shown = cheetah_plain(&[&["search", &drive, "--at-nodes"], &WHAT[..]].concat()).ok().out();
    assert!(shown.contains("searched at the nodes: 6MiB"), "{shown}");
    cheetah(&["destroy", &drive]).ok();

    let drive = desk.drive("parity", &names, &image, &["--layout", "parity"]);
    let mut nodes = nodes;
    nodes.remove(1).kill();
    let at_nodes = both_ways(&desk, &drive, &[]);
    assert_eq!(sum(&at_nodes, "node_bytes") + sum(&at_nodes, "here_bytes"), 6 * MIB, "{at_nodes}");
    assert_eq!(at_nodes["node_bytes"].as_object().unwrap().len(), 2, "{at_nodes}");
}

#[test]
fn a_hit_names_the_node_that_found_it_and_none_if_it_lies_at_the_edge_of_a_unit() {
    const UNIT: u64 = 64 << 10;
    let (desk, nodes) = (Desk::new(), lending(2));
    let mut bytes = noise(2 * MIB, 51);
    for unit in (UNIT..2 * MIB).step_by(UNIT as usize) {
        for at in [unit - 4, unit + UNIT / 2] {
            bytes[at as usize..at as usize + WORD.len()].copy_from_slice(WORD.as_bytes());
        }
    }
    let drive = desk.drive("stripe", &nodes.iter().collect::<Vec<_>>(), &desk.file("disk.raw", &bytes), &[]);
    let (answer, _) = searched(&desk, &drive, "near", &["--at-nodes"]);
    let names = answer["at_nodes"]["node_bytes"].as_object().unwrap();
    let instances = nodes.iter().map(|node| node.status()["instance"].as_str().unwrap().to_owned());
    let instances: HashSet<String> = instances.collect();
    let table = fs::read_to_string(desk.at("near/hits.csv")).unwrap();
    let (mut found, mut rows) = (HashSet::new(), Vec::new());
    for row in table.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        let [offset, .., node, instance] = &cells[..] else { panic!("{row}") };
        rows.push([(*node).to_owned(), (*instance).to_owned()]);
        if offset.parse::<u64>().unwrap() % UNIT == UNIT / 2 {
            assert!(names.contains_key(*node) && instances.contains(*instance), "{row}");
            found.insert((*node).to_owned());
        } else {
            assert_eq!((*node, *instance), ("", ""), "{row}");
        }
    }
    assert_eq!((table.lines().count(), found.len()), (1 + 62, 2), "{table}");
    let printed = cheetah(&[&["search", &drive, "--at-nodes"], &WHAT[..]].concat()).ok().out();
    let events = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let said = |hit: &Value| ["node", "instance"].map(|name| hit[name].as_str().unwrap_or_default().to_owned());
    let events: Vec<_> = events.filter(|event| event["event"] == "hit").map(|hit| said(&hit)).collect();
    assert_eq!(events, rows, "{printed}");
    let page = fs::read_to_string(desk.at("near/report.html")).unwrap();
    assert!(names.keys().all(|name| page.contains(&format!("node <span class=\"evidence\"><bdi>{name}"))), "{page}");
}

#[test]
fn a_node_that_is_killed_while_it_searches_costs_a_redundant_drive_no_hit() {
    let (desk, mut nodes) = (Desk::new(), lending(3));
    let image = image(&desk, 24 * MIB);
    let drive = desk.drive("parity", &nodes.iter().collect::<Vec<_>>(), &image, &["--layout", "parity"]);
    let (_, expected) = searched(&desk, &drive, "plain", &[]);
    let mut command = program();
    command.args(["--json", "search", &drive, "--at-nodes", "--out", &desk.arg("near")]).args(WHAT);
    let mut child = command.stdout(File::create(desk.at("stdout")).unwrap()).spawn().unwrap();
    let victim = nodes.remove(1);
    until("the node searches", || number(&victim.status()["scan"], "jobs") > 0 || child.try_wait().unwrap().is_some());
    victim.kill();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(files(&desk, "near") == expected);
    let answer: Value = serde_json::from_slice(&fs::read(desk.at("near/search.json")).unwrap()).unwrap();
    let at_nodes = &answer["at_nodes"];
    assert_eq!(sum(at_nodes, "node_bytes") + sum(at_nodes, "here_bytes"), 24 * MIB, "{answer}");
}

#[test]
fn a_part_that_moves_while_the_drive_is_searched_costs_no_hit() {
    let (desk, nodes, spare) = (Desk::new(), lending(3), lending(1));
    let image = image(&desk, 24 * MIB);
    let drive = desk.drive("mirror", &nodes.iter().collect::<Vec<_>>(), &image, &["--layout", "mirror"]);
    let (_, expected) = searched(&desk, &drive, "plain", &[]);
    let (from, to) = (nodes[1].address(), spare[0].address());
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| cheetah(&["drain", from, "--to", to, "--drive", &drive]).ok().out());
        // The last search begins once the part has moved.
        for turn in 0.. {
            let has_moved = moving.is_finished();
            let name = format!("near{turn}");
            let (_, found) = searched(&desk, &drive, &name, &["--at-nodes"]);
            assert!(found == expected, "{name}");
            if has_moved {
                break;
            }
        }
        moving.join().unwrap();
    });
    assert_eq!((nodes[1].exports(), spare[0].exports()), (0, 1));
}

#[test]
fn what_a_foreign_node_and_one_that_does_not_lend_its_processor_hold_is_read() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let (desk, lending) = (Desk::new(), lending(1));
    let (image, own) = (image(&desk, 6 * MIB), Node::start("24MiB"));
    let foreign = Peer::nbdkit_tcp(&["memory", "24M"]);
    let (drive, list) = (desk.arg("mixed.drive"), format!("{},{}", node::list(&[&lending[0], &own]), foreign.uri));
    cheetah(&["create", &drive, "--nodes", &list, "--layout", "stripe", "--from", &image]).ok();
    let at_nodes = both_ways(&desk, &drive, &[]);
    assert_eq!(sum(&at_nodes, "node_bytes"), 2 * MIB, "{at_nodes}");
    let here = |why: String| at_nodes["here_bytes"][why].as_u64();
    assert_eq!(here(format!("node {}/ is a foreign server", foreign.uri)), Some(2 * MIB), "{at_nodes}");
    assert_eq!(here(format!("node {} does not lend its processor", own.address())), Some(2 * MIB), "{at_nodes}");
}

#[test]
fn a_sealed_drive_is_read_and_the_answer_says_why() {
    let (desk, nodes) = (Desk::new(), lending(2));
    let image = image(&desk, 4 * MIB);
    let (key, _) = identity(&desk, "me.key");
    let drive = sealed(&desk, "sealed", &nodes.iter().collect::<Vec<_>>(), &image, &key, &[]);
    let at_nodes = both_ways(&desk, &drive, &["--identity", &key]);
    assert_eq!(at_nodes["here_bytes"]["its nodes hold ciphertext only"], 4 * MIB, "{at_nodes}");
    assert_eq!(sum(&at_nodes, "node_bytes"), 0);
}

#[test]
fn an_image_has_no_nodes_that_could_search_it() {
    let desk = Desk::new();
    let raw = desk.file("disk.raw", &[0; 4096]);
    let out = desk.arg("hits");
    cheetah(&["search", &raw, "--word", "x", "--at-nodes", "--out", &out]).says(2, &["no drive", "--at-nodes"]);
    assert!(!desk.at("hits").exists());
}
