//! Logical volumes of LVM2, mounted and exported.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::support::bytes::partitioned;
use crate::support::node::list;
use crate::support::run::tool_in;
use crate::support::{Desk, MIB, Mounted, Node, Service, cheetah, need, noise, text, tool, until};

/// The size of a physical volume. LVM2 keeps the first MiB for itself, and the rest has extents of a MiB.
const PHYSICAL: u64 = 24 * MIB;

/// A volume group that LVM2 makes on files, without the kernel's device mapper: nothing is activated.
pub struct Group {
    images: Vec<String>,
    disks: Vec<String>,
    config: String,
}

impl Group {
    /// A group of `count` physical volumes; `None` if it cannot be made here.
    pub fn new(desk: &Desk, count: usize) -> Option<Self> {
        if !need::root_and_loop() || !need::programs(&["vgcreate", "lvcreate", "lvs", "losetup"]) {
            return None;
        }
        let mut group = Self { images: Vec::new(), disks: Vec::new(), config: String::new() };
        for number in 0..count {
            let image = desk.file(&format!("pv{number}.raw"), &noise(PHYSICAL, 11 + number as u64));
            group.disks.push(tool("losetup", &["--find", "--show", &image]).ok().out().trim().to_owned());
            group.images.push(image);
        }
        let only: Vec<_> = group.disks.iter().map(|disk| format!("\"a|^{disk}$|\"")).collect();
        group.config = format!(
            "devices{{filter=[{},\"r|.*|\"] use_devicesfile=0 obtain_device_list_from_udev=0}} \
             activation{{udev_sync=0 udev_rules=0 verify_udev_operations=0 monitoring=0}} backup{{backup=0 archive=0}} \
             global{{use_lvmpolld=0 activation=0 locking_dir=\"{}\"}}",
            only.join(","),
            desk.arg("locks")
        );
        let disks: Vec<_> = group.disks.iter().map(String::as_str).collect();
        group.run("pvcreate", &[&["-ff", "-y"], &disks[..]].concat());
        group.run("vgcreate", &[&["-s", "1M", "vg-case"], &disks[..]].concat());
        Some(group)
    }

    pub fn run(&self, program: &str, args: &[&str]) -> String {
        tool(program, &[&["--config", &self.config], args].concat()).ok().out()
    }

    pub fn add(&self, name: &str, args: &[&str]) {
        self.run("lvcreate", &[&["-an", "-Zn", "-Wn", "-y", "-n", name], args].concat());
    }

    /// Writes `content` to where LVM2 says that the linear volume lies.
    pub fn plant(&self, name: &str, content: &[u8]) {
        let volume = format!("vg-case/{name}");
        let rows = self.run("lvs", &["--segments", "--noheadings", "-o", "seg_pe_ranges", &volume]);
        let mut at = 0;
        for row in rows.split_whitespace() {
            let (disk, extents) = row.rsplit_once(':').unwrap();
            let (first, last) = extents.split_once('-').unwrap();
            let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
            let number = self.disks.iter().position(|one| one == disk).unwrap();
            let end = (at + ((last - first + 1) * MIB) as usize).min(content.len());
            write_at(self.images[number].as_ref(), (1 + first) * MIB, &content[at..end]);
            at = end;
        }
        assert_eq!(at, content.len());
    }

    /// The physical volumes, after the kernel has let them go.
    pub fn finish(mut self) -> Vec<Vec<u8>> {
        self.detach();
        self.images.iter().map(|image| fs::read(image).unwrap()).collect()
    }

    /// The block devices of the physical volumes.
    pub fn disks(&self) -> Vec<String> {
        self.disks.clone()
    }

    fn detach(&mut self) {
        for disk in self.disks.drain(..) {
            tool("losetup", &["--detach", &disk]);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.detach();
    }
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt as _;
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

/// An ext4 with some files.
pub fn ext4(desk: &Desk, mib: u64) -> Option<Vec<u8>> {
    if !need::programs(&["mkfs.ext4", "fls"]) {
        return None;
    }
    if !desk.at("tree").exists() {
        desk.dir("tree");
        fs::write(desk.at("tree/letter.txt"), noise(MIB, 5)).unwrap();
    }
    tool_in(desk.path(), "mkfs.ext4", &["-q", "-F", "-d", "tree", "fs.raw", &format!("{mib}m")]).ok();
    Some(fs::read(desk.at("fs.raw")).unwrap())
}

/// A disk with a physical volume in each of two partitions, and an ext4 in a volume that lies on both, in three pieces.
fn disk(desk: &Desk) -> Option<(String, Vec<u8>)> {
    let content = ext4(desk, 21)?;
    let group = Group::new(desk, 2)?;
    let disks = group.disks.clone();
    group.add("home", &["-l", "18", "vg-case", &disks[0]]);
    group.add("fast", &["-i", "2", "-I", "64k", "-l", "8", "vg-case"]);
    group.add("small", &["-l", "2", "vg-case", &disks[1]]);
    group.run("lvextend", &["-l", "+3", "vg-case/home"]);
    group.plant("home", &content);
    group.plant("small", &noise(2 * MIB, 3));
    let mut whole = partitioned(PHYSICAL);
    [446, 462].iter().for_each(|entry| whole[entry + 4] = 0x8e);
    for (number, volume) in group.finish().iter().enumerate() {
        whole[(MIB + number as u64 * PHYSICAL) as usize..][..volume.len()].copy_from_slice(volume);
    }
    Some((desk.file("disk.raw", &whole), content))
}

#[test]
fn logical_volumes_over_two_partitions_are_mounted_and_exported() {
    if !need::fuse() || !need::programs(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    let desk = Desk::new();
    let Some((disk, content)) = disk(&desk) else { return };
    let mount = Mounted::new(&disk, &desk.dir("mnt"), &[]);
    let home = mount.dir.join("disk.vg--case-home.raw");
    assert!(fs::read(&home).unwrap() == content);
    assert!(tool("fls", &["-i", "raw", home.to_str().unwrap()]).ok().out().contains("letter.txt"));
    assert!(fs::read(mount.dir.join("disk.vg--case-small.raw")).unwrap() == noise(2 * MIB, 3));
    assert_eq!(fs::metadata(mount.dir.join("disk.vg--case-fast.raw")).unwrap().len(), 8 * MIB);
    assert!(mount.read() == fs::read(&disk).unwrap());
    let words = mount.service().stderr();
    assert!(words.contains("disk: logical volume vg-case/home (21MiB)"), "{words}");
    assert!(!words.contains("no files are read"), "{words}");
    mount.unmount();

    let service = Service::start(&["export", &disk, "--unix", &desk.arg("socket")]);
    let uri = text(&service.ready, "uri").to_owned();
    let copy = desk.at("copy");
    let named = uri.replace("/disk?", "/disk.vg--case-home?");
    tool("nbdcopy", &[&named, copy.to_str().unwrap()]).ok();
    assert!(fs::read(&copy).unwrap() == content);
    service.stop(Signal::INT);
}

#[test]
fn a_drive_and_a_source_behind_a_link_show_logical_volumes_without_a_key() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let Some((disk, content)) = disk(&desk) else { return };
    let node = Node::start("128MiB");
    let drive = desk.arg("case.drive");
    cheetah(&["create", &drive, "--nodes", &list(&[&node]), "--from", &disk]).ok();
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &[]);
    assert!(fs::read(mount.dir.join("case.vg--case-home.raw")).unwrap() == content);
    mount.unmount();
    let far = Service::start(&["export", &drive, "--unix", &desk.arg("socket")]);
    let mount = Mounted::new(text(&far.ready, "uri"), &desk.dir("mnt2"), &["--cache", "memory", "-v"]);
    assert!(fs::read(mount.dir.join("case.vg--case-home.raw")).unwrap() == content);
    // Of the volume in several pieces, too.
    until("the survey ends", || mount.service().stderr().contains("files of all volumes are known"));
    let words = mount.service().stderr();
    assert!(!words.contains("foresight: 0 files"), "{words}");
    assert!(!words.contains("LVM2 physical volume"), "{words}");
    mount.unmount();
    far.stop(Signal::INT);
    cheetah(&["destroy", &drive]).ok();
}

#[test]
fn a_group_of_which_a_physical_volume_is_missing_is_named_and_the_rest_is_shown() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let Some((disk, _)) = disk(&desk) else { return };
    // The second partition alone, without a table.
    let second = &fs::read(&disk).unwrap()[(MIB + PHYSICAL) as usize..];
    let image = desk.file("second.raw", second);
    let mount = Mounted::new(&image, &desk.dir("mnt"), &[]);
    assert!(fs::read(mount.dir.join("second.vg--case-small.raw")).unwrap() == noise(2 * MIB, 3));
    assert_eq!(fs::read_dir(&mount.dir).unwrap().count(), 2);
    let words = mount.service().stderr();
    for part in ["vg-case is not complete: its physical volume pv0", "vg-case/home is not opened: it lies on pv0"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    mount.unmount();
}

/// A volume of LUKS with a group in it, whose only volume has an ext4.
fn locked(desk: &Desk) -> Option<(String, Vec<u8>)> {
    if !need::programs(&["cryptsetup", "qemu-img"]) {
        return None;
    }
    let content = ext4(desk, 16)?;
    let group = Group::new(desk, 1)?;
    group.add("swap", &["-l", "1", "vg-case"]);
    group.add("root", &["-l", "16", "vg-case"]);
    group.plant("root", &content);
    let [physical] = &group.finish()[..] else { return None };
    Some((super::unlock::luks(desk, physical, "password"), content))
}

#[test]
fn a_logical_volume_inside_an_opened_volume_is_shown_beside_it() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let Some((disk, content)) = locked(&desk) else { return };
    let keys = desk.file("keys.txt", b"password\n");
    let mount = Mounted::new(&disk, &desk.dir("mnt"), &["--unlock", &keys]);
    assert!(fs::read(mount.dir.join("disk.vg--case-root.raw")).unwrap() == content);
    let mut names: Vec<_> =
        fs::read_dir(&mount.dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["disk.raw", "disk.unlocked.raw", "disk.vg--case-root.raw", "disk.vg--case-swap.raw"]);
    mount.unmount();
}

#[test]
fn the_file_system_in_a_logical_volume_of_a_locked_disk_is_surveyed_over_a_link() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let Some((disk, content)) = locked(&desk) else { return };
    let keys = desk.file("keys.txt", b"password\n");
    let far = Service::start(&["export", &disk, "--unix", &desk.arg("socket")]);
    let more = ["--unlock", &keys, "--cache", "memory", "-v"];
    let mount = Mounted::new(text(&far.ready, "uri"), &desk.dir("mnt"), &more);
    let volume = mount.dir.join("disk.vg--case-root.raw");
    assert!(fs::read(&volume).unwrap() == content);
    until("the survey ends", || mount.service().stderr().contains("files of all volumes are known"));
    let words = mount.service().stderr();
    assert!(!words.contains("foresight: 0 files"), "{words}");
    mount.unmount();
    far.stop(Signal::INT);
}
