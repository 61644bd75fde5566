//! Nodes that lend their processor, too: `cheetah node --scan`, `cheetah verify --at-nodes`.

use crate::support::run::cheetah_plain;
use crate::support::{Desk, MIB, Node, cheetah, node, number, text};

/// Starts nodes that work on jobs.
fn lending(count: usize) -> Vec<Node> {
    (0..count).map(|_| Node::start_with("40MiB", "127.0.0.1:0", &["--scan", "2"])).collect()
}

#[test]
fn a_drive_is_verified_at_its_nodes_and_the_answer_says_what_was_verified_where() {
    let nodes = lending(3);
    let desk = Desk::new();
    let (image, _) = desk.image("image.raw", 24 * MIB);
    let names: Vec<&Node> = nodes.iter().collect();
    let drive = desk.drive("case42", &names, &image, &[]);
    let shown = cheetah_plain(&["verify", &drive, "--at-nodes"]).ok().out();
    for words in ["all 24MiB are as loaded", "hashed at the nodes: 24MiB", "not computed: md5, sha1 and sha256"] {
        assert!(shown.contains(words), "{shown}");
    }
    let answer = cheetah(&["verify", &drive, "--at-nodes"]).ok().json();
    let at_nodes = &answer["at_nodes"];
    assert_eq!(at_nodes["node_bytes"].as_object().unwrap().len(), 3, "{at_nodes}");
    assert_eq!(text(&answer["hashes"], "blake3").len(), 64);

    let mut nodes = nodes;
    nodes.remove(1).kill();
    let out = cheetah(&["verify", &drive, "--at-nodes"]).ended_with(3).out();
    // The failure follows the answer.
    let answer: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    let lost: u64 = answer["unreadable"].as_array().unwrap().iter().map(|range| number(range, "len")).sum();
    assert_eq!(lost, 8 * MIB, "{answer}");
}

#[test]
fn a_node_that_does_not_lend_its_processor_is_read() {
    let nodes = [Node::start("40MiB"), lending(1).remove(0)];
    let desk = Desk::new();
    let (image, _) = desk.image("image.raw", 8 * MIB);
    let drive = desk.drive("case42", &[&nodes[0], &nodes[1]], &image, &[]);
    let shown = cheetah_plain(&["verify", &drive, "--at-nodes"]).ok().out();
    let said = format!("read by this machine: 4MiB: node {} does not lend its processor", nodes[0].address());
    assert!(shown.replace("\n    ", " ").contains(&said), "{shown}");
    assert!(shown.contains("hashed at the nodes: 4MiB"), "{shown}");
}

#[test]
fn the_processor_is_lent_to_no_other_number_of_threads() {
    for scan in ["0", "many", "-1"] {
        cheetah(&["node", "--memory", "1MiB", &format!("--scan={scan}")]).ended_with(2);
    }
    let node = Node::start_with("1MiB", "127.0.0.1:0", &["--scan", "idle"]);
    assert!(number(&node.status()["scan"], "threads") > 0);
    assert!(node::list(&[&node]).contains(':'));
}
