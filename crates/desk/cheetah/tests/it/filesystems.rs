//! File systems on a drive: created, filled, unmounted, mounted again and checked.

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

/// The commands that create, fill and check a file system; DEVICE and TOP stand for the loop device and a directory.
struct FileSystem {
    mkfs: &'static str,
    /// Copies the tree into it.
    put: &'static [&'static str],
    /// Compares it with the tree.
    compare: &'static [&'static str],
    fsck: &'static str,
    size_mib: u64,
}

fn tree(desk: &Desk) {
    for index in 0..120_usize {
        let dir = desk.at(&format!("tree/dir{}/sub{}", index % 7, index % 3));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("file {index}")), &noise(4 * MIB, 7)[index * 1000..][..index * index * 17]).unwrap();
    }
}

fn round_trip(it: &FileSystem, programs: &[&str]) {
    if !need::root_and_loop() || !need::fuse() || !need::programs(programs) {
        return;
    }
    let desk = Desk::new();
    tree(&desk);
    let nodes = three(&format!("{}MiB", it.size_mib / 3 + 2));
    let drive = desk.arg("fs.drive");
    let size = format!("{}MiB", it.size_mib);
    let list = node::list(&nodes.each_ref());
    cheetah(&["create", &drive, "--nodes", &list, "--layout", "stripe", "--size", &size]).ok();
    let (dir, top) = (desk.dir("drive"), desk.dir("top"));
    for steps in [&[&[it.mkfs], it.put].concat(), &[&[it.fsck], it.compare].concat()] {
        let mount = Mounted::new(&drive, &dir, &["--writable"]);
        let device = Loop::over(&mount.file);
        let mut ran = Vec::new();
        for step in steps {
            let words: Vec<_> =
                step.split(' ').map(|word| word.replace("DEVICE", &device.0).replace("TOP", &top)).collect();
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            ran.push(tool_in(desk.path(), words[0], &words[1..]));
        }
        // Asserted last, so that a failed step leaves nothing mounted.
        ran.into_iter().for_each(|ran| drop(ran.ok()));
        drop(device);
        mount.unmount();
    }
    cheetah(&["destroy", &drive]).ok();
}

#[test]
fn ext4() {
    let it = FileSystem {
        mkfs: "mkfs.ext4 -q -F DEVICE",
        put: &["mount -t ext4 DEVICE TOP", "cp -r tree TOP", "umount TOP"],
        compare: &["mount -t ext4 DEVICE TOP", "diff -r tree TOP/tree", "umount TOP"],
        fsck: "e2fsck -f -n DEVICE",
        size_mib: 96,
    };
    round_trip(&it, &["mkfs.ext4", "e2fsck"]);
}

#[test]
fn ntfs() {
    let it = FileSystem {
        mkfs: "mkntfs -q -Q -F DEVICE",
        put: &["ntfs-3g DEVICE TOP", "cp -r tree TOP", "umount TOP"],
        compare: &["ntfs-3g DEVICE TOP", "diff -r tree TOP/tree", "umount TOP"],
        fsck: "ntfsfix -n DEVICE",
        size_mib: 96,
    };
    round_trip(&it, &["mkntfs", "ntfs-3g", "ntfsfix"]);
}

#[test]
fn vfat() {
    // Without the kernel's driver, which many virtual machines lack.
    let it = FileSystem {
        mkfs: "mkfs.vfat -F 32 DEVICE",
        put: &["mcopy -s -i DEVICE tree ::"],
        compare: &["mcopy -s -i DEVICE ::/tree TOP", "diff -r tree TOP/tree"],
        fsck: "fsck.vfat -n DEVICE",
        size_mib: 96,
    };
    round_trip(&it, &["mkfs.vfat", "fsck.vfat", "mcopy"]);
}

#[test]
fn xfs() {
    if need::is_root() && !fs::read_to_string("/proc/filesystems").unwrap().contains("xfs") {
        return need::skip("needs a kernel with XFS");
    }
    let it = FileSystem {
        mkfs: "mkfs.xfs -q -f DEVICE",
        put: &["mount -t xfs DEVICE TOP", "cp -r tree TOP", "umount TOP"],
        compare: &["mount -t xfs DEVICE TOP", "diff -r tree TOP/tree", "umount TOP"],
        fsck: "xfs_repair -n DEVICE",
        // mkfs.xfs needs 300 MiB.
        size_mib: 320,
    };
    round_trip(&it, &["mkfs.xfs", "xfs_repair"]);
}
