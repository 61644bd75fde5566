//! Shadow copies of NTFS volumes: listed always, and shown if they are asked for.

use std::fs;
use std::os::unix::fs::FileExt as _;

use cheetah_testing::raid::disk;
use cheetah_testing::vss::{BLOCK_BYTES, Made, MadeCopy, Volume};
use rustix::process::Signal;

use crate::support::node::list;
use crate::support::{Desk, MIB, Mounted, Node, Service, cheetah, need, text, tool, until};
use crate::unlock::luks;

/// The type of a partition with NTFS.
const NTFS: u8 = 7;
/// What is said of the first shadow copy.
const FIRST: &str = "shadow copy of 2022-06-17T03:33:20Z (a1a1a101-a1a1-a1a1-a1a1-a1a1a1a1a1a1)";

/// A volume with two shadow copies.
fn made() -> Made {
    let mut volume = Volume::new(24, 4);
    volume.copy();
    (1..9).for_each(|block| volume.write(block));
    volume.shift(9, 20);
    volume.copy();
    volume.write_to_copy(3, 0xf0);
    (4..12).for_each(|block| volume.write(block));
    volume.finish()
}

/// A disk with that volume, and a small one behind it.
fn partitioned(made: &Made) -> Vec<u8> {
    disk(&[(NTFS, &made.bytes), (NTFS, &[1; 512])])
}

/// Whether bytes are those of a shadow copy, where these are certain.
fn is(bytes: &[u8], copy: &MadeCopy) -> bool {
    copy.blocks.iter().all(|(at, content)| bytes[*at..*at + BLOCK_BYTES] == content[..])
}

fn names(mount: &Mounted) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(&mount.dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn shadow_copies_are_listed_and_shown_if_they_are_asked_for() {
    if !need::fuse() {
        return;
    }
    let (desk, made) = (Desk::new(), made());
    let path = desk.file("pc.raw", &partitioned(&made));
    let mount = Mounted::new(&path, &desk.dir("mnt"), &[]);
    assert_eq!(names(&mount), ["pc.p1.raw", "pc.p2.raw", "pc.raw"]);
    let words = mount.service().stderr();
    assert!(words.contains(&format!("pc: p1.vss1: {FIRST}")) && words.contains("--shadow-copy p1.vss2"), "{words}");
    mount.unmount();
    let mount = Mounted::new(&path, &desk.dir("mnt1"), &["--shadow-copy", "p1.vss1"]);
    assert_eq!(names(&mount), ["pc.p1.raw", "pc.p1.vss1.raw", "pc.p2.raw", "pc.raw"]);
    assert!(is(&fs::read(mount.dir.join("pc.p1.vss1.raw")).unwrap(), &made.copies[0]));
    assert!(mount.read() == fs::read(&path).unwrap());
    let words = mount.service().stderr();
    assert!(words.contains(&format!("pc: {FIRST}, of p1")) && !words.contains("--shadow-copy p1.vss1"), "{words}");
    mount.unmount();
    let mount = Mounted::new(&path, &desk.dir("mnt2"), &["--shadow-copy", "all"]);
    for (number, copy) in (1..).zip(&made.copies) {
        assert!(is(&fs::read(mount.dir.join(format!("pc.p1.vss{number}.raw"))).unwrap(), copy), "{number}");
    }
    mount.unmount();
    cheetah(&["mount", &path, &desk.dir("mnt3"), "--shadow-copy", "p1.vss3"])
        .says(2, &["no shadow copy is called p1.vss3", "it has p1.vss1 and p1.vss2"]);
    let alone = desk.file("alone.raw", &made.bytes);
    let mount = Mounted::new(&alone, &desk.dir("mnt4"), &["--shadow-copy", "vss2"]);
    assert!(is(&fs::read(mount.dir.join("alone.vss2.raw")).unwrap(), &made.copies[1]));
    mount.unmount();
}

#[test]
fn a_damaged_store_is_named_with_its_place_and_the_rest_is_shown() {
    if !need::fuse() {
        return;
    }
    let (desk, mut made) = (Desk::new(), made());
    let list = made.stores[0].list;
    made.bytes[list] ^= 1;
    let path = desk.file("pc.raw", &partitioned(&made));
    let said = format!("the block list at byte {list} of the volume");
    cheetah(&["mount", &path, &desk.dir("mnt"), "--shadow-copy", "p1.vss1"])
        .says(3, &["p1.vss1 cannot be read", &said]);
    let mount = Mounted::new(&path, &desk.dir("mnt2"), &["--shadow-copy", "all"]);
    assert_eq!(names(&mount), ["pc.p1.raw", "pc.p1.vss2.raw", "pc.p2.raw", "pc.raw"]);
    assert!(is(&fs::read(mount.dir.join("pc.p1.vss2.raw")).unwrap(), &made.copies[1]));
    let words = mount.service().stderr();
    assert!(words.contains("the shadow copy p1.vss1 is not opened") && words.contains(&said), "{words}");
    mount.unmount();
}

#[test]
fn a_shadow_copy_is_exported_behind_a_link_and_acquired_in_place_of_its_disk() {
    let (desk, made) = (Desk::new(), made());
    let path = desk.file("pc.raw", &partitioned(&made));
    let copy = desk.arg("copy.raw");
    cheetah(&["acquire", &path, "--volume", "p1.vss2", "--decrypted", &copy]).ok();
    assert!(is(&fs::read(&copy).unwrap(), &made.copies[1]));
    let printed = fs::read_to_string(desk.at("copy.raw.report.txt")).unwrap();
    assert!(printed.contains("p1.vss2: shadow copy of 2022-06-17T04:33:20Z"), "{printed}");
    assert!(printed.contains(" bytes of it were not in use, were not kept, and read as zeros"), "{printed}");
    cheetah(&["verify", &copy]).ok();
    cheetah(&["acquire", &path, "--volume", "p1.vss9", "--decrypted", &desk.arg("x.raw")])
        .says(2, &["no volume is called p1.vss9", "it has p1.vss1 and p1.vss2"]);
    if !need::programs(&["nbdcopy"]) {
        return;
    }
    let far = Service::start(&["export", &path, "--unix", &desk.arg("far.sock")]);
    let near =
        Service::start(&["export", text(&far.ready, "uri"), "--unix", &desk.arg("near.sock"), "--shadow-copy", "all"]);
    let uri = text(&near.ready, "uri").replace("/pc?", "/pc.p1.vss1?");
    tool("nbdcopy", &[&uri, &desk.arg("near.raw")]).ok();
    assert!(is(&fs::read(desk.at("near.raw")).unwrap(), &made.copies[0]));
    near.stop(Signal::INT);
    // Without that, the list follows.
    let near = Service::start(&["export", text(&far.ready, "uri"), "--unix", &desk.arg("later.sock")]);
    until("the shadow copies are listed", || near.stderr().contains("p1.vss2: shadow copy of"));
    near.stop(Signal::INT);
    far.stop(Signal::INT);
}

#[test]
fn shadow_copies_on_a_drive_and_in_a_locked_volume_are_read() {
    if !need::fuse() || !need::programs(&["cryptsetup", "qemu-img"]) {
        return;
    }
    let (desk, made) = (Desk::new(), made());
    let node = Node::start("64MiB");
    let (drive, path) = (desk.arg("pc.drive"), desk.file("pc.raw", &partitioned(&made)));
    cheetah(&["create", &drive, "--nodes", &list(&[&node]), "--from", &path]).ok();
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &["--shadow-copy", "p1.vss1"]);
    assert!(is(&fs::read(mount.dir.join("pc.p1.vss1.raw")).unwrap(), &made.copies[0]));
    mount.unmount();
    cheetah(&["destroy", &drive]).ok();

    let mut content = made.bytes.clone();
    content.resize(content.len().next_multiple_of(MIB as usize), 0);
    let locked = luks(&desk, &content, "password");
    let keys = desk.file("keys.txt", b"password\n");
    let path = desk.file("locked.raw", &disk(&[(NTFS, &fs::read(locked).unwrap())]));
    let more = ["--unlock", &keys, "--shadow-copy", "p1.unlocked.vss2"];
    let mount = Mounted::new(&path, &desk.dir("mnt2"), &more);
    let shown = fs::File::open(mount.dir.join("locked.p1.unlocked.vss2.raw")).unwrap();
    let mut bytes = vec![0; made.bytes.len()];
    shown.read_exact_at(&mut bytes, 0).unwrap();
    assert!(is(&bytes, &made.copies[1]));
    drop(shown);
    mount.unmount();
}
