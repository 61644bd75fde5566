//! Exporting drives and images to NBD clients.

use rustix::process::Signal;

use crate::support::{Desk, MIB, Node, Service, cheetah, need, noise, text, three, tool};

struct Exported {
    service: Service,
    uri: String,
}

fn export(source: &str, more: &[&str]) -> Exported {
    let mut args = vec!["export", source];
    args.extend(more);
    let service = Service::start(&args);
    let uri = text(&service.ready, "uri").to_owned();
    Exported { service, uri }
}

const TCP: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[test]
fn nbdinfo_and_nbdcopy_read_an_export() {
    if !need::programs(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let desk = Desk::new();
    let nodes = three("16MiB");
    let (image, content) = desk.image("disk.raw", 10 * MIB + 512);
    let drive = desk.drive("case42", &nodes.each_ref(), &image, &[]);
    let served = export(&drive, &TCP);

    let info = tool("nbdinfo", &["--json", &served.uri]).ok().json();
    let it = &info["exports"][0];
    assert_eq!(it["export-size"], 10 * MIB + 512);
    assert_eq!((&it["is_read_only"], &it["can_multi_conn"]), (&true.into(), &true.into()), "{info}");
    assert_eq!(it["can_cache"], true);
    let contexts = it["contexts"].to_string();
    assert!(contexts.contains("base:allocation"), "{contexts}");

    let list = tool("nbdinfo", &["--list", "--json", &served.uri]).ok().out();
    assert!(list.contains("\"case42\""), "{list}");
    // The default export and the one with the drive's name are the same.
    let unnamed = served.uri.rsplit_once('/').unwrap().0.to_owned();
    for (uri, name) in [(&served.uri, "named.raw"), (&unnamed, "unnamed.raw")] {
        let copy = desk.arg(name);
        tool("nbdcopy", &[uri, &copy]).ok();
        assert!(std::fs::read(&copy).unwrap() == content, "{uri}");
    }
    // A write to a read-only export fails.
    assert_ne!(tool("nbdcopy", &[&image, &served.uri]).code, Some(0));
    let (code, _) = served.service.stop(Signal::INT);
    assert_eq!(code, Some(0));
    cheetah(&["verify", &drive]).ok();
}

#[test]
fn an_export_reports_holes() {
    if !need::programs(&["nbdinfo"]) {
        return;
    }
    let desk = Desk::new();
    let nodes = three("16MiB");
    let mut content = noise(4 * MIB, 9);
    content[MIB as usize..3 * MIB as usize].fill(0);
    let image = desk.file("disk.raw", &content);
    let drive = desk.drive("holes", &nodes.each_ref(), &image, &["--layout", "linear"]);
    let served = export(&drive, &TCP);
    let map: Vec<serde_json::Value> =
        serde_json::from_slice(&tool("nbdinfo", &["--map", "--json", &served.uri]).ok().stdout).unwrap();
    let zero: u64 = map.iter().filter(|e| e["type"] == 3).map(|e| e["length"].as_u64().unwrap()).sum();
    assert!(zero >= 2 * MIB, "{map:?}");
    let all: u64 = map.iter().map(|e| e["length"].as_u64().unwrap()).sum();
    assert_eq!(all, 4 * MIB);
}

#[test]
fn qemu_converts_compares_and_writes_an_export() {
    if !need::programs(&["qemu-img", "qemu-io"]) {
        return;
    }
    let desk = Desk::new();
    let nodes = three("16MiB");
    let (image, _) = desk.image("disk.raw", 8 * MIB);
    let drive = desk.drive("qemu", &nodes.each_ref(), &image, &[]);
    let socket = desk.arg("nbd.sock");
    let served = export(&drive, &["--unix", &socket, "--writable"]);
    let qcow = desk.arg("disk.qcow2");
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &served.uri, &qcow]).ok();
    tool("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &image, &qcow]).ok();
    tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", &image, &served.uri]).ok();

    let script = [
        "write -P 0x5a 1M 64k",
        "write -f -P 0x6b 4095 2",
        "write -z 2M 1M",
        "write -z -u 4M 64k",
        "discard 5M 1M",
        "flush",
        "read -P 0x5a 1M 64k",
        "read -P 0x6b 4095 2",
        "read -P 0 2M 1M",
        "read -P 0 4M 64k",
    ];
    let mut args = vec!["-f", "raw"];
    for line in script {
        args.extend(["-c", line]);
    }
    args.push(&served.uri);
    let ran = tool("qemu-io", &args).ok();
    assert!(!ran.out().contains("failed"), "{}", ran.out());
    served.service.stop(Signal::TERM);
    assert!(!std::path::Path::new(&socket).exists(), "the socket is left behind");
}

#[test]
fn fio_verifies_its_writes_to_an_export() {
    if !need::programs(&["fio"]) {
        return;
    }
    if !tool("fio", &["--enghelp"]).out().contains("nbd") {
        return need::skip("needs fio with its nbd engine");
    }
    let desk = Desk::new();
    let nodes = three("24MiB");
    let list = crate::support::node::list(&nodes.each_ref());
    let drive = desk.arg("fio.drive");
    cheetah(&["create", &drive, "--nodes", &list, "--layout", "stripe", "--size", "48MiB"]).ok();
    let served = export(&drive, &["--listen", "127.0.0.1:0", "--writable"]);
    let uri = format!("--uri={}", served.uri);
    let args = [
        "--name=v",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bssplit=4k/60:68k/30:1m/10",
        "--iodepth=16",
        "--size=32m",
    ];
    let more = ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--randrepeat=1", "--output-format=terse"];
    let args: Vec<_> = args.iter().chain(&more).copied().collect();
    crate::support::run::tool_in(desk.path(), "fio", &args).ok();
}

#[test]
fn an_export_with_an_overlay_leaves_its_source_alone() {
    if !need::programs(&["nbdcopy", "qemu-io"]) {
        return;
    }
    let desk = Desk::new();
    let (image, content) = desk.image("disk.raw", 2 * MIB);
    let served = export(&image, &["--listen", "127.0.0.1:0", "--overlay", "memory"]);
    tool("qemu-io", &["-f", "raw", "-c", "write -P 7 0 64k", "-c", "read -P 7 0 64k", &served.uri]).ok();
    assert!(std::fs::read(&image).unwrap() == content, "the image itself is untouched");
}

#[test]
fn an_exported_drive_can_be_a_source() {
    let desk = Desk::new();
    let [first, second, third] = three("16MiB");
    let (image, content) = desk.image("disk.raw", 3 * MIB);
    let drive = desk.drive("one", &[&first, &second], &image, &[]);
    let served = export(&drive, &TCP);
    let copy = desk.drive("two", &[&third], &served.uri, &[]);
    let saved = desk.arg("saved.raw");
    cheetah(&["save", &copy, &saved]).ok();
    assert!(std::fs::read(&saved).unwrap() == content);
}

#[test]
fn a_port_or_socket_in_use_is_an_error() {
    let desk = Desk::new();
    let node = Node::start("8MiB");
    let (image, _) = desk.image("disk.raw", MIB);
    cheetah(&["export", &image, "--listen", node.address()]).says(1, &["taken"]);
    let socket = desk.file("sock", b"");
    cheetah(&["export", &image, "--unix", &socket]).says(1, &["sock"]);
    cheetah(&["export", &image]).says(2, &["--listen", "--unix"]);
}
