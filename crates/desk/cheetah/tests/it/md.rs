//! Arrays of Linux's software RAID, mounted and exported.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::support::node::list;
use crate::support::{Desk, Mounted, Node, Service, cheetah, need, text, tool};

/// The sizes of the partitions of the disk, and where the first begins.
const PARTITION: usize = 512 << 10;
const START: usize = 64 << 10;

/// A disk that mdadm made, with a member of a RAID 5 in each of its three partitions.
fn disk() -> Option<Vec<u8>> {
    if !need::programs(&["xz"]) {
        return None;
    }
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../evidence/volume/tests/arrays/five-ls.raw.xz");
    let unpacked = std::process::Command::new("xz").arg("-dc").arg(packed).output().unwrap();
    assert_eq!(unpacked.stdout.len(), START + 3 * PARTITION);
    Some(unpacked.stdout)
}

/// What the sectors of its array repeat.
fn content(bytes: usize) -> Vec<u8> {
    let sector = |number| format!("five-ls {number:06}\n").into_bytes().into_iter().cycle().take(512);
    (0..bytes / 512).flat_map(sector).collect()
}

/// The disk without some members.
fn without(mut disk: Vec<u8>, missing: &[usize]) -> Vec<u8> {
    missing.iter().for_each(|number| disk[START + number * PARTITION..][..PARTITION].fill(0));
    disk
}

#[test]
fn an_array_over_partitions_is_mounted_and_exported_also_without_a_member() {
    if !need::fuse() || !need::programs(&["nbdcopy"]) {
        return;
    }
    let Some(whole) = disk() else { return };
    let desk = Desk::new();
    for (name, missing, said) in
        [("whole", &[][..], "RAID 5 array lab:five-ls ("), ("less", &[1][..], "degraded: member 1 is not here (")]
    {
        let disk = desk.file(&format!("{name}.raw"), &without(whole.clone(), missing));
        let mount = Mounted::new(&disk, &desk.dir(&format!("mnt-{name}")), &[]);
        let shown = fs::read(mount.dir.join(format!("{name}.md_five_ls.raw"))).unwrap();
        assert!(!shown.is_empty() && shown == content(shown.len()));
        assert!(mount.read() == fs::read(&disk).unwrap());
        let words = mount.service().stderr();
        assert!(words.contains(said), "{words}");
        assert!(!words.contains("no files are read"), "{words}");
        mount.unmount();

        let service = Service::start(&["export", &disk, "--unix", &desk.arg("socket")]);
        let uri = text(&service.ready, "uri").replace(&format!("/{name}?"), &format!("/{name}.md_five_ls?"));
        let copy = desk.at("copy");
        tool("nbdcopy", &[&uri, copy.to_str().unwrap()]).ok();
        assert!(fs::read(&copy).unwrap() == shown);
        service.stop(Signal::INT);
    }
}

#[test]
fn an_array_with_too_few_members_is_named_and_not_shown() {
    if !need::fuse() {
        return;
    }
    let Some(whole) = disk() else { return };
    let desk = Desk::new();
    let disk = desk.file("disk.raw", &without(whole, &[0, 2]));
    let mount = Mounted::new(&disk, &desk.dir("mnt"), &[]);
    assert!(!mount.dir.join("disk.md_five_ls.raw").exists());
    let words = mount.service().stderr();
    assert!(words.contains("the array lab:five-ls ("), "{words}");
    assert!(words.contains("RAID 5 of 3 members, and members 0 and 2 are not here"), "{words}");
    mount.unmount();
}

#[test]
fn a_drive_and_a_source_behind_a_link_show_arrays() {
    if !need::fuse() {
        return;
    }
    let Some(whole) = disk() else { return };
    let desk = Desk::new();
    let disk = desk.file("disk.raw", &whole);
    let node = Node::start("128MiB");
    let drive = desk.arg("case.drive");
    cheetah(&["create", &drive, "--nodes", &list(&[&node]), "--from", &disk]).ok();
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &[]);
    let shown = fs::read(mount.dir.join("case.md_five_ls.raw")).unwrap();
    assert!(!shown.is_empty() && shown == content(shown.len()));
    mount.unmount();
    let far = Service::start(&["export", &drive, "--unix", &desk.arg("socket")]);
    let mount = Mounted::new(text(&far.ready, "uri"), &desk.dir("mnt2"), &["--cache", "memory"]);
    assert!(fs::read(mount.dir.join("case.md_five_ls.raw")).unwrap() == shown);
    let words = mount.service().stderr();
    assert!(!words.contains("no files are read"), "{words}");
    mount.unmount();
    far.stop(Signal::INT);
    cheetah(&["destroy", &drive]).ok();
}
