//! Every kind of evidence, as `mount`, `export`, `create --from` and `load` take it.

use std::fs;

use rustix::process::Signal;

use crate::support::service::PATIENCE;
use crate::support::{Desk, MIB, Mounted, Node, Service, cheetah, need, noise, text, three, tool};

/// Serves `source`, copies all of it with nbdcopy, and returns the copy.
pub fn exported(desk: &Desk, source: &str) -> Vec<u8> {
    let served = Service::start(&["export", source, "--unix", &desk.arg("sock")]);
    let copy = desk.arg("copy.raw");
    tool("nbdcopy", &[text(&served.ready, "uri"), &copy]).ok();
    served.stop(Signal::INT);
    let bytes = fs::read(&copy).unwrap();
    fs::remove_file(copy).unwrap();
    bytes
}

/// The same through a mount.
fn mounted(desk: &Desk, source: &str) -> Vec<u8> {
    let mount = Mounted::new(source, &desk.dir("mnt"), &[]);
    let bytes = mount.read();
    mount.unmount();
    fs::remove_dir(desk.at("mnt")).unwrap();
    bytes
}

fn digest(program: &str, desk: &Desk, bytes: &[u8]) -> String {
    tool(program, &[&desk.file("digested", bytes)]).ok().out().split(' ').next().unwrap().to_owned()
}

#[test]
fn an_e01_image_reads_as_its_disk() {
    let desk = Desk::new();
    for (name, len, md5) in [
        ("nps-2010-emails.E01", 10_485_760, "2f5ec5894f7fe3cea93bd29e7cf1eb50"),
        ("ntfs_sample.E01", 7_340_032, "e4e9578a9c8bf6c6b375a80c630196a4"),
    ] {
        let Some(path) = need::evidence(name) else { continue };
        let path = path.to_str().unwrap();
        if need::programs(&["nbdcopy"]) {
            let bytes = exported(&desk, path);
            assert_eq!((bytes.len(), digest("md5sum", &desk, &bytes)), (len, md5.to_owned()), "{name}, exported");
        }
        if need::fuse() {
            assert_eq!(digest("md5sum", &desk, &mounted(&desk, path)), md5, "{name}, mounted");
        }
        let node = Node::start("16MiB");
        let drive = desk.drive(&format!("{len}"), &[&node], path, &[]);
        assert_eq!(text(&cheetah(&["verify", &drive]).ok().json()["hashes"], "md5"), md5, "{name}, loaded");
    }
}

#[test]
fn an_aff4_image_reads_as_its_disk() {
    let Some(path) = need::evidence("Base-Linear.aff4") else { return };
    let (path, desk) = (path.to_str().unwrap(), Desk::new());
    // As pyaff4's tests have it; the hashes in the image are of the part of it that is stored.
    const SHA1: &str = "7d3d27f667f95f7ec5b9d32121622c0f4b60b48d";
    if need::programs(&["nbdcopy"]) {
        assert_eq!(digest("sha1sum", &desk, &exported(&desk, path)), SHA1);
    }
    if need::fuse() {
        assert_eq!(digest("sha1sum", &desk, &mounted(&desk, path)), SHA1);
    }
}

#[test]
fn unreadable_ranges_of_an_aff4_image_fail_and_are_warned_of() {
    let Some(path) = need::evidence("Base-Linear-ReadError.aff4") else { return };
    if !need::programs(&["qemu-io"]) {
        return;
    }
    let desk = Desk::new();
    let served = Service::start(&["export", path.to_str().unwrap(), "--unix", &desk.arg("sock")]);
    assert!(served.stderr().contains("2 ranges (2MiB in all)"), "{}", served.stderr());
    let uri = text(&served.ready, "uri");
    let read = |range: &str| tool("qemu-io", &["-r", "-f", "raw", "-c", &format!("read {range}"), uri]).out();
    assert!(read("15728640 512").contains("Input/output error"));
    assert!(read("15728128 512").contains("read 512/512"));
}

#[test]
fn a_virtual_disk_reads_as_its_disk() {
    let Some(path) = need::evidence("windows_volume.qcow2") else { return };
    if !need::programs(&["qemu-img", "qemu-nbd", "nbdcopy"]) {
        return;
    }
    let (path, desk) = (path.to_str().unwrap(), Desk::new());
    tool("qemu-img", &["convert", "-O", "raw", path, &desk.arg("windows.raw")]).ok();
    let whole = fs::read(desk.at("windows.raw")).unwrap();
    assert!(exported(&desk, path) == whole);
    if need::fuse() {
        assert!(mounted(&desk, path) == whole);
    }
}

#[test]
fn no_qemu_process_outlives_a_virtual_disk() {
    if !need::programs(&["qemu-img", "qemu-nbd"]) {
        return;
    }
    let desk = Desk::new();
    for (name, signal) in [("stopped.qcow2", Signal::INT), ("killed.qcow2", Signal::KILL)] {
        let image = desk.arg(name);
        tool("qemu-img", &["create", "-q", "-f", "qcow2", &image, "1M"]).ok();
        let served = Service::start(&["export", &image, "--unix", &desk.arg(&format!("{name}.sock"))]);
        assert_eq!(qemus_of(&image), 1);
        if signal == Signal::KILL {
            served.kill();
        } else {
            served.stop(signal);
        }
        let started = std::time::Instant::now();
        while qemus_of(&image) > 0 {
            assert!(started.elapsed() < PATIENCE, "qemu-nbd is left behind: {name}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// How many processes of qemu-nbd read this image.
fn qemus_of(image: &str) -> usize {
    let command_line = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    let lines = fs::read_dir("/proc").unwrap().filter_map(|entry| command_line(entry.ok()?));
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    lines.filter(|line| line.starts_with("qemu-nbd") && line.contains(image)).count()
}

#[test]
fn a_split_image_reads_as_one() {
    let desk = Desk::new();
    let whole = noise(5 * MIB + 512, 3);
    for (index, part) in whole.chunks(2 * MIB as usize).enumerate() {
        desk.file(&format!("disk.{:03}", index + 1), part);
    }
    let first = desk.arg("disk.001");
    if need::programs(&["nbdcopy"]) {
        assert!(exported(&desk, &first) == whole);
    }
    if need::fuse() {
        assert!(mounted(&desk, &first) == whole);
    }
    let nodes = three("16MiB");
    let drive = desk.drive("parts", &nodes.each_ref(), &first, &[]);
    let saved = desk.arg("saved.raw");
    cheetah(&["save", &drive, &saved]).ok();
    assert!(fs::read(&saved).unwrap() == whole);
    cheetah(&["export", &desk.arg("disk.002"), "--unix", &desk.arg("sock")]).says(2, &["disk.002", "disk.001"]);
    fs::remove_file(desk.at("disk.002")).unwrap();
    cheetah(&["export", &first, "--unix", &desk.arg("sock")]).says(3, &["disk.002 missing"]);
}

#[test]
fn a_loop_device_reads_as_a_disk() {
    if !need::root_and_loop() || !need::programs(&["losetup", "nbdcopy"]) {
        return;
    }
    let desk = Desk::new();
    // The content of a disk is never taken for an image format: this one begins like a QCOW2 image.
    let mut content = noise(2 * MIB, 5);
    content[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    let image = desk.file("disk.raw", &content);
    let attached = tool("losetup", &["--find", "--show", "--read-only", &image]);
    if attached.code != Some(0) {
        return need::skip("needs a free loop device");
    }
    let device = attached.out().trim().to_owned();
    let bytes = std::panic::catch_unwind(|| exported(&desk, &device));
    tool("losetup", &["--detach", &device]).ok();
    assert!(bytes.unwrap() == content);
}

#[test]
fn a_side_file_is_refused_and_its_image_is_named() {
    let desk = Desk::new();
    let (image, _) = desk.image("case42.raw", MIB);
    let copy = desk.arg("copy.raw");
    cheetah(&["acquire", &image, &copy]).ok();
    let log = format!("{copy}.custody");
    for args in [
        ["mount", &log, &desk.dir("mnt")],
        ["export", &log, "--unix=/nonexistent"],
        ["acquire", &log, &desk.arg("x.raw")],
    ] {
        cheetah(&args).says(2, &["is the custody log of", "copy.raw, not an image", "give"]);
    }
    let digests = desk.file("case42.raw.digests", b"\0\0\0");
    cheetah(&["verify", &digests]).says(2, &["is the file of chunk digests of", "case42.raw"]);
    cheetah(&["verify", &format!("raw:{digests}")]).ok();
}

#[test]
fn unsupported_formats_are_refused_by_name() {
    let desk = Desk::new();
    let export = |source: &str| cheetah(&["export", source, "--unix", &desk.arg("sock")]);
    let file = |name: &str, start: &[u8]| desk.file(name, &[start, &[0; 2000]].concat());
    export(&file("files.L01", b"LVF\x09\x0d\x0a\xff\x00")).says(1, &["files.L01", "L01 logical evidence file"]);
    export(&file("disk.7z", b"7z\xbc\xaf\x27\x1c")).says(1, &["7z archive", "unpack"]);
    export(&file("disk.E01", b"nothing of the kind")).says(3, &["disk.E01", "damaged", "raw:"]);
    export(&file("disk.E01", b"EVF\x09\x0d\x0a\xff\x00\x01\x01\x00\x00\x00")).says(3, &["disk.E01"]);
    export(&file("disk.aff4", b"PK\x03\x04")).says(3, &["disk.aff4", "cut short"]);
    export("ftp://host/disk.raw").says(2, &["ftp", "iscsi://"]);
    export("http://host/disk.raw").says(2, &["http", "not encrypted", "https://"]);
    export("iscsi://").says(2, &["iscsi://"]);
    // Its bytes can be read as a raw image.
    if need::programs(&["nbdcopy"]) {
        let bytes = exported(&desk, &format!("raw:{}", desk.arg("files.L01")));
        assert_eq!((bytes.len(), &bytes[..3]), (2008, &b"LVF"[..]));
    }
}
