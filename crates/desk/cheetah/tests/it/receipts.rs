//! Receipts of wipes.

use std::fs;
use std::process::Command;

use cheetah_tls::Role;
use cheetah_tls::testing::Room;
use serde_json::Value;

use crate::secured::{acting, credential, node};
use crate::support::run::run;
use crate::support::{Desk, MIB, Node, cheetah, need, node as nodes, number, text, three, tool};

/// The `wiped` records of a log.
fn receipts(log: &str) -> Vec<Value> {
    let records = fs::read_to_string(log).unwrap();
    let records = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.filter(|record| record["event"] == "wiped").map(|record| record["details"].clone()).collect()
}

#[test]
fn a_sealed_drive_destroyed_in_a_room_leaves_signed_receipts_in_its_custody_log() {
    let desk = Desk::new();
    let room = Room::new();
    let examiner = credential(&desk, &room, "desk", Role::Examiner);
    let pcs = ["pc1", "pc2"].map(|name| node(&credential(&desk, &room, name, Role::Node)));
    let (image, _) = desk.image("disk.raw", 4 * MIB);
    let drive = desk.arg("case.drive");
    let listed = nodes::list(&pcs.each_ref());
    acting(&examiner, &["create", &drive, "--nodes", &listed, "--from", &image, "--seal", "--layout", "mirror"]).ok();
    let file = fs::read_to_string(&drive).unwrap();
    let named = |key: &str| {
        let values = file.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        values.map(|value| value.trim_end_matches('"').to_owned()).collect::<Vec<_>>()
    };
    let (id, instances) = (named("id"), named("instance"));
    let destroyed = acting(&examiner, &["destroy", &drive]).ok().json();
    let log = format!("{drive}.custody");
    let receipts = receipts(&log);
    assert_eq!(receipts.len(), 2, "{destroyed}");
    let mut nonces = Vec::new();
    for (receipt, instance) in receipts.iter().zip(instances) {
        assert_eq!(text(receipt, "instance"), instance, "{receipt}");
        assert_eq!(text(receipt, "drive"), id[0], "{receipt}");
        assert!(number(receipt, "wiped_bytes") >= 4 * MIB && receipt["verified_zero"] == true, "{receipt}");
        let range = &receipt["ranges"][0];
        assert!(number(range, "offset") == 0 && number(range, "len") >= 4 * MIB, "{receipt}");
        assert!(text(receipt, "method").contains("zeros") && text(receipt, "time").ends_with('Z'), "{receipt}");
        nonces.push(text(receipt, "nonce").to_owned());
    }
    assert!(nonces[0].len() == 32 && nonces[0] != nonces[1], "{nonces:?}");
    let checked = acting(&examiner, &["verify", &log]).ok().json();
    let wipes = &checked["custody"]["wipes"];
    assert_eq!(number(&wipes["signed_in_rooms"], &room.id().to_string()), 2, "{checked}");
    assert_eq!(number(wipes, "unsigned"), 0, "{checked}");
    check_with_openssl(&desk, &log, &room);
}

/// Checks the first receipt as docs/guide/custody.md says.
fn check_with_openssl(desk: &Desk, log: &str, room: &Room) {
    if !need::programs(&["openssl", "jq"]) {
        return;
    }
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/guide/custody.md")).unwrap();
    let (_, section) = page.split_once("## Receipts of wipes").unwrap();
    let script = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let script = format!("set -e\ncd '{}'\n{}", desk.path().display(), script.replace("case42.drive.custody", log));
    let check = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        run(shell)
    };
    let said = check(&script).ok().out();
    assert!(said.contains("Verified OK"), "{said}");
    assert!(said.contains("authority.pem: OK") || said.contains("node.pem: OK"), "{said}");
    assert!(said.contains(&room.id().to_string()), "{said}");
    let altered = script.replace("> statement", "| sed s/zeros/ones/ > statement");
    assert_ne!(check(&altered).code, Some(0), "an altered statement is accepted");
}

#[test]
fn a_receipt_of_a_node_in_no_room_is_not_signed_and_says_so() {
    let desk = Desk::new();
    let nodes = three("16MiB");
    let (image, _) = desk.image("disk.raw", 4 * MIB);
    let drive = desk.drive("case", &nodes.each_ref(), &image, &["--layout", "stripe"]);
    let destroyed = crate::support::run::cheetah_plain(&["destroy", &drive]).ok().out();
    let destroyed = destroyed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(destroyed.matches("receipt not signed: the node is in no room").count(), 3, "{destroyed}");
    let log = format!("{drive}.custody");
    let receipts = receipts(&log);
    assert!(receipts.len() == 3 && receipts.iter().all(|receipt| receipt["signature"].is_null()), "{receipts:?}");
    let checked = cheetah(&["verify", &log]).ok().json();
    assert_eq!(number(&checked["custody"]["wipes"], "unsigned"), 3, "{checked}");
}

#[test]
fn a_drive_on_a_full_disk_is_wiped_and_its_key_is_destroyed() {
    let desk = Desk::new();
    let full = desk.dir("full");
    if !need::is_root() || tool("mount", &["-t", "tmpfs", "-o", "size=64k", "none", &full]).code != Some(0) {
        cheetah_testing::skip("needs root and tmpfs");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        let node = Node::start("16MiB");
        let (image, _) = desk.image("disk.raw", MIB);
        let pass = desk.file("pass", b"a passphrase\n");
        for seal in [&[][..], &["--seal", "--passphrase-file", &pass]] {
            let drive = format!("{full}/case.drive");
            cheetah(&[&["create", &drive, "--nodes", node.address(), "--from", &image], seal].concat()).ok();
            // Until nothing more fits.
            let mut filler = fs::File::create(format!("{full}/filler")).unwrap();
            while std::io::Write::write(&mut filler, &[1; 512]).is_ok_and(|written| written > 0) {}
            let destroyed = cheetah(&["destroy", &drive]).ok().json();
            assert_eq!(destroyed["nodes"][0]["outcome"], "wiped", "{destroyed}");
            assert_eq!(destroyed["key_destroyed"], !seal.is_empty(), "{destroyed}");
            assert!(destroyed.to_string().contains("\"verified_zero\":true"), "{destroyed}");
            assert!(!fs::exists(&drive).unwrap());
            for left in fs::read_dir(&full).unwrap() {
                fs::remove_file(left.unwrap().path()).unwrap();
            }
        }
    });
    tool("umount", &[&full]).ok();
    result.unwrap();
}
