//! Any file system on top: made, filled, taken off, put back, checked.

use std::fs;
use std::path::Path;

use crate::support::run::tool_in;
use crate::support::{Desk, MIB, Mounted, cheetah, need, node, noise, three, tool};

struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Self {
        let ran = tool("losetup", &["-f", "--show", file.to_str().unwrap()]).ok();
        Self(ran.out().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = tool("losetup", &["-d", &self.0]);
    }
}

struct FileSystem {
    mkfs: &'static [&'static str],
    mount: &'static [&'static str],
    fsck: &'static [&'static str],
    size_mib: u64,
}

fn tree(desk: &Desk) {
    for index in 0..120_usize {
        let dir = desk.at(&format!("tree/dir{}/sub{}", index % 7, index % 3));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("file {index}")), &noise(4 * MIB, 7)[index * 1000..][..index * index * 17]).unwrap();
    }
}

fn round_trip(it: &FileSystem) {
    if !need::root_and_loop() || !need::fuse() || !need::programs(&["losetup", "mount", "diff", it.mkfs[0], it.fsck[0]])
    {
        return;
    }
    let desk = Desk::new();
    tree(&desk);
    let nodes = three("64MiB");
    let drive = desk.arg("fs.drive");
    let size = format!("{}MiB", it.size_mib);
    cheetah(&["create", &drive, "--nodes", &node::list(&nodes.each_ref()), "--size", &size, "--thin"]).ok();
    let (dir, top) = (desk.dir("drive"), desk.dir("top"));
    let run = |words: &[&str], last: &[&str]| {
        let args: Vec<_> = words[1..].iter().chain(last).copied().collect();
        tool_in(desk.path(), words[0], &args)
    };

    let mount = Mounted::new(&drive, &dir, &["--writable"]);
    let device = Loop::over(&mount.file);
    run(it.mkfs, &[&device.0]).ok();
    run(it.mount, &[&device.0, &top]).ok();
    let copied = run(&["cp", "-r", "tree", &top], &[]);
    run(&["umount", &top], &[]).ok();
    copied.ok();
    drop(device);
    mount.unmount();

    let mount = Mounted::new(&drive, &dir, &["--writable"]);
    let device = Loop::over(&mount.file);
    run(it.fsck, &[&device.0]).ok();
    run(it.mount, &[&device.0, &top]).ok();
    let compared = run(&["diff", "-r", "tree"], &[&format!("{top}/tree")]);
    run(&["umount", &top], &[]).ok();
    compared.ok();
    drop(device);
    mount.unmount();
    cheetah(&["destroy", &drive]).ok();
}

#[test]
fn ext4() {
    round_trip(&FileSystem {
        mkfs: &["mkfs.ext4", "-q", "-F"],
        mount: &["mount", "-t", "ext4"],
        fsck: &["e2fsck", "-f", "-n"],
        size_mib: 96,
    });
}

#[test]
fn ntfs() {
    if !need::programs(&["ntfs-3g"]) {
        return;
    }
    round_trip(&FileSystem {
        mkfs: &["mkntfs", "-q", "-Q", "-F"],
        mount: &["ntfs-3g"],
        fsck: &["ntfsfix", "-n"],
        size_mib: 96,
    });
}

#[test]
fn vfat() {
    round_trip(&FileSystem {
        mkfs: &["mkfs.vfat", "-F", "32"],
        mount: &["mount", "-t", "vfat"],
        fsck: &["fsck.vfat", "-n"],
        size_mib: 96,
    });
}

#[test]
fn xfs() {
    if need::is_root() && !fs::read_to_string("/proc/filesystems").unwrap().contains("xfs") {
        return need::skip("this kernel has no XFS");
    }
    round_trip(&FileSystem {
        mkfs: &["mkfs.xfs", "-q", "-f"],
        mount: &["mount", "-t", "xfs"],
        fsck: &["xfs_repair", "-n"],
        size_mib: 320,
    });
}
