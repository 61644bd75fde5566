//! Sealed drives: nodes hold ciphertext only.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use base64::Engine as _;
use cheetah_tls::Role;
use cheetah_tls::testing::Room;
use rustix::process::Signal;

use crate::secured::{self, acting, credential};
use crate::support::run::{program, run};
use crate::support::{Desk, MIB, Mounted, Node, Service, cheetah, need, node, noise, three, tool};

/// An identity file, and its recipient.
pub fn identity(desk: &Desk, name: &str) -> (String, String) {
    let file = desk.arg(name);
    let made = cheetah(&["drive", "identity", &file]).ok().json();
    (file, made["recipient"].as_str().unwrap().to_owned())
}

/// A sealed drive over these nodes, with an image.
pub fn sealed(desk: &Desk, name: &str, nodes: &[&Node], image: &str, key: &str, more: &[&str]) -> String {
    let drive = desk.arg(&format!("{name}.drive"));
    let list = node::list(nodes);
    let create = ["create", &drive, "--nodes", &list, "--from", image, "--seal", "--identity", key];
    cheetah(&[&create[..], more].concat()).ok();
    drive
}

/// A sealed scratch drive, mounted writable: its node, its identity file, its drive file, its mount.
fn scratch(desk: &Desk) -> (Node, String, String, Mounted) {
    let node = Node::start("64MiB");
    let (key, _) = identity(desk, "me.key");
    let drive = desk.arg("scratch.drive");
    let create = ["create", &drive, "--nodes", node.address(), "--size", "8MiB", "--seal", "--identity", &key];
    cheetah(&create).ok();
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--writable", "--identity", &key]);
    (node, key, drive, mount)
}

/// Whether a process has these bytes in its memory, in any mapping that can be read.
pub fn has_in_memory(pid: u32, bytes: &[u8]) -> bool {
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    maps.lines().any(|line| {
        let mut words = line.split_whitespace();
        let range = words.next().and_then(|range| range.split_once('-')).unwrap();
        if !words.next().is_some_and(|flags| flags.starts_with("rw")) {
            return false;
        }
        let [from, to] = [range.0, range.1].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        let (mut piece, mut at) = (vec![0; MIB as usize], from);
        while at < to {
            let len = usize::try_from(to - at).unwrap().min(piece.len());
            // A page that cannot be read holds nothing.
            let read = memory.read_at(&mut piece[..len], at).unwrap_or(0);
            if memchr::memmem::find(&piece[..read], bytes).is_some() {
                return true;
            }
            // The pieces overlap, so that no place is missed.
            at += if len == piece.len() { len - bytes.len() } else { len } as u64;
        }
        false
    })
}

#[test]
fn a_sealed_drive_is_loaded_verified_saved_mounted_exported_and_destroyed() {
    let desk = Desk::new();
    let nodes = three("48MiB");
    let (key, recipient) = identity(&desk, "me.key");
    let (image, content) = desk.image("disk.raw", 20 * MIB + 512);
    let layouts: [(&str, &[&str]); 5] = [
        ("parity", &[]),
        ("mirror", &["--layout", "mirror"]),
        ("stripe", &["--layout", "stripe", "--seal-unit", "4KiB"]),
        ("linear", &["--layout", "linear"]),
        ("holes", &["--layout", "stripe", "--seal-holes"]),
    ];
    for (name, layout) in layouts {
        let drive = sealed(&desk, name, &nodes.each_ref(), &image, &key, layout);
        let with = |args: &[&str]| cheetah(&[args, &["--identity", &key]].concat());

        let verified = with(&["verify", &drive]).ok().json();
        assert_eq!(verified["ok_bytes"], content.len() as u64, "{name}");
        let copy = desk.arg(&format!("{name}.copy"));
        with(&["save", &drive, &copy]).ok();
        assert!(fs::read(&copy).unwrap() == content, "{name}: the copy differs");
        // The recipients are shown without a key, and nothing else is.
        let status = cheetah(&["status", &drive]).ok().json();
        assert_eq!(status["sealed_for"][0], recipient.as_str(), "{status}");
        cheetah(&["verify", &drive]).says(2, &["--identity"]);
        cheetah(&["save", &drive, &desk.arg("none")]).says(2, &["--identity"]);

        if need::fuse() {
            let mount = Mounted::new(&drive, &desk.dir(&format!("mnt-{name}")), &["--identity", &key]);
            assert!(mount.read() == content, "{name}: the mounted content differs");
            mount.unmount();
        }
        let served = Service::start(&["export", &drive, "--listen", "127.0.0.1:0", "--identity", &key]);
        let exported = desk.arg(&format!("{name}.raw"));
        cheetah(&["acquire", served.ready["uri"].as_str().unwrap(), &exported]).ok();
        assert!(fs::read(&exported).unwrap() == content, "{name}: the exported content differs");
        assert_eq!(served.stop(Signal::TERM).0, Some(0));

        let destroyed = cheetah(&["destroy", &drive]).ok().json();
        assert_eq!(destroyed["key_destroyed"], true, "{destroyed}");
        assert!(!Path::new(&drive).exists() && !Path::new(&format!("{drive}.seal")).exists());
    }
    for node in &nodes {
        assert_eq!((node.exports(), node.used_bytes()), (0, 0));
    }
}

#[test]
fn nodes_hold_no_plaintext_of_a_sealed_drive() {
    if !need::is_root() {
        need::skip("needs root, to read the memory of a node");
        return;
    }
    let desk = Desk::new();
    let (key, _) = identity(&desk, "me.key");
    let (image, content) = desk.image("disk.raw", 8 * MIB);
    for seal in [false, true] {
        let nodes = three("32MiB");
        let drive = match seal {
            true => sealed(&desk, "sealed", &nodes.each_ref(), &image, &key, &[]),
            false => desk.drive("plain", &nodes.each_ref(), &image, &[]),
        };
        let found = nodes.each_ref().map(|node| {
            let places = [0, MIB + 4096, 3 * MIB + 777, 7 * MIB];
            places.iter().any(|at| has_in_memory(node.service.pid(), &content[*at as usize..][..64]))
        });
        assert_eq!(found.contains(&true), !seal, "{found:?}");
        cheetah(&["verify", &drive, "--identity", &key]).ok();
        cheetah(&["destroy", &drive]).ok();
    }
}

/// The drive's key, as `age` decrypts it.
pub fn drive_key(desk: &Desk, drive: &str, identity: &str) -> Vec<u8> {
    let text = fs::read_to_string(drive).unwrap();
    let wrapped = text.lines().find_map(|line| line.strip_prefix("age = \"")).unwrap().trim_end_matches('"');
    let file = desk.file("wrapped.age", &base64::engine::general_purpose::STANDARD.decode(wrapped).unwrap());
    tool("age", &["-d", "-i", identity, &file]).ok().stdout[32..].to_vec()
}

#[test]
fn neither_plaintext_nor_keys_cross_the_wire_or_reach_nodes() {
    if !need::programs(&["age", "tcpdump"]) {
        return;
    }
    if !need::is_root() {
        need::skip("needs root, to record connections and to read the memory of processes");
        return;
    }
    let desk = Desk::new();
    let (identity, _) = identity(&desk, "me.key");
    let (image, content) = desk.image("disk.raw", 8 * MIB);
    for seal in [false, true] {
        let nodes = three("32MiB");
        let ports = nodes.each_ref().map(|node| {
            let port = |at: &str| at.rsplit(':').next().unwrap().to_owned();
            format!("port {} or port {}", port(&node.nbd), port(&node.http))
        });
        let recorded = desk.arg(&format!("recorded-{seal}"));
        let mut recorder = std::process::Command::new("tcpdump")
            .args(["-i", "lo", "-U", "-B", "65536", "-Z", "root", "-w", &recorded, &ports.join(" or ")])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while fs::metadata(&recorded).map_or(0, |file| file.len()) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let drive = match seal {
            true => sealed(&desk, "sealed", &nodes.each_ref(), &image, &identity, &[]),
            false => desk.drive("plain", &nodes.each_ref(), &image, &[]),
        };
        cheetah(&["verify", &drive, "--identity", &identity]).ok();
        rustix::process::kill_process(rustix::process::Pid::from_child(&recorder), Signal::INT).unwrap();
        recorder.wait().unwrap();
        let wire = fs::read(&recorded).unwrap();
        assert!(wire.len() as u64 > 4 * MIB, "{} bytes were recorded", wire.len());
        // Runs of zeros are part of every recording.
        let samples =
            (0..128).map(|n| &content[n * 65_000 + 11..][..32]).filter(|sample| sample.iter().any(|byte| *byte != 0));
        let found = samples.filter(|sample| memchr::memmem::find(&wire, sample).is_some()).count();
        assert_eq!(found > 0, !seal, "{found} samples of the image are on the wire");
        if seal {
            let key = drive_key(&desk, &drive, &identity);
            assert_eq!(key.len(), 32);
            assert!(memchr::memmem::find(&wire, &key).is_none(), "the key is on the wire");
            for node in &nodes {
                assert!(!has_in_memory(node.service.pid(), &key), "a node has the key");
            }
            // The process that has the drive open has it, so the search finds keys; and its arguments do not.
            let export = Service::start(&["export", &drive, "--listen", "127.0.0.1:0", "--identity", &identity]);
            assert!(has_in_memory(export.pid(), &key), "the search finds no key where there is one");
            let secret = fs::read_to_string(&identity).unwrap().lines().last().unwrap().to_owned();
            let args = fs::read(format!("/proc/{}/cmdline", export.pid())).unwrap();
            assert!(memchr::memmem::find(&args, secret.as_bytes()).is_none());
            let limits = fs::read_to_string(format!("/proc/{}/limits", export.pid())).unwrap();
            let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
            assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
            assert_eq!(export.stop(Signal::TERM).0, Some(0));
        }
        cheetah(&["destroy", &drive]).ok();
    }
}

#[test]
fn a_changed_byte_on_a_node_is_an_error_and_never_content() {
    let desk = Desk::new();
    let node = Node::start("32MiB");
    let (key, _) = identity(&desk, "me.key");
    let (image, content) = desk.image("disk.raw", 4 * MIB);
    let drive = sealed(&desk, "case", &[&node], &image, &key, &[]);
    let text = fs::read_to_string(&drive).unwrap();
    let uri = text.lines().find_map(|line| line.strip_prefix("nbd = \"")).unwrap().trim_end_matches('"').to_owned();
    if !need::programs(&["qemu-io"]) {
        return;
    }
    tool("qemu-io", &["-f", "raw", "-c", "write -P 0x5a 70000 1", &uri]).ok();
    let verified = cheetah(&["verify", &drive, "--identity", &key]).ended_with(3).out();
    // An error follows the report.
    let verified: serde_json::Value = serde_json::from_str(verified.lines().next().unwrap()).unwrap();
    assert_eq!(verified["mismatched"].as_array().unwrap().len(), 0, "{verified}");
    let bad = &verified["unreadable"][0];
    assert_eq!((bad["offset"].as_u64(), bad["len"].as_u64()), (Some(64 << 10), Some(64 << 10)), "{verified}");
    assert!(bad["why"].is_string(), "{verified}");
    let copy = desk.arg("copy");
    cheetah(&["save", &drive, &copy, "--identity", &key]).ended_with(1);
    // What can be read is right, and the rest is listed.
    cheetah(&["save", &drive, &copy, "--partial", "--identity", &key]).ended_with(3);
    let saved = fs::read(&copy).unwrap();
    assert!(saved[..64 << 10] == content[..64 << 10] && saved[128 << 10..] == content[128 << 10..]);
    assert!(saved[64 << 10..128 << 10].iter().all(|byte| *byte == 0));
}

#[test]
fn a_seal_record_that_is_older_cut_off_lost_or_of_another_drive_opens_nothing() {
    let desk = Desk::new();
    let node = Node::start("64MiB");
    let (key, _) = identity(&desk, "me.key");
    let (image, content) = desk.image("disk.raw", 4 * MIB);
    let drive = sealed(&desk, "one", &[&node], &image, &key, &[]);
    let other = sealed(&desk, "other", &[&node], &image, &key, &[]);
    let record = format!("{drive}.seal");
    let older = fs::read(&record).unwrap();
    cheetah(&["load", &drive, &image, "--force", "--identity", &key]).ok();
    let newest = fs::read(&record).unwrap();
    let of_other = fs::read(format!("{other}.seal")).unwrap();
    let cut_off = newest[..newest.len() - 1].to_vec();
    for (found, why) in [(older, "older than the drive"), (of_other, "another drive"), (cut_off, "seal record")] {
        fs::write(&record, found).unwrap();
        for command in ["verify", "load"] {
            let more: &[&str] = if command == "load" { &[&image, "--force"] } else { &[] };
            cheetah(&[&[command, &drive], more, &["--identity", &key]].concat()).says(3, &[why]);
        }
    }
    fs::remove_file(&record).unwrap();
    cheetah(&["verify", &drive, "--identity", &key]).says(1, &["belongs beside the drive file"]);
    fs::write(&record, newest).unwrap();
    let verified = cheetah(&["verify", &drive, "--identity", &key]).ok().json();
    assert_eq!(verified["ok_bytes"], content.len() as u64);
}

#[test]
fn the_key_of_a_drive_is_opened_by_those_it_is_shared_with() {
    let desk = Desk::new();
    let node = Node::start("32MiB");
    let ((mine, my_name), (yours, your_name)) = (identity(&desk, "me.key"), identity(&desk, "you.key"));
    let passphrase = desk.file("passphrase", b"correct horse\n");
    let (image, _) = desk.image("disk.raw", MIB);
    let drive = sealed(&desk, "case", &[&node], &image, &mine, &[]);
    let opens = |option: &str, file: &str| cheetah(&["verify", &drive, option, file]);

    opens("--identity", &yours).says(2, &["cheetah drive share"]);
    cheetah(&["drive", "share", &drive, "--recipient", &your_name]).says(2, &["--identity"]);
    let shared = cheetah(&["drive", "share", &drive, "--recipient", &your_name, "--identity", &mine]).ok().json();
    assert_eq!(shared["recipients"], serde_json::json!([my_name, your_name]));
    opens("--identity", &yours).ok();
    cheetah(&["drive", "share", &drive, "--new-passphrase-file", &passphrase, "--identity", &yours]).ok();
    opens("--passphrase-file", &passphrase).ok();
    opens("--passphrase-file", &desk.file("wrong", b"incorrect\n")).says(2, &["sealed"]);
    // The environment names a file, too.
    let mut command = program();
    command.args(["--json", "verify", &drive]).env("CHEETAH_IDENTITY", &yours);
    run(command).ok();

    cheetah(&["drive", "unshare", &drive, "--recipient", &my_name]).ok();
    opens("--identity", &mine).says(2, &["sealed"]);
    opens("--identity", &yours).ok();
    cheetah(&["drive", "unshare", &drive, "--recipient", &my_name]).says(2, &["not shared"]);
    cheetah(&["drive", "unshare", &drive, "--recipient", "passphrase"]).ok();
    cheetah(&["drive", "unshare", &drive, "--recipient", &your_name]).says(2, &["no other can open"]);
    opens("--identity", &yours).ok();
}

#[test]
fn age_itself_opens_the_wrapped_key() {
    if !need::programs(&["age", "age-keygen"]) {
        return;
    }
    let desk = Desk::new();
    let node = Node::start("32MiB");
    let key = desk.arg("age.key");
    tool("age-keygen", &["-o", &key]).ok();
    let (image, _) = desk.image("disk.raw", MIB);
    let drive = sealed(&desk, "case", &[&node], &image, &key, &[]);
    let text = fs::read_to_string(&drive).unwrap();
    let wrapped = text.lines().find_map(|line| line.strip_prefix("age = \"")).unwrap().trim_end_matches('"');
    let file = desk.file("key.age", &base64::engine::general_purpose::STANDARD.decode(wrapped).unwrap());
    let secret = tool("age", &["-d", "-i", &key, &file]).ok().stdout;
    assert!(secret.starts_with(b"cheetah-seal-v01") && secret.len() == 64);
    // An identity made here is one for age, too.
    let (own, recipient) = identity(&desk, "me.key");
    assert_eq!(tool("age-keygen", &["-y", &own]).ok().out().trim(), recipient);
}

#[test]
fn a_sealed_drive_without_a_key_that_opens_it_is_not_made() {
    let desk = Desk::new();
    let node = Node::start("32MiB");
    let (image, _) = desk.image("disk.raw", MIB);
    let name = desk.arg("a.drive");
    for option in [&["--seal"][..], &["--seal-holes"], &["--seal-unit", "4KiB"]] {
        let create = ["create", &name, "--nodes", node.address(), "--from", &image];
        cheetah(&[&create[..], option].concat()).says(2, &["--recipient", "--identity", "--passphrase-file", "room"]);
    }
    assert!(!desk.at("a.drive").exists() && !desk.at("a.drive.seal").exists());
    let plain = desk.drive("plain", &[&node], &image, &[]);
    cheetah(&["drive", "share", &plain, "--recipient", "x"]).says(2, &["no recipient"]);
}

#[test]
fn a_sealed_drive_survives_the_loss_of_a_node_and_is_repaired_without_its_key() {
    let desk = Desk::new();
    let [first, second, third] = three("40MiB");
    let (key, _) = identity(&desk, "me.key");
    let (image, content) = desk.image("disk.raw", 12 * MIB);
    let drive = sealed(&desk, "case", &[&first, &second, &third], &image, &key, &["--layout", "parity"]);
    second.kill();
    cheetah(&["verify", &drive, "--identity", &key]).ok();
    let spare = Node::start("40MiB");
    cheetah(&["repair", &drive, "--nodes", spare.address()]).ok();
    first.kill();
    let copy = desk.arg("copy");
    cheetah(&["save", &drive, &copy, "--identity", &key]).ok();
    assert!(fs::read(&copy).unwrap() == content);
    drop(third);
}

#[test]
fn a_writer_that_is_killed_leaves_old_content_new_content_or_errors() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let (_node, key, drive, mount) = scratch(&desk);
    let (old, new) = (noise(2 * MIB, 1), noise(2 * MIB, 2));
    let file = File::options().write(true).open(&mount.file).unwrap();
    file.write_all_at(&old, 0).unwrap();
    file.sync_all().unwrap();
    // Part of it may be at the node.
    file.write_all_at(&new[..MIB as usize], 0).unwrap();
    drop(file);
    mount.service().signal(Signal::KILL);
    cheetah(&["unmount", &desk.arg("mnt")]).ok();
    drop(mount);
    let whole = desk.arg("whole");
    let saved = cheetah(&["save", &drive, &whole, "--partial", "--identity", &key]);
    assert!(saved.code == Some(0) || saved.code == Some(3), "{}", saved.stderr);
    let found = fs::read(&whole).unwrap();
    for (n, unit) in found[..2 * MIB as usize].chunks(4096).enumerate() {
        let at = n * 4096..(n + 1) * 4096;
        let missing = unit.iter().all(|byte| *byte == 0);
        // Closing the file may have flushed the second write.
        let changed = at.end <= MIB as usize && (missing || unit == &new[at.clone()]);
        assert!(unit == &old[at] || changed, "unit {n}");
    }
    // The next writer can write it again.
    let again = Mounted::new(&drive, &desk.dir("again"), &["--writable", "--force-lease", "--identity", &key]);
    let file = File::options().write(true).open(&again.file).unwrap();
    file.write_all_at(&new, 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    again.unmount();
    let reader = Mounted::new(&drive, &desk.dir("reader"), &["--identity", &key]);
    assert!(reader.read()[..new.len()] == new);
    reader.unmount();
}

#[test]
fn a_node_that_returns_altered_units_is_named_and_the_others_are_read() {
    if !need::programs(&["qemu-io"]) {
        return;
    }
    let desk = Desk::new();
    let nodes = three("48MiB");
    let (key, _) = identity(&desk, "me.key");
    let (image, content) = desk.image("disk.raw", 4 * MIB);
    for layout in ["mirror", "parity"] {
        let drive = sealed(&desk, layout, &nodes.each_ref(), &image, &key, &["--layout", layout]);
        let with = |args: &[&str]| cheetah(&[args, &["--identity", &key]].concat());
        // Unit 1 begins at the end of the first stripe unit; most of it is on the second node.
        let text = fs::read_to_string(&drive).unwrap();
        let uri = text.lines().filter_map(|line| line.strip_prefix("nbd = \"")).nth(1).unwrap();
        tool("qemu-io", &["-f", "raw", "-c", "write -P 0x5a 4000 700", uri.trim_end_matches('"')]).ok();
        let verified = with(&["verify", &drive]).ended_with(3).out();
        let verified: serde_json::Value = serde_json::from_str(verified.lines().next().unwrap()).unwrap();
        assert_eq!(verified["ok_bytes"], content.len() as u64, "{layout}: {verified}");
        assert_eq!(verified["altered_units"], serde_json::json!({ nodes[1].address(): 1 }), "{layout}: {verified}");
        let copy = desk.arg(&format!("{layout}.copy"));
        with(&["save", &drive, &copy]).ok();
        assert!(fs::read(&copy).unwrap() == content, "{layout}: the copy differs");
        // A writer puts the right content back.
        if need::fuse() {
            let mount = Mounted::new(&drive, &desk.dir(&format!("mnt-{layout}")), &["--identity", &key, "--writable"]);
            assert!(mount.read() == content, "{layout}: the mounted content differs");
            mount.unmount();
            with(&["verify", &drive]).ok();
            with(&["repair", "--check", &drive]).ok();
        }
        cheetah(&["destroy", &drive]).ok();
    }
}

#[test]
fn what_a_killed_writer_left_unverified_is_listed_and_accepted_on_request() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let (_node, key, drive, mount) = scratch(&desk);
    let (old, new) = (noise(MIB, 1), noise(MIB, 2));
    let file = File::options().write(true).open(&mount.file).unwrap();
    file.write_all_at(&old, 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&new, 0).unwrap();
    // What was flushed is overwritten at the node, and no record says so.
    let wait = std::time::Instant::now();
    while fs::read(format!("{drive}.seal")).is_err() && wait.elapsed().as_secs() < 60 {}
    mount.service().signal(Signal::KILL);
    drop(file);
    cheetah(&["unmount", &desk.arg("mnt")]).ok();
    drop(mount);
    let with = |args: &[&str]| cheetah(&[args, &["--identity", &key]].concat());
    let verified = with(&["verify", &drive]);
    let listed: serde_json::Value = serde_json::from_str(verified.out().lines().next().unwrap()).unwrap();
    let unverified: u64 = listed["unverified"].as_array().unwrap().iter().map(|bad| bad["len"].as_u64().unwrap()).sum();
    assert_eq!(verified.code, Some(if unverified == 0 { 0 } else { 3 }), "{listed}");
    let whole = desk.arg("whole");
    with(&["save", &drive, &whole, "--accept-unverified"]).ok();
    let found = fs::read(&whole).unwrap();
    for (n, unit) in found[..MIB as usize].chunks(4096).enumerate() {
        let at = n * 4096..(n + 1) * 4096;
        assert!(unit == &old[at.clone()] || unit == &new[at], "unit {n}");
    }
    if unverified > 0 {
        let log = fs::read_to_string(format!("{drive}.custody")).unwrap();
        assert!(log.contains("accepted_unverified") && log.contains(&format!("\"bytes\":{unverified}")), "{log}");
    }
    // A writer makes it part of the drive.
    let again = ["--writable", "--force-lease", "--accept-unverified", "--identity", &key];
    Mounted::new(&drive, &desk.dir("again"), &again).unmount();
    let verified = with(&["verify", &drive]).ok().json();
    assert_eq!(verified["unverified"], serde_json::json!([]));
    cheetah(&["verify", &format!("{drive}.custody")]).ok();
}

#[test]
fn in_a_room_a_sealed_drive_is_opened_by_the_credential_that_made_it_and_those_it_is_shared_with() {
    let desk = Desk::new();
    let room = Room::new();
    let examiner = credential(&desk, &room, "desk", Role::Examiner);
    let analyst = credential(&desk, &room, "ann", Role::Analyst);
    let node = secured::node(&credential(&desk, &room, "pc1", Role::Node));
    let (image, content) = desk.image("disk.raw", MIB);
    let drive = desk.arg("case.drive");
    acting(&examiner, &["create", &drive, "--nodes", node.address(), "--from", &image, "--seal"]).ok();
    acting(&examiner, &["verify", &drive]).ok();

    acting(&analyst, &["verify", &drive]).says(2, &["cheetah drive share"]);
    let own = acting(&analyst, &["drive", "identity"]).ok().json();
    acting(&examiner, &["drive", "share", &drive, "--recipient", own["recipient"].as_str().unwrap()]).ok();
    acting(&analyst, &["verify", &drive]).ok();
    let copy = desk.arg("copy");
    acting(&analyst, &["save", &drive, &copy]).ok();
    assert!(fs::read(&copy).unwrap() == content);
    cheetah(&["drive", "identity"]).says(2, &["in no room"]);
}
