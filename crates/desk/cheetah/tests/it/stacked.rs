//! Volumes in volumes: encrypted ones, logical volumes, arrays and partitions, one in another, and over several sources.

use std::fs;

use cheetah_testing::raid::{disk, raid5};
use rustix::process::Signal;
use serde_json::Value;

use crate::lvm::{Group, ext4};
use crate::support::node::list;
use crate::support::{Desk, MIB, Mounted, Node, Service, cheetah, need, noise, text};
use crate::unlock::luks;

/// Types of partitions.
const LINUX: u8 = 0x83;
const LVM: u8 = 0x8e;
const RAID: u8 = 0xfd;

/// The key of each volume that is locked here.
const KEY: &str = "password";

fn has_tools() -> bool {
    need::fuse() && need::programs(&["cryptsetup", "qemu-img"])
}

fn keys(desk: &Desk) -> String {
    desk.file("keys.txt", b"wrong\npassword\n")
}

/// A volume of LUKS with this content, as bytes.
fn locked(desk: &Desk, content: &[u8]) -> Vec<u8> {
    fs::read(luks(desk, content, KEY)).unwrap()
}

/// The names of the files of a mount.
fn names(mount: &Mounted) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(&mount.dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Whether a file of a mount begins with this content, behind which is what its holder has room for.
fn holds(mount: &Mounted, name: &str, content: &[u8]) -> bool {
    fs::read(mount.dir.join(name)).is_ok_and(|shown| shown.starts_with(content))
}

#[test]
fn a_locked_volume_in_a_logical_volume_is_opened_in_one_piece_and_in_several() {
    if !has_tools() {
        return;
    }
    let desk = Desk::new();
    let content = noise(4 * MIB, 31);
    let volume = locked(&desk, &content);
    let Some(group) = Group::new(&desk, 2) else { return };
    let disks = group.disks();
    group.add("whole", &["-l", "6", "vg-case", &disks[0]]);
    // Between its pieces lies another one.
    group.add("parted", &["-l", "3", "vg-case", &disks[1]]);
    group.add("between", &["-l", "1", "vg-case", &disks[1]]);
    group.run("lvextend", &["-l", "+3", "vg-case/parted", &disks[1]]);
    group.plant("whole", &volume);
    group.plant("parted", &volume);
    group.plant("between", &vec![0; MIB as usize]);
    let physical = group.finish();
    let disk = desk.file("disk.raw", &disk(&[(LVM, &physical[0]), (LVM, &physical[1])]));
    let mount = Mounted::new(&disk, &desk.dir("mnt"), &["--unlock", &keys(&desk)]);
    for name in ["whole", "parted"] {
        assert!(fs::read(mount.dir.join(format!("disk.vg--case-{name}.unlocked.raw"))).unwrap() == content, "{name}");
        assert!(fs::read(mount.dir.join(format!("disk.vg--case-{name}.raw"))).unwrap() == volume, "{name}");
    }
    let words = mount.service().stderr();
    assert!(words.contains("vg--case-parted, LUKS, encrypted"), "{words}");
    assert_eq!(names(&mount).len(), 3 + 3 + 2);
    mount.unmount();
}

#[test]
fn partitions_in_an_array_are_shown_and_what_is_locked_in_them_is_opened() {
    if !has_tools() {
        return;
    }
    let desk = Desk::new();
    let (content, plain) = (noise(2 * MIB, 32), noise(MIB, 33));
    let volume = locked(&desk, &content);
    let whole = disk(&[(LINUX, &volume), (LINUX, &plain)]);
    let members = raid5("home", &whole);
    for (name, present) in [("whole", &members[..]), ("less", &members[1..])] {
        let partitions: Vec<_> = present.iter().map(|member| (RAID, member.as_slice())).collect();
        let path = desk.file(&format!("{name}.raw"), &disk(&partitions));
        let mount = Mounted::new(&path, &desk.dir(&format!("mnt-{name}")), &["--unlock", &keys(&desk)]);
        assert!(holds(&mount, &format!("{name}.md_home.raw"), &whole));
        assert!(holds(&mount, &format!("{name}.md_home.p1.raw"), &volume));
        assert!(holds(&mount, &format!("{name}.md_home.p1.unlocked.raw"), &content));
        assert!(holds(&mount, &format!("{name}.md_home.p2.raw"), &plain));
        assert_eq!(names(&mount).len(), 1 + present.len() + 4);
        let words = mount.service().stderr();
        assert!(words.contains("partition 1 of md_home, LUKS, encrypted"), "{words}");
        mount.unmount();
    }
}

/// A disk with three members of a RAID 5, on which LUKS lies, with a volume group in it; and the content of its volume.
fn deep(desk: &Desk) -> Option<(Vec<Vec<u8>>, Vec<u8>)> {
    let content = ext4(desk, 16)?;
    let group = Group::new(desk, 1)?;
    group.add("root", &["-l", "16", "vg-case"]);
    group.plant("root", &content);
    let [physical] = &group.finish()[..] else { return None };
    Some((raid5("deep", &locked(desk, physical)), content))
}

#[test]
fn a_logical_volume_in_a_locked_volume_on_an_array_is_shown() {
    if !has_tools() {
        return;
    }
    let desk = Desk::new();
    let Some((members, content)) = deep(&desk) else { return };
    let keys = keys(&desk);
    let partitions: Vec<_> = members.iter().map(|member| (RAID, member.as_slice())).collect();
    let path = desk.file("disk.raw", &disk(&partitions));
    let mount = Mounted::new(&path, &desk.dir("mnt"), &["--unlock", &keys]);
    assert!(fs::read(mount.dir.join("disk.vg--case-root.raw")).unwrap() == content);
    let expected = [
        "disk.md_deep.raw",
        "disk.md_deep.unlocked.raw",
        "disk.p1.raw",
        "disk.p2.raw",
        "disk.p3.raw",
        "disk.raw",
        "disk.vg--case-root.raw",
    ];
    assert_eq!(names(&mount), expected);
    mount.unmount();

    // Behind a link, where nothing is cached decrypted.
    let far = Service::start(&["export", &path, "--unix", &desk.arg("socket")]);
    let more = ["--unlock", &keys, "--cache", "memory"];
    let mount = Mounted::new(text(&far.ready, "uri"), &desk.dir("mnt2"), &more);
    assert!(fs::read(mount.dir.join("disk.vg--case-root.raw")).unwrap() == content);
    mount.unmount();
    far.stop(Signal::INT);

    // With a wrong key, the array alone.
    let wrong = desk.file("wrong.txt", b"wrong\n");
    let mount = Mounted::new(&path, &desk.dir("mnt3"), &["--unlock", &wrong]);
    assert_eq!(names(&mount).len(), 5);
    let words = mount.service().stderr();
    assert!(words.contains("md_deep, LUKS, encrypted") && words.contains("stays locked"), "{words}");
    mount.unmount();
}

#[test]
fn volumes_over_several_sources_are_put_together() {
    if !has_tools() {
        return;
    }
    let desk = Desk::new();
    let Some((members, content)) = deep(&desk) else { return };
    let keys = keys(&desk);
    // One disk is a member as a whole; the others have it in a partition.
    let first = desk.file("one.raw", &members[0]);
    let second = desk.file("two.raw", &disk(&[(LINUX, &noise(MIB, 3)), (RAID, &members[1])]));
    let third = desk.file("three.raw", &disk(&[(RAID, &members[2])]));
    let mount = Mounted::new(&first, &desk.dir("mnt"), &["--unlock", &keys, "--with", &second, "--with", &third]);
    assert!(fs::read(mount.dir.join("one.vg--case-root.raw")).unwrap() == content);
    assert!(mount.read() == members[0]);
    let words = mount.service().stderr();
    assert!(!words.contains("degraded"), "{words}");
    mount.unmount();
    // The third one is missing.
    let mount = Mounted::new(&second, &desk.dir("mnt2"), &["--unlock", &keys, "--with", &first]);
    assert!(fs::read(mount.dir.join("two.vg--case-root.raw")).unwrap() == content);
    let words = mount.service().stderr();
    assert!(words.contains("degraded: member 2 is not here"), "{words}");
    mount.unmount();
    let mount = Mounted::new(&third, &desk.dir("mnt3"), &["--unlock", &keys]);
    assert!(!mount.dir.join("three.md_deep.raw").exists());
    mount.unmount();
    cheetah(&["mount", &first, &desk.dir("mnt4"), "--with", &desk.arg("none.raw")]).says(1, &["none.raw"]);
}

#[test]
fn the_member_of_a_disk_behind_a_link_is_taken_if_other_disks_are_named_whatever_its_table_says() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let content = noise(MIB, 35);
    let members = raid5("home", &content);
    let first = desk.file("one.raw", &disk(&[(LINUX, &members[0])]));
    let (second, third) = (desk.file("two.raw", &members[1]), desk.file("three.raw", &members[2]));
    let far = Service::start(&["export", &first, "--unix", &desk.arg("socket")]);
    for cache in ["none", "memory"] {
        let more = ["--cache", cache, "--with", &second, "--with", &third];
        let mount = Mounted::new(text(&far.ready, "uri"), &desk.dir(&format!("mnt-{cache}")), &more);
        assert!(holds(&mount, "one.md_home.raw", &content));
        let words = mount.service().stderr();
        assert!(!words.contains("degraded"), "{words}");
        mount.unmount();
    }
    far.stop(Signal::INT);
}

#[test]
fn a_group_that_lies_half_in_a_locked_volume_waits_for_it() {
    if !has_tools() {
        return;
    }
    let desk = Desk::new();
    let Some(content) = ext4(&desk, 21) else { return };
    let Some(group) = Group::new(&desk, 2) else { return };
    let disks = group.disks();
    group.add("home", &["-l", "18", "vg-case", &disks[0]]);
    group.run("lvextend", &["-l", "+3", "vg-case/home", &disks[1]]);
    group.plant("home", &content);
    let physical = group.finish();
    let volume = locked(&desk, &physical[1]);
    let path = desk.file("disk.raw", &disk(&[(LVM, &physical[0]), (LINUX, &volume)]));
    let mount = Mounted::new(&path, &desk.dir("mnt"), &["--unlock", &keys(&desk)]);
    assert!(fs::read(mount.dir.join("disk.vg--case-home.raw")).unwrap() == content);
    let words = mount.service().stderr();
    assert!(!words.contains("is not complete"), "{words}");
    mount.unmount();
}

/// The reports in an output, in order.
fn reports(output: &str) -> Vec<Value> {
    let values = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values.filter(|value| value["event"] == "done").map(|value| value["report"].clone()).collect()
}

#[test]
fn a_volume_that_is_named_is_acquired_and_loaded_in_place_of_its_disk() {
    if !has_tools() {
        return;
    }
    let desk = Desk::new();
    let Some((members, content)) = deep(&desk) else { return };
    let keys = keys(&desk);
    let partitions: Vec<_> = members.iter().map(|member| (RAID, member.as_slice())).collect();
    let path = desk.file("disk.raw", &disk(&partitions));

    let plain = desk.arg("root.raw");
    let args = ["acquire", &path, "--unlock", &keys, "--volume", "vg--case-root", "--decrypted", &plain];
    let ran = cheetah(&args).ok();
    assert!(fs::read(&plain).unwrap() == content);
    let [report] = &reports(&ran.out())[..] else { panic!("{}", ran.out()) };
    let volume = &report["volume"];
    assert_eq!(text(volume, "name"), "vg--case-root");
    assert_eq!(text(volume, "description"), "logical volume vg-case/root");
    assert_eq!(text(&volume["opened"][0], "inside"), "md_deep");
    assert!(text(&report["source"], "location").ends_with("disk.raw, vg--case-root"));
    let printed = fs::read_to_string(desk.at("root.raw.report.txt")).unwrap();
    assert!(printed.contains("vg--case-root: logical volume vg-case/root"), "{printed}");
    assert!(fs::read_to_string(desk.at("root.raw.custody")).unwrap().contains("\"event\":\"volume\""));
    cheetah(&["verify", &plain]).ok();

    // An array, without a key.
    let array = desk.arg("array.raw");
    cheetah(&["acquire", &path, "--volume", "md_deep", "--decrypted", &array]).ok();
    assert_eq!(fs::read(&array).unwrap()[..6], *b"LUKS\xba\xbe");
    cheetah(&["acquire", &path, "--volume", "vg-none", "--decrypted", &desk.arg("x.raw")])
        .says(2, &["no volume is called vg-none", "it has md_deep"]);
    cheetah(&["acquire", &path, &desk.arg("x.raw"), "--volume", "md_deep"]).says(2, &["--decrypted FILE"]);

    let node = Node::start("64MiB");
    let (drive, nodes) = (desk.arg("root.drive"), list(&[&node]));
    let create = |more: &[&str]| cheetah(&[&["create", &drive, "--nodes", &nodes, "--from", &path], more].concat());
    create(&["--volume", "md_deep", "--lazy"]).says(2, &["--lazy"]);
    create(&["--volume", "vg--case-root", "--unlock", &keys]).ok();
    let saved = desk.arg("saved.raw");
    cheetah(&["save", &drive, &saved]).ok();
    assert!(fs::read(&saved).unwrap() == content);
    cheetah(&["destroy", &drive]).ok();
}

/// What the sectors of a volume repeat.
fn repeated(name: &str, sectors: usize) -> Vec<u8> {
    let sector = |number| format!("{name} {number:06}\n").into_bytes().into_iter().cycle().take(512);
    (0..sectors).flat_map(sector).collect()
}

/// A disk that mdadm, cryptsetup, LVM2 and the kernel made (`workshop/boot/tests/stacked_volumes.py`).
#[test]
fn the_volumes_of_a_disk_that_linux_made_are_shown_also_without_a_member() {
    if !need::fuse() || !need::programs(&["xz"]) {
        return;
    }
    let desk = Desk::new();
    let packed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/disks/deep.raw.xz");
    let whole = std::process::Command::new("xz").arg("-dc").arg(packed).output().unwrap().stdout;
    // Behind the table, partitions of 512 KiB.
    let (start, len) = (64 << 10, 512 << 10);
    for missing in [None, Some(0), Some(1), Some(2)] {
        let (name, mut bytes) = (format!("less{}", missing.unwrap_or(9)), whole.clone());
        if let Some(number) = missing {
            bytes[start + number * len..][..len].fill(0);
        }
        let path = desk.file(&format!("{name}.raw"), &bytes);
        let mount = Mounted::new(&path, &desk.dir(&name), &["--unlock", &keys(&desk)]);
        for (volume, kib) in [("root", 256), ("home", 128)] {
            let shown = fs::read(mount.dir.join(format!("{name}.vg--deep-{volume}.raw"))).unwrap();
            assert!(shown == repeated(volume, 2 * kib), "{volume} {missing:?}");
        }
        assert!(mount.dir.join(format!("{name}.md_deep.p1.unlocked.raw")).exists());
        mount.unmount();
    }
}
