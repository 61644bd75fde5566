//! `search --at-nodes --lend-key`: nodes of a room open the units of a sealed drive for the job, and keep nothing.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cheetah_control::ControlClient;
use cheetah_control::jobs::{LentKey, NewJob, SearchOrder, Stretch, UnitPlace, Units, Work};
use cheetah_drive::DriveFile;
use cheetah_seal::age::{self, Identity};
use cheetah_seal::{DriveKey, Record, keyring, lent, log};
use cheetah_tls::testing::Room;
use cheetah_tls::{Credential, Role};
use serde_json::Value;

use crate::sealed::{has_in_memory, identity};
use crate::search_yara;
use crate::secured::{acting, credential};
use crate::support::lab::Lab;
use crate::support::python::with_python;
use crate::support::run::Ran;
use crate::support::{Desk, KIB, MIB, Node, hits_of, need, node, noise, number, until};

const WORD: &str = "Geheimnis";

fn lending(desk: &Desk, room: &Room, name: &str, role: Role) -> Node {
    let member = credential(desk, room, name, role);
    Node::start_with("24MiB", "127.0.0.1:0", &["--room", &member, "--scan", "1"])
}

/// An image with a hit in every 256 bytes.
fn image(desk: &Desk, size: u64) -> String {
    let mut bytes = noise(size, size);
    (100..bytes.len() - 20).step_by(256).for_each(|at| bytes[at..at + WORD.len()].copy_from_slice(WORD.as_bytes()));
    desk.file("disk.raw", &bytes)
}

fn sealed(desk: &Desk, examiner: &str, nodes: &[&Node], image: &str, more: &[&str]) -> String {
    let drive = desk.arg("case.drive");
    let list = node::list(nodes);
    acting(examiner, &[&["create", &drive, "--nodes", &list, "--from", image, "--seal"], more].concat()).ok();
    drive
}

fn search(examiner: &str, drive: &str, out: &str, more: &[&str]) -> Ran {
    acting(examiner, &[&["search", drive, "--word", WORD, "--out", out], more].concat())
}

fn hits(out: &str) -> String {
    hits_of(Path::new(out))
}

#[test]
fn nodes_that_are_lent_the_key_find_what_the_examiner_finds_and_log_and_receipts_name_them() {
    let desk = Desk::new();
    let room = Room::new();
    let examiner = credential(&desk, &room, "desk", Role::Examiner);
    let nodes = ["pc1", "pc2"].map(|name| lending(&desk, &room, name, Role::TrustedNode));
    let other = lending(&desk, &room, "pc3", Role::Node);
    let image = image(&desk, 6 * MIB);
    let layout = ["--layout", "stripe", "--unit", "512KiB"];
    let drive = sealed(&desk, &examiner, &[&nodes[0], &nodes[1], &other], &image, &layout);
    let [plain, near] = ["plain", "near"].map(|name| desk.arg(name));
    search(&examiner, &drive, &plain, &[]).ok();
    let lent = ["--at-nodes", "--lend-key"];
    let answer = search(&examiner, &drive, &near, &[&lent[..], &["all"]].concat()).ok().json();
    assert!(hits(&near) == hits(&plain) && number(&answer, "hits") == 6 * MIB / 256);
    let at_nodes = &answer["at_nodes"];
    let searched: u64 = at_nodes["node_bytes"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert!(searched > 3 * MIB, "{at_nodes}");
    let task = at_nodes["key_lent"]["task"].as_str().unwrap();
    let log = fs::read_to_string(format!("{drive}.custody")).unwrap();
    let line = log.lines().find(|line| line.contains("\"key_lent\"")).unwrap();
    for part in [task, "pc1 (trusted-node)", "pc2 (trusted-node)", "search", nodes[0].address()] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains("pc3"), "{line}");
    acting(&examiner, &["verify", &format!("{drive}.custody")]).ok();

    // A node that the room does not trust with keys, one that is none of the drive, and no work at nodes.
    let refused = |args: &[&str], code, parts: &[&str]| {
        search(&examiner, &drive, &desk.arg("refused"), args).says(code, parts);
        let _ = fs::remove_dir_all(desk.at("refused"));
    };
    let role = ["has the role node", "cheetah room invite --role trusted-node"];
    refused(&[&lent[..], &[other.address()]].concat(), 1, &role);
    refused(&[&lent[..], &["pc9"]].concat(), 2, &["pc9 is no node of"]);
    refused(&["--lend-key", "all"], 2, &["--at-nodes"]);

    let destroyed = acting(&examiner, &["destroy", &drive]).ok().json();
    let tasks = |node: &Value| node["receipt"]["keys_lent"].as_array().map_or(0, Vec::len);
    let named: Vec<_> = destroyed["nodes"].as_array().unwrap().iter().map(tasks).collect();
    assert_eq!(named, [1, 1, 0], "{destroyed}");
    assert_eq!(destroyed["nodes"][0]["receipt"]["keys_lent"][0]["task"], task);
    assert_eq!(destroyed["nodes"][0]["receipt"]["keys_lent"][0]["wiped"], true);
}

#[test]
fn nodes_that_are_lent_the_key_find_words_and_atoms_of_rules_where_the_examiner_finds_them() {
    const SPLIT: &str = r#"{"ignore_case":false}
{"atoms":["heimnis"]}
{"names":[["a.yar","Secret"]]}
{"end":true}"#;
    let desk = Desk::new();
    let room = Room::new();
    let examiner = credential(&desk, &room, "desk", Role::Examiner);
    let nodes = ["pc1", "pc2"].map(|name| lending(&desk, &room, name, Role::TrustedNode));
    let layout = ["--layout", "stripe", "--unit", "256KiB"];
    let drive = sealed(&desk, &examiner, &[&nodes[0], &nodes[1]], &image(&desk, 2 * MIB), &layout);
    let python = search_yara::python(&desk, SPLIT, &[search_yara::BEGUN, search_yara::DONE]);
    let rules = desk.file("a.yar", b"rule Secret { strings: $a = \"heimnis\" condition: $a }");
    let searched = |name: &str, more: &[&str]| {
        let out = desk.arg(name);
        let args =
            ["--json", "--room", &examiner, "search", &drive, "--word", WORD, "--context", "0", "--yara", &rules];
        let answer = with_python(&python, &[&args[..], &["--out", &out], more].concat()).ok().json();
        let table = fs::read_to_string(desk.at(name).join("hits.csv")).unwrap();
        // Without the node and its instance.
        let row = |row: &str| {
            row.split(',')
                .enumerate()
                .filter(|(at, _)| !matches!(at, 7 | 8))
                .map(|(_, cell)| cell.to_owned())
                .collect::<Vec<_>>()
        };
        (answer, table.lines().map(row).collect::<Vec<_>>(), search_yara::told(&desk)["rules"]["searched"].take())
    };
    let (_, plain, places) = searched("plain", &[]);
    let (answer, near, places_near) = searched("near", &["--at-nodes", "--lend-key", "all"]);
    assert!(plain == near && plain.len() as u64 == 1 + 2 * MIB / 256);
    assert_eq!(places["blocks"].as_array().map(Vec::len), Some(2 * MIB as usize / 512));
    assert!(places == places_near && answer["at_nodes"]["key_lent"]["task"].is_string(), "{answer}");
    assert!(!answer["at_nodes"]["node_bytes"].as_object().unwrap().is_empty(), "{answer}");
}

#[test]
fn a_machine_that_joins_with_an_invitation_for_it_can_be_lent_the_key_to_search_and_to_verify() {
    let lab = Lab::new();
    let _server = lab.serve("examiner", "lab");
    let invitation = lab.invite(&["--role", "trusted-node"]);
    let node = lab.node("a", "a", &["--room", &invitation, "--scan", "1"]);
    let (image, _) = lab.0.image("disk.raw", MIB);
    let drive = lab.0.arg("case.drive");
    let examiner = |args: &[&str]| lab.at("examiner", args).ok().json();
    examiner(&["create", &drive, "--nodes", node.address(), "--from", &image, "--seal"]);
    let lent = ["--at-nodes", "--lend-key", "all"];
    for (verb, more) in [("search", &["--word", WORD][..]), ("verify", &[])] {
        let at_nodes = examiner(&[&[verb, &drive][..], more, &lent].concat())["at_nodes"].take();
        let member = at_nodes["key_lent"]["nodes"][0]["member"].as_str().unwrap_or_default().to_owned();
        assert!(member.ends_with(" (trusted-node)") && at_nodes["key_lent"]["purpose"] == verb, "{at_nodes}");
        assert_eq!(at_nodes["node_bytes"][node.address()], MIB, "{at_nodes}");
    }
    let members = lab.members();
    assert!(members.iter().any(|member| member["role"] == "trusted-node"), "{members:?}");
}

/// What is lent of the drive's keys, and the record that names the epochs.
fn secrets(drive: &DriveFile, identity: &str) -> (DriveKey, Record, Vec<u8>) {
    let identity = keyring::identities(Path::new(identity)).unwrap().remove(0);
    let id: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&drive.id[2 * at..2 * at + 2], 16).unwrap()).collect();
    let wrapped = drive.sealed.as_ref().unwrap().keys.iter().map(|key| STANDARD.decode(&key.age).unwrap());
    let mut keys =
        wrapped.filter_map(|file| keyring::unwrap_key(id[..].try_into().unwrap(), &file, &identity).unwrap());
    let key = keys.next().unwrap();
    let record = log::decode(&fs::read(format!("{}.seal", drive.path.display())).unwrap(), &key).unwrap().record;
    let own = Identity::generate().unwrap();
    let file = lent::lend(&key, &record, &own.recipient()).unwrap().unwrap();
    let epoch_key = age::unwrap(&file, &own).unwrap().unwrap()[60..92].to_vec();
    (key, record, epoch_key)
}

/// A search of the first units of the drive, which all lie at its first node.
fn job(drive: &DriveFile, key: LentKey, units: u64) -> NewJob {
    let node = drive.nodes().next().unwrap();
    let export = node.nbd.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    let places = vec![UnitPlace { export: 0, text: 0 }];
    let stretch = Stretch { rounds: units, units: places, export_step: (64 << 10) + 24, text_step: 64 << 10 };
    let order = SearchOrder {
        version: env!("CARGO_PKG_VERSION").into(),
        words: vec![WORD.into()],
        encodings: vec!["utf-8".into()],
        ..SearchOrder::default()
    };
    let units = Units { unit_bytes: 64 << 10, stretches: vec![stretch] };
    let instance = node.instance.clone().unwrap();
    NewJob { instance, export, units, work: Work::Search(order), key: Some(key) }
}

#[test]
fn a_lent_key_is_in_the_memory_of_a_node_while_its_job_lasts_and_not_afterwards() {
    if !need::is_root() {
        need::skip("needs root, to read the memory of a node");
        return;
    }
    let desk = Desk::new();
    let room = Room::new();
    let examiner = credential(&desk, &room, "desk", Role::Examiner);
    let node = lending(&desk, &room, "pc1", Role::TrustedNode);
    let image = image(&desk, 8 * MIB);
    let (me, _) = identity(&desk, "me.key");
    let path = sealed(&desk, &examiner, &[&node], &image, &["--identity", &me, "--seal-unit", "64KiB"]);
    let drive = DriveFile::load(Path::new(&path)).unwrap();
    let (key, record, epoch_key) = secrets(&drive, &me);
    assert_eq!(epoch_key.len(), 32);
    let is_there = || has_in_memory(node.service.pid(), &epoch_key);
    assert!(!is_there());

    // Its results are more than a node keeps, and nobody takes them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let member = Credential::from_file(Path::new(&examiner)).unwrap();
    let control = ControlClient::new(&node.http, Some(&member));
    let recipient = runtime.block_on(control.status()).unwrap().scan.unwrap().recipient.unwrap().parse().unwrap();
    let wrapped = STANDARD.encode(lent::lend(&key, &record, &recipient).unwrap().unwrap());
    let lent = LentKey { task: "0123456789abcdef".repeat(2), age: wrapped };
    let id = runtime.block_on(control.start_job(&job(&drive, lent, 8 * MIB / (64 * KIB)))).unwrap().id;
    assert!(is_there());
    runtime.block_on(control.cancel_job(&id)).unwrap();
    until("the key is wiped", || !is_there());

    search(&examiner, &path, &desk.arg("near"), &["--at-nodes", "--lend-key", "all"]).ok();
    assert!(!is_there());
    // Nor is what it was for. The node's own copy of the content is sealed.
    until("the word and its hits are wiped", || !has_in_memory(node.service.pid(), WORD.as_bytes()));
    // The drive's own key was never there.
    let own = age_payload(&drive, &me);
    assert!(!has_in_memory(node.service.pid(), &own));
}

/// The drive's key.
fn age_payload(drive: &DriveFile, identity: &str) -> Vec<u8> {
    let identity = keyring::identities(Path::new(identity)).unwrap().remove(0);
    let files = drive.sealed.as_ref().unwrap().keys.iter().map(|key| STANDARD.decode(&key.age).unwrap());
    let mut opened = files.filter_map(|file| age::unwrap(&file, &identity).unwrap());
    opened.next().unwrap()[32..].to_vec()
}
