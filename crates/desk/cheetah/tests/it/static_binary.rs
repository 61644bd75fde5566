//! The one binary that runs on a machine with nothing installed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::service::Service;
use crate::support::{Desk, MIB, Node, cheetah, need, tool};

/// The binary that `make test` built.
fn static_binary() -> Option<PathBuf> {
    let path = std::env::var_os("CHEETAH_STATIC").map(PathBuf::from).filter(|path| path.is_file());
    if path.is_none() {
        need::skip("needs the static binary (make test builds it and sets CHEETAH_STATIC)");
        return None;
    }
    path
}

#[test]
fn it_needs_no_loader_and_no_library() {
    let Some(binary) = static_binary() else { return };
    let elf = fs::read(&binary).unwrap();
    assert!(
        !elf.windows(14).any(|window| window == b"/ld-linux-x86-" || window == b"/lib/ld-musl-x"),
        "it asks for a loader"
    );
    let ran = Command::new(&binary).env_clear().arg("--version").output().unwrap();
    assert!(ran.status.success());
}

#[test]
fn it_lends_memory_where_nothing_is_installed() {
    let Some(binary) = static_binary() else { return };
    if !need::is_root() || !need::programs(&["chroot", "mount", "umount"]) {
        return need::skip("needs root, for a chroot with nothing in it");
    }
    let desk = Desk::new();
    let root = desk.dir("root");
    let proc = desk.dir("root/proc");
    fs::copy(&binary, desk.at("root/cheetah")).unwrap();
    tool("mount", &["-t", "proc", "proc", &proc]).ok();
    let mut command = Command::new(need::find("chroot").unwrap());
    command.env_clear().arg(&root).args(["/cheetah", "--json", "node", "--memory", "64MiB", "--listen", "127.0.0.1:0"]);
    let node = Service::spawn(command, "ready").map(Node::of);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lend(&desk, node.unwrap())));
    tool("umount", &["-l", &proc]).ok();
    result.unwrap();
}

fn lend(desk: &Desk, node: Node) {
    let (image, _) = desk.image("disk.raw", 60 * MIB);
    let drive = desk.drive("static", &[&node], &image, &[]);
    cheetah(&["verify", &drive]).ok();
    let peak = peak_bytes(node.service.pid());
    assert!(peak <= (64 + 64) * MIB, "{} MiB for 64 lent", peak / MIB);
    cheetah(&["destroy", &drive]).ok();
    assert_eq!(node.stop()["verified_zero"], true);
}

/// The most memory a process ever had.
fn peak_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
