//! Mounting drives and images.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::process::Signal;

use crate::support::bytes::partitioned;
use crate::support::run::{cheetah_plain, tool_in};
use crate::support::service::is_mounted;
use crate::support::{Desk, MIB, Mounted, Node, Peer, Service, cheetah, need, noise, text, three, tool};

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_drive_shows_its_image_and_its_partitions() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let nodes = three("16MiB");
    let content = partitioned(8 * MIB);
    let image = desk.file("disk.raw", &content);
    let drive = desk.drive("case42", &nodes.each_ref(), &image, &[]);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &[]);

    assert_eq!(names(&mount.dir), ["case42.p1.raw", "case42.p2.raw", "case42.raw"]);
    assert_eq!(mount.file, mount.dir.join("case42.raw"));
    assert!(mount.read() == content);
    for (partition, start) in [(1, MIB), (2, 9 * MIB)] {
        let bytes = fs::read(mount.dir.join(format!("case42.p{partition}.raw"))).unwrap();
        let start = usize::try_from(start).unwrap();
        assert!(bytes == content[start..start + bytes.len()] && bytes.len() as u64 == 8 * MIB, "partition {partition}");
    }
    let sum = |path: &Path| tool("md5sum", &[path.to_str().unwrap()]).ok().out()[..32].to_owned();
    assert_eq!(sum(&mount.file), sum(Path::new(&image)));

    let denied = File::options().write(true).open(&mount.file);
    assert!(denied.is_err(), "read-only by default");
    mount.unmount();
    cheetah(&["verify", &drive]).ok();
}

#[test]
fn an_image_is_mounted_without_a_node() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let (image, content) = desk.image("disk.raw", 3 * MIB + 512);
    let mount = Mounted::new(&image, &desk.dir("mnt"), &[]);
    assert_eq!(names(&mount.dir), ["disk.raw"]);
    assert!(mount.read() == content);
    mount.unmount();
}

#[test]
fn written_bytes_are_read_after_mounting_again() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let nodes = three("16MiB");
    let (image, mut content) = desk.image("disk.raw", 12 * MIB);
    let drive = desk.drive("w", &nodes.each_ref(), &image, &["--unit", "4KiB"]);
    let dir = desk.dir("mnt");
    let mount = Mounted::new(&drive, &dir, &["--writable"]);
    let file = File::options().read(true).write(true).open(&mount.file).unwrap();
    for (offset, len) in [(1000, 5000), (4 * MIB - 3, 6), (11 * MIB, MIB)] {
        let bytes = vec![0xa5; usize::try_from(len).unwrap()];
        file.write_all_at(&bytes, offset).unwrap();
        let start = usize::try_from(offset).unwrap();
        content[start..start + bytes.len()].copy_from_slice(&bytes);
    }
    file.sync_all().unwrap();
    drop(file);
    assert!(mount.read() == content);
    mount.unmount();
    let mount = Mounted::new(&drive, &dir, &[]);
    assert!(mount.read() == content);
    mount.unmount();
    // verify reports the change; save warns that it compares nothing.
    let ran = cheetah(&["verify", &drive]).says(3, &["opened for writing since"]);
    assert!(ran.out().contains("\"modified\""), "{}", ran.out());
    let saved = cheetah(&["save", &drive, &desk.arg("copy.raw")]).ok();
    assert!(saved.stderr.contains("not compared"), "{}", saved.stderr);
    assert!(saved.out().contains("\"compared\":false"), "{}", saved.out());
    assert!(fs::read(desk.at("copy.raw")).unwrap() == content);
}

#[test]
fn an_overlay_takes_writes_and_leaves_the_drive_alone() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let nodes = three("16MiB");
    let (image, content) = desk.image("disk.raw", 6 * MIB);
    let drive = desk.drive("o", &nodes.each_ref(), &image, &[]);
    let changes = desk.arg("changes");
    for (dir, place) in [("a", "memory"), ("b", "memory:8MiB"), ("c", changes.as_str())] {
        let mount = Mounted::new(&drive, &desk.dir(dir), &["--overlay", place]);
        let file = File::options().read(true).write(true).open(&mount.file).unwrap();
        file.write_all_at(b"not evidence", 2 * MIB + 7).unwrap();
        file.sync_all().unwrap();
        let mut changed = content.clone();
        changed[2 * MIB as usize + 7..][..12].copy_from_slice(b"not evidence");
        assert!(mount.read() == changed, "{place}");
        drop(file);
        mount.unmount();
        let verified = cheetah(&["verify", &drive]).ok().json();
        assert_eq!(text(&verified, "compared"), "digests", "{place}");
    }
    assert!(fs::read(&image).unwrap() == content);
}

#[test]
fn a_mount_unmounted_from_outside_exits_with_0() {
    if !need::fuse() || !need::programs(&["fusermount3"]) {
        return;
    }
    let desk = Desk::new();
    let (image, _) = desk.image("disk.raw", MIB);
    let dir = desk.dir("mnt");
    let mut service = Service::start(&["mount", &image, &dir]);
    tool("fusermount3", &["-u", &dir]).ok();
    assert_eq!(service.wait().0, Some(0));
}

#[test]
fn a_mount_in_the_background_stays_until_it_is_unmounted() {
    if !need::fuse() || !need::programs(&["fusermount3"]) {
        return;
    }
    let desk = Desk::new();
    let (image, content) = desk.image("disk.raw", MIB);
    let dir = desk.dir("mnt");
    let ready = cheetah(&["mount", &image, &dir, "--background"]).ok().json();
    assert!(fs::read(text(&ready, "file")).unwrap() == content);
    tool("fusermount3", &["-u", &dir]).ok();
    assert!(!is_mounted(Path::new(&dir)));
}

#[test]
fn unmount_returns_when_writes_are_stored_and_the_lease_is_free() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let node = Node::start("8MiB");
    let (image, _) = desk.image("disk.raw", MIB);
    let drive = desk.drive("u", &[&node], &image, &[]);
    let dir = desk.dir("mount point");
    for round in 0..3u8 {
        let ready = cheetah(&["mount", &drive, &dir, "--writable", "--background"]).ok().json();
        let file = File::options().write(true).open(text(&ready, "file")).unwrap();
        cheetah(&["unmount", &dir]).says(1, &["in use", "--lazy"]);
        file.write_all_at(&[round; 4096], 0).unwrap();
        drop(file);
        cheetah(&["unmount", &dir]).ok();
        assert!(!is_mounted(Path::new(&dir)));
    }
    cheetah(&["unmount", &dir]).says(1, &["nothing is mounted"]);
    let copy = desk.arg("copy.raw");
    cheetah(&["save", &drive, &copy]).ok();
    assert!(fs::read(&copy).unwrap()[..4096] == [2; 4096]);
}

#[test]
fn a_mount_whose_process_was_killed_can_be_unmounted() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let (image, content) = desk.image("disk.raw", MIB);
    let dir = desk.dir("mnt");
    Service::start(&["mount", &image, &dir]).kill();
    cheetah(&["mount", &image, &dir]).says(1, &["process is gone", "cheetah unmount"]);
    cheetah(&["unmount", &dir]).ok();
    let mount = Mounted::new(&image, &dir, &[]);
    assert!(mount.read() == content);
    mount.unmount();
}

#[test]
fn mounting_over_a_mount_names_the_mounted_image() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let (image, _) = desk.image("disk.raw", MIB);
    let mount = Mounted::new(&image, &desk.dir("mnt"), &[]);
    cheetah(&["mount", &image, &desk.arg("mnt")]).says(1, &["disk mounted already", "cheetah unmount"]);
    mount.unmount();
}

#[test]
fn an_error_of_a_mount_in_the_background_is_shown_once() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let (missing, dir) = (desk.arg("missing.raw"), desk.dir("mnt"));
    let ran = cheetah(&["mount", &missing, &dir, "--background"]).says(1, &["missing.raw"]);
    assert!(ran.json()["error"].as_str().unwrap().contains("missing.raw"));
    let ran = cheetah_plain(&["mount", &missing, &dir, "--background"]).says(1, &["missing.raw"]);
    assert_eq!(ran.out(), "");
}

#[test]
fn sleuthkit_reads_a_mounted_drive_as_it_reads_the_image() {
    if !need::fuse() || !need::programs(&["mmls", "fls", "mkfs.ext4"]) {
        return;
    }
    let desk = Desk::new();
    let nodes = three("32MiB");
    let mut content = partitioned(16 * MIB);
    content[MIB as usize..].fill(0);
    let image = desk.file("disk.raw", &content);
    fs::create_dir_all(desk.at("tree/below")).unwrap();
    for index in 0..50 {
        desk.file(&format!("tree/below/file{index}"), &content[..index * 100]);
    }
    tool_in(desk.path(), "mkfs.ext4", &["-q", "-F", "-d", "tree", "-E", "offset=1048576", "disk.raw", "16m"]).ok();
    let drive = desk.drive("tsk", &nodes.each_ref(), &image, &[]);
    let mount = Mounted::new(&drive, &desk.dir("mnt"), &[]);
    let file = mount.file.to_str().unwrap();
    assert_eq!(tool("mmls", &[file]).ok().out(), tool("mmls", &[&image]).ok().out());
    let listing = tool("fls", &["-r", "-o", "2048", file]).ok().out();
    assert_eq!(listing, tool("fls", &["-r", "-o", "2048", &image]).ok().out());
    assert!(listing.contains("file49"));
    mount.unmount();
}

#[test]
fn a_terminated_mount_unmounts() {
    if !need::fuse() {
        return;
    }
    let desk = Desk::new();
    let node = Node::start("8MiB");
    let (image, _) = desk.image("disk.raw", MIB);
    let drive = desk.drive("t", &[&node], &image, &[]);
    let dir = desk.dir("mnt");
    let (code, _) = Service::start(&["mount", &drive, &dir]).stop(Signal::TERM);
    assert_eq!(code, Some(0));
    assert!(!is_mounted(Path::new(&dir)));
}

/// Replaces a foreign server by one that serves `image`, at the same socket.
fn replace(desk: &Desk, server: Peer, image: &str) -> Peer {
    drop(server);
    // A killed server leaves its socket behind.
    let _ = fs::remove_file(desk.at("nbdkit.sock"));
    Peer::nbdkit_unix(desk, &["file", image])
}

#[test]
fn a_mount_of_a_foreign_server_outlives_its_restart() {
    if !need::fuse() || !need::programs(&["nbdkit"]) {
        return;
    }
    let desk = Desk::new();
    let (image, content) = desk.image("disk.raw", 32 * MIB);
    let server = Peer::nbdkit_unix(&desk, &["file", &image]);
    let mount = Mounted::new(&server.uri, &desk.dir("mnt"), &[]);
    let file = File::open(&mount.file).unwrap();
    let mut bytes = vec![0; MIB as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let _server = replace(&desk, server, &image);
    file.read_exact_at(&mut bytes, 30 * MIB).unwrap();
    assert!(bytes[..] == content[30 * MIB as usize..][..MIB as usize]);
    mount.unmount();
}

#[test]
fn a_mount_of_a_foreign_server_never_shows_bytes_of_another_disk_of_the_same_size() {
    if !need::fuse() || !need::programs(&["nbdkit"]) {
        return;
    }
    let desk = Desk::new();
    let (image, content) = desk.image("disk.raw", 32 * MIB);
    let other = desk.file("other.raw", &noise(32 * MIB, 99));
    let server = Peer::nbdkit_unix(&desk, &["file", &image]);
    let mount = Mounted::new(&server.uri, &desk.dir("mnt"), &[]);
    let file = File::open(&mount.file).unwrap();
    let mut bytes = vec![0; MIB as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let server = replace(&desk, server, &other);
    let read_all = |bytes: &mut [u8]| {
        let mut failed = 0;
        for at in (0..32 * MIB).step_by(bytes.len()) {
            match file.read_exact_at(bytes, at) {
                // Earlier read-ahead is of the right disk.
                Ok(()) => assert!(bytes[..] == content[at as usize..][..bytes.len()], "at {at}"),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
                    failed += 1;
                }
            }
        }
        failed
    };
    assert!(read_all(&mut bytes) > 0);
    // The first disk may have changed meanwhile.
    let _server = replace(&desk, server, &image);
    assert!(read_all(&mut bytes) > 0);
    assert!(mount.service().stderr().contains("another source answers in its place"), "{}", mount.service().stderr());
    mount.unmount();
}
